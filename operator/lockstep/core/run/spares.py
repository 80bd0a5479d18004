"""Spares: pods of the gang that wait at the barrier without a rank, and take a lost rank's place at once.

Which rank sits where is one list in status. To use a spare is to change that list, in the very write that ends
the attempt, and to touch no pod: the spare stands at the barrier already, with its image pulled and its node
checked. The slot that was lost becomes a spare's, and is filled again when there is a node for it. Spares are
never waited for, and what befalls one ends no attempt.
"""

from collections.abc import Iterator

from lockstep.api.base.changes import changed
from lockstep.core.model import assignment as slots
from lockstep.core.model.draft import Draft
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.snapshot import WorkerPhase
from lockstep.core.pods.requirement import avoided_nodes

SETTLED_AFTER = 2.0
"""Seconds without news of a spare after which their number is worth a write."""


def seat_spares(draft: Draft) -> None:
    """Give the ranks that have no node to spares that are ready, those in the rack of a neighbour first."""
    if draft.phase not in (Phase.LAUNCHING, Phase.RECOVERING):
        return  # a START that was written says who is who
    lacking = set(slots.lacking(draft.status.assignment))
    homeless = [rank for rank, slot in enumerate(draft.ranked_slots()) if slot in lacking] if lacking else []
    ready = [slot for slot in _spare_slots(draft) if is_ready(draft, slot)] if homeless else []
    if not ready:
        return
    moved: dict[int, int] = {}
    for wanted in (True, False):  # first where it lies well, then wherever there is one
        for rank in homeless:
            racks = _racks_beside(draft, rank) if wanted else set()
            spare = next((slot for slot in ready if not wanted or rack_of(draft, slot) in racks), None)
            if rank not in moved and spare is not None:
                moved[rank] = spare
                ready.remove(spare)
    draft.status = changed(draft.status, assignment=slots.reseated(draft.status.assignment, moved))
    for rank, slot in sorted(moved.items()):
        node = draft.status.assignment.nodes[slot]
        draft.event(
            EventReason.SPARE_USED,
            f"the spare on {node} takes the place of rank {rank}",
            action=ActionWord.REPLACE_NODE,
            node=node,
        )


def is_ready(draft: Draft, slot: int) -> bool:
    """The spare in ``slot`` stands at the barrier, on a node that nothing speaks against."""
    report, pod = draft.report(slot), draft.pod(slot)
    node = draft.snapshot.nodes.get(draft.status.assignment.nodes[slot])
    if report is None or report.phase is not WorkerPhase.READY or report.problem or report.leaving_by:
        return False
    if pod is None or pod.is_terminal or pod.deleting or node is None or not node.ready or node.drain:
        return False
    avoided = avoided_nodes(draft.status.recovery.excluded_nodes, draft.now)
    heard = report.polling or draft.now - report.received_at <= draft.silent_after
    return heard and node.name not in {entry.node for entry in avoided}


def count_spares(draft: Draft) -> None:
    """How many of them are ready, into status, once it has come to rest."""
    wanted = draft.run.spec.spare_nodes if draft.run.spec is not None else 0
    if not wanted or draft.phase in (Phase.PENDING, Phase.SUSPENDED, Phase.FINISHED):
        draft.status = changed(
            draft.status, spares=f"0/{wanted}" if wanted and draft.phase is not Phase.FINISHED else ""
        )
        return
    spares = list(_spare_slots(draft))
    count = f"{sum(1 for slot in spares if is_ready(draft, slot))}/{wanted}"
    if count == draft.status.spares:
        return
    newest = max((report.since for slot in spares if (report := draft.report(slot)) is not None), default=0.0)
    if draft.now - newest < SETTLED_AFTER:
        draft.wake(newest + SETTLED_AFTER)
        return
    draft.status = changed(draft.status, spares=count)


def _spare_slots(draft: Draft) -> Iterator[int]:
    return (slot for slot in draft.slot_range() if draft.rank(slot) < 0)


def _racks_beside(draft: Draft, rank: int) -> set[str]:
    seats = draft.ranked_slots()
    return {rack_of(draft, seats[near]) for near in (rank - 1, rank + 1) if 0 <= near < len(seats)} - {""}


def rack_of(draft: Draft, slot: int) -> str:
    """The narrowest domain of the topology that the slot's node lies in; empty: none is known."""
    node = draft.snapshot.nodes.get(draft.status.assignment.nodes[slot])
    narrowest = next(iter(draft.tunables.topology_levels.values()), "")
    return node.labels.get(narrowest, "") if node is not None else ""
