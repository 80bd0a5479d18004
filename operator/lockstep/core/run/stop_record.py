"""What status keeps of a stop under way: ``status.stop`` is changed here and nowhere else."""

from lockstep.api.base.changes import changed
from lockstep.api.run_status import StopStatus, TrainingRunStatus
from lockstep.core.model.reasons import StopReason

_MOST_LETTERS = 512


def record_stop(
    status: TrainingRunStatus, reason: StopReason, message: str, now: float, deadline: float, *, save: str = ""
) -> TrainingRunStatus:
    """The run stops. ``deadline``: when its pods are deleted whatever its ranks do; ``save``: id of what it awaits."""
    stop = StopStatus(reason=reason, message=message[:_MOST_LETTERS], time=now, deadline=deadline, save=save)
    return changed(status, stop=stop)


def turn_stop(status: TrainingRunStatus, reason: StopReason, message: str) -> TrainingRunStatus:
    """A stop under way ends otherwise."""
    assert status.stop is not None
    return changed(status, stop=changed(status.stop, reason=reason.value, message=message[:_MOST_LETTERS]))


def end_save_of_stop(status: TrainingRunStatus, deadline: float) -> TrainingRunStatus:
    """A stop under way awaits no save any more: its ranks have until ``deadline`` to end."""
    assert status.stop is not None
    return changed(status, stop=changed(status.stop, save="", deadline=deadline))


def forget_stop(status: TrainingRunStatus) -> TrainingRunStatus:
    """It is over."""
    return changed(status, stop=None)
