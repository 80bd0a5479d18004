"""Schedules pending runs on nodes and quotas, now and later: who starts, who preempts, why the others wait."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep.core.admission.cache.equivalence import EquivalenceClass
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.backfill import BackfillPolicy, backfill, estimate_starts
from lockstep.core.admission.engine.cycle_result import CycleResult, Estimate, Foreseen, Reservation, Wait, Waits
from lockstep.core.admission.engine.jobs import NodeClaim, RunningJob
from lockstep.core.admission.engine_adapter import ENDING, free_nodes, policy_of, refresh_groups, running_jobs
from lockstep.core.admission.extensions import Promises
from lockstep.core.admission.gang_starts import start_gang
from lockstep.core.admission.pending_status import Known, PendingStatus
from lockstep.core.admission.preemption_candidates import PreemptionCandidates, may_preempt
from lockstep.core.admission.reservations import Reservations
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.reasons import WaitReason
from lockstep.core.pods.requirement import avoided_nodes

_LOOKS_PAST_A_CUT = 4
"""How often the whole order is examined for a longer stretch of it, when fewer start because of who comes first."""
_BLOCKING = (WaitReason.RESOURCES, WaitReason.QUOTA, WaitReason.PRIORITY, WaitReason.WINDOW)
_NOBODY = CycleResult((), Waits((), ()), cut=False, reserved={})


@dataclass(frozen=True, slots=True)
class CycleSchedule:
    """The engine's result for the pending jobs ``waiting``, and its other inputs: ``claims`` are maintenance windows
    and reservations, ``foreseen`` is who may preempt later.

    ``is_final`` False: a reservation was made, and whoever comes after it starts in the next cycle at the earliest.
    """

    waiting: Sequence[RunRow]
    groups: Sequence[EquivalenceClass]
    running: Sequence[RunningJob]
    free: NodeSet
    claims: Sequence[NodeClaim]
    policy: BackfillPolicy
    result: CycleResult = _NOBODY
    foreseen: Mapping[str, Foreseen] = field(default_factory=dict)
    is_final: bool = True

    def computed(self, cycle: CycleState) -> CycleResult:
        """The engine's result, given this."""
        rest = self.running, self.free, self.claims, cycle.quotas, self.policy
        return backfill(cycle.now, self.waiting, *rest, self.foreseen, self.groups)


@dataclass(frozen=True, slots=True)
class StillPending:
    """``rows``, in order: the runs still pending once the others have started. ``awaited``: what they are to have, as
    if they ran there.

    ``is_cut``: more may start in the next cycle, which follows at once. ``lacks_nodes``: nobody may grow meanwhile.
    """

    rows: Sequence[RunRow]
    awaited: Sequence[RunningJob]
    is_cut: bool
    lacks_nodes: bool


def schedule_pending_runs(waiting: Sequence[RunRow], reservations: Reservations, cycle: CycleState) -> CycleSchedule:
    """Ask the engine who of ``waiting`` starts. Reservations that cannot hold their run any more lapse."""
    policy = policy_of(cycle.tunables.admission)
    if not waiting:
        return CycleSchedule((), (), (), EMPTY, (), policy)
    groups = refresh_groups(waiting, cycle)
    running = reservations.expected(running_jobs(cycle))
    claims = (*cycle.windows, *reservations.claims())
    asked = CycleSchedule(waiting, groups, running, free_nodes(cycle), claims, policy)
    schedule = replace(asked, result=asked.computed(cycle))
    reservations.review(schedule.result)
    return schedule


def preempt_for_first(schedule: CycleSchedule, reservations: Reservations, cycle: CycleState) -> CycleSchedule:
    """Give notice to those in the way of a reservation, and make a new one where somebody may preempt. Where somebody
    may later, schedule all of them again, so that nobody who comes after it is in its way by then."""
    if not schedule.waiting or not (reservations.nodes or may_preempt(cycle.snapshot)):
        return schedule
    reservations.notify_victims(schedule.running, cycle.quotas)
    cycle.wake(reservations.wake_at)
    candidates = PreemptionCandidates(cycle, reservations, cycle.quotas, schedule.running, cycle.windows)
    for _ in range(_LOOKS_PAST_A_CUT):
        result, known = schedule.result, schedule.foreseen
        concerned = {*cycle.run_index.reserving, *result.reserved, *(start.uid for start in result.starts)}
        asked = [(row.entry, row.wanted) for row in schedule.waiting if row.uid in concerned]
        found = candidates.first(asked, result, known)
        cycle.wake(candidates.wake_at)
        schedule = replace(schedule, foreseen=candidates.foreseen)
        if found is not None:
            reservations.make(found.entry, found.reservation)
            cycle.wake(cycle.now)
            return replace(schedule, result=replace(result, starts=found.before), is_final=False)
        if candidates.foreseen.keys() == known.keys():
            break
        schedule = replace(schedule, result=schedule.computed(cycle))
        if not result.cut:  # else it may have come to some whom nobody has asked yet
            break
    return schedule


