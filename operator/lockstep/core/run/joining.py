"""Nodes that join an attempt which goes on: where its programs bear the loss of a node, as Ray's do.

What is lost is replaced as ever, by the next incarnation of its slot or by a spare. Once the new one stands at the
barrier START is written anew with it, and its worker is released by that; everybody else goes on with what it has. A
rank that START does not name at its slot's incarnation is yet to join, whoever leads: nothing else is remembered of it.
"""

from collections.abc import Sequence

from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.failures.ranks import slots_to_join
from lockstep.core.failures.recovery_record import remember_first_failure
from lockstep.core.model import assignment as slots
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, AttemptCause, EventReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.start_record import renew_start
from lockstep.core.pods.launchers import may_join
from lockstep.core.run.replacement import exclude_node, replace
from lockstep.core.run.spares import is_ready


def go_on_without(plan: PlanBuilder, lost: list[Loss], replaceable: Sequence[Loss], *, over: bool) -> list[Loss]:
    """Replace what the attempt can go on without; returns what is left of ``lost``, which ends it.

    ``over``: it is at its end anyway, and all that is lost belongs to that.
    """
    if over or not may_join(plan.run.spec) or any(plan.rank(loss.slot) == 0 for loss in lost):
        return lost
    if replaceable:
        replace(plan, replaceable)
    for loss in replaceable:
        if loss.kind is LossKind.NODE:  # when it is back it is not to be trusted
            plan.status = remember_first_failure(plan.status, loss.node, AttemptCause.NODE_LOST, plan.stamp)
            exclude_node(plan, loss, plan.tunables.excluded_node_seconds)
    return []


def take_in(plan: PlanBuilder) -> None:
    """Write START anew with whoever has come to the barrier since."""
    start, assignment = plan.status.start, plan.status.assignment
    if plan.phase is not Phase.RUNNING or start is None or not may_join(plan.run.spec):
        return
    absent = slots_to_join(plan)
    arrived = {slot for slot in absent if _has_arrived(plan, slot)}
    if not arrived:
        return
    before = dict(plan.members)
    # Of those still absent START names what it named before, or what came before them: not them, in any case.
    others = {slot: before.get(slot, assignment.incarnations[slot] - 1) for slot in absent - arrived}
    members, order = slots.members(assignment, others), slots.order(assignment)
    plan.status = renew_start(plan.status, assignment.hash, members, order, plan.stamp)
    for slot in sorted(arrived, key=plan.rank):
        node = assignment.nodes[slot]
        words = f"rank {plan.rank(slot)} on {node} joins attempt {start.attempt}, which has gone on without it"
        plan.event(EventReason.JOINED, words, action=ActionWord.START, node=node)


def _has_arrived(state: RunState, slot: int) -> bool:
    report = state.report(slot)
    return report is not None and report.ready_for == state.status.attempt and is_ready(state, slot)
