"""What is seen of a gang without workers: its pods and its nodes, and nothing else.

There are no heartbeats and no steps. That a pod runs says little about what runs in it, and a node that is NotReady
may only have lost its kubelet: it is taken for lost when that has gone on for so long that waiting costs more.
"""

from lockstep.api.base import names
from lockstep.core.failures.evidence import Loss, LossKind, end_of, pod_end, why_closed
from lockstep.core.failures.ranks import FailedExit, succeeded_ranks
from lockstep.core.failures.signs import SIGTERM_CODE
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ExitReason, LossReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import NodeView, PodPhase, PodView
from lockstep.core.model.worker_report import ExitReport

_BY_ITSELF = frozenset({"", "Completed", "Error", "OOMKilled"})
"""Reasons of a container whose program ended, whatever came of it; all others are somebody else's doing."""
_NOT_STARTED = "StartError"
_NO_SUCH_COMMAND = ("executable file not found", "no such file or directory", "not found in $PATH")
_NOT_EXECUTABLE = ("permission denied", "exec format error")


def plain_losses(state: RunState) -> list[Loss]:
    """Slots that lost their node or, once START is written, their pod. Ranks that succeeded can lose nothing."""
    done = succeeded_ranks(state)
    started = state.phase is Phase.RUNNING
    found = []
    for slot in state.slot_range():
        if state.status.assignment.nodes[slot] and state.rank(slot) not in done:
            loss = _lost_node(state, slot) or (_lost_pod(state, slot) if started else None)
            if loss is not None:
                found.append(loss)
    return found


def plain_exits(state: RunState) -> list[FailedExit]:
    """Programs of the current attempt that ended badly by themselves, earliest first by their nodes' clocks."""
    found = []
    for slot in state.slot_range():
        pod = state.pod(slot)
        if pod is not None and pod.is_terminal and (end := _own_end(state, pod)) is not None and not end.succeeded:
            found.append(FailedExit(slot, state.status.assignment.nodes[slot], end))
    return sorted(found, key=lambda failed: (failed.exit.at, failed.slot))


def all_pods_were_seen(state: RunState) -> bool:
    """Every pod of the attempt was there once: from then on one that is missing is gone."""
    entry = state.attempt_entry(state.status.attempt)
    return entry is None or entry.started_at is not None


def is_given_up(node: NodeView | None) -> bool:
    """Somebody who knows has said that nothing runs there any more."""
    return node is None or any(taint.key == names.TAINT_OUT_OF_SERVICE for taint in node.taints)


def seconds_of_training(state: RunState) -> float:
    """How long all programs of the attempt have run together; 0 when one never began."""
    begun = [pod.started_at for slot in state.slot_range() if (pod := state.pod(slot)) is not None]
    if not begun or any(moment is None for moment in begun):
        return 0.0
    ends = [pod.ended_at for slot in state.slot_range() if (pod := state.pod(slot)) and pod.ended_at is not None]
    return max(0.0, min([state.now, *ends]) - max(moment for moment in begun if moment is not None))


def _lost_node(state: RunState, slot: int) -> Loss | None:
    name = state.status.assignment.nodes[slot]
    node = state.snapshot.nodes.get(name)
    if node is None:
        return Loss(slot, name, LossKind.NODE, LossReason.NODE_DELETED, f"node {name} was deleted", state.now)
    if is_given_up(node):
        return Loss(
            slot, name, LossKind.NODE, LossReason.OUT_OF_SERVICE, f"node {name} was declared out of service", state.now
        )
    if node.ready:
        return None
    lost_at = node.ready_changed_at + state.tunables.deadlines.unheard_node
    if not state.reached(lost_at):
        return None
    words = f"node {name} is NotReady for {state.now - node.ready_changed_at:.0f} s"
    return Loss(slot, name, LossKind.NODE, LossReason.NODE_NOT_READY, words, node.ready_changed_at)


def _lost_pod(state: RunState, slot: int) -> Loss | None:
    name, pod = state.status.assignment.nodes[slot], state.pod(slot)
    node = state.snapshot.nodes[name]

    def lost(reason: LossReason, words: str, at: float = state.now) -> Loss:
        if not node.ready:  # where nobody can run a new one
            return Loss(slot, name, LossKind.NODE, LossReason.NODE_NOT_READY, f"{words}, and the node is NotReady", at)
        if closed := why_closed(state, node):
            return Loss(slot, name, LossKind.DRAINED, LossReason.NODE_CORDONED, f"{words}, and the node {closed}", at)
        return Loss(slot, name, LossKind.POD, reason, words, at)

    if pod is None:
        # Before all were seen it is yet to be made.
        return (
            lost(LossReason.POD_VANISHED, f"the pod of {state.title(slot)} on {name} is gone")
            if all_pods_were_seen(state)
            else None
        )
    if pod.deleting:
        return lost(LossReason.POD_DELETED, f"pod {pod.name} was deleted by somebody else")
    if not pod.bound and (closed := why_closed(state, node)):
        words = f"the pod of {state.title(slot)} cannot be scheduled: node {name} {closed}"
        return Loss(slot, name, LossKind.DRAINED, LossReason.NODE_CORDONED, words, state.now)
    if pod.is_terminal and _own_end(state, pod) is None:
        return lost(end_of(pod), pod_end(pod), pod.ended_at or state.now)
    return None


def _own_end(state: RunState, pod: PodView) -> ExitReport | None:
    """How the pod's program came to its end; None when its pod was ended instead, or it never began."""
    if pod.disruption or pod.deleting or pod.exit_code in (None, SIGTERM_CODE):
        return None
    assert pod.exit_code is not None
    code, at = pod.exit_code, min(state.now, pod.ended_at or state.now)
    if pod.reason == _NOT_STARTED:
        if any(words in pod.message for words in _NO_SUCH_COMMAND):
            return ExitReport(code=127, at=at, reason=ExitReason.COMMAND_NOT_FOUND, stderr_tail=pod.message)
        if any(words in pod.message for words in _NOT_EXECUTABLE):
            return ExitReport(code=126, at=at, reason=ExitReason.COMMAND_NOT_EXECUTABLE, stderr_tail=pod.message)
        return None  # what the container runtime lacked; another node may have it
    if pod.reason not in _BY_ITSELF:
        return None
    if code == 0:
        return ExitReport(code=0, at=at) if pod.phase is PodPhase.SUCCEEDED else None
    return ExitReport(code=code, at=at, reason=pod.reason or ExitReason.ERROR, stderr_tail=pod.message)
