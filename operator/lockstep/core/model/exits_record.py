"""What status keeps of the ends of ranks: ``status.exits`` is changed here and nowhere else."""

from collections.abc import Iterable

from lockstep.api.base.changes import changed
from lockstep.api.run_status import ExitsStatus, TrainingRunStatus
from lockstep.core.model.ranges import format_ranges


def record_exits(status: TrainingRunStatus, done: Iterable[int], first: str) -> TrainingRunStatus:
    """The ranks ``done`` of the current attempt have ended with code 0. ``first``: which did first, in words."""
    return changed(status, exits=ExitsStatus(attempt=status.attempt, succeeded=format_ranges(done), first=first))


def forget_exits(status: TrainingRunStatus) -> TrainingRunStatus:
    """Of no rank it is known that it has ended."""
    return changed(status, exits=ExitsStatus())
