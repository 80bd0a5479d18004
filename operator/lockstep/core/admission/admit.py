"""One admission cycle: which pending runs get nodes now, and the pending reason of each of the others.

``admit`` is the whole cycle, step by step. The first step makes a ``CycleState`` of what there is, which the others
share; what else a step finds it returns. Nothing here acts.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf

from lockstep.api.run_status import QueueStatus
from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.cache.maintenance_windows import window_claims
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cache.start_estimates import StartEstimates
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.quota import QuotaBook
from lockstep.core.admission.engine_adapter import running_jobs
from lockstep.core.admission.extensions import Promises, grant_limits
from lockstep.core.admission.gang_starts import start_granted_gang
from lockstep.core.admission.kueue_admission import KueueAdmission
from lockstep.core.admission.pending_order import sort_pending_runs
from lockstep.core.admission.pending_status import PendingStatus, write_queue_status
from lockstep.core.admission.queue_status import queue_writes
from lockstep.core.admission.refill import find_growth, find_spares, replace_lost_nodes
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.scale_up import ask_for_nodes
from lockstep.core.admission.scheduling import (
    StillPending,
    explain_waits,
    preempt_for_first,
    promises_of,
    schedule_pending_runs,
    start_gangs,
)
from lockstep.core.admission.test_only import answer_test_only
from lockstep.core.model import assignment as slots
from lockstep.core.model.plan import ClusterPlan, StatusWrite
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import ClusterSnapshot
from lockstep.core.model.tunables import Tunables


def admit(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory | None = None) -> ClusterPlan:
    """Decide who gets nodes at ``now``. Deterministic; deciding again after the writes gives nobody anything, and soon
    writes nothing: only the pending reason of runs that waited for others to start may differ.

    The plan's ``wake_at`` is ``now`` when there is more to look at than one cycle takes, and the next may give more.
    ``memory`` spares work that the cycle before has done; it changes no decision but how fresh estimates are, and when
    those are answered who only ask.
    """
    memory = memory if memory is not None else CycleMemory(start_estimates=StartEstimates(share=None))
    # 1. Observe the cluster: its nodes, who holds which of them, and all runs; only changes are examined closely.
    cycle = observe_cluster(snapshot, tunables, now, memory)
    kueue, pending_status = KueueAdmission(cycle), PendingStatus(cycle)
    # 2. Sort pending runs into one order over all queues; whoever is held back by something else is in nobody's way.
    pending = sort_pending_runs(cycle, kueue)
    # 3. Set nodes aside: those reserved for preemptors that still wait, and those in maintenance windows.
    reservations = set_nodes_aside(pending.in_order, cycle)
    # 4. Replace lost nodes of running gangs, before anybody new gets one; whoever stays keeps rank and node.
    gangs = replace_nodes_of_gangs(kueue, cycle)
    # 5. Start the gangs that Kueue admits, on the nodes that it reserved for them, if those are free.
    start_gangs_of_kueue(kueue, cycle)
    # 6. Schedule the others in their order, a whole gang or nothing, on nodes and quotas as they are and will be.
    schedule = schedule_pending_runs(pending.in_order, reservations, cycle)
    # 7. Preempt for the first that waits, where its queue allows it: nodes are reserved now, victims notified later.
    schedule = preempt_for_first(schedule, reservations, cycle)
    # 8. Start the gangs that are scheduled now, and keep for the others what they are to have.
    left = start_gangs(schedule, cycle)
    # 9. Explain why each of the others waits, at which position, for whom, and when it starts.
    explain_waits(schedule, left, reservations, pending_status, cycle)
    # 10. Grant changed time limits of running gangs, as far as they delay nobody who is promised a start.
    grant_time_limits(promises_of(schedule, reservations, cycle), cycle)
    # 11. Withdraw notices that no reservation needs any more.
    reservations.withdraw()
    # 12. Top up gangs with what nobody waits for: spares, then elastic growth.
    top_up_gangs(gangs, left, cycle)
    # 13. Ask the autoscaler for nodes that do not exist, for gangs that would be next if they did.
    ask_for_nodes(pending.held, schedule, left, reservations, cycle)
    # 14. Write pending reasons: changes only, and no flood of writes.
    write_pending_reasons(pending.held, pending_status, cycle)
    # 15. Answer test-only runs: when they would start, were they submitted now.
    answered = answer_test_only(schedule, left, reservations, pending_status.shortage, cycle)
    # 16. Collect the writes to runs, and to the status of queues by them.
    writes = collect_writes(answered, cycle)
    queues, again_at = queue_writes(snapshot, memory, writes, tunables, now)
    cycle.wake(again_at)
    return ClusterPlan(writes, cycle.wake_at, queues)


def observe_cluster(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory) -> CycleState:
    """The cluster as this cycle finds it, with nothing decided yet."""
    cycle = CycleState(snapshot, tunables, now, memory)
    cycle.run_index.forget_decisions()
    for row in cycle.run_index.lacking.values():
        row.entry.reason = None
    return cycle


def set_nodes_aside(waiting: Sequence[RunRow], cycle: CycleState) -> Reservations:
    """Close nodes to all but those they are kept for. A window that ends frees its nodes, with nobody to tell."""
    reservations = Reservations(waiting, cycle)
    cycle.reserved = reservations.nodes
    windows, stop = cycle.tunables.admission.windows, cycle.tunables.longest_stop
    cycle.windows = window_claims(windows, cycle.index, cycle.now, stop)
    cycle.wake(min((claim.end for claim in cycle.windows if claim.start <= cycle.now), default=None))
    return reservations


def replace_nodes_of_gangs(kueue: KueueAdmission, cycle: CycleState) -> Sequence[Entry]:
    """Gangs with a vacant slot get a node for it, or the reason why not. Those among them that Kueue does not admit."""
    gangs = [row.entry for row in cycle.decided_rows(cycle.run_index.lacking)]
    for entry in gangs:
        refused = cycle.snapshot.refused.get(entry.run.uid)
        if refused is not None and refused.until > cycle.now:
            entry.reason = PendingReason(WaitReason.ADMISSION_REFUSED, refused.message, start=refused.until)
        elif entry.status.kueue is not None:
            kueue.replace_lost_nodes(entry)
        elif slots.lacking(entry.status.assignment):
            replace_lost_nodes(entry, cycle)
    return [entry for entry in gangs if entry.status.kueue is None]


def start_gangs_of_kueue(kueue: KueueAdmission, cycle: CycleState) -> None:
    """Start those whose reservation is there."""
    for grant in kueue.grants(cycle.windows):
        start_granted_gang(grant, cycle)
    if kueue.wake_at < inf:
        cycle.wake(kueue.wake_at)


def grant_time_limits(promises: Promises | None, cycle: CycleState) -> None:
    """Time limits that were changed, or that a queue has by now for runs that were granted none."""
    queues, unlimited = cycle.snapshot.queues.items(), cycle.run_index.unlimited
    limiting = {name for name, view in queues if view.spec.limits.default_time_limit is not None}
    rows = {uid: row for uid, row in unlimited.items() if row.queue in limiting} if limiting else {}
    if grant_limits(cycle.decided_rows({**rows, **cycle.run_index.relimited}), cycle, promises):
        cycle.wake(cycle.now + 1.0)


def top_up_gangs(gangs: Sequence[Entry], left: StillPending, cycle: CycleState) -> None:
    """Spares once nobody is to start any more, for those that start too; growth once no run is pending."""

    book: QuotaBook | None = None

    def quota() -> QuotaBook:
        nonlocal book
        if book is None:
            used = (*running_jobs(cycle), *left.awaited) if cycle.snapshot.queues else ()
            book = QuotaBook(cycle.quotas, cycle.now, used)
        return book

    def top_up(entry: Entry, find: Callable[[Entry, CycleState, Callable[[], QuotaBook]], None]) -> None:
        nonlocal book
        before = entry.status
        find(entry, cycle, quota)
        if entry.status is not before:
            book = None  # what it got counts for whoever is next

    for entry in (*gangs, *(row.entry for row in cycle.started)) if not left.is_cut else ():
        top_up(entry, find_spares)
    for entry in gangs if not left.lacks_nodes else ():
        top_up(entry, find_growth)


def write_pending_reasons(held: Sequence[RunRow], pending_status: PendingStatus, cycle: CycleState) -> None:
    """Status of pending runs, and of those no longer pending whose status says otherwise."""
    for row in (*held, *cycle.decided_rows(cycle.run_index.lacking)):
        reason = row.entry.reason
        if reason is not None:
            pending_status.hold(row, reason)
            cycle.wake(reason.start)
    for row in (*cycle.started, *cycle.decided_rows(cycle.run_index.outdated)):
        if row.entry.reason is None and row.entry.status.queue.reason:
            write_queue_status(row.entry, QueueStatus(), cycle.now)
    pending_status.write()
    cycle.wake(pending_status.wake_at)


def collect_writes(answered: Iterable[Entry], cycle: CycleState) -> tuple[StatusWrite, ...]:
    """What is decided of runs, those included that only asked."""
    decided = [entry for entry in cycle.run_index.decided() if entry.run.uid not in cycle.busy]
    decided += [entry for entry in answered if entry.status is not entry.run.status]
    return tuple(write for entry in decided for write in entry.writes())
