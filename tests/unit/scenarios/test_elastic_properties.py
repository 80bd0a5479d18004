"""Random losses, returns and changes of size for one elastic gang with a spare, with everybody acting in between."""

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import is_true
from lockstep.core.model.world_size import world_size
from support.examples import examples, steps
from support.world import World, node, spec

MIN, MULTIPLE, SPARES = 2, 2, 1
NAMES = [f"n{i}" for i in range(8)]


class Sizes(RuleBasedStateMachine):
    """Nodes come and go; the gang is to follow, and to lose nothing that was saved."""

    @initialize(saved_as=st.sampled_from(["TorchDCP", "TorchDCP", "Manifest"]))
    def begin(self, saved_as: str) -> None:
        self.w = World({name: self.view(name) for name in NAMES[:6]}, format=saved_as, listens=True)
        self.saved = 0
        self.apply(4)
        self.w.settle()

    def view(self, name: str) -> object:
        return node(name, rack=f"rack-{int(name[1:]) // 3}")

    def apply(self, nodes: int) -> None:
        elastic = {"min": MIN, "multipleOf": MULTIPLE, "growAfter": "2m"}
        self.w.apply("llama", spec(nodes, spareNodes=SPARES, elastic=elastic))

    @rule(name=st.sampled_from(NAMES))
    def a_node_is_gone(self, name: str) -> None:
        if name in self.w.nodes:
            self.w.lose_node(name)
            del self.w.nodes[name]
            self.w.settle()

    @rule(name=st.sampled_from(NAMES))
    def a_node_is_there(self, name: str) -> None:
        if name not in self.w.nodes:
            for key, pod in list(self.w.pods.items()):
                if pod.node == name:  # the pods of a Node that was deleted are collected
                    del self.w.pods[key]
            self.w.silent_nodes.discard(name)
            self.w.nodes[name] = self.view(name)  # type: ignore[assignment]
            self.w.settle()

    @rule(nodes=st.sampled_from([2, 4, 6]))
    def somebody_changes_the_size(self, nodes: int) -> None:
        self.apply(nodes)
        self.w.settle()

    @rule(seconds=st.sampled_from([10, 70, 130]))
    def time_goes_by(self, seconds: int) -> None:
        for _ in range(seconds // 10):
            self.w.pass_time(10, step=5)

    @precondition(lambda self: self.w.status("llama").state == "Running")
    @rule()
    def the_gang_trains_and_saves(self) -> None:
        self.w.train("llama", 5)
        steps = self.w.saved.get("uid-llama", [])
        if steps:
            self.w.tell_of_save("llama", steps[-1])
        self.w.settle()

    @rule()
    def the_operator_dies(self) -> None:
        self.w.crash()
        self.w.settle()

    @precondition(lambda self: self.w.format == "TorchDCP")
    @rule()
    def with_enough_nodes_it_comes_to_its_size(self) -> None:
        for name in NAMES:
            self.a_node_is_there(name)
        if is_true(self.w.status("llama"), "Finished"):
            return
        for _ in range(60):
            self.w.pass_time(10, step=5)
            if self.w.status("llama").state == "Running":
                self.the_gang_trains_and_saves()
            run_spec, status = self.w.runs["llama"].spec, self.w.status("llama")
            assert run_spec is not None
            if len(self.w.children("llama")) == run_spec.nodes and status.spares == f"{SPARES}/{SPARES}":
                return
        raise AssertionError(f"it stays as it is: {self.w.status('llama')}")

    @invariant()
    def every_rank_trains_in_one_live_slot(self) -> None:
        assignment = self.w.status("llama").assignment
        seats = list(slots.ranked_slots(assignment))
        assert len(set(seats)) == len(seats)
        held = [name for name in assignment.nodes if name]
        assert all(count == 1 for count in Counter(held).values()), assignment
        assert set(assignment.vacant) <= {slot for slot, name in enumerate(assignment.nodes) if not name}

    @invariant()
    def only_allowed_sizes_are_started(self) -> None:
        for record in self.w.starts.values():
            size = sum(len(slots_of(ranges)) for ranges in (member.slots for member in record.members))
            assert size % MULTIPLE == 0
            assert size >= MIN

    @invariant()
    def a_gang_that_stands_has_a_size_that_its_spec_knows(self) -> None:
        run_spec, assignment = self.w.runs["llama"].spec, self.w.status("llama").assignment
        assert run_spec is not None
        if slots.is_held(assignment) and slots.world(assignment) <= run_spec.nodes:
            assert world_size(run_spec, slots.world(assignment)) == slots.world(assignment)

    @invariant()
    def no_attempt_goes_back_behind_what_was_saved_before_it(self) -> None:
        started = self.w.status("llama").start
        before = [entry for entry in self.w.status("llama").attempts if entry.cause == "Resized"]
        if started is not None and before and before[-1].number == started.attempt - 1:
            assert started.resume is not None
            assert started.resume.step >= (before[-1].resume_step or 0)

    @invariant()
    def the_run_does_not_fail(self) -> None:
        assert self.w.status("llama").state != "Failed", self.w.status("llama")


def slots_of(ranges: str) -> list[int]:
    numbers: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


TestSizes = pytest.mark.slow(Sizes.TestCase)
TestSizes.settings = settings(max_examples=examples(40), stateful_step_count=steps(20), deadline=None)