def start_gangs(schedule: CycleSchedule, cycle: CycleState) -> StillPending:
    """Start the gangs that the engine chose. What pending runs are to have is nobody's spare, nor for growth."""
    result, waits, rows = schedule.result, schedule.result.waits, cycle.run_index.rows
    for start in result.starts:
        start_gang(rows[start.uid], start, cycle)
    awaited = [
        RunningJob(uid, rows[uid].queue, kept.option.gpu_type, kept.nodes, kept.option.count, kept.until)
        for uid, kept in result.reserved.items()
    ]
    for job in awaited:
        cycle.reserved |= job.nodes
    left = waits.waiting(schedule.waiting)
    # Smaller sizes of a run were those of the nodes that were free before: no spare comes before those of now.
    is_cut = result.cut or bool(result.starts and any(row.entry.spec.elastic is not None for row in left))
    if is_cut:
        cycle.wake(cycle.now)
    lacks_nodes = result.cut or any(wait.kind in _BLOCKING for wait in waits.in_order)
    return StillPending(left, awaited, is_cut, lacks_nodes)


def explain_waits(
    schedule: CycleSchedule, left: StillPending, reservations: Reservations, status: PendingStatus, cycle: CycleState
) -> None:
    """Find the pending reason, position and estimated start of each run that is left."""
    if not schedule.waiting:
        return
    waits, claims = schedule.result.waits, (*cycle.windows, *reservations.claims())
    estimates = _estimates(schedule, left, claims, cycle)
    known = Known(reservations, schedule.foreseen, cycle.windows)
    status.find(left.rows, waits.waiting(schedule.groups), waits.in_order, estimates, known)
    _wake_for_avoided_nodes(waits, cycle)
    # From then on nobody counts on those nodes any more.
    since = cycle.snapshot.leadership.since
    overdue = (max(held.ends, since) + ENDING if held.uid else held.ends for held in schedule.running if held.limited)
    cycle.wake(min((at for at in overdue if at > cycle.now), default=None))


def promises_of(schedule: CycleSchedule, reservations: Reservations, cycle: CycleState) -> Promises | None:
    """What pending runs are promised, for those who ask for longer time limits; None: nobody does, or it is about to
    change."""
    kept, result = reservations.nodes, schedule.result
    if not schedule.waiting:
        return (
            Promises(running_jobs(cycle), {}, kept, cycle.quotas, lambda _: {}) if cycle.run_index.relimited else None
        )
    if result.starts or result.cut or not schedule.is_final:
        return None

    def again(running: Sequence[RunningJob]) -> Mapping[str, Reservation]:
        return replace(schedule, running=running).computed(cycle).reserved

    return Promises(schedule.running, result.reserved, kept, cycle.quotas, again)


def _estimates(
    schedule: CycleSchedule, left: StillPending, claims: Sequence[NodeClaim], cycle: CycleState
) -> Mapping[str, float]:
    """Estimated starts of pending runs, as far as anybody can say."""

    def begin() -> Iterator[tuple[str, Estimate]]:
        free = schedule.free & ~cycle.cluster.booked
        rest = running_jobs(cycle), free, claims, cycle.quotas, schedule.policy.depth, schedule.foreseen
        return estimate_starts(cycle.now, left.rows, *rest)

    known = cycle.memory.start_estimates
    estimates = known.refresh(cycle.now, begin)
    if left.rows:
        cycle.wake(known.wake_at)
    return estimates


def _wake_for_avoided_nodes(waits: Mapping[str, Wait], cycle: CycleState) -> None:
    """A node that recovery keeps a run off may be used again, with nobody to tell."""
    for uid, row in cycle.run_index.avoiding.items():
        for avoided in avoided_nodes(row.run.status.recovery.excluded_nodes, cycle.now) if uid in waits else ():
            cycle.wake(avoided.until)
