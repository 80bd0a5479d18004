"""New incarnations for the slots that lost their pod or node: on the same node, or on one yet to be found."""

import math
from collections.abc import Sequence

from lockstep.core.failures.actions import PYTHON_REMEDY, lacks_python
from lockstep.core.failures.evidence import Loss, LossKind, why_closed
from lockstep.core.failures.failure_memory import (
    exclude,
    excluded_enough,
    first_failures_on,
    lost_pods,
    named_nodes,
    nodes_large_enough,
)
from lockstep.core.failures.ranks import is_to_join
from lockstep.core.failures.recovery_record import (
    MAX_REFUSALS,
    count_attempts_without_progress,
    count_lost_pods,
    record_refusal,
    remember_first_failure,
    remember_root,
)
from lockstep.core.failures.signs import Reading, read_pod
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import is_true
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.plural import plural
from lockstep.core.model.reasons import (
    ActionWord,
    AttemptCause,
    ConditionReason,
    ConditionType,
    EventReason,
    LossReason,
    StopReason,
)
from lockstep.core.model.run_state import RunState
from lockstep.core.model.totals_record import count_replaced
from lockstep.core.run.backoff import allowed_without_progress
from lockstep.core.run.roll_back import saved_step
from lockstep.core.run.spares import promote_spares
from lockstep.core.run.stopping import begin_stop

FOR_GOOD = math.inf
"""Seconds: the run does not go back there."""
FAILED_LAUNCHES = (LossReason.POD_FAILED, LossReason.LAUNCH_DEADLINE)
"""Reasons of losses before START for which the run may be as much to blame as the node."""
UNFIT_NODES = (LossReason.NOT_SCHEDULED, LossReason.NODE_CHECK_FAILED)
"""Reasons of losses that another pod on the same node would meet as well; a moment later it may not."""
LEAST_REFUSING, REFUSING_SHARE = 3, 0.10
"""Nodes, or this share of the gang, whose kubelets refuse its pods before it has started: then it waits, and says why,
instead of trying node after node. Where there are fewer nodes, all of them."""
SOMEBODY_ELSES_DOING = (LossReason.POD_DELETED, LossReason.POD_TERMINATED)


def replace_before_start(plan: PlanBuilder, lost: Sequence[Loss]) -> None:
    """As ``replace``, for a gang that gathers. What fails on node after node is not the nodes' fault."""
    if any(lacks_python(loss.message) for loss in lost):
        begin_stop(plan, StopReason.PYTHON_NOT_FOUND, PYTHON_REMEDY)
        return
    if _stops_at_its_limit(plan, lost):
        return
    stuck = next((loss for loss in lost if no_other_node_is_left(plan, loss)), None)
    if stuck is not None:
        again = ", not for the first time"
        if stuck.reason is LossReason.NODE_REFUSED:
            again = ""
            exclude(plan, stuck.node, stuck.message, plan.tunables.excluded_shortly_seconds)  # else it comes back there
            _count_refusals(plan, [loss for loss in lost if _is_refusal(plan, loss)], excluded_enough(plan))
            if plan.status.stop is not None:
                return
        begin_stop(plan, StopReason.NODES_LOST, f"{stuck.message}{again}; {excluded_enough(plan)}")
        return
    spoilt = [loss for loss in replace(plan, lost) if loss.reason in FAILED_LAUNCHES]
    if not spoilt:
        return
    streak = plan.status.recovery.consecutive_no_progress + 1
    plan.status = count_attempts_without_progress(plan.status, streak)
    if streak >= allowed_without_progress(plan.spec, plan.status):
        were = "was" if streak == 1 else "were"
        words = f"{spoilt[0].message}; {plural(streak, 'node')} {were} given up in a row, so it is the run"
        begin_stop(plan, StopReason.LAUNCH_FAILED, words)


def replace_spares(plan: PlanBuilder, lost: Sequence[Loss]) -> None:
    """As ``replace``, for spares: one whose pod was made while the ranks train has its time before it is made again,
    whatever is seen. Nobody waits for it, and nothing else would bound how often that is."""
    due = [loss for loss in lost if _is_gone(loss) or _has_had_its_time(plan, loss.slot)]
    if due:
        replace(plan, due)


