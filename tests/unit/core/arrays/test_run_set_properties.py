"""Arrays under crashes, caches that lag, refusals, deletions, edits and expiry: nothing is run twice or forgotten."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockstep.core.arrays.members import governed, split_run_name
from lockstep.core.model.conditions import is_true
from lockstep.core.model.ranges import count_ranges, parse_ranges
from support.arrays import ArrayWorld, run_set
from support.examples import examples, steps

COUNT = 8
ENDS = st.sampled_from(["Succeeded", "NoProgress", "Cancelled"])


class Arrays(RuleBasedStateMachine):
    """Two sets, the second after the first, and an operator that may die after any write."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ArrayWorld()
        self.world.apply(run_set("a", indices=f"0-{COUNT - 1}", maxRunning=3))
        self.world.apply(run_set("b", indices=f"0-{COUNT - 1}", afterCorr="a", onUnsatisfiable="Cancel"))
        self.widest = 3
        self.generation = 0

    @rule(name=st.sampled_from("ab"), writes=st.none() | st.integers(0, 5))
    def look(self, name: str, writes: int | None) -> None:
        world = self.world
        before, made = self._active(name), len(world.made)
        asked = len(world.asked)
        world.look(name, writes=writes)
        spec = world.sets[name].spec
        assert spec is not None
        if spec.max_running is not None and len(world.made) > made:
            assert self._active(name) <= max(spec.max_running, before), "more are made than may have nodes"
        tries = world.asked[asked:]
        assert len(tries) == len(set(tries)), "one that is refused is asked for twice in one look"

    @rule(name=st.sampled_from("ab"), times=st.integers(2, 4))
    def look_often(self, name: str, times: int) -> None:
        """As the operator does that is left alone: what was refused is on record then."""
        for _ in range(times):
            self.world.hear()
            self.look(name, None)

    @rule()
    def hear(self) -> None:
        self.world.hear()

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @rule(free=st.integers(0, 4))
    def admit(self, free: int) -> None:
        width = self.world.sets["a"].spec.max_running  # type: ignore[union-attr]
        before = self._holding("a")
        self.world.admit(free)
        assert width is None or self._holding("a") <= max(width, before), "the width cap is exceeded"

    @rule(width=st.none() | st.integers(0, 5))
    def change_width(self, width: int | None) -> None:
        self.world.edit("a", maxRunning=width)

    @rule()
    def edit_template(self) -> None:
        self.generation += 1
        spec = {"nodes": 1, "image": f"trainer:{self.generation}", "command": ["train"]}
        self.world.edit("a", template={"spec": spec})

    @rule(name=st.sampled_from("ab"), suspend=st.booleans())
    def suspend(self, name: str, suspend: bool) -> None:
        self.world.edit(name, suspend=suspend)

    @rule(index=st.integers(0, COUNT - 1))
    def cancel_one(self, index: int) -> None:
        self.world.edit("a", cancelIndices=str(index))

    @rule(indices=st.sets(st.integers(0, COUNT - 1)) | st.just(frozenset(range(COUNT))))
    def refuse(self, indices: set[int]) -> None:
        """An admission webhook, or none any more."""
        self.world.refuses = {f"{name}-{index}" for index in indices for name in "ab"}

    @rule(seconds=st.sampled_from([1, 5, 60, 400]))
    def wait(self, seconds: int) -> None:
        self.world.now += seconds

    @rule()
    def stop_on_failure(self) -> None:
        self.world.edit("b", stopOnFailure={"failures": 2})

    @rule()
    def obey(self) -> None:
        self.world.obey()

    @precondition(lambda self: self.world.runs)
    @rule(data=st.data(), reason=ENDS)
    def finish(self, data: st.DataObject, reason: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.runs)))
        if not self.world.runs[name].status.conditions:
            self.world.finish(name, reason)

    @precondition(lambda self: self.world.runs)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.world.delete(data.draw(st.sampled_from(sorted(self.world.runs))))

    @rule()
    def expire(self) -> None:
        self.world.expire()

    @invariant()
    def no_index_is_made_twice(self) -> None:
        """But one whose run was deleted before any operator had seen it: nobody can know of that."""
        for name in self.world.names() | set(self.world.made):
            assert self.world.made.count(name) <= 1 + self.world.vanished.count(name), name

    @invariant()
    def no_index_has_two_outcomes(self) -> None:
        for view in self.world.sets.values():
            known = view.status.indices
            texts = (known.active, known.succeeded, known.failed, known.cancelled)
            assert sum(map(count_ranges, texts)) == len(frozenset().union(*map(parse_ranges, texts)))
            assert all(index < COUNT for text in texts for index in parse_ranges(text))

    @invariant()
    def a_run_comes_after_its_predecessor(self) -> None:
        for made in self.world.made:
            found = split_run_name(made)
            assert found is not None
            if found[0] == "b":
                assert f"a-{found[1]}" in self.world.made

    def teardown(self) -> None:
        """Left alone, and refused nothing any more, both sets end, with one outcome for each index."""
        world = self.world
        world.refuses.clear()
        for name in "ab":
            world.edit(name, suspend=False, maxRunning=None)
        for _ in range(60):
            for name in "ab":
                world.hear()
                world.look(name)
            world.now += 60
            world.obey()
            world.admit(COUNT)
            for name, run in list(world.runs.items()):
                if run.status.assignment.nodes and not run.status.conditions:
                    world.finish(name)
        for view in world.sets.values():
            assert is_true(view.status, "Finished"), view.status
            assert view.status.done == f"{COUNT}/{COUNT}"
        self.no_index_is_made_twice()
        self.no_index_has_two_outcomes()

    def _active(self, name: str) -> int:
        """Runs that have nodes or wait for them."""
        owner = self.world.sets[name]
        runs = (governed(run, owner) for run in self.world.runs.values() if run.set_name == name)
        return sum(not (run.status.conditions or (run.spec and run.spec.suspend)) for run in runs)

    def _holding(self, name: str) -> int:
        return sum(
            bool(run.status.assignment.nodes and not run.status.conditions)
            for run in self.world.runs.values()
            if run.set_name == name
        )


TestArrays = Arrays.TestCase
TestArrays.settings = settings(max_examples=examples(60), stateful_step_count=steps(40))
