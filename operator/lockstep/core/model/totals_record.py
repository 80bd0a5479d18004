"""Counts over the whole life of a run: ``status.totals`` is changed here and nowhere else."""

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus


def count_attempt(status: TrainingRunStatus) -> TrainingRunStatus:
    """One more has started."""
    return changed(status, totals=changed(status.totals, attempts=status.totals.attempts + 1))


def count_as_begun(status: TrainingRunStatus) -> TrainingRunStatus:
    """Some attempt had started, and status has lost which."""
    totals = status.totals
    return changed(status, totals=changed(totals, attempts=max(totals.attempts, 1)))


def count_restart(status: TrainingRunStatus, *, was_run: bool, in_place: bool) -> TrainingRunStatus:
    """One more attempt follows another. ``was_run``: something of that ran; ``in_place``: all pods stay."""
    totals = status.totals
    restarts, stayed = totals.restarts + was_run, totals.restarts_in_place + in_place
    return changed(status, totals=changed(totals, restarts=restarts, restarts_in_place=stayed))


def count_replaced(status: TrainingRunStatus, pods: int, nodes: int) -> TrainingRunStatus:
    """So many pods more are made again where they were, and so many nodes more are given up for others."""
    totals = status.totals
    again, elsewhere = totals.pods_replaced + pods, totals.nodes_replaced + nodes
    return changed(status, totals=changed(totals, pods_replaced=again, nodes_replaced=elsewhere))
