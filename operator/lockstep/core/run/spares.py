"""Spares: pods of the gang that wait at the barrier without a rank, and take a lost rank's place at once.

Which rank sits where is one list in status. To use a spare is to change that list, in the very write that ends
the attempt, and to touch no pod: the spare stands at the barrier already, with its image pulled and its node
checked. The slot that was lost becomes a spare's, and is filled again when there is a node for it. Spares are
never waited for, and what befalls one ends no attempt.
"""

from collections.abc import Iterator

from lockstep.api.base.changes import changed
from lockstep.core.model import assignment as slots
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.run_state import RunState
from lockstep.core.pods.launchers import may_join, takes_steps
from lockstep.core.pods.requirement import avoided_nodes
from lockstep.core.run.attendance import is_present, stands_ready

SETTLED_AFTER = 2.0
"""Seconds without news of a spare after which their number is worth a write."""


def promote_spares(plan: PlanBuilder) -> None:
    """Give the ranks that have no node to spares that are ready, those in the rack of a neighbour first."""
    joins = plan.phase is Phase.RUNNING and may_join(plan.run.spec)
    if plan.phase not in (Phase.LAUNCHING, Phase.RECOVERING) and not joins:
        return  # a START that was written says who is who
    lacking = set(slots.lacking(plan.status.assignment))
    homeless = [rank for rank, slot in enumerate(plan.ranked_slots()) if slot in lacking] if lacking else []
    ready = [slot for slot in _spare_slots(plan) if is_ready(plan, slot)] if homeless else []
    if not ready:
        return
    moved: dict[int, int] = {}
    for wanted in (True, False):  # first where it lies well, then wherever there is one
        for rank in homeless:
            racks = _racks_beside(plan, rank) if wanted else set()
            spare = next((slot for slot in ready if not wanted or rack_of(plan, slot) in racks), None)
            if rank not in moved and spare is not None:
                moved[rank] = spare
                ready.remove(spare)
    plan.status = slots.put(plan.status, slots.reseated(plan.status.assignment, moved))
    for rank, slot in sorted(moved.items()):
        node = plan.status.assignment.nodes[slot]
        plan.event(
            EventReason.SPARE_USED,
            f"the spare on {node} takes the place of rank {rank}",
            action=ActionWord.REPLACE_NODE,
            node=node,
        )


def is_ready(state: RunState, slot: int) -> bool:
    """The spare in ``slot`` stands at the barrier, on a node that nothing speaks against."""
    report, pod = state.report(slot), state.pod(slot)
    node = state.snapshot.nodes.get(state.status.assignment.nodes[slot])
    if report is None or report.problem or report.leaving_by or not is_present(report, state.now, state.silent_after):
        return False
    if not stands_ready(report, None, takes_steps=takes_steps(state.run.spec)):
        return False
    if pod is None or pod.is_terminal or pod.deleting or node is None or not node.ready or node.drain:
        return False
    avoided = avoided_nodes(state.status.recovery.excluded_nodes, state.now)
    return node.name not in {entry.node for entry in avoided}


def count_spares(plan: PlanBuilder) -> None:
    """How many of them are ready, into status, once it has come to rest."""
    wanted = plan.run.spec.spare_nodes if plan.run.spec is not None else 0
    if not wanted or plan.phase in (Phase.PENDING, Phase.SUSPENDED, Phase.FINISHED):
        plan.status = changed(plan.status, spares=f"0/{wanted}" if wanted and plan.phase is not Phase.FINISHED else "")
        return
    spares = list(_spare_slots(plan))
    count = f"{sum(1 for slot in spares if is_ready(plan, slot))}/{wanted}"
    if count == plan.status.spares:
        return
    newest = max((report.since for slot in spares if (report := plan.report(slot)) is not None), default=0.0)
    if plan.reached(newest + SETTLED_AFTER):
        plan.status = changed(plan.status, spares=count)


def _spare_slots(state: RunState) -> Iterator[int]:
    return (slot for slot in state.slot_range() if state.rank(slot) < 0)


def _racks_beside(state: RunState, rank: int) -> set[str]:
    seats = state.ranked_slots()
    return {rack_of(state, seats[near]) for near in (rank - 1, rank + 1) if 0 <= near < len(seats)} - {""}


def rack_of(state: RunState, slot: int) -> str:
    """The narrowest domain of the topology that the slot's node lies in; empty: none is known."""
    node = state.snapshot.nodes.get(state.status.assignment.nodes[slot])
    narrowest = next(iter(state.tunables.topology_levels.values()), "")
    return node.labels.get(narrowest, "") if node is not None else ""
