"""Nodes that a run still has after its end, as they are kept for debugging."""

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.conditions import is_true
from lockstep.core.model.reasons import ConditionType


def is_kept(status: TrainingRunStatus) -> bool:
    """The run failed for good, and its nodes are or were kept for a look: they count as its own until the last pod is
    gone."""
    return status.recovery.debug_until is not None and is_true(status, ConditionType.FINISHED)


def nodes_kept(status: TrainingRunStatus) -> int:
    """How many they are."""
    return status.leaving.nodes if status.leaving is not None and is_kept(status) else 0
