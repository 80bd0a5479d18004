"""Nodes that are to be left: the gang saves, gives up these nodes alone, and goes on from there on others.

Said by the annotation that `lockstep nodes drain` sets, by taints that the configuration names, by Kueue where it has
named others instead, or, where a run wants it so (``recovery.onCordon: Migrate``), by a cordon. A planned move is
charged to nobody, and keeps no node from being used again later.
"""

from lockstep.api.base.changes import changed
from lockstep.core.checkpoints.checkpoint_record import record_latest
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.saves import ask_for_save, has_just_settled_for, last_trained
from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.failures.ranks import goes_on_without
from lockstep.core.model.kept_nodes import is_kept
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, AttemptEnd, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.save_signal import longest_wait_for_save
from lockstep.core.model.snapshot import NodeView
from lockstep.core.run.attempt_end import next_attempt
from lockstep.core.run.kueue_follow import swapped_out
from lockstep.core.run.replacement import replace
from lockstep.core.run.requeueing import ends_instead
from lockstep.core.run.stopping import stop_after_save


def leave_drained_nodes(plan: PlanBuilder) -> None:
    """Move the slots on drained nodes: at once where nothing trains, after a save where something does."""
    if plan.phase not in (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING):
        return
    if plan.snapshot.leadership.disruption:
        return  # while the cluster itself looks broken nobody gives up a node that works
    drained = _drained(plan)
    at_work = [loss for loss in drained if plan.phase is Phase.RUNNING and _is_needed(plan, loss.slot)]
    idle = [loss for loss in drained if loss not in at_work]
    if at_work and ends_instead(plan):
        stop_after_save(plan, StopReason.NODES_LOST, at_work[0].message)
        return
    if at_work and not _ensure_saved(plan):
        at_work = []
    if at_work:
        _end_attempt(plan, at_work)
    if at_work or idle:
        replace(plan, [*at_work, *idle])


def leave_drained_nodes_kept(plan: PlanBuilder) -> None:
    """What is kept for debugging after the end of the run leaves them too; the rest of it stays."""
    if not is_kept(plan.status) or plan.snapshot.leadership.disruption:
        return
    for pod in plan.live_pods:
        node = plan.snapshot.nodes.get(pod.node)
        if node is not None and (why := _why(plan, node)):
            plan.delete(pod, f"node {node.name} is to be left: {why}")


def _drained(state: RunState) -> list[Loss]:
    found = []
    swapped = swapped_out(state)
    for slot, name in enumerate(state.status.assignment.nodes):
        node = state.snapshot.nodes.get(name)
        why = _why(state, node) if node is not None else ""
        if not why and node is not None and name in swapped:
            why = "Kueue has put another in its place"
        if why:
            found.append(
                Loss(slot, name, LossKind.DRAINED, AttemptEnd.DRAINED, f"node {name} is to be left: {why}", state.now)
            )
    return found


def _is_needed(state: RunState, slot: int) -> bool:
    """Others wait for the rank in it: they go on without a spare, and some without any rank but the first."""
    return state.rank(slot) >= 0 and not goes_on_without(state, slot)


def _why(state: RunState, node: NodeView) -> str:
    """Why the node is to be left, in words; empty when it is not."""
    if node.drain:
        return node.drain
    taint = next((taint.key for taint in node.taints if taint.key in state.tunables.drain_taints), "")
    if taint:
        return f"it bears the taint {taint}"
    if node.unschedulable and state.run.spec is not None and state.spec.recovery.on_cordon == "Migrate":
        return "it was cordoned, and recovery.onCordon is Migrate"
    return ""


def _ensure_saved(plan: PlanBuilder) -> bool:
    """The gang has saved for this just now, as well as it could; False while that is awaited."""
    if has_just_settled_for(plan, AttemptEnd.DRAINED):
        return True
    return not ask_for_save(plan, AttemptEnd.DRAINED, plan.stamp + longest_wait_for_save(plan.spec, plan.tunables))


def _end_attempt(plan: PlanBuilder, drained: list[Loss]) -> None:
    first, latest = drained[0], latest_valid(plan.snapshot, plan.status)
    plan.put_attempt(
        changed(
            plan.attempt(plan.status.attempt),
            ended_at=plan.stamp,
            message=first.message[:512],
            node=first.node,  # and no rank: none failed
            last_step=last_trained(plan, latest),
            charged=False,
        ),
        cause=AttemptEnd.DRAINED,
        action=ActionWord.REPLACE,
    )
    plan.status = next_attempt(record_latest(plan.status, latest), plan.stamp)
