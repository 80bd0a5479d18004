"""What status keeps of checkpoints: ``status.checkpoint`` is changed here and nowhere else."""

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import (
    ArchiveStatus,
    CadenceStatus,
    CheckpointStatus,
    DivergedSaves,
    LocalRetentionStatus,
    PointingStatus,
    PreviousSave,
    QuarantinedCheckpoint,
    RejectedCandidate,
    SavedCheckpoint,
    SaveStatus,
    UnrecognisedSave,
)
from lockstep.api.run_status import TrainingRunStatus

MAX_DIVERGED = 16


def record_latest(status: TrainingRunStatus, latest: tuple[SavedCheckpoint, ...]) -> TrainingRunStatus:
    """The newest valid checkpoint of each tier."""
    return _with(status, changed(status.checkpoint, latest=latest))


def record_unrecognised(status: TrainingRunStatus, seen: tuple[UnrecognisedSave, ...]) -> TrainingRunStatus:
    """What may be saves, and no format recognises."""
    return _with(status, changed(status.checkpoint, unrecognised=seen))


def record_save(status: TrainingRunStatus, save: SaveStatus) -> TrainingRunStatus:
    """A collective save that is asked for, or what became of it."""
    return _with(status, changed(status.checkpoint, save=save))


def record_cadence(status: TrainingRunStatus, cadence: CadenceStatus) -> TrainingRunStatus:
    """How often a checkpoint is asked for."""
    return _with(status, changed(status.checkpoint, cadence=cadence))


def record_archive(status: TrainingRunStatus, archive: ArchiveStatus) -> TrainingRunStatus:
    """The archive tier, and the job that works on it."""
    return _with(status, changed(status.checkpoint, archive=archive))


def record_pointing(status: TrainingRunStatus, pointing: PointingStatus) -> TrainingRunStatus:
    """A rank is asked to point the loader to a step."""
    return _with(status, changed(status.checkpoint, pointing=pointing))


def record_quarantine(status: TrainingRunStatus, kept: tuple[QuarantinedCheckpoint, ...]) -> TrainingRunStatus:
    """These checkpoints are never loaded again."""
    return _with(status, changed(status.checkpoint, quarantined=kept))


def record_ceiling(status: TrainingRunStatus, ceiling: int | None) -> TrainingRunStatus:
    """Nothing newer than this step is resumed from; None: whatever is valid may be."""
    return _with(status, changed(status.checkpoint, ceiling=ceiling))


def record_diverged(status: TrainingRunStatus, step: int, attempt: int) -> TrainingRunStatus:
    """What attempts up to this one saved from that step on is never loaded again."""
    others = tuple(known for known in status.checkpoint.diverged if known.step < step)  # the rest is part of it
    kept = (*others, DivergedSaves(step=step, attempt=attempt))[-MAX_DIVERGED:]
    return _with(status, changed(status.checkpoint, diverged=kept))


def record_no_choice(
    status: TrainingRunStatus,
    rejected: tuple[RejectedCandidate, ...],
    words: str,
    previous: tuple[PreviousSave, ...] = (),
) -> TrainingRunStatus:
    """There is nothing to resume from, and why."""
    return _with(status, changed(status.checkpoint, rejected=rejected, choice=words, previous_saves=previous))


def record_resume(
    status: TrainingRunStatus,
    resume: SavedCheckpoint | None,
    *,
    rejected: tuple[RejectedCandidate, ...],
    words: str,
    cadence: CadenceStatus,
    retention: LocalRetentionStatus | None,
) -> TrainingRunStatus:
    """What an attempt starts from, what was passed over for it, and what holds for it from its start."""
    return _with(
        status,
        changed(
            status.checkpoint,
            resume=resume,
            rejected=rejected,
            choice=words,
            cadence=cadence,
            local_retention=retention,
        ),
    )


def _with(status: TrainingRunStatus, checkpoint: CheckpointStatus) -> TrainingRunStatus:
    return changed(status, checkpoint=checkpoint)
