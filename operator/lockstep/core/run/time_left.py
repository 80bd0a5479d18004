"""Until when a run may have its nodes, by the time limit in force."""

from lockstep.api.queue import QueueLimits
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.limits import limit_in_force
from lockstep.core.model.run_state import RunState


def time_is_over(state: RunState, status: TrainingRunStatus) -> float | None:
    """When the time of a run is over, which has nodes or had them at its end; None: nobody knows, or never."""
    limit, since = limit_of(state, status) if state.run.spec is not None else None, status.last_admitted
    return None if limit is None or since is None else since + limit - status.held_seconds


def limit_of(state: RunState, status: TrainingRunStatus) -> int | None:
    """Seconds of the limit in force. Where the spec cannot be read it is as it was granted."""
    queue, granted = state.snapshot.queue, status.admission.time_limit
    if state.run.spec_error and granted is not None:
        return granted
    return limit_in_force(state.spec, status, queue.spec.limits if queue is not None else QueueLimits())
