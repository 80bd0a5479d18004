"""Random histories of two runs on a few nodes: whatever happens, in whatever order, these hold."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lockstep.core.conditions import is_true
from lockstep.core.decide import decide
from lockstep.core.lifecycle import TRANSITIONS, Phase, phase_of
from support.world import World, node, spec

RUNS = st.sampled_from(["one", "two"])
RANKS = st.integers(0, 2)
NODES = st.sampled_from([f"n{i}" for i in range(6)])
CRASH = st.one_of(st.none(), st.integers(0, 4))
PASSES_TO_REST = 4
"""A stop is written, carried out, and then its end: each is in status before the next is acted on."""
_MOVES = {(before, after) for before, _, after in TRANSITIONS}


class Gangs(RuleBasedStateMachine):
    """Each rule is something that can happen to a cluster; the operator may die after any write."""

    @initialize()
    def begin(self) -> None:
        self.w = World({f"n{i}": node(f"n{i}", rack=f"rack-{i // 3}") for i in range(6)})
        self.highest: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.phases: dict[str, Phase] = {}
        self.w.apply("one", spec(3))
        self.w.apply("two", spec(2))

    @rule(run=RUNS, crash=CRASH)
    def look_at_a_run(self, run: str, crash: int | None) -> None:
        before = self.w.snapshot(run)
        assert decide(before, self.w.tunables, self.w.now) == decide(before, self.w.tunables, self.w.now)
        self.w.reconcile(run, crash_after=crash)
        self._phase_moved(run)
        if crash is None:
            for _ in range(PASSES_TO_REST):
                plan = self.w.reconcile(run)
                self._phase_moved(run)
                if plan.status is None and not plan.events:
                    return
            raise AssertionError(f"decide does not come to rest: {plan}")

    @rule(crash=CRASH)
    def admit(self, crash: int | None) -> None:
        self.w.admit(crash_after=crash)
        for run in self.w.runs:
            self._phase_moved(run)
        if crash is None:
            assert not self.w.admit()

    @rule()
    def kubelets(self) -> None:
        self.w.kubelets()

    @rule(reach=st.one_of(st.none(), st.integers(0, 3)))
    def workers(self, reach: int | None) -> None:
        self.w.directives_reach = reach
        self.w.work()
        self.w.directives_reach = None

    @rule(seconds=st.sampled_from([0.5, 3.0, 9.0, 40.0, 400.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.w.now += seconds

    @rule()
    def everybody_acts(self) -> None:
        self.w.settle(rounds=6)
        for run in self.w.runs:
            self.phases[run] = self._phase(run)

    @rule(run=RUNS)
    def train(self, run: str) -> None:
        self.w.train(run, 5)

    @rule(run=RUNS, rank=RANKS, code=st.sampled_from([0, 1]))
    def a_process_ends(self, run: str, rank: int, code: int) -> None:
        self.w.exit_child(run, rank, code)

    @rule(run=RUNS, rank=RANKS)
    def a_pod_fails(self, run: str, rank: int) -> None:
        self.w.fail_pod(run, rank)

    @rule(name=NODES)
    def a_node_dies(self, name: str) -> None:
        self.w.lose_node(name)

    @rule(name=NODES, ready=st.booleans())
    def a_node_changes_its_mind(self, name: str, ready: bool) -> None:
        if ready:
            self.w.return_node(name)
        else:
            self.w.node_not_ready(name)

    @rule(run=RUNS, suspend=st.booleans())
    def suspend(self, run: str, suspend: bool) -> None:
        run_spec = self.w.runs[run].spec
        assert run_spec is not None
        if run_spec.suspend != suspend:
            self.w.apply(run, run_spec.model_copy(update={"suspend": suspend}))
            self.phases[run] = self._phase(run)

    @rule()
    def the_operator_dies(self) -> None:
        self.w.crash()

    @rule(run=RUNS)
    def the_status_is_wiped(self, run: str) -> None:
        # Only of a gang that runs whole: otherwise attempts that left no trace may be counted again.
        if len(self.w.children(run)) == len(self.w.status(run).assignment.nodes) > 0:
            before = self.w.status(run)
            started = {w.attempt for w in self.w.workers.values() if w.start is not None}
            if before.attempt in started and not is_true(before, "Finished"):
                self.w.wipe_status(run)
                self.phases.pop(run, None)
                self.highest.pop(run, None)

    @invariant()
    def never_half_a_gang_past_the_barrier(self) -> None:
        """Whoever runs user code does so from a START that was in status and names everybody."""
        for (uid, attempt), slots in self.w.launched.items():
            record = self.w.starts[uid, attempt]
            members = sum(len(list(_numbers(ranges))) for ranges, _ in record.members)
            assert max(slots) < members

    @invariant()
    def no_two_attempts_of_a_run_train_on_one_node(self) -> None:
        for run in self.w.runs:
            seats = [w.node for w in self.w._workers_of(self.w.runs[run].uid)]
            assert all(count == 1 for count in Counter(seats).values())

    @invariant()
    def no_node_twice(self) -> None:
        held = Counter(
            name
            for run in self.w.runs.values()
            if not is_true(run.status, "Finished")
            for name in run.status.assignment.nodes
            if name
        )
        assert all(count == 1 for count in held.values()), held
        live = {(pod.node, pod.run) for pod in self.w.pods.values() if not pod.is_terminal}
        assert all(count == 1 for count in Counter(name for name, _ in live).values()), live

    @invariant()
    def attempt_and_incarnations_never_decrease(self) -> None:
        for name, run in self.w.runs.items():
            attempt, incarnations = self.highest.get(name, (0, ()))
            now = run.status.assignment.incarnations
            if not run.status.attempt:
                continue  # wiped, and not yet rebuilt
            assert run.status.attempt >= attempt
            assert all(new >= old for new, old in zip(now, incarnations, strict=False))
            self.highest[name] = (run.status.attempt, now)

    @invariant()
    def resume_points_were_saved(self) -> None:
        for (uid, _), record in self.w.starts.items():
            assert not record.resume_tier or record.resume_step in self.w.saved.get(uid, [])

    @invariant()
    def terminal_is_terminal(self) -> None:
        for name in self.w.runs:
            if self.phases.get(name) is Phase.FINISHED:
                assert self._phase(name) is Phase.FINISHED

    def _phase(self, run: str) -> Phase:
        view = self.w.runs[run]
        return phase_of(view.status, view.spec is not None and view.spec.suspend)

    def _phase_moved(self, run: str) -> None:
        before, after = self.phases.get(run), self._phase(run)
        if run not in self.highest and after is not Phase.PENDING:
            before = None  # rebuilt after its status was wiped
        if before is not None and before is not after:
            assert (before, after) in _MOVES, f"{before} -> {after} is not in the table of lifecycle"
        self.phases[run] = after


def _numbers(ranges: str) -> list[int]:
    numbers: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


TestGangs = Gangs.TestCase
TestGangs.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
