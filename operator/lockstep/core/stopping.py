"""Stops: the intent is written first, then the ranks end, then the nodes are given back."""

from lockstep.api.run_status import StopStatus
from lockstep.core import assignment as slots
from lockstep.core.budget import backoff
from lockstep.core.draft import Draft
from lockstep.core.evidence import losses
from lockstep.core.leftovers import holds_up
from lockstep.core.snapshot import WorkerPhase

SUSPENDED, CANCELLED, REQUEUED = "Suspended", "Cancelled", "Requeued"
_AT_REST = (WorkerPhase.EXITED, WorkerPhase.READY, WorkerPhase.PREPARING)


def begin_stop(draft: Draft, reason: str, message: str) -> None:
    """Write that the run stops. ``reason`` other than the three above is why the run fails."""
    deadline = draft.stamp + draft.tunables.deadlines.stop
    draft.update(stop=StopStatus(reason=reason, message=message[:512], time=draft.stamp, deadline=deadline))
    failed = reason not in (SUSPENDED, CANCELLED, REQUEUED)
    draft.event("Stopping", f"{reason}: {message}", action="Stop", warning=failed)


def carry_out_stop(draft: Draft) -> None:
    """Wait for the ranks to end, at most until the deadline; then finish, or delete the pods and release."""
    stop = draft.status.stop
    assert stop is not None
    if stop.reason in (SUSPENDED, REQUEUED) and draft.spec.cancel:
        draft.update(stop=stop.model_copy(update={"reason": CANCELLED, "message": "cancel: true"}))
        stop = draft.status.stop
        assert stop is not None
    if not _ranks_have_ended(draft) and draft.now < stop.deadline:
        draft.wake(stop.deadline)
        return
    _end_history(draft, stop.reason, stop.message)
    if stop.reason in (SUSPENDED, REQUEUED):
        draft.delete_live_pods(stop.reason)
        if not any(holds_up(pod, draft.snapshot.nodes) for pod in draft.live_pods):
            _release(draft, requeued=stop.reason == REQUEUED)
        return
    finish(draft, False, stop.reason, stop.message)


def finish(draft: Draft, succeeded: bool, reason: str, message: str) -> None:
    """The end of the run, for good."""
    draft.update(stop=None)
    draft.condition("Succeeded", succeeded, reason, message)
    draft.condition("Finished", True, reason, message)
    draft.event("Succeeded" if succeeded else reason, message, action="Finish", warning=not succeeded)
    draft.admission_changed = True


def _ranks_have_ended(draft: Draft) -> bool:
    """No rank still has a process, as far as anybody is left to say so."""
    lost = {loss.slot for loss in losses(draft)}
    for slot in draft.slot_range():
        pod, report = draft.pod(slot), draft.report(slot)
        if slot in lost or pod is None or pod.started_at is None:
            continue
        if report is None and draft.status.start is not None:
            return False
        if report is not None and report.phase not in _AT_REST:
            return False
    return True


def _release(draft: Draft, *, requeued: bool) -> None:
    recovery = draft.status.recovery.model_copy(update={"slot_losses": ()})
    if requeued:
        tunables = draft.tunables
        wait = backoff(recovery.requeues + 2, tunables.backoff_base, tunables.backoff_max, draft.run.uid)
        recovery = recovery.model_copy(
            update={"requeues": recovery.requeues + 1, "not_before": float(int(draft.now + wait))}
        )
    draft.update(assignment=slots.released(draft.status.assignment), start=None, stop=None, recovery=recovery)
    draft.admission_changed = True


def _end_history(draft: Draft, cause: str, message: str) -> None:
    entry = draft.attempt_entry(draft.status.attempt)
    if entry is not None and entry.ended_at is None:
        step = max((r.progress.step for r in draft.snapshot.reports.values() if r.progress), default=None)
        draft.amend_attempt(
            entry.number, ended_at=draft.stamp, cause=cause, message=message, action="Stop", last_step=step
        )
