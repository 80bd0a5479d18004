"""One-shot requests by annotation: a token not seen before is taken up once, and acknowledged in status."""

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import RequestStatus
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.saves import ask_for_save, grace_period, last_trained
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, AttemptEnd, EventReason, RequestResult, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.run.attempt_end import next_attempt
from lockstep.core.run.stopping import stop_after_save

_MAX_TOKEN = 64
_HOLDING_NODES = (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING)


def obey_annotations(plan: PlanBuilder, *, only_stops: bool = False) -> bool:
    """Take up the requests whose token is new; those that do not apply now are said to be so.

    True when the run stops because of one. ``only_stops``: the others wait.
    """
    if not only_stops and _is_new(plan, names.ANNOTATION_CHECKPOINT_REQUEST):
        _acknowledge(plan, names.ANNOTATION_CHECKPOINT_REQUEST, _ask_to_save(plan))
    if not only_stops and _is_new(plan, names.ANNOTATION_RESTART_REQUEST):
        applies = plan.phase in _HOLDING_NODES
        _acknowledge(
            plan, names.ANNOTATION_RESTART_REQUEST, RequestResult.TAKEN_UP if applies else RequestResult.NOT_RUNNING
        )
        if plan.phase is Phase.RUNNING:
            _end_attempt(plan)
            plan.status = next_attempt(plan.status, plan.stamp)
            where = " in place" if plan.has_workers else ""
            plan.event(
                EventReason.RESTART_REQUESTED, f"all ranks start again{where}", action=ActionWord.RESTART_IN_PLACE
            )
    if _is_new(plan, names.ANNOTATION_REQUEUE_REQUEST):
        applies = plan.phase in _HOLDING_NODES or (only_stops and bool(plan.live_pods))
        _acknowledge(
            plan, names.ANNOTATION_REQUEUE_REQUEST, RequestResult.TAKEN_UP if applies else RequestResult.NOT_RUNNING
        )
        if applies:
            stop_after_save(plan, StopReason.REQUEUED, "requested by annotation")
            return True
    return False


def _end_attempt(plan: PlanBuilder) -> None:
    last = last_trained(plan, latest_valid(plan.snapshot, plan.status))
    plan.put_attempt(
        changed(plan.attempt(plan.status.attempt), ended_at=plan.stamp, last_step=last),
        cause=AttemptEnd.REQUESTED,
        action=ActionWord.RESTART_IN_PLACE,
    )


def _ask_to_save(plan: PlanBuilder) -> RequestResult:
    """The first word on a request to save; what became of it is added once that is known."""
    if plan.phase is not Phase.RUNNING:
        return RequestResult.NOT_RUNNING
    asked = ask_for_save(plan, AttemptEnd.REQUESTED, plan.stamp + grace_period(plan))
    return RequestResult.TAKEN_UP if asked else RequestResult.NOBODY_LISTENS


def _is_new(state: RunState, annotation: str) -> bool:
    token = state.run.annotations.get(annotation, "")[:_MAX_TOKEN]
    name = annotation.partition("/")[2]
    return bool(token) and all(r.name != name or r.token != token for r in state.status.requests)


def _acknowledge(plan: PlanBuilder, annotation: str, result: RequestResult) -> None:
    name, token = annotation.partition("/")[2], plan.run.annotations[annotation][:_MAX_TOKEN]
    request = RequestStatus(name=name, token=token, time=plan.stamp, result=result)
    plan.status = changed(plan.status, requests=(*(r for r in plan.status.requests if r.name != name), request))
