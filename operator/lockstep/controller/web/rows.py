"""A run in one row of a table."""

from typing import Any

from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.present.explanation import WAITS
from lockstep.present.runs import current_phase, nodes_of, queue_of, state_of


def row(run: RunView) -> dict[str, Any]:
    """The row of a run for somebody who may read it."""
    status = run.status
    state, reason = state_of(run)
    cells: dict[str, Any] = {
        "namespace": run.namespace,
        "name": run.name,
        "queue": queue_of(run),
        "state": state,
        "reason": reason,
        "nodes": nodes_of(run),
        "attempt": status.attempt,
        "created": run.created_at,
        "step": status.progress.summary,
        "loss": status.progress.loss,
        "progressed": status.progress.time,
    }
    if current_phase(run) is Phase.PENDING:
        queue = status.queue
        cells |= {
            "position": queue.position,
            "message": queue.message,
            "gloss": WAITS.get(queue.reason, ""),
            "blockedBy": queue.blocked_by,
            "start": queue.estimated_start,
            "assumption": queue.assumption,
            "priority": queue.priority if queue.updated is not None else None,
            "factors": queue.factors,
        }
    elif is_true(status, ConditionType.FINISHED):
        end = find(status, ConditionType.SUCCEEDED)
        cells |= {"ended": ended(run), "message": end.message if end is not None else ""}
        if status.leaving is not None:
            cells["nodes"] = f"{status.leaving.nodes} held"
    return cells


def ended(run: RunView) -> float:
    """When it came to its end, in Unix seconds; 0 while it has not."""
    finished = find(run.status, ConditionType.FINISHED)
    return finished.last_transition_time if finished is not None else 0.0
