"""Random histories of two runs on a few nodes: whatever happens, in whatever order, these hold."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AssignmentStatus
from lockstep.core.decide import decide
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import is_true
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.lifecycle import TRANSITIONS, Phase, phase_of
from lockstep.core.model.pod_group_settings import VOLCANO, PodGroupKind, PodGroupSettings
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from support.examples import examples, steps
from support.world import World, node, spec

RUNS = st.sampled_from(["one", "two"])
RANKS = st.integers(0, 2)
NODES = st.sampled_from([f"n{i}" for i in range(6)])
CRASH = st.one_of(st.none(), st.integers(0, 4))
GANG = GangSettings(local_storages={"nvme": "/mnt/nvme"})
PASSES_TO_REST = 4
"""A stop is written, carried out, and then its end: each is in status before the next is acted on."""
LONGEST_STOP = 300.0 + 300.0 + 60.0
"""Seconds: the grace period for the save, then as long for the ranks, and some for the operator."""
_MOVES = {(before, after) for before, _, after in TRANSITIONS}


class Gangs(RuleBasedStateMachine):
    """Each rule is something that can happen to a cluster; the operator may die after any write."""

    tunables = Tunables(gang=GANG)

    @initialize()
    def begin(self) -> None:
        nodes = {f"n{i}": node(f"n{i}", rack=f"rack-{i // 3}") for i in range(6)}
        self.w = World(nodes, tunables=self.tunables, format="TorchDCP")
        self.wiped: set[str] = set()
        self.highest: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.phases: dict[str, Phase] = {}
        self.asked: dict[tuple[str, str], tuple[int, int]] = {}
        self.seats: dict[str, AssignmentStatus] = {}
        one_directory = {"shared": {"claimName": "lustre"}, "layout": "Shared"}
        self.w.apply("one", spec(3, spareNodes=1, checkpoint=one_directory))
        two_tiers = {"shared": {"claimName": "lustre"}, "local": {"storage": "nvme"}}
        self.w.apply("two", spec(2, checkpoint=two_tiers, elastic={"min": 1, "growAfter": "5m"}))

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
        for _ in range(PASSES_TO_REST if crash is None else 0):
            if not self.w.admit():
                return
        assert crash is not None, "admit does not come to rest"

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

    @rule(name=NODES)
    def a_node_is_cut_off(self, name: str) -> None:
        self.w.cut_off_node(name)

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
            self.w.apply(run, changed(run_spec, suspend=suspend))
            self.phases[run] = self._phase(run)

    @rule(wish=st.sampled_from(["resume", "resume", "cancel", "deadline"]))
    def a_run_rests_after_a_save(self, wish: str) -> None:
        """Where it holds no nodes, what it has saved on their disks is known by status alone."""
        run_spec = self.w.runs["two"].spec
        assert run_spec is not None
        self.w.settle(rounds=6)
        if self._phase("two") is Phase.RUNNING:
            self.w.train("two", 5)
            self.w.tell_of_save("two", max(self.w.saved.get("uid-two", [0])))
            self.w.apply("two", changed(run_spec, suspend=True))
            self.w.pass_time(LONGEST_STOP, step=120)
            ends: dict[str, object] = {"cancel": {"cancel": True}, "deadline": {"deadline": self.w.now}}.get(wish, {})
            self.w.apply("two", changed(run_spec, suspend=False, **ends))
            self.w.settle(rounds=6)
        for name in self.w.runs:
            self.phases[name] = self._phase(name)

    @rule(nodes=st.sampled_from([1, 2, 3]))
    def somebody_changes_the_size(self, nodes: int) -> None:
        run_spec = self.w.runs["two"].spec
        assert run_spec is not None
        if run_spec.nodes != nodes:
            self.w.apply("two", changed(run_spec, nodes=nodes))

    @rule(listens=st.booleans(), succeed=st.booleans())
    def programs_change_their_ways(self, listens: bool, succeed: bool) -> None:
        self.w.listens, self.w.saves_succeed = listens, succeed

    @rule(run=RUNS, token=st.sampled_from("abc"))
    def somebody_wants_a_save(self, run: str, token: str) -> None:
        self.w.annotate(run, checkpoint_request=token)

    @rule(run=RUNS, rank=RANKS, grace=st.sampled_from([3.0, 30.0, 60.0]))
    def a_pod_is_told_to_end(self, run: str, rank: int, grace: float) -> None:
        self.w.tell_to_end(run, rank, grace)

    @rule(name=NODES, reason=st.sampled_from(["", "new firmware"]))
    def a_node_is_drained_or_no_longer(self, name: str, reason: str) -> None:
        self.w.drain(name, reason)

    @rule(run=RUNS)
    def a_stop_ends(self, run: str) -> None:
        """However long nobody answers: once the dead nodes are known to be, all waits have an end."""
        stop = self.w.status(run).stop
        if stop is None:
            return
        for name in self.w.silent_nodes:
            self.w.node_not_ready(name)
        self.w.pass_time(LONGEST_STOP, step=60)
        now = self.w.status(run).stop
        assert now is None or now.time > stop.time, f"{stop} never ends"
        for name in self.w.runs:
            self.phases[name] = self._phase(name)

    @rule()
    def the_operator_dies(self) -> None:
        self.w.crash()

    @rule(run=RUNS)
    def the_status_is_wiped(self, run: str) -> None:
        # Only of a gang that runs whole: otherwise attempts that left no trace may be counted again.
        if len(self.w.children(run)) == slots.world(self.w.status(run).assignment) > 0:
            before = self.w.status(run)
            started = {w.attempt for w in self.w.workers.values() if w.start is not None}
            if before.attempt in started and not is_true(before, "Finished"):
                self.w.now += 0.01  # nobody wipes a status in the very millisecond in which it was written
                self.w.wipe_status(run)
                self.wiped.add(run)
                self.phases.pop(run, None)
                self.highest.pop(run, None)
                self.seats.pop(run, None)

    @invariant()
    def never_half_a_gang_past_the_barrier(self) -> None:
        """Whoever runs user code does so from a START that was in status and names everybody."""
        for (uid, attempt), launched in self.w.launched.items():
            record = self.w.starts[uid, attempt]
            members = [number for member in record.members for number in _numbers(member.slots)]
            assert launched <= set(members)
            assert sorted(_numbers(record.order) if record.order else range(len(members))) == sorted(members)

    @invariant()
    def every_rank_has_a_slot_to_itself(self) -> None:
        for run in self.w.runs.values():
            seats = list(slots.ranked_slots(run.status.assignment))
            assert len(set(seats)) == len(seats)
            assert set(seats) <= set(range(len(run.status.assignment.nodes)))

    @invariant()
    def whoever_keeps_its_node_keeps_its_rank(self) -> None:
        for name, run in self.w.runs.items():
            before, now = self.seats.get(name, AssignmentStatus()), run.status.assignment
            if slots.is_held(before) and slots.world(before) == slots.world(now) and run.status.attempt:
                for rank, slot in enumerate(slots.ranked_slots(before)):
                    if _same(before, now, slot):
                        assert slots.ranked_slots(now)[rank] == slot
            self.seats[name] = now

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
    def every_second_is_accounted_for_once(self) -> None:
        for run in self.w.runs.values():
            goodput = run.status.goodput
            if goodput.time is not None:
                seconds = [seconds for _, seconds in goodput.buckets]
                assert sum(seconds) == goodput.time - int(run.created_at)
                assert min(seconds) >= 0

    @invariant()
    def a_save_id_stands_for_one_save(self) -> None:
        for name, run in self.w.runs.items():
            save = run.status.checkpoint.save
            if save is not None:
                asked = (save.attempt, save.needs_step)
                assert self.asked.setdefault((name, save.id), asked) == asked

    @invariant()
    def saves_are_answered_by_what_was_saved_since(self) -> None:
        for run in self.w.runs.values():
            save = run.status.checkpoint.save
            if save is not None and save.outcome == "Saved":
                assert save.step >= save.needs_step
                assert save.step in self.w.saved[run.uid]

    @invariant()
    def resume_points_were_saved(self) -> None:
        for (uid, _), record in self.w.starts.items():
            assert record.resume is None or record.resume_step in self.w.saved.get(uid, [])

    @invariant()
    def no_attempt_starts_beside_a_writer_to_its_one_directory(self) -> None:
        shared = {run.uid for run in self.w.runs.values() if _layout(run) == "Shared"}
        assert not [overlap for overlap in self.w.overlaps if overlap[0] in shared]

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


def _same(before: AssignmentStatus, now: AssignmentStatus, slot: int) -> bool:
    """The pod in ``slot`` is the same."""
    there = slot < len(now.nodes) and bool(before.nodes[slot]) and before.nodes[slot] == now.nodes[slot]
    return there and before.incarnations[slot] == now.incarnations[slot]


def _layout(run: RunView) -> str:
    assert run.spec is not None
    assert run.spec.checkpoint is not None
    return run.spec.checkpoint.layout


def _numbers(ranges: str) -> list[int]:
    numbers: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


class GroupedGangs(Gangs):
    """The same where every launch has a PodGroup and pods are bound as its scheduler would."""

    tunables = Tunables(gang=GANG, pod_groups=PodGroupSettings(kind=PodGroupKind.VOLCANO, served=(VOLCANO,)))

    @invariant()
    def a_group_that_status_does_not_name_is_gone(self) -> None:
        for name, (uid, _) in self.w.pod_groups.items():
            (run,) = [run for run in self.w.runs.values() if run.uid == uid]
            named = [run.status.resolved.pod_group, *run.status.ended_pod_groups]  # the latter are being ended
            assert run.name in self.wiped or any(group is not None and name.startswith(group.name) for group in named)

    @invariant()
    def whoever_joins_a_started_gang_waits_for_nobody(self) -> None:
        for pod in self.w.pods.values():
            if self.w.members[pod.name].endswith("-later"):
                assert self.w.pod_groups.get(self.w.members[pod.name], ("", 1))[1] == 1


TestGangs = Gangs.TestCase
TestGroupedGangs = GroupedGangs.TestCase
TestGroupedGangs.settings = settings(max_examples=examples(15), stateful_step_count=steps(40), deadline=None)
TestGangs.settings = settings(max_examples=examples(40), stateful_step_count=steps(40), deadline=None)
