"""Has the cluster's autoscaler asked for the nodes of a gang that waits, and what was made for it taken away again.

The admission cycle says in ``status.scaleUp`` what is asked for, and how (``core/admission/scale_up.py``). Here that is
carried out, whatever is there: it rests on the placeholder pods and the ProvisioningRequest that were seen, so that it
ends well wherever an operator died in between. Status forgets it once nothing of it is left.
"""

from lockstep.api.base import names
from lockstep.api.run_status import ScaleUpStatus
from lockstep.core.model.conditions import find, is_accepted_or_waits, without_condition
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import DeleteProvisioning
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.plural import plural
from lockstep.core.model.reasons import ConditionReason, ConditionType
from lockstep.core.model.run_state import RunState
from lockstep.core.model.scale_up_record import ask_again, forget_scale_up, put_off_scale_up
from lockstep.core.model.snapshot import PlaceholderView, ProvisioningState, ProvisioningView
from lockstep.core.pods.placeholders import GRACE, placeholder_names, placeholders, provisioning
from lockstep.core.pods.requirement import is_as_wished

LOOK_AGAIN = 10.0
"""Seconds until a ProvisioningRequest is looked at again: nobody watches them."""
PLACE_AGAIN = 15.0
"""Seconds until a placeholder that has gone is made again. Whoever got its node, a gang or
somebody else, is there before: kube-scheduler tries a pod again after 10 s at most, and a new one at once."""
UNHEARD = 300.0
"""Seconds without any condition after which it is said that nobody may be there to take it up."""
_RETRY_FIRST, _RETRY_AT_MOST = 60.0, 1800.0
"""Seconds between a request that failed and the next one; twice as long each time."""
_OVER = {
    ProvisioningState.FAILED: "failed",
    ProvisioningState.CAPACITY_REVOKED: "lost its nodes again",
    ProvisioningState.BOOKING_EXPIRED: "is no longer kept, and the gang could not start in time",
}


def follow_scale_up(plan: PlanBuilder) -> None:
    """Ask, or no longer. Nodes of the gang are cleared of whatever only held a place there."""
    asked, goes_on = plan.status.scale_up, _is_to_ask(plan)
    own = [pod for pod in plan.snapshot.placeholders if _is_own(plan, pod)]
    for pod in plan.snapshot.placeholders:
        if not _is_own(plan, pod):
            plan.delete(pod, "a gang has its node", GRACE)
    is_wanted = asked is not None and asked.by == "Placeholders" and goes_on
    wanted = frozenset(placeholder_names(plan.run, asked.nodes) if is_wanted and asked is not None else ())
    for pod in own:
        if pod.terminal or pod.name not in wanted:
            plan.delete(pod, "it holds no place any more", GRACE)
    if asked is None:
        _forget(plan)
    elif asked.by == "Placeholders":
        _follow_placeholders(plan, asked, goes_on, own)
    else:
        _follow_provisioning(plan, asked, goes_on)


def _is_to_ask(state: RunState) -> bool:
    """For what its status says."""
    asked, queue, run = state.status.scale_up, state.snapshot.queue, state.run
    if asked is None or not asked.nodes or run.deleting or run.spec is None or state.phase is not Phase.PENDING:
        return False
    if run.is_left_alone:
        return False
    enabled = queue is not None and queue.spec.scale_up == "Enabled"
    goes_on = enabled and not run.spec.cancel and is_accepted_or_waits(state.status)  # be it before it was edited
    return goes_on and is_as_wished(asked, run)


def _is_own(state: RunState, pod: PlaceholderView) -> bool:
    return (pod.namespace, pod.run_uid) == (state.run.namespace, state.run.uid)


def _forget(plan: PlanBuilder) -> None:
    """It asks for nothing. That it cannot is said by the admission cycle, as long as it waits for nodes."""
    told, queue = find(plan.status, ConditionType.SCALE_UP), plan.snapshot.queue
    enabled = queue is not None and queue.spec.scale_up == "Enabled"
    stays = told is not None and told.reason == ConditionReason.CANNOT_ASK_FOR_NODES
    if told is not None and not (stays and enabled and plan.phase is Phase.PENDING):
        plan.status = without_condition(plan.status, ConditionType.SCALE_UP)


def _end(plan: PlanBuilder) -> None:
    """Nothing of it is left. Whether it is to ask for something else now, the next cycle knows."""
    plan.status = without_condition(forget_scale_up(plan.status), ConditionType.SCALE_UP)
    plan.admission_changed = True


def _follow_placeholders(plan: PlanBuilder, asked: ScaleUpStatus, goes_on: bool, own: list[PlaceholderView]) -> None:
    if not goes_on:
        if not own:
            _end(plan)
        return
    wanted, there = placeholder_names(plan.run, asked.nodes), {pod.name for pod in own}
    if not there.issuperset(wanted) and plan.reached(plan.snapshot.placeholder_gone_at + PLACE_AGAIN):
        made = placeholders(plan.run, asked, plan.tunables, plan.now)
        plan.placeholders += [each for each in made if each.name not in there]
    refused = next((each for name in wanted if (each := plan.snapshot.refused_creates.get(name))), None)
    if refused is not None:
        words = f"a placeholder pod is not made: {refused.message}"
        plan.condition(ConditionType.SCALE_UP, False, ConditionReason.SCALE_UP_REFUSED, words)
        plan.wake(plan.now + _RETRY_FIRST)
        return
    placed = sum(bool(pod.node) and not pod.terminal and not pod.deleting for pod in own)
    words = f"asks for nodes by {asked.nodes} placeholder pods, of which {placed} have one"
    if placed == asked.nodes:
        words += "; why it does not start is in its pending reason"
    plan.condition(ConditionType.SCALE_UP, True, ConditionReason.PLACEHOLDERS_WAIT, words)


