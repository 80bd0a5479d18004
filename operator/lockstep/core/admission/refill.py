"""Nodes for running gangs: replacements for lost ones, spares, and elastic growth."""

from collections.abc import Callable, Sequence

from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.cache.maintenance_windows import MaintenanceConflict, closing
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.quota import QuotaBook
from lockstep.core.admission.engine_adapter import running_of
from lockstep.core.admission.queueing.holds import mode_words, queue_spec
from lockstep.core.model import assignment as slots
from lockstep.core.model.node_set import EMPTY
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, EventReason, WaitReason
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.tunables import Mode
from lockstep.core.model.world_size import world_size
from lockstep.core.placement.placement import Placed, Unplaceable

_NODES_NAMED = 8


def replace_lost_nodes(entry: Entry, cycle: CycleState) -> None:
    """Fill vacant slots; whoever stays keeps its rank. The nodes are within the quota that the gang has."""
    why_not = may_not_replace(cycle)
    if why_not is not None:
        entry.reason = why_not
        return
    vacant, closed = slots.lacking(entry.status.assignment), closing_for(entry, cycle)
    placed = cycle.place(entry, len(vacant), closed.nodes, urgent=True)
    if isinstance(placed, Unplaceable):
        entry.reason = _what_lacks(entry, cycle, len(vacant), closed, placed)
        # It gets what there is, so that nobody who came later does; but a rule that must hold for
        # the whole gang is not tied down by a part of it.
        wishes = entry.spec.placement
        some = min(placed.fits, len(vacant) - 1)
        if not some or wishes.nodes or any(rule.mode == "Required" for rule in wishes.topology):
            return
        placed = cycle.place(entry, some, closed.nodes, urgent=True)
        if isinstance(placed, Unplaceable):
            return
    named = fill(entry, cycle, vacant, placed.nodes)
    entry.events.append(Event("Normal", EventReason.NODES_REPLACED, ActionWord.PLACE, f"lost nodes replaced: {named}"))
    left = slots.lacking(entry.status.assignment)
    placed = cycle.place(entry, len(left), closed.nodes, urgent=True) if left else placed
    if isinstance(placed, Unplaceable):
        entry.reason = _what_lacks(entry, cycle, len(left), closed, placed)


def _what_lacks(
    entry: Entry, cycle: CycleState, count: int, closed: MaintenanceConflict, lacking: Unplaceable
) -> PendingReason:
    beyond = cycle.place(entry, count, urgent=True) if closed.nodes else lacking
    if isinstance(beyond, Unplaceable):
        return PendingReason(WaitReason.RESOURCES, lacking.message)
    return closed.reason(cycle.index.mask(beyond.nodes) & closed.nodes)


def closing_for(entry: Entry, cycle: CycleState) -> MaintenanceConflict:
    """Maintenance that keeps further nodes from a gang. What it has it keeps."""
    if not cycle.windows:
        return MaintenanceConflict()
    running = running_of(entry.view, cycle, cycle.now)
    return closing(cycle.windows, cycle.now, running.ends)


def may_not_replace(cycle: CycleState) -> PendingReason | None:
    """Why no lost node is replaced now; None: it may be."""
    mode, disruption = cycle.tunables.mode, cycle.snapshot.leadership.disruption
    if mode is Mode.REPORT_ONLY:
        return PendingReason(WaitReason.REPORT_ONLY, mode_words(mode))
    return PendingReason(WaitReason.CLUSTER_DISRUPTION, f"no node is replaced: {disruption}") if disruption else None


def find_spares(entry: Entry, cycle: CycleState, quota: Callable[[], QuotaBook]) -> None:
    """Fill the slots of spares with what there is. A run that finds none does not wait for them."""
    if cycle.tunables.mode is Mode.REPORT_ONLY or cycle.snapshot.leadership.disruption:
        return
    assignment = entry.status.assignment
    if slots.lacking(assignment):
        return  # its ranks come first
    vacant = assignment.vacant[: max(0, entry.spec.spare_nodes - nodes_without_rank(entry))]
    vacant = vacant[: _within_quota(entry, quota, len(vacant))]
    closed = closing_for(entry, cycle).nodes if vacant else EMPTY
    placed = cycle.place(entry, len(vacant), closed) if vacant else None
    if isinstance(placed, Unplaceable) and (some := min(placed.fits, len(vacant) - 1)) > 0:
        placed = cycle.place(entry, some, closed)
    if placed is None or isinstance(placed, Unplaceable):
        return
    named = fill(entry, cycle, vacant, placed.nodes)
    entry.events.append(Event("Normal", EventReason.SPARES_FOUND, ActionWord.PLACE, f"spares: {named}"))


def find_growth(entry: Entry, cycle: CycleState, quota: Callable[[], QuotaBook]) -> None:
    """Give a gang that is to grow the nodes for its next size, when no run is pending."""
    assignment, spec = entry.status.assignment, entry.spec
    most = queue_spec(cycle.snapshot, queue_of(entry.view)).limits.max_nodes_per_run
    too_many = most is not None and spec.nodes + spec.spare_nodes > most
    if cycle.tunables.mode is not Mode.ACTIVE or cycle.snapshot.leadership.disruption:
        return
    if too_many or not assignment.vacant or slots.lacking(assignment):
        return
    at_hand = slots.world(assignment) + nodes_without_rank(entry)
    closed = closing_for(entry, cycle).nodes
    placed = cycle.place(entry, len(assignment.vacant), closed)
    fits = len(assignment.vacant) if isinstance(placed, Placed) else min(placed.fits, len(assignment.vacant))
    size = world_size(spec, at_hand + _within_quota(entry, quota, fits))
    if size <= max(slots.world(assignment), at_hand):
        return  # fewer than the next size would only lie idle
    placed = cycle.place(entry, size - at_hand, closed)
    if isinstance(placed, Placed):
        named = fill(entry, cycle, assignment.vacant, placed.nodes)
        entry.events.append(
            Event("Normal", EventReason.NODES_TO_GROW, ActionWord.PLACE, f"the gang is to grow to {size}: {named}")
        )


def nodes_without_rank(entry: Entry) -> int:
    """Nodes of spares, and those that the gang is about to grow by."""
    assignment = entry.status.assignment
    return sum(1 for slot, rank in enumerate(slots.slot_ranks(assignment)) if rank < 0 and assignment.nodes[slot])


def _within_quota(entry: Entry, quota: Callable[[], QuotaBook], count: int) -> int:
    """How many of ``count`` further nodes the quotas have room for."""
    return count and quota().room(queue_of(entry.view), entry.status.resolved.gpu_type, count)


def fill(entry: Entry, cycle: CycleState, vacant: Sequence[int], nodes: Sequence[str]) -> str:
    """Put the new ones of ``nodes`` into ``vacant`` slots; in words, which went where."""
    found = cycle.by_slot(entry.status.assignment, vacant, nodes)
    assignment = slots.filled(entry.status.assignment, found)
    entry.status = slots.put(entry.status, assignment)
    cycle.book(entry, found.values())
    named = [f"slot {slot} on {node}" for slot, node in sorted(found.items())]
    return ", ".join(named[:_NODES_NAMED]) + (" and more" if len(named) > _NODES_NAMED else "")
