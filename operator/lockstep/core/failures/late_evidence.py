"""What is heard of the end of an attempt only while the gang gathers for the next one.

The first evidence decides, so that nobody is kept waiting. A pod's end is reported by its kubelet, often a second after
its peers have hung up: until START it may still turn out to have been first.
"""

from collections.abc import Sequence

from lockstep.api.recovery_status import AttemptStatus
from lockstep.core.failures.causes import EVICTED, Cause, Evidence, collected, first_cause
from lockstep.core.failures.evidence import Loss, LossKind, pod_end
from lockstep.core.failures.ranks import FailedExit, took_part
from lockstep.core.failures.signs import STOPPED_FROM_OUTSIDE, read_pod
from lockstep.core.failures.step_evidence import with_steps
from lockstep.core.model.assignment import slot_of_rank
from lockstep.core.model.reasons import ActionWord, AttemptCause, LossReason
from lockstep.core.model.run_state import RunState

ATTRIBUTED_BY_EXIT = frozenset(
    {
        AttemptCause.APPLICATION,
        AttemptCause.STORAGE,
        AttemptCause.OUT_OF_MEMORY,
        AttemptCause.CORRUPT_CHECKPOINT,
        AttemptCause.HARDWARE,
        AttemptCause.UNKNOWN,
    }
)
"""Causes that may turn out to be another rank's doing once everybody has been heard."""


def last_end(state: RunState) -> AttemptStatus | None:
    """The attempt before the one that gathers."""
    ended = next((entry for entry in reversed(state.status.attempts) if entry.ended_at is not None), None)
    return ended if ended is not None and ended.number < state.status.attempt else None


def exits_of(state: RunState, attempt: int) -> list[FailedExit]:
    """How the ranks ended an attempt that is over, and their steps; those left out that were told to end."""
    found = []
    for slot in state.slot_range():
        report = state.report(slot)
        if report is None or report.attempt != attempt or report.exit is None or state.rank(slot) < 0:
            continue
        if not report.exit.succeeded and report.exit.reason not in STOPPED_FROM_OUTSIDE:
            found.append(FailedExit(slot, state.status.assignment.nodes[slot], report.exit))
    return with_steps(state, found, attempt)


def pods_lost_before(state: RunState, ended: AttemptStatus, lost: Sequence[Loss]) -> tuple[Cause | None, list[Loss]]:
    """The lost pod that brought about an end which was put down to another rank's exit, if there is one, and all of
    ``lost`` that go back to that time.

    Where the exit's own time is not known any more, it may have been at any moment of the second in status.
    """
    if ended.cause not in ATTRIBUTED_BY_EXIT or ended.rank is None or ended.ended_at is None:
        return None, []
    if ended.nodes not in (0, state.world) or (
        ended.action == ActionWord.REPLACE and ended.cause != AttemptCause.APPLICATION
    ):
        return None, []  # its ranks were others, or it was put down to a pod or node already
    exits = exits_of(state, ended.number)
    named = next((end.exit.at for end in exits if state.rank(end.slot) == ended.rank), ended.ended_at + 1.0)
    pods = {loss.slot: loss for loss in lost if loss.kind is not LossKind.NODE and _ran(state, loss.slot, ended.number)}
    found = collected(state, list(pods.values()), exits, ())
    earlier = [
        cause
        for cause in found
        if cause.lost
        and cause.explains_end_at(named)
        and _is_known_when(state, cause.slot)
        # Of its own end a rank's word tells more, unless its pod was driven away.
        and (state.rank(cause.slot) != ended.rank or cause.kind in EVICTED)
    ]
    if not earlier:
        return None, []
    first = first_cause([*earlier, *(cause for cause in found if not cause.lost)])
    return (first, [pods[cause.slot] for cause in earlier]) if first.lost else (None, [])


def limit_exceeded_before(state: RunState) -> Cause | None:
    """A pod that was heard to be told to end, which was put down to the cluster, and ended for a limit of its own.

    The kubelet says why only once all of the pod has ended: long after its worker told of the SIGTERM.
    """
    ended = last_end(state)
    if ended is None or ended.cause != AttemptCause.DISRUPTION or ended.rank is None or ended.rank >= state.world:
        return None
    slot = slot_of_rank(state.status.assignment, ended.rank)
    before = state.status.assignment.incarnations[slot] - 1
    pod = state.context.pods_by_identity.get((slot, before))
    if pod is None or not pod.is_terminal or pod.node != ended.node:
        return None
    reading = read_pod(pod)
    if reading.kind is not AttemptCause.LIMIT_EXCEEDED:
        return None
    words = f"{pod_end(pod)} ({reading.words})"
    evidence = Evidence(reading.kind, slot, ended.node, ended.ended_at or state.now, words, reading.root)
    return Cause(evidence, reading, LossReason.POD_FAILED, pod.exit_code, lost=True)


def _is_known_when(state: RunState, slot: int) -> bool:
    """When the slot's pod ended, or was last heard: of what a new leader never heard its pod has to tell."""
    pod = state.pod(slot)
    return state.report(slot) is not None or (pod is not None and pod.ended_at is not None)


def _ran(state: RunState, slot: int, attempt: int) -> bool:
    """The slot's pod ran a rank of the attempt, as far as a new leader can tell."""
    report = state.report(slot)
    return took_part(state, slot) and (report is None or report.attempt == attempt)
