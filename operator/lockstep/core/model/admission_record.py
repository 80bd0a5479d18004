"""What admission remembers of a run: ``status.admission`` is changed here and nowhere else."""

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AdmissionStatus, TrainingRunStatus
from lockstep.core.model.reasons import StopReason

_AHEAD = (StopReason.PREEMPTED, StopReason.NODES_LOST, StopReason.EVICTED_BY_KUEUE, StopReason.RESERVATION_LOST)


def record_wait(status: TrainingRunStatus, since: float | None) -> TrainingRunStatus:
    """It waits for nodes since then; None: it does not."""
    return changed(status, admission=changed(status.admission, since=since))


def record_first_estimate(status: TrainingRunStatus, start: float) -> TrainingRunStatus:
    """When it was expected to start, as it was told first."""
    return changed(status, admission=changed(status.admission, first_estimate=start))


def record_dependencies(status: TrainingRunStatus, met: tuple[str, ...], failed: tuple[str, ...]) -> TrainingRunStatus:
    """Which of them were met, and which can never be."""
    return changed(status, admission=changed(status.admission, met=met, failed=failed))


def record_limit(status: TrainingRunStatus, granted: int | None, asked: str, why: str) -> TrainingRunStatus:
    """Its time limit in seconds, for which spec.timeLimit; ``why`` it is not all of that."""
    admission = changed(status.admission, time_limit=granted, asked_limit=asked, limited_by=why)
    return changed(status, admission=admission)


def record_admission(status: TrainingRunStatus, since: float, *, backfilled: bool) -> TrainingRunStatus:
    """It has its nodes, for which it waited since then."""
    return changed(status, admission=changed(status.admission, since=since, requeued_for="", backfilled=backfilled))


def requeue(status: TrainingRunStatus, reason: str) -> TrainingRunStatus:
    """It has given its nodes back. Through no wish of its user: it keeps its age, and goes to the head of its class."""
    before, ahead = status.admission, reason in _AHEAD
    return changed(
        status,
        admission=AdmissionStatus(
            since=before.since if ahead else None,
            requeued_for=reason if ahead else "",
            met=before.met,
            failed=before.failed,
            preemptions=before.preemptions + (reason == StopReason.PREEMPTED),
        ),
    )
