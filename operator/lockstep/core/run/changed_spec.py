"""Whether a gang still has the spec that it was given its nodes for, and what happens where it has not.

What changes only while a run is suspended may be changed in one write, and the suspension be taken back in the next,
before anybody has stopped the gang. Nothing is made of such a spec: it has not been judged, and may name a queue that
is not for this run. The gang queues again with it, as it would have after a suspension that was seen.
"""

from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.problems import Problem
from lockstep.core.model.reasons import StopReason
from lockstep.core.model.resolved_record import record_spec
from lockstep.core.model.run_state import RunState
from lockstep.core.model.spec_hash import hash_record, read_hash, spec_hash
from lockstep.core.pods.validation import KnownNames, validate
from lockstep.core.run.stopping import stop_after_save

_CHANGED = "what changes only while the run is suspended was changed, and it is not suspended; it queues again"


def problems_of(state: RunState) -> list[Problem]:
    """What is wrong with the spec as it is now."""
    return validate(state.spec, state.snapshot.namespace_labels, KnownNames.from_tunables(state.tunables))


def is_as_given(state: RunState) -> bool:
    """The gang has the spec of now, in all that stays as it is while it has nodes."""
    generation, given = _given(state)
    if state.run.generation in (state.status.resolved.generation, generation):
        return True
    if given:
        return given == spec_hash(state.spec)
    return not problems_of(state)  # an operator gave it its nodes that kept nothing to compare


def _given(state: RunState) -> tuple[int, str]:
    """The hash of what it was given its nodes for, and the generation in which the spec was last found to be that. An
    older operator that gave it others since has left the hash as it was: then nothing is known."""
    found = read_hash(state.status.resolved.spec_hash)
    return found if found[0] >= state.status.resolved.generation else (0, "")


def queue_again_if_changed(plan: PlanBuilder) -> bool:
    """A gang with nodes that has another spec stops, after a save. True when it does.

    One whose nodes an older operator gave it is taken to have the spec of now, where that may run. Else it goes on
    until it needs a pod (`stop_before_pods_of_another_spec`).
    """
    generation, given = _given(plan)
    if is_as_given(plan):
        if (generation, plan.status.resolved.queue) != (plan.run.generation, plan.spec.queue):
            plan.status = record_spec(plan.status, hash_record(plan.run.generation, plan.spec), plan.spec.queue)
        return False
    if not given:
        return False
    stop_after_save(plan, StopReason.REQUEUED, _CHANGED)
    return True


def stop_before_pods_of_another_spec(plan: PlanBuilder) -> bool:
    """Pods are made of a spec that was judged. Else the gang stops, and it is True."""
    if is_as_given(plan):
        return False
    stop_after_save(plan, StopReason.REQUEUED, _CHANGED)
    return True
