"""After a failure that ended the run, pods and nodes can be kept for a while, for a look inside.

The run is over as far as anybody else is concerned; its workers stay as they are, without a program, and its
nodes stay booked by its pods. A person may end it early by annotation, or by deleting the run.
"""

from lockstep.api.base import names
from lockstep.api.base.durations import format_duration, parse_duration
from lockstep.core.failures.recovery_record import record_debug_hold
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.run_state import RunState


def hold_for_debugging(plan: PlanBuilder) -> None:
    """Write until when pods and nodes are kept, where the spec wants it so and anything is left to debug."""
    wanted = plan.spec.recovery.debug_hold
    if wanted is None or not plan.live_pods:
        return
    until = plan.stamp + parse_duration(wanted)
    plan.status = record_debug_hold(plan.status, until)
    plan.event(
        EventReason.DEBUG_HOLD,
        f"pods and nodes are kept for {format_duration(until - plan.stamp)}: kubectl exec into them; "
        f"kubectl annotate trun {plan.run.name} {names.ANNOTATION_DEBUG_RELEASE}=now ends it",
        action=ActionWord.HOLD,
    )


def held_until(state: RunState) -> float:
    """When the pods of a finished run may go, in Unix seconds; 0: at once."""
    until = state.status.recovery.debug_until
    if until is None or state.run.annotations.get(names.ANNOTATION_DEBUG_RELEASE):
        return 0.0
    return until
