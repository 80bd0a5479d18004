"""Whose saves a run goes on from, where those of several lie in one directory."""

from lockstep.api.lineage_status import PreviousRun
from lockstep.api.run_status import TrainingRunStatus


def predecessor(status: TrainingRunStatus) -> PreviousRun | None:
    """The last run before this one that is known to have saved."""
    return next((each for each in status.previous if each.uid and each.saved is not None), None)
