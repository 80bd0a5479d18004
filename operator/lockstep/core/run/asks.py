"""What a batch job asks for from inside: to be requeued or cancelled, as ``scontrol requeue`` and ``scancel`` do.

A worker repeats what its programs ask for until it is answered. An answer is in status before anybody hears of it, so
that the same request, told twice or to two leaders, is one. It concerns the run whose worker tells it, and no other.
"""

from collections.abc import Iterator

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AskStatus, StopStatus
from lockstep.core.model.job_ids import has_job_id
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import Answer
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, EventReason, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import Ask
from lockstep.core.run.stopping import OUT_OF_SHARE, REQUEUES, begin_stop

MOST_KEPT = 8
"""Answers that status keeps. A worker asks for four things at a time, and forgets what is answered."""


def obey_asks(plan: PlanBuilder) -> None:
    """Take up what is asked for and was not before."""
    if not has_job_id(plan.run.spec) or plan.phase not in (Phase.RUNNING, Phase.STOPPING):
        return
    for ask in _new(plan):
        words = _obeyed(plan, ask)
        row = AskStatus(
            id=ask.id, kind=ask.kind, attempt=plan.status.attempt, ok=not words, words=words, time=plan.stamp
        )
        plan.status = changed(plan.status, asks=(*plan.status.asks, row)[-MOST_KEPT:])


def answers(state: RunState) -> tuple[Answer, ...]:
    """What the workers of the current attempt are told."""
    attempt = state.status.attempt
    return tuple(Answer(row.id, row.ok, row.words, row.job_id) for row in state.status.asks if row.attempt == attempt)


def _new(state: RunState) -> Iterator[Ask]:
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


def _obeyed(plan: PlanBuilder, ask: Ask) -> str:
    """Why it is not done; empty: it is."""
    if ask.kind == "requeue":
        return _requeue(plan)
    if ask.kind == "cancel":
        return _cancel(plan)
    if ask.kind == "hold":
        return f"a job does not hold itself; lockstep suspend {plan.run.name} has it wait"
    return f"{ask.kind[:32]} is nothing that can be asked for from inside a job"


def _requeue(plan: PlanBuilder) -> str:
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


def _turn(plan: PlanBuilder, stop: StopStatus, reason: StopReason) -> None:
    """A stop that has begun ends otherwise, and waits for no save any more: who asks has done what was to be done."""
    deadline = min(stop.deadline, plan.stamp + plan.tunables.deadlines.stop)
    message = f"the job asked for it; before: {stop.message}"[:512]
    turned = changed(stop, reason=reason.value, message=message, save="", deadline=deadline)
    plan.status = changed(plan.status, stop=turned)
    plan.event(EventReason.STOPPING, f"{reason}: {message}", action=ActionWord.STOP)
