"""``layout: Shared``: runs of one path save in one directory, and what lies there is not all of this one.

Some formats say which run has saved. Of the others it is known only that it was not this one, until it has begun.
"""

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.origin import directory_of, has_begun
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tiers import SHARED
from lockstep.core.model.worker_report import CheckpointReport, Verdict


def is_in_one_directory(run: RunView) -> bool:
    """All attempts of the run save in one directory."""
    return run.spec is not None and run.spec.checkpoint is not None and run.spec.checkpoint.layout == "Shared"


def starts_in_place(run: RunView, status: TrainingRunStatus) -> bool:
    """The spec says to start from the very directory that the run saves in."""
    root = status.resolved.start_root
    return bool(root) and is_in_one_directory(run) and directory_of(run) == root


def is_of_another_run(row: CheckpointReport, run: RunView, status: TrainingRunStatus) -> bool:
    """Whether a row of the one directory is of another run, which this one neither resumes from nor counts as saved.

    What is not whole stays: it may be what speaks against step 0. Where the spec says to start from all that is there,
    it is another run's all the same.
    """
    if row.tier != SHARED or not is_in_one_directory(run):
        return False
    in_place = starts_in_place(run, status)
    if row.run_uid:
        theirs = row.run_uid != run.uid
    else:
        theirs = not has_begun(status) or (in_place and _was_there_before(row, status))
    return theirs and (row.verdict is Verdict.VALID or in_place)


def _was_there_before(row: CheckpointReport, status: TrainingRunStatus) -> bool:
    """What is not whole says of no format whose it is. A run that has saved nothing has not come to a step below the
    one that it goes on from."""
    began = status.checkpoint.resume
    if row.verdict is Verdict.VALID or status.checkpoint.latest or began is None:
        return False
    return row.step <= began.step
