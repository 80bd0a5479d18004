"""What was lost, from what is seen. Only evidence counts; missing knowledge is none.

A node is lost when it is deleted or declared out of service, or when its worker's heartbeats are
silent AND (the node is NotReady OR the gang's steps have stopped). A gang whose steps advance is
never touched for NotReady alone, and right after a change of leader silence means nothing.
"""

from dataclasses import dataclass
from enum import StrEnum

from lockstep.api import names
from lockstep.core.draft import Draft
from lockstep.core.lifecycle import Phase
from lockstep.core.ranges import parse_ranges
from lockstep.core.snapshot import ExitReport, PodView, WorkerPhase, WorkerReport


class LossKind(StrEnum):
    """What is gone."""

    NODE = "NodeLost"
    POD = "PodLost"


@dataclass(frozen=True, slots=True)
class Loss:
    """A slot whose pod or node is gone. ``at``: when it was last known good, or when it ended."""

    slot: int
    node: str
    kind: LossKind
    reason: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class FailedExit:
    """A rank whose process of the current attempt ended badly."""

    slot: int
    node: str
    exit: ExitReport


def succeeded_ranks(draft: Draft) -> frozenset[int]:
    """Ranks of the current attempt that ended with code 0: those in status and those just reported."""
    exits = draft.status.exits
    ranks = set(parse_ranges(exits.succeeded)) if exits.attempt == draft.status.attempt else set()
    if draft.phase is Phase.RUNNING:
        for slot in draft.slot_range():
            report = draft.report(slot)
            if report is None or report.exit is None or not _exited_in(report, draft.status.attempt):
                continue
            if report.exit.succeeded:
                ranks.add(draft.rank(slot))
    return frozenset(ranks)


def failed_exits(draft: Draft) -> list[FailedExit]:
    """Bad exits of the current attempt, earliest first."""
    found = []
    for slot in draft.slot_range():
        report = draft.report(slot)
        if report is None or report.exit is None or not _exited_in(report, draft.status.attempt):
            continue
        if not report.exit.succeeded:
            found.append(FailedExit(slot, draft.status.assignment.nodes[slot], report.exit))
    return sorted(found, key=lambda failed: (failed.exit.at, failed.slot))


def losses(draft: Draft) -> list[Loss]:
    """Slots that lost their pod or node, in slot order. Ranks that already succeeded can lose nothing."""
    done = succeeded_ranks(draft)
    steps_stopped = _steps_have_stopped(draft)
    found = []
    for slot in draft.slot_range():
        if draft.status.assignment.nodes[slot] and draft.rank(slot) not in done:
            loss = _loss_of(draft, slot, steps_stopped)
            if loss is not None:
                found.append(loss)
    return found


def is_silent(draft: Draft, report: WorkerReport | None) -> bool:
    """No heartbeat for three intervals, and this process has led long enough to have heard one."""
    limit = draft.silent_after
    last = draft.snapshot.leadership.since
    if report is not None:
        last = max(last, report.received_at)
    draft.wake(last + limit + 0.1)
    return draft.now - last > limit


def everyone_heard_since(draft: Draft, moment: float, *, but: int) -> bool:
    """Every worker other than slot ``but`` has reported after ``moment``."""
    return all(
        (report := draft.report(slot)) is not None and report.received_at > moment
        for slot in draft.slot_range()
        if slot != but
    )


def _loss_of(draft: Draft, slot: int, steps_stopped: bool) -> Loss | None:
    name = draft.status.assignment.nodes[slot]
    node = draft.snapshot.nodes.get(name)
    report = draft.report(slot)
    heard = report.received_at if report is not None else draft.now

    def lost(kind: LossKind, reason: str, message: str, at: float = heard) -> Loss:
        return Loss(slot, name, kind, reason, message, at)

    if node is None:
        return lost(LossKind.NODE, "NodeDeleted", f"node {name} was deleted")
    if any(taint.key == names.TAINT_OUT_OF_SERVICE for taint in node.taints):
        return lost(LossKind.NODE, "OutOfService", f"node {name} was declared out of service")
    pod = draft.pod(slot)
    if pod is not None and pod.is_terminal:
        return lost(LossKind.POD, "PodFailed", _pod_end(pod))
    if pod is not None and pod.deleting:
        return lost(LossKind.POD, "PodDeleted", f"pod {pod.name} was deleted by somebody else")
    if pod is None and draft.phase is Phase.RUNNING:
        return lost(LossKind.POD, "PodVanished", f"the pod of rank {draft.rank(slot)} on {name} is gone")
    if pod is None or not is_silent(draft, report):
        return None
    quiet = "no heartbeat" if report is None else f"no heartbeat for {draft.now - report.received_at:.0f} s"
    if not node.ready:
        return lost(LossKind.NODE, "NodeNotReady", f"{quiet} from {name} and the node is NotReady")
    if steps_stopped and report is not None:
        return lost(LossKind.NODE, "NodeSilent", f"{quiet} from {name} and the gang's steps have stopped")
    return None


def _steps_have_stopped(draft: Draft) -> bool:
    """Judged by the workers that are heard; when none is, nothing is known and the answer is no."""
    limit = draft.silent_after
    heard = [
        report
        for slot in draft.slot_range()
        if (report := draft.report(slot)) is not None and draft.now - report.received_at <= limit
    ]
    if not heard:
        return False
    running = [r for r in heard if r.phase is WorkerPhase.RUNNING and r.attempt == draft.status.attempt]
    if not running:
        return True
    entry = draft.attempt_entry(draft.status.attempt)
    begun = entry.started_at if entry is not None and entry.started_at is not None else 0.0
    newest = max([begun, *(r.progress.at for r in running if r.progress is not None)])
    draft.wake(newest + draft.tunables.steps_stopped_after + 0.1)
    return draft.now - newest > draft.tunables.steps_stopped_after


def _exited_in(report: WorkerReport, attempt: int) -> bool:
    return report.phase is WorkerPhase.EXITED and report.attempt == attempt


def _pod_end(pod: PodView) -> str:
    code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
    why = ": ".join(filter(None, (pod.reason, pod.message)))
    return f"pod {pod.name} on {pod.node} ended{code}" + (f" ({why})" if why else "")
