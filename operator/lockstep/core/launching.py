"""The way of a gang to the barrier: every phase has a deadline, and what misses it is named and replaced."""

from dataclasses import dataclass
from enum import StrEnum

from lockstep.api.names import pod_name
from lockstep.core.draft import Draft
from lockstep.core.evidence import Loss, LossKind
from lockstep.core.gang import template_for, worker_config_map
from lockstep.core.plan import CreatePod
from lockstep.core.recovery import replace_before_start
from lockstep.core.snapshot import PodView, WorkerPhase
from lockstep.core.stopping import REQUEUED, begin_stop


class Stage(StrEnum):
    """How far a slot has come."""

    VACANT = "waits for a node"
    REFUSED = "its pod is refused"
    SCHEDULING = "its pod is not scheduled"
    STARTING = "its container has not started"
    REGISTERING = "its worker has not registered"
    PREPARING = "its worker is not ready"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class SlotStage:
    """Where a slot is, and until when it may stay there (None: for ever)."""

    slot: int
    stage: Stage
    deadline: float | None
    detail: str = ""


def desire_pods(draft: Draft) -> None:
    """Make the pods that the assignment asks for; end the ones it no longer does."""
    assignment = draft.status.assignment
    for pod in draft.snapshot.pods:
        current = assignment.incarnations[pod.slot] if pod.slot < len(assignment.nodes) else pod.incarnation + 1
        if pod.incarnation >= current:
            continue
        # The last dead pod of a slot is kept for its logs.
        if not pod.is_terminal or pod.incarnation < current - 1:
            draft.delete(pod, "superseded")
    if draft.status.start is not None and draft.status.start.attempt == draft.status.attempt:
        return  # past the barrier a missing pod is a loss, and comes back as the next incarnation
    missing = [slot for slot in draft.slot_range() if assignment.nodes[slot] and draft.pod(slot) is None]
    if not missing:
        return
    template = template_for(draft.run, draft.status, draft.tunables)
    draft.config_maps.append(worker_config_map(draft.run.namespace, draft.tunables.gang))
    for slot in missing:
        node, incarnation = assignment.nodes[slot], assignment.incarnations[slot]
        name = pod_name(draft.run.name, draft.run.uid, slot, incarnation)
        body = template.pod_body(slot, incarnation, node)
        draft.creates.append(CreatePod(draft.run.namespace, name, slot, incarnation, node, body))


def stages(draft: Draft) -> list[SlotStage]:
    """The stage of every slot, in slot order."""
    return [_stage(draft, slot) for slot in draft.slot_range()]


def enforce_deadlines(draft: Draft, reached: list[SlotStage]) -> None:
    """Replace the slots that took too long; give the nodes back when no replacement can be had."""
    late = []
    for at in reached:
        report = draft.report(at.slot)
        if at.stage is Stage.PREPARING and report is not None and report.problem:
            late.append((at, "NodeCheckFailed", f"the worker's check of the node failed: {report.problem}"))
        elif at.deadline is not None and draft.now >= at.deadline:
            late.append((at, "NotScheduled" if at.stage is Stage.SCHEDULING else "LaunchDeadline", ""))
        elif at.deadline is not None:
            draft.wake(at.deadline)
    hopeless = _no_fault_of_a_node(draft, [at for at, _, _ in late])
    if hopeless is not None:
        why = hopeless.detail or draft.status.queue.message
        words = f"rank {draft.rank(hopeless.slot)}: {hopeless.stage.value}, too long by now"
        begin_stop(draft, REQUEUED, words + (f" ({why})" if why else ""))
        return
    found = []
    for at, reason, why in late:
        node = draft.status.assignment.nodes[at.slot]
        words = why or f"{at.stage.value} on {node} in time" + (f": {at.detail}" if at.detail else "")
        found.append(Loss(at.slot, node, LossKind.POD, reason, words, draft.now))
    if found:
        replace_before_start(draft, found)


def _no_fault_of_a_node(draft: Draft, late: list[SlotStage]) -> SlotStage | None:
    """The first slot that another node would not help: then the gang gives its nodes back and tries again later."""
    for at in late:
        unheard = at.stage is Stage.SCHEDULING and not at.detail  # the scheduler has not even looked at it
        if unheard or at.stage in (Stage.VACANT, Stage.REFUSED):
            return at
    # An image that cannot be pulled, a claim that does not exist: all of the gang is stuck at the same point.
    alike = len(late) > 1 and len(late) == len(draft.slot_range())
    return late[0] if alike and {at.stage for at in late} in ({Stage.STARTING}, {Stage.SCHEDULING}) else None


def _time_to_schedule(draft: Draft, pod: PodView) -> float:
    limits = draft.tunables.deadlines
    if not pod.reason:
        return limits.vacant
    # The one before it on its node may be taking its time to end, and holds what this one needs.
    waits = any(p.node == pod.node and p.uid != pod.uid and not p.is_terminal for p in draft.pods_of(pod.slot))
    return limits.scheduled + (limits.stop if waits else 0.0)


def _stage(draft: Draft, slot: int) -> SlotStage:
    limits = draft.tunables.deadlines
    led_since = draft.snapshot.leadership.since
    assignment = draft.status.assignment
    if not assignment.nodes[slot]:
        since = assignment.vacant_since if assignment.vacant_since is not None else draft.now
        return SlotStage(slot, Stage.VACANT, since + limits.vacant)
    pod = draft.pod(slot)
    if pod is None:
        name = pod_name(draft.run.name, draft.run.uid, slot, assignment.incarnations[slot])
        refused = draft.snapshot.refused_creates.get(name)
        if refused is None:
            return SlotStage(slot, Stage.SCHEDULING, None)  # it is made in this very pass
        return SlotStage(slot, Stage.REFUSED, refused.since + limits.scheduled, refused.message)
    detail = ": ".join(filter(None, (pod.reason, pod.message)))
    if not pod.bound:
        return SlotStage(slot, Stage.SCHEDULING, pod.created_at + _time_to_schedule(draft, pod), detail)
    if pod.started_at is None:
        return SlotStage(slot, Stage.STARTING, pod.created_at + limits.scheduled + limits.started, detail)
    report = draft.report(slot)
    since = max(pod.started_at, led_since)
    if report is None or report.pod_uid != pod.uid:
        return SlotStage(slot, Stage.REGISTERING, since + limits.registered)
    if report.phase is WorkerPhase.READY and report.ready_for == draft.status.attempt:
        return SlotStage(slot, Stage.READY, None)
    ended = draft.attempt_entry(draft.status.attempt - 1)
    if ended is not None and ended.ended_at is not None:
        since = max(since, ended.ended_at)
    return SlotStage(slot, Stage.PREPARING, since + limits.registered + limits.ready, report.problem)
