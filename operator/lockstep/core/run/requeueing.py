"""Whether a run may queue again by itself. A batch script that was submitted with ``--no-requeue`` runs once, whatever
its nodes are wanted for: somebody said of it that it must not run twice. A person may still have it requeued."""

from lockstep.core.model.reasons import StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import RunView

NO_REQUEUE = "no-requeue"
_BY_ITSELF = (
    StopReason.PREEMPTED,
    StopReason.NODES_LOST,
    StopReason.QUEUE_DRAINED,
    StopReason.EVICTED_BY_KUEUE,
    StopReason.RESERVATION_LOST,
)
"""Stops that nobody asks for by the run's name."""
_AGAIN = "; it queues again"


def may_be_requeued(run: RunView) -> bool:
    """By its spec; of one that cannot be read any more, by what it said when the script was started."""
    start = run.status.start
    if start is not None and start.runs_once:
        return False
    batch = run.spec.launcher.batch if run.spec is not None else None
    return batch is None or NO_REQUEUE not in batch.options


def has_run(state: RunState) -> bool:
    """Its script was started on the nodes that it has; before that nothing is run twice."""
    return state.status.start is not None


def ends_instead(state: RunState) -> bool:
    """What would start the script again ends the run."""
    return has_run(state) and not may_be_requeued(state.run)


def or_end(state: RunState, reason: StopReason, message: str, *, unasked: bool = False) -> tuple[StopReason, str]:
    """The stop as it is, or the end that takes its place. ``unasked``: nobody asks for it, whatever the reason, and the
    script may have been started, whatever status says."""
    ends = not may_be_requeued(state.run) if unasked else reason in _BY_ITSELF and ends_instead(state)
    if not ends:
        return reason, message
    return StopReason.NOT_REQUEUED, f"{message.removesuffix(_AGAIN)}; by --no-requeue its script does not run twice"
