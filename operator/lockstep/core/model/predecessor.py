"""Whose saves a run goes on from, where those of several lie in one directory."""

from collections.abc import Container

from lockstep.api.lineage_status import PreviousRun
from lockstep.api.run_status import TrainingRunStatus


def predecessor(status: TrainingRunStatus, there: Container[str] = ()) -> PreviousRun | None:
    """The last run before this one that has saved, by its record or as something of it is ``there`` (UIDs): its record
    may be from before it had. The one that the spec names comes before the others."""
    resolved = status.resolved
    named = [each for each in status.previous if each.uid == resolved.start_run_uid]
    named = named or [PreviousRun(name=resolved.start_run, uid=resolved.start_run_uid)]
    found = (each for each in (*named, *status.previous) if each.uid)
    return next((each for each in found if each.saved is not None or each.uid in there), None)
