"""After a failure that ended the run, pods and nodes can be kept for a while, for a look inside.

The run is over as far as anybody else is concerned; its workers stay as they are, without a program, and its
nodes stay booked by its pods. A person may end it early by annotation, or by deleting the run.
"""

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.base.durations import format_duration, parse_duration
from lockstep.core.model.draft import Draft
from lockstep.core.model.reasons import ActionWord, EventReason


def hold_for_a_look(draft: Draft) -> None:
    """Write until when pods and nodes are kept, where the spec wants it so and anything is left to look at."""
    wanted = draft.spec.recovery.debug_hold
    if wanted is None or not draft.live_pods:
        return
    until = draft.stamp + parse_duration(wanted)
    draft.status = changed(draft.status, recovery=changed(draft.status.recovery, debug_until=until))
    draft.event(
        EventReason.DEBUG_HOLD,
        f"pods and nodes are kept for {format_duration(until - draft.stamp)}: kubectl exec into them; "
        f"kubectl annotate trun {draft.run.name} {names.ANNOTATION_DEBUG_RELEASE}=now ends it",
        action=ActionWord.HOLD,
    )


def held_until(draft: Draft) -> float:
    """When the pods of a finished run may go, in Unix seconds; 0: at once."""
    until = draft.status.recovery.debug_until
    if until is None or draft.run.annotations.get(names.ANNOTATION_DEBUG_RELEASE):
        return 0.0
    return until
