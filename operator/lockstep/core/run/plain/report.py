"""What the status tells people of a gang without workers: pods that run, and that more is not known."""

from lockstep.api.base.changes import changed
from lockstep.core.failures.ranks import half_finished
from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionReason, ConditionType
from lockstep.core.run.plain.gang import ranks_not_up

SETTLED_AFTER = 2.0
"""Seconds without another start after which the count of pods that run is worth a write."""
_NO_BARRIER = "there is no barrier (worker: Disabled): pods start as they come"


def report_plain_gang(plan: PlanBuilder, waiting_for: str) -> None:
    """GangReady and Progressing of a gang that holds nodes and is not being stopped."""
    if plan.phase is Phase.RUNNING:
        _report_pods(plan)
        words = "; ".join(filter(None, ("worker: Disabled, so no steps are reported", half_finished(plan))))
        plan.condition(ConditionType.PROGRESSING, None, ConditionReason.STEPS_UNKNOWN, words)
        return
    plan.status = changed(plan.status, nodes_ready=f"0/{plan.world}")
    plan.condition(ConditionType.GANG_READY, False, ConditionReason.GATHERING, waiting_for)
    plan.condition(ConditionType.PROGRESSING, False, ConditionReason(plan.phase.value), "")


def _report_pods(plan: PlanBuilder) -> None:
    missing, world = ranks_not_up(plan), plan.world
    count = f"{world - len(missing)}/{world}"
    before = find(plan.status, ConditionType.GANG_READY)
    if not missing:
        words = f"attempt {plan.status.attempt} runs on all ranks; {_NO_BARRIER}"
        plan.status = changed(plan.status, nodes_ready=count)
        plan.condition(ConditionType.GANG_READY, True, ConditionReason.STARTED, words)
        return
    fresh = before is None or before.reason != ConditionReason.PODS_STARTING
    newest = max((at for pod in plan.live_pods if (at := pod.started_at or 0.0) <= plan.now), default=0.0)
    if not fresh and (not plan.reached(newest + SETTLED_AFTER) or count == plan.status.nodes_ready):
        return
    first = missing[0]
    node = plan.status.assignment.nodes[first.slot]
    words = f"{len(missing)} of {world} are missing; rank {plan.rank(first.slot)} on {node}: {first.stage.value}"
    words += f": {first.detail}" if first.detail else ""
    plan.status = changed(plan.status, nodes_ready=count)
    plan.condition(ConditionType.GANG_READY, False, ConditionReason.PODS_STARTING, f"{words}; {_NO_BARRIER}")
