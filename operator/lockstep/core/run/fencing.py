"""``layout: Shared``: no attempt starts while a process of an earlier one may still write to the one directory.

A lost writer is out of the way when its pod has ended or is gone, when its node was deleted or declared out of
service, when its worker has said so, or when its own fence must have fallen: a worker that neither hears the operator
nor sees a step ends its program by itself. The last one rests on the steps: a rank cannot advance without its peers, so
somebody has to be known to have stopped first. In a gang of one, and in one that was lost whole, nobody is.
"""

from lockstep.api.base import names
from lockstep.core.failures.recovery_record import record_fence
from lockstep.core.failures.silence import LONGEST_POLL
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import PodView
from lockstep.core.model.worker_report import WorkerPhase, WorkerReport

FENCE_MARGIN = 15.0 + LONGEST_POLL
"""Seconds beyond the fence: for a reply that was under way, and for clocks that run apart."""
_NAMED = 3


def keep_fence(plan: PlanBuilder) -> None:
    """Have the time run as soon as all of the last attempt have stopped but those that nobody can ask."""
    if plan.status.recovery.fenced_at is None and _lost_writers(plan) and _others_have_stopped(plan):
        tunables = plan.tunables
        # One that is heard again just before its fence falls is told to stop, and has the usual grace for it then.
        fence = tunables.fence_seconds + float(tunables.stop_grace) + FENCE_MARGIN
        plan.status = record_fence(plan.status, plan.stamp + 1.0 + fence)


def hold_for_writers(state: RunState) -> str:
    """Why the attempt must not start yet, in words; empty when nobody else can write any more."""
    lost = _lost_writers(state)
    fenced_at = state.status.recovery.fenced_at
    if not lost or (fenced_at is not None and state.reached(fenced_at)):
        return ""
    named = ", ".join(f"{pod.name} on {pod.node}" for pod in lost[:_NAMED])
    named += f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    if fenced_at is not None:
        return f"waits for the fence of {named}, which may still write to the shared directory (layout: Shared)"
    return (
        f"{named} may still write to the shared directory (layout: Shared), and no peer is known to have stopped it; "
        f"it starts when the pod has ended or its node is deleted or tainted {names.TAINT_OUT_OF_SERVICE}"
    )


def _is_shared(state: RunState) -> bool:
    checkpoint = state.run.spec.checkpoint if state.run.spec is not None else None
    return checkpoint is not None and checkpoint.layout == "Shared"


def _lost_writers(state: RunState) -> list[PodView]:
    """Pods of earlier incarnations that may run on unseen: as long as the object is there, nobody confirmed its end."""
    status = state.status
    if not _is_shared(state) or (status.start is None and status.attempt <= 1):
        return []
    took_part = state.members
    held = status.assignment.incarnations[: len(status.assignment.nodes)]
    found = []
    for pod in state.snapshot.pods:
        is_current = pod.slot < len(held) and pod.incarnation >= held[pod.slot]
        if is_current or pod.is_terminal or not pod.bound:
            continue
        if took_part and (pod.slot, pod.incarnation) not in took_part:
            continue  # it never left the barrier
        node = state.snapshot.nodes.get(pod.node)
        if node is None or any(taint.key == names.TAINT_OUT_OF_SERVICE for taint in node.taints):
            continue
        report = state.snapshot.reports.get(pod.slot)
        last = status.start.attempt if status.start is not None else status.attempt
        if report is not None and report.pod_uid == pod.uid and _runs_nothing_of(report, last):
            continue
        if state.snapshot.ended.get(pod.uid, 0) >= last:
            continue
        found.append(pod)
    return sorted(found, key=lambda pod: (pod.slot, pod.incarnation))


def _others_have_stopped(state: RunState) -> bool:
    """Every other member of the last START is known to run nothing of it any more, and there is one."""
    start = state.status.start
    if start is None:
        return False  # who took part is not known any more
    lost = {(pod.slot, pod.incarnation) for pod in _lost_writers(state)}
    others = state.members - lost
    return bool(others) and all(_has_stopped(state, slot, incarnation, start.attempt) for slot, incarnation in others)


def _has_stopped(state: RunState, slot: int, incarnation: int, attempt: int) -> bool:
    pod = next((pod for pod in state.pods_of(slot) if pod.incarnation == incarnation), None)
    if pod is None or pod.is_terminal:
        return True
    held = state.status.assignment.incarnations
    if slot >= len(state.status.assignment.nodes) or held[slot] != incarnation:
        return True  # one of an earlier incarnation that is not among the lost
    report = state.report(slot)
    if report is None:
        return False
    return _runs_nothing_of(report, attempt)


def _runs_nothing_of(report: WorkerReport, attempt: int) -> bool:
    """The worker was heard of after its program of ``attempt``. One that was ready for it may have begun it since."""
    exited = report.phase is WorkerPhase.EXITED and report.attempt >= attempt
    return exited or (report.phase is WorkerPhase.READY and report.ready_for > attempt)
