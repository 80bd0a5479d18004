"""How far a run has come, and at which pace: ``status.progress`` is changed here and nowhere else."""

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.quantities import steps_in_short
from lockstep.core.run.pace import paced, short_loss


def record_step(
    status: TrainingRunStatus, step: int, total: int | None, loss: str, at: float, *, anew: bool
) -> TrainingRunStatus:
    """The newest step, as it was reported. ``anew``: the first of an attempt."""
    before = status.progress
    told = changed(
        before,
        step=step,
        total_steps=total,
        loss=short_loss(loss),
        time=float(int(at)),
        summary=steps_in_short(step, total),
    )
    return changed(status, progress=paced(before, told, anew=anew))


def record_saved_step(status: TrainingRunStatus, step: int, now: float) -> TrainingRunStatus:
    """A step that was saved has been trained, also where nobody has reported it."""
    progress = status.progress
    if step <= progress.step:
        return status
    summary = steps_in_short(step, progress.total_steps)
    return changed(status, progress=changed(progress, step=step, summary=summary, time=progress.time or now))


def record_longest(status: TrainingRunStatus, interval: int, init: int) -> TrainingRunStatus:
    """The longest interval between steps, and how long it took to the first one; in seconds."""
    progress = status.progress
    if (interval, init) == (progress.longest_interval, progress.longest_init):
        return status
    return changed(status, progress=changed(progress, longest_interval=interval, longest_init=init))
