"""What the status tells people of a gang without workers: pods that run, and that more is not known."""

from lockstep.api.base.changes import changed
from lockstep.core.model.conditions import find
from lockstep.core.model.draft import Draft
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionReason
from lockstep.core.run.plain.gang import ranks_not_up

SETTLED_AFTER = 2.0
"""Seconds without another start after which the count of pods that run is worth a write."""
_NO_BARRIER = "there is no barrier (worker: Disabled): pods start as they come"


def tell_of_plain_gang(draft: Draft) -> None:
    """GangReady and Progressing of a gang that holds nodes and is not being stopped."""
    if draft.phase is Phase.RUNNING:
        _tell_of_pods(draft)
        draft.condition(
            "Progressing", None, ConditionReason.STEPS_UNKNOWN, "worker: Disabled, so no steps are reported"
        )
        return
    draft.status = changed(draft.status, nodes_ready=f"0/{draft.world}")
    draft.condition("GangReady", False, ConditionReason.GATHERING, draft.barrier_waits)
    draft.condition("Progressing", False, ConditionReason(draft.phase.value), "")


def _tell_of_pods(draft: Draft) -> None:
    missing, world = ranks_not_up(draft), draft.world
    count = f"{world - len(missing)}/{world}"
    before = find(draft.status, "GangReady")
    if not missing:
        words = f"attempt {draft.status.attempt} runs on all ranks; {_NO_BARRIER}"
        draft.status = changed(draft.status, nodes_ready=count)
        draft.condition("GangReady", True, ConditionReason.STARTED, words)
        return
    fresh = before is None or before.reason != ConditionReason.PODS_STARTING
    newest = max((pod.started_at or 0.0 for pod in draft.live_pods), default=0.0)
    if not fresh and (count == draft.status.nodes_ready or draft.now - newest < SETTLED_AFTER):
        draft.wake(newest + SETTLED_AFTER)
        return
    first = missing[0]
    node = draft.status.assignment.nodes[first.slot]
    words = f"{len(missing)} of {world} are missing; rank {draft.rank(first.slot)} on {node}: {first.stage.value}"
    words += f": {first.detail}" if first.detail else ""
    draft.status = changed(draft.status, nodes_ready=count)
    draft.condition("GangReady", False, ConditionReason.PODS_STARTING, f"{words}; {_NO_BARRIER}")