def _is_gone(loss: Loss) -> bool:
    """Its node is: a new pod there would be one for nobody."""
    return loss.kind is LossKind.NODE and loss.reason is not LossReason.NODE_SILENT


def _has_had_its_time(state: RunState, slot: int) -> bool:
    pod, entry = state.pod(slot), state.attempt_entry(state.status.attempt)
    begun = entry.started_at if entry is not None else None
    if pod is None or begun is None or pod.created_at < begun + 1:  # both are in whole seconds
        return True
    return state.reached(pod.created_at + state.tunables.deadlines.registered)


def no_other_node_is_left(state: RunState, loss: Loss) -> bool:
    """A node found unfit again, or that refuses a pod, and may not be excluded: given up, it would come back at once,
    and so on for ever."""
    if loss.reason is LossReason.NODE_REFUSED:
        return bool(excluded_enough(state))
    return (
        loss.reason in UNFIT_NODES
        and first_failures_on(state.status.recovery, loss.node, state.now) > 0
        and bool(excluded_enough(state))
    )


def replace(plan: PlanBuilder, lost: Sequence[Loss], condition: str = "") -> list[Loss]:
    """Give every lost slot its next incarnation, and ranks left without a node to spares; return the losses whose
    nodes were given up for longer.

    ``condition``: the node condition for which a node is left; it is excluded no longer than that lasts.
    """
    refused, may_not_avoid = [loss for loss in lost if _is_refusal(plan, loss)], excluded_enough(plan)
    vacate: list[int] = []
    stay: list[int] = []
    given_up: list[Loss] = []
    for loss in lost:
        seconds = _count_loss(plan, loss)
        if seconds is None:
            stay.append(loss.slot)
            continue
        vacate.append(loss.slot)
        if seconds:
            given_up.append(loss)
            lasting = loss.kind is not LossKind.LEFT or seconds == FOR_GOOD
            exclude_node(plan, loss, seconds, "" if lasting else condition)
    assignment = plan.status.assignment
    if stay:
        assignment = slots.advanced(assignment, stay)
    if vacate:
        assignment = slots.vacated(assignment, vacate, plan.stamp)
        plan.admission_changed = True
    title = {loss.slot: plan.title(loss.slot) for loss in lost}
    plan.status = count_replaced(slots.put(plan.status, assignment), len(stay), len(vacate))
    for loss in lost:
        elsewhere = loss.slot in vacate
        plan.event(
            EventReason(loss.kind.value),
            f"{title[loss.slot]}: {loss.message}; "
            + ("looking for another node" if elsewhere else f"starting it again on {loss.node}"),
            action=ActionWord.REPLACE_NODE if elsewhere else ActionWord.REPLACE_POD,
            warning=loss.kind is not LossKind.DRAINED,
            node=loss.node if elsewhere else "",
        )
    promote_spares(plan)
    _count_refusals(plan, refused, may_not_avoid)
    return given_up


def _is_refusal(state: RunState, loss: Loss) -> bool:
    """Nobody waits for a spare."""
    waited_for = state.rank(loss.slot) >= 0 and not is_to_join(state, loss.slot)
    return loss.reason is LossReason.NODE_REFUSED and waited_for


def _count_refusals(plan: PlanBuilder, lost: Sequence[Loss], may_not_avoid: str) -> None:
    """What kubelet after kubelet refuses is hardly their fault: the gang gives its nodes back, and waits for longer. So
    it does where it ``may_not_avoid`` the nodes that refuse it."""
    enough = min(max(LEAST_REFUSING, int(REFUSING_SHARE * plan.world)), MAX_REFUSALS, nodes_large_enough(plan))
    for loss in lost:
        plan.status = record_refusal(
            plan.status, loss.node, loss.message, 1 if may_not_avoid else enough, plan.run.generation
        )
    refusals, elastic = plan.status.recovery.refusals, plan.spec.elastic
    left = sum(map(bool, plan.status.assignment.nodes))
    may_shrink = elastic is not None and left >= elastic.min
    if lost and refusals is not None and refusals.waits and not may_shrink and plan.status.stop is None:
        which = f"{plural(len(refusals.nodes), 'node')} refused its pods in a row: {named_nodes(refusals.nodes)}"
        begin_stop(plan, StopReason.NODES_LOST, f"{lost[-1].message}; {which}")


