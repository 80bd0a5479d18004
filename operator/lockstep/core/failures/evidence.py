"""What was lost, from what is seen. Only evidence counts; missing knowledge is none.

A node is lost when it is deleted or declared out of service, or when its worker's heartbeats are
silent AND (the node is NotReady OR the gang's steps have stopped). A gang whose steps advance is
never touched for NotReady alone, and right after a change of leader silence means nothing. Steps that
were never reported cannot be seen to stop; but a worker that fell silent before it was heard to begin
the attempt is what a gang without steps waits for. What many workers do not say at once is not held against
them for a while, and never the time in which this process did not listen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lockstep.api.base import names
from lockstep.api.run_status import Condition
from lockstep.core.failures import silence
from lockstep.core.failures.breaker import is_slow
from lockstep.core.failures.ranks import deciding_ranks, slots_to_join, succeeded_ranks, took_part, was_terminated
from lockstep.core.failures.signs import is_refused_by_node
from lockstep.core.model.conditions import find
from lockstep.core.model.reasons import (
    AttemptCause,
    AttemptEnd,
    ConditionReason,
    ConditionType,
    LossReason,
)
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import NodeView, PodView
from lockstep.core.model.worker_report import WorkerReport
from lockstep.core.placement.node_fit import untolerated
from lockstep.core.pods import gang, pod_template

SLOW_TIMES = 5.0
"""Times its limit for which what many are late in together is waited for, until one gets further."""
_LATE = {
    LossReason.NODE_SILENT: "no heartbeat",
    LossReason.START_NOT_ACKNOWLEDGED: "START is not acknowledged",
}


class LossKind(StrEnum):
    """What is gone."""

    NODE = "NodeLost"
    POD = "PodLost"
    DRAINED = "Drained"  # somebody wants it empty
    LEFT = "NodeLeft"  # it is there, and the run does not want it any more


@dataclass(frozen=True, slots=True)
class Loss:
    """A slot whose pod or node is gone. ``at``: when it was last known good, or when it ended."""

    slot: int
    node: str
    kind: LossKind
    reason: LossReason | AttemptCause | AttemptEnd
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What is lost, and what would be if not so much were silent together. In slot order."""

    lost: list[Loss]
    slow: list[Loss]


def losses(state: RunState, leaving: frozenset[int], *, over: bool = False) -> list[Loss]:
    """Slots that lost their pod or node, as ``look_for_losses`` sees them."""
    return look_for_losses(state, leaving, over=over).lost


def look_for_losses(state: RunState, leaving: frozenset[int], *, over: bool = False) -> Seen:
    """Slots that lost their pod or node. Ranks that already succeeded can lose nothing.

    ``leaving``: the slots that are waited with until a save. ``over``: the attempt is at its end, so that a pod which
    is known to be driven away is no longer waited with.
    """
    waited_with = frozenset() if over else leaving
    done = succeeded_ranks(state)
    nobody_is_left = bool(done) and done.issuperset(deciding_ranks(state))
    steps_stopped = nobody_is_left or silence.steps_have_stopped(state)
    start_due = silence.start_due(state, state.tunables.deadlines.start_acknowledged)
    start_overdue = start_due is not None and state.reached(start_due)
    registered_by = silence.registered_by(state) if steps_stopped else None
    # A spare has begun nothing, as one that is yet to join: its pod is simply made again.
    at_work = set(state.ranked_slots()) - slots_to_join(state) if state.trains else frozenset[int]()
    found, nodes = [], state.status.assignment.nodes
    for slot in state.slot_range():
        if nodes[slot] and state.rank(slot) not in done:
            trains, waits = slot in at_work, slot in waited_with
            loss = _loss_of(state, slot, trains, waits, steps_stopped, registered_by, start_overdue, over)
            if loss is not None:
                found.append(loss)
    slow = _late_together(state, found, start_due)
    waited_for = {loss.slot for loss in slow}
    return Seen([loss for loss in found if loss.slot not in waited_for], slow)


