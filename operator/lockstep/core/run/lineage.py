"""Which run goes on from which: a record of the one before, and a link to the one after.

The one before may be gone, as a run of the same name takes the place of its object. Its record is then what the user's
command wrote into an annotation: told, and believed in nothing.
"""

from collections.abc import Iterable

from pydantic import TypeAdapter, ValidationError

from lockstep.api.base import names, nesting
from lockstep.api.base.changes import changed
from lockstep.api.lineage_status import MAX_ATTEMPTS, MAX_PREVIOUS, MAX_STEP, LinkedRun, PreviousRun
from lockstep.api.run_status import Condition, TrainingRunStatus
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionType, Outcome, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.sanitise import line
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.test_only import is_test_only
from lockstep.core.run.way_back import newest_saved

MOST_READ = 8192
"""Characters of the annotation, which has eight records at most."""
_RECORDS = TypeAdapter(tuple[PreviousRun, ...])


def records_of(run: RunView) -> tuple[PreviousRun, ...]:
    """What a run that goes on from ``run`` is to have in ``status.previous``."""
    status = run.status
    finished = find(status, ConditionType.FINISHED)
    end = finished if finished is not None and finished.status == "True" else None
    saved = newest_saved(status)
    record = PreviousRun(
        name=run.name,
        uid=run.uid,
        outcome=_outcome(status, end) if end is not None else "",
        reason=end.reason[:64] if end is not None else "",
        ended=end.last_transition_time if end is not None else None,
        attempts=_within(status.totals.attempts, MAX_ATTEMPTS),
        step=_within(status.progress.step, MAX_STEP),
        saved=_within(saved, MAX_STEP) if saved is not None else None,
    )
    return (record, *status.previous)[:MAX_PREVIOUS]


def _within(number: int, most: int) -> int:
    """Somebody may have edited the status."""
    return min(max(number, 0), most)


def _outcome(status: TrainingRunStatus, end: Condition) -> str:
    if is_true(status, ConditionType.SUCCEEDED):
        return Outcome.SUCCEEDED.value
    return (Outcome.CANCELLED if end.reason == StopReason.CANCELLED else Outcome.FAILED).value


def records_in(annotation: str) -> tuple[PreviousRun, ...]:
    """The records in an annotation; none where anything about it is wrong."""
    if not annotation or len(annotation) > MOST_READ:
        return ()
    try:
        found = _RECORDS.validate_python(nesting.loads(annotation))
    except (ValidationError, ValueError):
        return ()
    if any(each.outcome not in ("", *Outcome) for each in found):
        return ()
    return tuple(
        changed(each, name=line(each.name), uid=line(each.uid), reason=line(each.reason))
        for each in found[:MAX_PREVIOUS]
    )


def record_previous(plan: PlanBuilder) -> None:
    """Write once what the run goes on from: of a run that is there by its object, else as it was told."""
    if plan.status.previous:
        return
    origin, resolved = plan.snapshot.origin, plan.status.resolved
    if origin is not None and origin.uid == resolved.start_run_uid:
        plan.status = changed(plan.status, previous=records_of(origin))
    elif found := records_in(plan.run.annotations.get(names.ANNOTATION_PREVIOUS, "")):
        plan.status = changed(plan.status, previous=found)


def record_next(plan: PlanBuilder) -> None:
    """Of a run that has ended: the latest that goes on from it, or begins anew in its place. The link stays when that
    one is deleted."""
    latest = _latest(plan)
    if latest is not None and plan.status.next != (link := LinkedRun(name=latest.name, uid=latest.uid)):
        plan.status = changed(plan.status, next=link)


def _latest(state: RunState) -> RunView | None:
    going_on: Iterable[RunView] = (
        run
        for run in state.snapshot.successors
        if state.run.uid in (run.status.resolved.start_run_uid, *(before.uid for before in run.status.previous[:1]))
        and not is_test_only(run)
    )
    return max(going_on, key=lambda run: (run.created_at, run.uid), default=None)
