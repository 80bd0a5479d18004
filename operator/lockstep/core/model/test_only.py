"""Runs that only ask when they would start. They have no part in the queue and never get nodes."""

from lockstep.api.base import names
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView

KEPT = 600.0
"""Seconds for which a run is kept after its answer, for whoever asked to read it."""


def is_test_only(run: RunView) -> bool:
    """The run asks when it would start. Once a run has had nodes, the annotation counts for nothing."""
    asks = run.annotations.get(names.ANNOTATION_TEST_ONLY) == "true"
    return asks and run.status.attempt == 0 and not slots.is_held(run.status.assignment)


def forget_test_only(plan: PlanBuilder) -> None:
    """Have a run deleted that only asked, so long after it was answered, be it by a refusal."""
    run, status = plan.run, plan.status
    if not is_test_only(run) or run.deleting or is_true(status, ConditionType.STATE_REGRESSION) or plan.snapshot.pods:
        return
    if run.is_paused or plan.phase not in (Phase.PENDING, Phase.SUSPENDED, Phase.FINISHED):
        return
    answered = [] if status.test_only is None else [status.test_only.at]
    for kind, value in ((ConditionType.ACCEPTED, "False"), (ConditionType.FINISHED, "True")):
        found = find(status, kind)
        if found is not None and found.status == value:
            answered.append(found.last_transition_time)
    if answered:
        plan.delete_run = plan.reached(max(answered) + KEPT) or plan.delete_run