def report_exclusion_limit(plan: PlanBuilder, why: str) -> None:
    """Say that so many nodes go bad that it is no longer believed."""
    if not is_true(plan.status, ConditionType.CLUSTER_DISRUPTION):
        plan.event(
            EventReason.CLUSTER_DISRUPTION,
            f"no further node is excluded: {why}",
            action=ActionWord.REPLACE_NODE,
            warning=True,
        )
    plan.condition(
        ConditionType.CLUSTER_DISRUPTION, True, ConditionReason.EXCLUSION_LIMIT, f"no further node is excluded: {why}"
    )


def _stops_at_its_limit(plan: PlanBuilder, lost: Sequence[Loss]) -> bool:
    """Remember pods that exceeded a limit of their own; the second time without progress it stops the run."""
    for loss in lost:
        reading = _reading(plan, loss)
        if reading is None or reading.kind is not AttemptCause.LIMIT_EXCEEDED:
            continue
        known = any(root.root == reading.root for root in plan.status.recovery.roots)
        if known and saved_step(plan) <= plan.status.recovery.best_step:
            begin_stop(plan, StopReason.LIMIT_EXCEEDED, f"{loss.message}, again: {reading.words}")
            return True
        plan.status = remember_root(plan.status, reading.root, 0, loss.node, plan.stamp)
        streak = plan.status.recovery.consecutive_no_progress + 1
        plan.status = count_attempts_without_progress(plan.status, streak)
        return False
    return False


def _reading(state: RunState, loss: Loss) -> Reading | None:
    """What the end of the slot's pod means; None while it has not come to one."""
    pod = state.pod(loss.slot)
    return read_pod(pod) if pod is not None and (pod.is_terminal or pod.disruption) else None


def _count_loss(plan: PlanBuilder, loss: Loss) -> float | None:
    """How long the run keeps off the node; 0: it only leaves it; None: the pod comes back there."""
    recovery, tunables = plan.status.recovery, plan.tunables
    reading = _reading(plan, loss)
    disrupted = reading is not None and reading.kind is AttemptCause.DISRUPTION
    beyond = reading is not None and reading.kind is AttemptCause.LIMIT_EXCEEDED and plan.rank(loss.slot) >= 0
    pods = 1 + lost_pods(recovery, loss.slot, loss.node, plan.now)
    counted = loss.kind is LossKind.POD and loss.reason not in SOMEBODY_ELSES_DOING and not (disrupted or beyond)
    leaves = loss.kind is not LossKind.POD or loss.reason in (*UNFIT_NODES, LossReason.NODE_REFUSED)
    leaves = leaves or (counted and pods > tunables.slot_retries_on_node)
    plan.status = count_lost_pods(plan.status, loss.slot, loss.node, pods if counted and not leaves else 0, plan.stamp)
    if loss.kind in (LossKind.NODE, LossKind.DRAINED):
        return 0.0
    if loss.kind is LossKind.LEFT:
        # A machine that is mended and fails again is not believed in any more.
        again = loss.reason == AttemptCause.HARDWARE and first_failures_on(recovery, loss.node, plan.now) > 1
        return FOR_GOOD if again else tunables.excluded_node_seconds
    if loss.reason in UNFIT_NODES:
        again = first_failures_on(recovery, loss.node, plan.now) > 0
        plan.status = remember_first_failure(plan.status, loss.node, loss.reason, plan.stamp)
        return tunables.excluded_node_seconds if again else tunables.excluded_shortly_seconds
    if disrupted:
        return 0.0  # what drove it away keeps a new one away, or takes its place
    if loss.reason is LossReason.NODE_REFUSED:
        return tunables.excluded_shortly_seconds
    if leaves and counted:
        return tunables.excluded_node_seconds
    return 0.0 if why_closed(plan, plan.snapshot.nodes.get(loss.node)) else None


def exclude_node(plan: PlanBuilder, loss: Loss, seconds: float, condition: str = "") -> None:
    """Exclude the node of a loss, unless too many are excluded already."""
    enough = excluded_enough(plan)
    if enough:
        report_exclusion_limit(plan, enough)
    else:
        exclude(plan, loss.node, loss.message, seconds, condition)
