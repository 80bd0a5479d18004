"""A run in one row of a table."""

from typing import Any

from lockstep.cli import runs as words
from lockstep.cli.explain import WAITS
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.snapshot import RunView


def row(run: RunView) -> dict[str, Any]:
    """What somebody who may read the run is told of it among others."""
    status = run.status
    state, reason = words.state_of(run)
    told: dict[str, Any] = {
        "namespace": run.namespace,
        "name": run.name,
        "queue": words.queue_of(run),
        "state": state,
        "reason": reason,
        "nodes": words.nodes_of(run),
        "attempt": status.attempt,
        "created": run.created_at,
        "step": status.progress.summary,
        "loss": status.progress.loss,
        "progressed": status.progress.time,
    }
    if phase(run) is Phase.PENDING:
        queue = status.queue
        told |= {
            "position": queue.position,
            "message": queue.message,
            "gloss": WAITS.get(queue.reason, ""),
            "blockedBy": queue.blocked_by,
            "start": queue.estimated_start,
            "assumption": queue.assumption,
            "priority": queue.priority if queue.updated is not None else None,
            "factors": queue.factors,
        }
    elif is_true(status, "Finished"):
        end = find(status, "Succeeded")
        told |= {"ended": ended(run), "message": end.message if end is not None else ""}
    return told


def phase(run: RunView) -> Phase:
    """Where it is in its life."""
    return phase_of(run.status, suspended=run.spec is not None and run.spec.suspend)


def ended(run: RunView) -> float:
    """When it came to its end, in Unix seconds; 0 while it has not."""
    finished = find(run.status, "Finished")
    return finished.last_transition_time if finished is not None else 0.0
