"""What ends the wait of a run that has no nodes, and what becomes of its record once it has ended."""

from lockstep.api.durations import parse_duration
from lockstep.api.queue import QueueLimits
from lockstep.core.draft import Draft
from lockstep.core.stopping import PREEMPTED, QUEUE_DRAINED, finish, stop_after_save
from lockstep.core.time_limit import asked_limit

RECORD_AGAIN = 10.0
"""Seconds after which a run whose set has not recorded its end yet is looked at again."""
DEADLINE, UNSATISFIABLE = "DeadlineUnreachable", "DependencyNeverSatisfied"


def give_up_waiting(draft: Draft) -> bool:
    """End a run that waits for what cannot come any more: True when it has ended."""
    spec = draft.spec
    wanted = {dependency.name for dependency in spec.depends_on}  # as it is now; admission may not have seen it yet
    failed = [name for name in draft.status.admission.failed if name in wanted]
    if failed and spec.on_unsatisfiable == "Fail":
        finish(draft, False, UNSATISFIABLE, f"{draft.status.queue.message or ', '.join(failed)}; onUnsatisfiable: Fail")
        return True
    if spec.deadline is None:
        return False
    queue = draft.snapshot.queue
    limit = asked_limit(spec, queue.spec.limits if queue is not None else QueueLimits())
    least = parse_duration(spec.min_time_limit) if spec.min_time_limit is not None else limit
    latest = spec.deadline - max(0, (least or 0) - draft.status.held_seconds)
    if draft.now <= latest:
        draft.wake(latest + 1)
        return False
    finish(draft, False, DEADLINE, "a start now would not end before spec.deadline; it never got nodes in time")
    return True


def leave_drained_queue(draft: Draft) -> bool:
    """Give the nodes back, after a save, when the queue is being drained. True when the run stops."""
    queue = draft.snapshot.queue
    if queue is None or queue.spec.stop_policy != "HoldAndDrain":
        return False
    stop_after_save(draft, QUEUE_DRAINED, f"queue {queue.name} has stopPolicy HoldAndDrain; it queues again")
    return True


def make_room(draft: Draft) -> bool:
    """Give the nodes back, after a save, to the run that the notice in status names. True when the run stops."""
    notice = draft.status.preemption
    if notice is None:
        return False
    stop_after_save(draft, PREEMPTED, f"makes room for {notice.name or 'another run'}; it queues again")
    return True


def forget_when_due(draft: Draft, ended: float) -> None:
    """Have the run deleted ``ttlAfterFinished`` after its end, once none of its pods is left."""
    ttl = draft.run.spec.ttl_after_finished if draft.run.spec is not None else None
    if ttl is None:
        return
    due = ended + parse_duration(ttl)
    draft.wake(due)
    if not draft.snapshot.recorded:
        draft.wake(max(due, draft.now + RECORD_AGAIN))
        return
    draft.delete_run = draft.now >= due and not draft.live_pods and draft.status.checkpoint.archive.job is None
