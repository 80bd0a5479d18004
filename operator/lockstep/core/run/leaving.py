"""Eviction: ranks whose pods are told to end by somebody else: the gang saves while they still can.

Evictions, `kubectl drain`, a kubelet that shuts its node down: the pod gets SIGTERM and will be killed at a
known moment. Its worker keeps the program running until then, so that the save can be one of all ranks.
"""

from lockstep.core.checkpoints.saves import ask_for_save, is_settled_for
from lockstep.core.failures.ranks import goes_on_without
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import LossReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.worker_report import WorkerPhase

MARGIN = 5.0
"""Seconds before the kill at which waiting ends: the next attempt should not begin with a corpse."""


def save_before_leaving(plan: PlanBuilder) -> frozenset[int]:
    """Ask for a save when a rank is told to leave. Returns the slots that do not count as lost until it is settled.

    One that the others go on without asks for none: its worker tells Ray until when it is there."""
    if not plan.trains:
        return frozenset()
    needed = (slot for slot in plan.ranked_slots() if not goes_on_without(plan, slot))
    ends = {slot: end for slot in needed if (end := _end_of(plan, slot))}
    last_moment = min(ends.values(), default=0.0) - MARGIN
    if is_settled_for(plan.status, LossReason.POD_TERMINATED) or plan.reached(last_moment):
        return frozenset()
    return frozenset(ends) if ask_for_save(plan, LossReason.POD_TERMINATED, last_moment) else frozenset()


def ends_with_the_save(reason: str) -> bool:
    """Nobody goes on after a save for these reasons: peers that did would only see a rank hang up on them."""
    return LossReason.POD_TERMINATED in reason.split(", ")


def _end_of(state: RunState, slot: int) -> float:
    """When the rank in ``slot`` will be killed; 0 when it will not, or runs nothing any more."""
    report, pod = state.report(slot), state.pod(slot)
    if report is None or report.phase is not WorkerPhase.RUNNING or report.attempt != state.status.attempt:
        return 0.0
    deadlines = [moment for moment in (report.leaving_by, pod.killed_at if pod is not None else 0.0) if moment]
    return min(deadlines, default=0.0)
