"""What a run asks the autoscaler for: ``status.scaleUp`` is changed here and nowhere else."""

from lockstep.api.base.changes import changed
from lockstep.api.run_status import ScaleUpStatus, TrainingRunStatus


def record_scale_up(status: TrainingRunStatus, asked: ScaleUpStatus) -> TrainingRunStatus:
    """It asks for this, and nothing is made for it yet."""
    return changed(status, scale_up=asked)


def withdraw_scale_up(status: TrainingRunStatus) -> TrainingRunStatus:
    """It asks no more. What it asked for stays until nothing of that is left."""
    asked = status.scale_up
    return status if asked is None or not asked.nodes else changed(status, scale_up=changed(asked, nodes=0))


def put_off_scale_up(status: TrainingRunStatus, until: float) -> TrainingRunStatus:
    """Its request has failed; the next one follows then."""
    assert status.scale_up is not None
    return changed(status, scale_up=changed(status.scale_up, retry_at=until))


def ask_again(status: TrainingRunStatus) -> TrainingRunStatus:
    """The next request follows now."""
    asked = status.scale_up
    assert asked is not None
    return changed(status, scale_up=changed(asked, attempt=asked.attempt + 1, retry_at=None))


def forget_scale_up(status: TrainingRunStatus) -> TrainingRunStatus:
    """It asks for nothing."""
    return changed(status, scale_up=None)
