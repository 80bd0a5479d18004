"""One-shot requests by annotation: a token not seen before is taken up once, and acknowledged in status."""

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import RequestStatus
from lockstep.core.checkpoints.saves import ask_for_save, grace_period
from lockstep.core.model.draft import Draft
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ActionWord, AttemptEnd, EventReason, RequestResult, StopReason
from lockstep.core.run.stopping import stop_after_save

_MAX_TOKEN = 64
_HOLDING_NODES = (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING)


def obey_requests(draft: Draft) -> bool:
    """Take up the requests whose token is new; those that do not apply now are said to be so.

    True when the run stops because of one.
    """
    if _is_new(draft, names.ANNOTATION_CHECKPOINT_REQUEST):
        _acknowledge(draft, names.ANNOTATION_CHECKPOINT_REQUEST, _asked_to_save(draft))
    if _is_new(draft, names.ANNOTATION_RESTART_REQUEST):
        applies = draft.phase in _HOLDING_NODES
        _acknowledge(
            draft, names.ANNOTATION_RESTART_REQUEST, RequestResult.TAKEN_UP if applies else RequestResult.NOT_RUNNING
        )
        if draft.phase is Phase.RUNNING:
            _end_attempt(draft)
            draft.status = changed(draft.status, attempt=draft.status.attempt + 1)
            where = " in place" if draft.has_workers else ""
            draft.event(
                EventReason.RESTART_REQUESTED, f"all ranks start again{where}", action=ActionWord.RESTART_IN_PLACE
            )
    if _is_new(draft, names.ANNOTATION_REQUEUE_REQUEST):
        applies = draft.phase in _HOLDING_NODES
        _acknowledge(
            draft, names.ANNOTATION_REQUEUE_REQUEST, RequestResult.TAKEN_UP if applies else RequestResult.NOT_RUNNING
        )
        if applies:
            stop_after_save(draft, StopReason.REQUEUED, "requested by annotation")
            return True
    return False


def _end_attempt(draft: Draft) -> None:
    number = draft.status.attempt
    told = [r.progress.step for r in draft.snapshot.reports.values() if r.attempt == number and r.progress is not None]
    draft.put_attempt(
        changed(draft.attempt(number), ended_at=draft.stamp, last_step=max(told, default=None)),
        cause=AttemptEnd.REQUESTED,
        action=ActionWord.RESTART_IN_PLACE,
    )


def _asked_to_save(draft: Draft) -> RequestResult:
    """The first word on a request to save; what became of it is added once that is known."""
    if draft.phase is not Phase.RUNNING:
        return RequestResult.NOT_RUNNING
    asked = ask_for_save(draft, AttemptEnd.REQUESTED, draft.stamp + grace_period(draft))
    return RequestResult.TAKEN_UP if asked else RequestResult.NOBODY_LISTENS


def _is_new(draft: Draft, annotation: str) -> bool:
    token = draft.run.annotations.get(annotation, "")[:_MAX_TOKEN]
    name = annotation.partition("/")[2]
    return bool(token) and all(r.name != name or r.token != token for r in draft.status.requests)


def _acknowledge(draft: Draft, annotation: str, result: RequestResult) -> None:
    name, token = annotation.partition("/")[2], draft.run.annotations[annotation][:_MAX_TOKEN]
    request = RequestStatus(name=name, token=token, time=draft.stamp, result=result)
    draft.status = changed(draft.status, requests=(*(r for r in draft.status.requests if r.name != name), request))