def _follow_provisioning(plan: PlanBuilder, asked: ScaleUpStatus, goes_on: bool) -> None:
    settings = plan.tunables.scale_up
    if settings.by != asked.by:
        _end(plan)  # none can be left, or none may be touched: it goes with the run, which asks in the other way
        return
    seen = plan.snapshot.provisioning
    plan.wake(plan.now + LOOK_AGAIN)
    if seen is None:
        return
    if seen.problem:
        words = f"its ProvisioningRequest cannot be read: {seen.problem}"
        plan.condition(ConditionType.SCALE_UP, None, ConditionReason.SCALE_UP_REFUSED, words)
        return
    if not goes_on:
        if not seen.uid or not seen.is_own:
            _end(plan)
        elif _is_consumed(plan):
            plan.provisioning = _delete(plan)
        return
    if seen.uid and not seen.is_own:
        words = "a ProvisioningRequest of its name that is not of this run is in the way; delete it"
        plan.condition(ConditionType.SCALE_UP, False, ConditionReason.SCALE_UP_REFUSED, words)
    elif asked.retry_at is not None:
        _retry(plan, asked, seen)
    elif seen.uid and seen.attempt != asked.attempt:
        plan.provisioning = _delete(plan)
    elif not seen.uid:
        _request(plan, asked)
    elif seen.state is not None and seen.state in _OVER:
        pause = min(_RETRY_AT_MOST, _RETRY_FIRST * 2 ** min(asked.attempt - 1, 10))
        words = f"ProvisioningRequest {asked.attempt} {_OVER[seen.state]}; the next one follows in {int(pause)} s"
        words += f": {seen.message}" if seen.message else ""
        plan.status = put_off_scale_up(plan.status, plan.stamp + pause)
        plan.condition(ConditionType.SCALE_UP, False, ConditionReason.PROVISIONING_FAILED, words)
        plan.provisioning = _delete(plan)
    else:
        _report(plan, asked, seen)


def _is_consumed(state: RunState) -> bool:
    """Its nodes have what they were made for, or never will: until then an autoscaler may still count on it."""
    if state.phase is not Phase.LAUNCHING:
        return True
    return sum(pod.bound for pod in state.live_pods) >= len(state.status.assignment.nodes)


def _delete(state: RunState) -> DeleteProvisioning:
    return DeleteProvisioning(state.run.namespace, _name(state))


def _name(state: RunState) -> str:
    return names.scale_up_name(state.run.name, state.run.uid)


def _request(plan: PlanBuilder, asked: ScaleUpStatus) -> None:
    plan.provisioning = provisioning(plan.run, asked, plan.tunables, plan.now)
    refused = plan.snapshot.refused_creates.get(plan.provisioning.name)
    if refused is not None:
        words = f"its ProvisioningRequest is not made: {refused.message}"
        plan.condition(ConditionType.SCALE_UP, False, ConditionReason.SCALE_UP_REFUSED, words)
        return
    words = f"asks for {plural(asked.nodes, 'node')} by ProvisioningRequest {plan.provisioning.name}"
    plan.condition(ConditionType.SCALE_UP, True, ConditionReason.PROVISIONING_REQUESTED, words)


def _retry(plan: PlanBuilder, asked: ScaleUpStatus, seen: ProvisioningView) -> None:
    assert asked.retry_at is not None
    if seen.uid:
        plan.provisioning = _delete(plan)
    elif plan.reached(asked.retry_at):
        plan.status = ask_again(plan.status)
        assert plan.status.scale_up is not None
        _request(plan, plan.status.scale_up)


def _report(plan: PlanBuilder, asked: ScaleUpStatus, seen: ProvisioningView) -> None:
    words = f"asks for {plural(asked.nodes, 'node')} by ProvisioningRequest {_name(plan)}"
    more = f": {seen.message}" if seen.message else ""
    if seen.state is ProvisioningState.PROVISIONED:
        words += f", whose nodes are there; it starts once they are free and fit{more}"
        plan.condition(ConditionType.SCALE_UP, True, ConditionReason.NODES_PROVISIONED, words)
    elif seen.state is ProvisioningState.ACCEPTED:
        words += f", which the autoscaler has taken up{more}"
        plan.condition(ConditionType.SCALE_UP, True, ConditionReason.PROVISIONING_ACCEPTED, words)
    else:
        if asked.since is not None and plan.reached(asked.since + UNHEARD):
            words += (
                "; no autoscaler has said anything of it: it has to follow ProvisioningRequests, and know "
                f"class {asked.provisioning_class}"
            )
        plan.condition(ConditionType.SCALE_UP, True, ConditionReason.PROVISIONING_REQUESTED, words)