def _late_together(state: RunState, found: Sequence[Loss], start_due: float | None) -> list[Loss]:
    """Of losses those of workers on Ready nodes that are silent, or have not begun the attempt, with so many others
    that all are slow rather than dead.

    For a bounded time: nodes that really died together turn NotReady, or are lost one by one after it.
    """
    late = [loss for loss in found if loss.reason in _LATE]
    limits, deadlines = state.tunables.breaker, state.tunables.deadlines
    together = len(late) + (0 if state.trains else _unheard(state))
    if not late or (not is_slow(together, state.world, limits) and _told_slow(state) is None):
        return []
    # A gang that gathers is as slow as it may be at the barrier.
    longest = limits.window if state.trains else max(limits.window, deadlines.registered + deadlines.ready)
    begins = (start_due or 0.0) + (SLOW_TIMES - 1.0) * deadlines.start_acknowledged

    def until(loss: Loss) -> float:
        if loss.reason is LossReason.START_NOT_ACKNOWLEDGED:
            return begins
        report = state.report(loss.slot)
        silent_at = silence.silent_at(state, report)
        told = _told_slow_since(state) if report is None else None
        return silent_at + longest if told is None else max(silent_at, min(silent_at, told) + longest)

    return [loss for loss in late if not state.reached(until(loss))]


def _unheard(state: RunState) -> int:
    """Ranks whose container has run for as long as a worker may be silent, and whose worker was not heard yet: in a
    launch they are late as well."""
    leads_since, unheard = state.snapshot.leadership.since, 0
    for slot in state.ranked_slots():
        pod, report = state.pod(slot), state.report(slot)
        if pod is not None and pod.started_at is not None and (report is None or report.pod_uid != pod.uid):
            unheard += state.now >= max(pod.started_at, leads_since) + state.silent_after
    return unheard


def _told_slow(state: RunState) -> Condition | None:
    """The few that are left of many, and those that come to them, are waited for as well."""
    told = find(state.run.status, ConditionType.CLUSTER_DISRUPTION)
    return told if told is not None and told.reason == ConditionReason.CLUSTER_SLOW else None


def _told_slow_since(state: RunState) -> float | None:
    """Since when the gang is told to be slow, where an earlier leader has begun to say so: it has waited meanwhile."""
    told = _told_slow(state)
    if told is None:
        return None
    return told.last_transition_time if told.last_transition_time < state.snapshot.leadership.since else None


def late_in_words(late: Sequence[Loss]) -> str:
    """What so many workers have not done in time."""
    return ", ".join(words for reason, words in _LATE.items() if any(loss.reason is reason for loss in late))


def why_closed(state: RunState, node: NodeView | None) -> str:
    """Why a pod of the run could not be made again on the node, in words that follow its name; empty: it could."""
    if node is None:
        return ""
    if node.deleting:
        return "is being deleted"
    if node.unschedulable or node.drain:
        return "is being drained" if node.drain else "is cordoned"
    if state.run.spec is None or all(taint.key in state.tunables.gang.gpu_taints for taint in node.taints):
        return ""  # asked of every slot in every look while a gang launches
    gpus = (state.status.resolved.gpu_resource,)
    ours = pod_template.tolerations(gang.tolerations(state.spec, state.tunables.gang, gpus))
    kueue = state.status.kueue
    theirs = pod_template.tolerations(each.dump() for each in kueue.tolerations) if kueue is not None else ()
    taint = untolerated(node, (*ours, *theirs))
    return f"has the taint {taint.key}:{taint.effect}" if taint is not None else ""


