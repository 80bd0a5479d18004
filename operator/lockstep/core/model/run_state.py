"""What one decision knows: what was seen of the run, and its status as decided so far. Asking changes neither."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import AssignmentStatus, StartRecord, TrainingRunStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.ranges import parse_ranges
from lockstep.core.model.snapshot import Lag, PodView, RunSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import WorkerReport

JUST_AFTER = 0.1
"""Seconds after a moment that is to lie behind: clocks and floats are not exact."""


@dataclass(frozen=True)
class RunContext:
    """What stays as it is during a decision: what was seen, when, and by which settings to judge it."""

    snapshot: RunSnapshot
    tunables: Tunables
    now: float

    @cached_property
    def stamp(self) -> float:
        """Now, as status keeps it: in whole seconds."""
        return float(int(self.now))

    @cached_property
    def heartbeat(self) -> float:
        """Seconds between two reports of a worker."""
        return self.tunables.heartbeat_seconds(self.snapshot.leadership.workers)

    @cached_property
    def silent_after(self) -> float:
        """Seconds without a report after which a worker is silent."""
        return self.tunables.silent_after(self.snapshot.leadership.workers)

    @cached_property
    def live_pods(self) -> tuple[PodView, ...]:
        """Pods that still hold their node, Terminating included."""
        return tuple(pod for pod in self.snapshot.pods if not pod.is_terminal)

    @cached_property
    def pods_by_slot(self) -> dict[int, list[PodView]]:
        """All pods, of whatever incarnation, by slot."""
        found: dict[int, list[PodView]] = {}
        for pod in self.snapshot.pods:
            found.setdefault(pod.slot, []).append(pod)
        return found

    @cached_property
    def pods_by_identity(self) -> dict[tuple[int, int], PodView]:
        """All pods by slot and incarnation."""
        # Asked for several times per slot and decision: with hundreds of slots this lookup is what counts.
        return {(pod.slot, pod.incarnation): pod for pod in reversed(self.snapshot.pods)}


class RunState:
    """The status of a run as decided so far, and all that is asked of it. Only a ``PlanBuilder`` changes it.

    A function that takes a ``RunState`` decides nothing. It may register a wake-up: that belongs to asking about a
    moment to come.
    """

    def __init__(self, context: RunContext) -> None:
        self.context: Final = context
        self.snapshot: Final = context.snapshot
        self.run: Final = context.snapshot.run
        self.tunables: Final = context.tunables
        self.now: Final = context.now
        self.stamp: Final = context.stamp
        self._status = self.run.status
        self.damage: Final = slots.damage(self._status.assignment)
        """What is wrong with the assignment in status; then none is known until it has been rebuilt."""
        if self.damage:
            self._status = slots.put(self._status, slots.illegible(self._status.assignment))
        self._wake_at: float | None = None
        self._phase: tuple[TrainingRunStatus, Phase] | None = None  # of the status beside it
        self._ranks: tuple[AssignmentStatus, tuple[int, ...]] | None = None  # of the assignment beside them
        self._members: tuple[StartRecord, frozenset[tuple[int, int]]] | None = None  # of the START beside them
        self._seen: tuple[TrainingRunStatus | None, tuple[int, ...] | None] = (None, None)  # what these two are of:
        self._pods: Mapping[int, PodView] = {}
        self._reports: Mapping[int, WorkerReport] = {}

    @property
    def status(self) -> TrainingRunStatus:
        """The status as decided so far."""
        return self._status

    @cached_property
    def heartbeat(self) -> float:
        """Seconds between two reports of a worker."""
        return self.context.heartbeat

    @cached_property
    def silent_after(self) -> float:
        """Seconds without a report after which a worker is silent."""
        return self.context.silent_after

    @property
    def lag(self) -> Lag:
        """How slow the operator and its API server are of late."""
        return self.snapshot.leadership.lag

    @cached_property
    def live_pods(self) -> tuple[PodView, ...]:
        """Pods that still hold their node, Terminating included."""
        return self.context.live_pods

    @property
    def spec(self) -> TrainingRunSpec:
        """The parsed spec; steps after acceptance may rely on it."""
        assert self.run.spec is not None
        return self.run.spec

    @property
    def view(self) -> RunView:
        """The run with its status as changed so far."""
        return self.run if self._status is self.run.status else replace(self.run, status=self._status)

    @property
    def phase(self) -> Phase:
        """The phase of the status as changed so far."""
        if self._phase is None or self._phase[0] is not self._status:  # asked for slot after slot
            wants_rest = self.run.spec is not None and self.run.spec.suspend
            self._phase = (self._status, phase_of(self._status, wants_rest))
        return self._phase[1]

    @property
    def trains(self) -> bool:
        """The ranks run user code and have not been told to end; also while a stop waits for their save."""
        stop = self._status.stop
        return self.phase is Phase.RUNNING or (self.phase is Phase.STOPPING and stop is not None and bool(stop.save))

    @property
    def has_workers(self) -> bool:
        """Its pods run Lockstep's worker, and with it there are reports and a barrier."""
        return self.run.spec is None or self.run.spec.worker == "Enabled"

    def reached(self, at: float) -> bool:
        """The moment ``at`` has come. If it has not, the run is reconciled again then."""
        self.wake(at)
        return self.now >= at

    def passed(self, at: float, *, margin: float = JUST_AFTER) -> bool:
        """The moment ``at`` lies behind. If it does not, the run is reconciled ``margin`` seconds after it."""
        if self.now > at:
            return True
        self.wake(at + margin)
        return False

    def wake(self, at: float) -> None:
        """Reconcile again no later than ``at``. What lies behind has been seen just now."""
        if at <= self.now:
            return
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)

    def pod(self, slot: int) -> PodView | None:
        """The pod of the slot's current incarnation."""
        if self._seen[0] is not self._status:
            self._see_slots()
        return self._pods.get(slot)

    def pods_of(self, slot: int) -> Sequence[PodView]:
        """All pods of a slot, of whatever incarnation."""
        return self.context.pods_by_slot.get(slot, ())

    def report(self, slot: int) -> WorkerReport | None:
        """The latest word of the slot's current incarnation: of the pod that is there, if there is one."""
        if self._seen[0] is not self._status:
            self._see_slots()
        return self._reports.get(slot)

    def slot_range(self) -> range:
        """All slots of the gang."""
        return range(len(self._status.assignment.nodes))

    @property
    def world(self) -> int:
        """The number of ranks. There are more slots than that when the gang has spares."""
        return slots.world(self._status.assignment)

    @property
    def has_spares(self) -> bool:
        """Some slots hold no rank."""
        return self.world < len(self._status.assignment.nodes)

    def ranked_slots(self) -> Sequence[int]:
        """The slots that hold a rank, in rank order."""
        return slots.ranked_slots(self._status.assignment)

    def title(self, slot: int) -> str:
        """Who sits in ``slot``, for messages."""
        rank = self.rank(slot)
        return f"rank {rank}" if rank >= 0 else f"the spare in slot {slot}"

    def rank(self, slot: int) -> int:
        """The rank in ``slot``; -1: it holds a spare."""
        assignment = self._status.assignment
        if not assignment.rank_to_slot:
            return slot
        if self._ranks is None or self._ranks[0] is not assignment:  # asked for slot after slot
            self._ranks = (assignment, slots.slot_ranks(assignment))
        return self._ranks[1][slot]

    @property
    def members(self) -> frozenset[tuple[int, int]]:
        """(slot, incarnation) of all that take part in the last START; empty when that is not known."""
        start = self._status.start
        if start is None:
            return frozenset()
        if self._members is None or self._members[0] is not start:  # asked for slot after slot
            found = frozenset((slot, each.incarnation) for each in start.members for slot in parse_ranges(each.slots))
            self._members = (start, found)
        return self._members[1]

    def attempt(self, number: int) -> AttemptStatus:
        """The history entry of one attempt, as it is to be changed; an empty one when it is not there."""
        return self.attempt_entry(number) or AttemptStatus(number=number)

    def attempt_entry(self, number: int) -> AttemptStatus | None:
        """The history entry of one attempt."""
        return next((entry for entry in self._status.attempts if entry.number == number), None)

    def _see_slots(self) -> None:
        """Whose pods and reports are current: asked for slot after slot, by most steps of a decision."""
        before, newest = self._seen[1], self._status.assignment.incarnations
        self._seen = self._status, newest
        if newest is before:
            return
        by_identity = self.context.pods_by_identity
        self._pods = pods = {
            slot: pod for slot, its in enumerate(newest) if (pod := by_identity.get((slot, its))) is not None
        }
        self._reports = {
            slot: report
            for slot, report in self.snapshot.reports.items()
            if 0 <= slot < len(newest)
            and report.incarnation == newest[slot]
            and (slot not in pods or pods[slot].uid == report.pod_uid)
        }
