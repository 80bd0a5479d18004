"""What a batch job asks for from inside: to be requeued or cancelled, as ``scontrol requeue`` and ``scancel`` do, or
that another one is submitted, as ``sbatch`` does.

A worker repeats what its programs ask for until it is answered. An answer is in status before anybody hears of it, so
that the same request, told twice or to two leaders, is one. It concerns the run whose worker tells it, and no other.
"""

from collections.abc import Iterator

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import AskStatus, StopStatus
from lockstep.core.batch.inside import SubmissionRefusedError, manifest_of, mark_of, notices_of, submitted_name
from lockstep.core.batch.submission import NumberedJob
from lockstep.core.model.conditions import find, is_accepted_or_waits
from lockstep.core.model.job_ids import has_job_id
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import AskAnswer, RefuseRun, SubmitRun
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, ConditionType, EventReason, StopReason
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.run_state import RunState
from lockstep.core.model.worker_report import JobAsk
from lockstep.core.run.requeueing import may_be_requeued
from lockstep.core.run.stop_record import end_save_of_stop, turn_stop
from lockstep.core.run.stopping import OUT_OF_SHARE, REQUEUES, begin_stop

_SOON = 0.5
"""Seconds until it is looked at again what has become of a job that was submitted."""
MOST_KEPT = 8
"""Answers that status keeps. A worker asks for four things at a time, and forgets what is answered."""


DISABLED = "Requested operation is presently disabled"
"""What Slurm says of a requeue that --no-requeue forbids."""
_MOST_LETTERS = 512  # as the API has it


def obey_asks(plan: PlanBuilder) -> None:
    """Take up what is asked for and was not before."""
    if not has_job_id(plan.run.spec) or plan.phase not in (Phase.RUNNING, Phase.STOPPING):
        return
    for ask in _new(plan):
        words, number = (_obeyed(plan, ask), None) if ask.kind != "submit" else _submit(plan, ask)
        if words is None:
            continue
        row = AskStatus(
            id=ask.id,
            kind=ask.kind,
            attempt=plan.status.attempt,
            ok=not words if ask.kind != "submit" else number is not None,
            words=words[:_MOST_LETTERS],
            job_id=number,
            time=plan.stamp,
        )
        plan.status = changed(plan.status, asks=(*plan.status.asks, row)[-MOST_KEPT:])


def answers(state: RunState) -> tuple[AskAnswer, ...]:
    """What the workers of the current attempt are told."""
    attempt = state.status.attempt
    return tuple(
        AskAnswer(row.id, row.ok, row.words, row.job_id) for row in state.status.asks if row.attempt == attempt
    )


def _new(state: RunState) -> Iterator[JobAsk]:
    known = {row.id for row in state.status.asks}
    taken = 0
    for slot in state.ranked_slots():
        report = state.report(slot)
        if report is None or report.attempt != state.status.attempt:
            continue
        for ask in report.asks:
            if ask.id not in known and taken < MOST_KEPT:
                known.add(ask.id)
                taken += 1
                yield ask


def _obeyed(plan: PlanBuilder, ask: JobAsk) -> str:
    """Why it is not done; empty: it is."""
    if ask.kind == "requeue":
        return _requeue(plan)
    if ask.kind == "cancel":
        return _cancel(plan)
    if ask.kind == "hold":
        return f"a job does not hold itself; lockstep suspend {plan.run.name} has it wait"
    return f"{ask.kind[:32]} is nothing that can be asked for from inside a job"


def _requeue(plan: PlanBuilder) -> str:
    if not may_be_requeued(plan.run):
        return DISABLED
    stop = plan.status.stop
    if stop is None:
        begin_stop(plan, StopReason.REQUEUED, "the job asked for it")
    elif stop.reason in OUT_OF_SHARE[:1]:  # by its trap, for the signal before its time limit
        _turn(plan, stop, StopReason.REQUEUED)
    elif stop.reason not in REQUEUES:
        return f"it is being stopped: {stop.reason}"
    return ""


def _cancel(plan: PlanBuilder) -> str:
    stop = plan.status.stop
    if stop is None:
        begin_stop(plan, StopReason.CANCELLED, "the job asked for it")
    elif stop.reason in REQUEUES or stop.reason == StopReason.SUSPENDED:
        _turn(plan, stop, StopReason.CANCELLED)
    return ""


def _submit(plan: PlanBuilder, ask: JobAsk) -> tuple[str | None, int | None]:
    """(why it is not done or what of it has no effect, its number). None: it is under way, and is looked at again."""
    snapshot, name = plan.snapshot, submitted_name(plan.run, ask)
    queue = snapshot.queue.spec if snapshot.queue is not None else None
    if queue is None or queue.batch is None or not queue.batch.submit_from_inside:
        return f"queue {queue_of(plan.view)} lets no job submit others (batch.submitFromInside)", None
    there, refused = snapshot.submitted.get(name), snapshot.refused_creates.get(name)
    plan.wake(plan.now + _SOON)
    if refused is not None and refused.is_verdict:  # it was never made, or is gone again
        return refused.message, None
    if there is not None:
        if there.annotations.get(names.ANNOTATION_SUBMITTED_BY) != mark_of(plan.run, ask):
            return f"a run {name} is in its way; delete or rename that", None
        number, accepted = there.status.job_id, find(there.status, ConditionType.ACCEPTED)
        unmet = " ".join(accepted.message.split()) if accepted is not None and accepted.status == "False" else ""
        if number is not None:
            waits = [f"it waits: {unmet}"] if unmet else []
            return "\n".join([*waits, *notices_of(plan.run, ask, _jobs(plan))]), number
        if unmet and not is_accepted_or_waits(there.status):
            seen = (there.namespace, there.name, there.uid, there.resource_version)
            plan.refused_runs.append(RefuseRun(*seen, unmet))
        return None, None
    if not plan.runs:  # one at a time, as many as a script may ask for
        try:
            plan.runs.append(SubmitRun(plan.run.namespace, name, manifest_of(plan.run, ask, _jobs(plan))))
        except SubmissionRefusedError as error:
            return str(error), None
    return None, None


def _jobs(plan: PlanBuilder) -> dict[int, NumberedJob]:
    return {number: NumberedJob(*known) for number, known in plan.snapshot.numbers.items()}


def _turn(plan: PlanBuilder, stop: StopStatus, reason: StopReason) -> None:
    """A stop that has begun ends otherwise, and waits for no save any more: who asks has done what was to be done."""
    deadline = min(stop.deadline, plan.stamp + plan.tunables.deadlines.stop)
    message = f"the job asked for it; before: {stop.message}"[:512]
    plan.status = end_save_of_stop(turn_stop(plan.status, reason, message), deadline)
    plan.event(EventReason.STOPPING, f"{reason}: {message}", action=ActionWord.STOP)