def _loss_of(
    state: RunState,
    slot: int,
    trains: bool,
    waited_with: bool,
    steps_stopped: bool,
    registered_by: float | None,
    start_overdue: bool,
    over: bool,
) -> Loss | None:
    name = state.status.assignment.nodes[slot]
    node = state.snapshot.nodes.get(name)
    report = state.report(slot)

    def lost(kind: LossKind, reason: LossReason, message: str) -> Loss:
        return Loss(slot, name, kind, reason, message, _last_known_good(state, slot, report))

    def lost_pod(reason: LossReason, message: str) -> Loss:
        if node is not None and not node.ready:  # where nobody can run a new one
            return lost(LossKind.NODE, LossReason.NODE_NOT_READY, f"{message}, and the node is NotReady")
        if node is not None and (closed := why_closed(state, node)):
            return lost(LossKind.DRAINED, LossReason.NODE_CORDONED, f"{message}, and the node {closed}")
        return lost(LossKind.POD, reason, message)

    if node is None:
        return lost(LossKind.NODE, LossReason.NODE_DELETED, f"node {name} was deleted")
    if node.taints and any(taint.key == names.TAINT_OUT_OF_SERVICE for taint in node.taints):
        return lost(LossKind.NODE, LossReason.OUT_OF_SERVICE, f"node {name} was declared out of service")
    pod = state.pod(slot)
    if pod is not None and pod.is_terminal:
        return lost_pod(end_of(pod), pod_end(pod))
    if pod is not None and pod.deleting and not waited_with:
        return lost_pod(LossReason.POD_DELETED, f"pod {pod.name} was deleted by somebody else")
    if pod is None and trains:
        return lost_pod(LossReason.POD_VANISHED, f"the pod of {state.title(slot)} on {name} is gone")
    if report is not None and was_terminated(report) and not waited_with:
        return lost_pod(LossReason.POD_TERMINATED, f"the pod of {state.title(slot)} on {name} was told to end")
    if pod is None:
        return None
    if not pod.bound and (closed := why_closed(state, node)):
        words = f"the pod of {state.title(slot)} cannot be scheduled: node {name} {closed}"
        return lost(LossKind.DRAINED, LossReason.NODE_CORDONED, words)
    if pod.disruption and over:
        return lost_pod(LossReason.POD_TERMINATED, f"the pod of {state.title(slot)} on {name} is about to be ended")
    if not silence.is_silent(state, report):
        if trains and start_overdue and report is not None and report.attempt < state.status.attempt:
            words = f"the worker of rank {state.rank(slot)} on {name} did not start its program in time"
            return lost_pod(LossReason.START_NOT_ACKNOWLEDGED, words)
        return None
    quiet = "no heartbeat" if report is None else f"no heartbeat for {state.now - report.received_at:.0f} s"
    if not node.ready:
        return lost(LossKind.NODE, LossReason.NODE_NOT_READY, f"{quiet} from {name} and the node is NotReady")
    if not state.passed(silence.silent_at(state, report) + silence.slack(state)):
        return None
    # Past the barrier every rank was registered; a spare whose pod was made since has the deadlines of a launch.
    late = report is None and registered_by is not None and took_part(state, slot) and state.reached(registered_by)
    if steps_stopped and (report is not None or late):
        return lost(LossKind.NODE, LossReason.NODE_SILENT, f"{quiet} from {name} and the gang's steps have stopped")
    if trains and report is not None and report.attempt < state.status.attempt and silence.nobody_steps(state):
        return lost(
            LossKind.NODE, LossReason.NODE_SILENT, f"{quiet} from {name}, which never began the attempt: nobody steps"
        )
    return None


def _last_known_good(state: RunState, slot: int, report: WorkerReport | None) -> float:
    """Of one that a new leader never heard no more is known than that it was there at START."""
    if report is not None:
        return report.received_at
    start = state.status.start
    entry = state.attempt_entry(start.attempt) if start is not None else None
    if entry is None or entry.started_at is None:
        return state.now
    return entry.started_at if took_part(state, slot) else state.now


def end_of(pod: PodView) -> LossReason:
    """Of a terminal pod: whether it ended, or was never taken by its node."""
    return LossReason.NODE_REFUSED if is_refused_by_node(pod) else LossReason.POD_FAILED


def pod_end(pod: PodView) -> str:
    """How a terminal pod ended, in words."""
    code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
    why = ": ".join(filter(None, (pod.reason, pod.message)))
    return f"pod {pod.name} on {pod.node} ended{code}" + (f" ({why})" if why else "")
