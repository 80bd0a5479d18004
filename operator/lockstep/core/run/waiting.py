"""What ends the wait of a run that has no nodes, and what becomes of its record once it has ended."""

from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import QueueLimits
from lockstep.core.admission.queueing.dependencies import record_of
from lockstep.core.model.limits import asked_limit
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionReason, ConditionType, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import JobPhase, RunView
from lockstep.core.run.stopping import finish, stop_after_save

_ASK_AGAIN = 2.0
"""Seconds until it is checked again whether nodes are kept for the run that preempts another."""


def give_up_waiting(plan: PlanBuilder) -> bool:
    """End a pending run that can never start any more, as by its dependencies: True when it has ended."""
    spec = plan.spec
    remembered = plan.status.admission.failed
    failed = [each.name for each in spec.depends_on if record_of(each) in remembered]  # as they are now
    if failed and spec.on_unsatisfiable == "Fail":
        finish(
            plan,
            False,
            StopReason.DEPENDENCY_NEVER_SATISFIED,
            f"{plan.status.queue.message or ', '.join(failed)}; onUnsatisfiable: Fail",
        )
        return True
    late = missed_deadline(plan)
    if late:
        finish(plan, False, StopReason.DEADLINE_UNREACHABLE, late)
    return bool(late)


def missed_deadline(state: RunState) -> str:
    """Why a run without nodes can start no more: it could not end before its deadline. Empty: it can."""
    spec, attempt = state.spec, state.status.attempt
    if spec.deadline is None:
        return ""
    queue = state.snapshot.queue
    limit = asked_limit(spec, queue.spec.limits if queue is not None else QueueLimits())
    least = parse_duration(spec.min_time_limit) if spec.min_time_limit is not None else limit
    if not state.passed(spec.deadline - max(0, (least or 0) - state.status.held_seconds), margin=1.0):
        return ""
    nodes = f"it got no nodes again in time after attempt {attempt}" if attempt else "it never got nodes in time"
    return f"a start now would not end before spec.deadline; {nodes}"


def leave_drained_queue(plan: PlanBuilder) -> bool:
    """Give the nodes back, after a save, when the queue is being drained. True when the run stops."""
    queue = plan.snapshot.queue
    if queue is None or queue.spec.stop_policy != "HoldAndDrain":
        return False
    stop_after_save(plan, StopReason.QUEUE_DRAINED, f"queue {queue.name} has stopPolicy HoldAndDrain; it queues again")
    return True


def stop_for_preemption(plan: PlanBuilder) -> bool:
    """Give the nodes back, after a save, to the run that the notice in status names. True when the run stops.

    A notice may take effect late, when that run has started elsewhere or is gone: the stop begins only while nodes are
    kept for it, and for any other notice an admission cycle is asked, which withdraws it.
    """
    notice = plan.status.preemption
    if notice is None:
        return False
    waits = plan.snapshot.preemptor
    kept = waits.status.reservation if waits is not None and waits.uid == notice.by else None
    if kept is None or plan.run.uid not in kept.victims:
        plan.admission_changed = True
        plan.wake(plan.now + _ASK_AGAIN)
        return False
    stop_after_save(plan, StopReason.PREEMPTED, f"preempted for {notice.name or 'another run'}; it queues again")
    return True


def over_at(run: RunView, ended: float) -> float | None:
    """When the time of a run is over that ended at ``ended``; None: it is kept."""
    ttl = run.spec.ttl_after_finished if run.spec is not None and not run.spec_error else run.ttl_written
    return None if not ttl else ended + parse_duration(ttl)


def forget_when_due(plan: PlanBuilder, ended: float) -> None:
    """Have the run deleted ``ttlAfterFinished`` after its end, once none of its pods is left.

    A run of a set waits for its outcome to be on record there as well; the store has it reconciled when that is so.
    A paused one stays. Where it cannot be read for how long the run is to be kept, that is told.
    """
    run = plan.run
    due = over_at(run, ended)
    if due is not None and plan.reached(due) and plan.snapshot.recorded and not run.is_paused:
        plan.delete_run = not plan.live_pods and not _archives(plan)
    if run.spec_error and run.ttl_written == "":
        words = f"{run.spec_error}; so the run is kept, as it cannot be read for how long it is to be: delete it"
        plan.condition(ConditionType.ACCEPTED, False, ConditionReason.INVALID_SPEC, words)


def _archives(state: RunState) -> bool:
    """The job that it waits for is at work; once the spec cannot be read nobody takes down that it has ended."""
    job = state.status.checkpoint.archive.job
    if job is None or not state.run.spec_error:
        return job is not None
    return any(each.name == job.name and each.phase is JobPhase.ACTIVE for each in state.snapshot.jobs)
