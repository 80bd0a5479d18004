"""After a failure that ended the run, pods and nodes can be kept for a while, for a look inside.

Nothing more is decided for the run; its workers stay as they are, without a program, and its nodes stay booked by its
pods: for no longer than the operator's settings, the time limit and the budget allow. They count as the run's own all
the while (``core/model/kept_nodes.py``). A person may end it early by annotation, by cancelling the run, or
by deleting it; an administrator by draining its queue, or a node of it; Kueue, where it admitted the run, by evicting
it.
"""

from lockstep.api.base import names
from lockstep.api.base.durations import format_duration, parse_duration
from lockstep.core.accounting.account import over_budget
from lockstep.core.failures.recovery_record import record_debug_hold
from lockstep.core.kueue.kueue_record import workload_rested_on
from lockstep.core.model.conditions import find
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, ConditionType, EventReason
from lockstep.core.model.run_state import RunState
from lockstep.core.run.time_left import time_is_over


def hold_for_debugging(plan: PlanBuilder) -> None:
    """Write until when pods and nodes are kept, where the spec wants it so and anything is left to debug."""
    wanted = plan.spec.recovery.debug_hold
    if wanted is None or not plan.live_pods:
        return
    until, bound = min((plan.stamp + parse_duration(wanted), "recovery.debugHold"), *_bounds(plan, plan.stamp))
    if until <= plan.stamp:
        message = f"pods and nodes are not kept for debugging: no time is left by {bound}"
    else:
        plan.status = record_debug_hold(plan.status, until)
        message = (
            f"pods and nodes are kept for {format_duration(until - plan.stamp)}, by {bound}: kubectl exec into them; "
            f"kubectl annotate trun {plan.run.name} {names.ANNOTATION_DEBUG_RELEASE}=now, or cancel: true, ends it"
        )
    plan.event(EventReason.DEBUG_HOLD, message, action=ActionWord.HOLD)


def held_until(state: RunState) -> float:
    """When the pods of a finished run may go, in Unix seconds; 0: at once."""
    until, ended = state.status.recovery.debug_until, find(state.status, ConditionType.FINISHED)
    if until is None or ended is None or _is_released(state):
        return 0.0
    return min(until, *(at for at, _ in _bounds(state, ended.last_transition_time)))


def _is_released(state: RunState) -> bool:
    queue = state.snapshot.queue
    asked = bool(state.run.annotations.get(names.ANNOTATION_DEBUG_RELEASE))
    drained = queue is not None and queue.spec.stop_policy == "HoldAndDrain"
    workload = workload_rested_on(state.run, state.status, state.snapshot.kueue)
    wanted_back = workload is not None and (workload.is_evicted or not workload.active)
    return asked or drained or wanted_back or (state.run.spec is not None and (state.spec.cancel or over_budget(state)))


def _bounds(state: RunState, since: float) -> list[tuple[float, str]]:
    """Until when a run that ended at ``since`` may keep its nodes, whatever its spec says, and by what."""
    found = [(since + state.tunables.max_debug_hold, "the operator's maxDebugHold")]
    ends = time_is_over(state, state.status)
    return found if ends is None else [*found, (ends, "its time limit")]
