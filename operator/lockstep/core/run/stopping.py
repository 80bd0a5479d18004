"""Stops: the intent is written first, then the gang saves, the ranks end, and the nodes are given back.

Every wait has its end in status: that of the save is its deadline, that of the ranks is the stop's. Only a gang
that trains is asked to save; one that loses a rank while it is being stopped is stopped without.
"""

from lockstep.api.base.changes import changed
from lockstep.api.run_status import LeavingStatus, QueueStatus, TrainingRunStatus
from lockstep.core.checkpoints.checkpoint_record import record_latest
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.saves import ask_for_save, fail_save, is_awaited, last_trained
from lockstep.core.failures.evidence import losses
from lockstep.core.failures.ranks import failed_exits, goes_on_without
from lockstep.core.failures.recovery_record import forget_lost_pods, record_requeue
from lockstep.core.failures.signs import STOPPED_FROM_OUTSIDE
from lockstep.core.kueue.kueue_record import give_up_reservation
from lockstep.core.model import assignment as slots
from lockstep.core.model.admission_record import requeue
from lockstep.core.model.kept_nodes import is_kept
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, ConditionType, EventReason, Recorded, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.save_signal import longest_wait_for_save
from lockstep.core.model.start_record import forget_start
from lockstep.core.model.worker_report import WorkerPhase
from lockstep.core.pods.leftover_pods import holds_node, holds_up
from lockstep.core.pods.pod_groups import let_go_of_group
from lockstep.core.run.backoff import backoff
from lockstep.core.run.debug_hold import held_until, hold_for_debugging
from lockstep.core.run.fencing import keep_fence
from lockstep.core.run.progress_record import record_saved_step
from lockstep.core.run.requeueing import or_end
from lockstep.core.run.stop_record import end_save_of_stop, forget_stop, record_stop, turn_stop
from lockstep.core.run.way_back import way_back

REQUEUES = (
    StopReason.REQUEUED,
    StopReason.PREEMPTED,
    StopReason.NODES_LOST,
    StopReason.QUEUE_DRAINED,
    StopReason.EVICTED_BY_KUEUE,
    StopReason.RESERVATION_LOST,
)
"""Reasons of stops after which the run queues again."""
OUT_OF_SHARE = (StopReason.TIME_LIMIT, StopReason.BUDGET_SPENT, StopReason.NOT_REQUEUED)
"""Reasons of ends after which no pod is waited for any longer than it takes to end."""
LONGEST_WAIT = 4
"""Times ``excluded_shortly_seconds``, for a gang whose pods kubelet after kubelet refuses."""
MOST_WORDS = 1000
"""Characters of an end's message, of which an event takes 1024."""
_AT_REST = (WorkerPhase.EXITED, WorkerPhase.READY, WorkerPhase.PREPARING)


def begin_stop(plan: PlanBuilder, reason: StopReason, message: str) -> None:
    """Write that the run stops. ``reason`` other than those above is why the run fails. One that may not queue again
    ends where others would."""
    reason, message = or_end(plan, reason, message)
    deadline = plan.stamp + plan.tunables.deadlines.stop
    plan.status = record_stop(plan.status, reason, message, plan.stamp, deadline)
    plan.event(EventReason.STOPPING, f"{reason}: {message}", action=ActionWord.STOP, warning=_is_failure(reason))


def stop_after_save(plan: PlanBuilder, reason: StopReason, message: str, *, within: float | None = None) -> None:
    """As ``begin_stop``, but a gang that trains is asked to save first.

    The save is awaited for ``within`` seconds (None: the grace period of the spec, within bounds), and not at all where
    no program asks for saves, which the event then says.
    """
    reason, message = or_end(plan, reason, message)
    until = plan.stamp + (longest_wait_for_save(plan.spec, plan.tunables) if within is None else within)
    if plan.phase is not Phase.RUNNING or not ask_for_save(plan, reason, until):
        begin_stop(plan, reason, message + why_without_save(plan))
        return
    save = plan.status.checkpoint.save
    assert save is not None
    awaited_until = save.deadline if save.deadline is not None else until
    deadline = awaited_until + plan.tunables.deadlines.stop
    plan.status = record_stop(plan.status, reason, message, plan.stamp, deadline, save=save.id)
    plan.event(
        EventReason.STOPPING,
        f"{reason}: {message}; first all ranks save, for {awaited_until - plan.stamp:.0f} s at most",
        action=ActionWord.STOP,
        warning=_is_failure(reason),
    )


def carry_out_stop(plan: PlanBuilder, leaving: frozenset[int]) -> None:
    """Wait for the save and then for the ranks to end, each until its deadline; then finish, or release.

    ``leaving``: the slots that do not count as lost until the save is settled.
    """
    stop = plan.status.stop
    assert stop is not None
    if stop.reason in (StopReason.SUSPENDED, *REQUEUES) and plan.spec.cancel:
        plan.status = turn_stop(plan.status, StopReason.CANCELLED, plan.run.set_says or "cancel: true")
        stop = plan.status.stop
        assert stop is not None
    if stop.save:
        _give_up_save_of_broken_gang(plan, leaving)
        if is_awaited(plan.status, stop.save):
            plan.wake(stop.deadline)
            return
        # From here on the ranks are told to end, and have as long for it as after any other stop.
        plan.status = end_save_of_stop(plan.status, plan.stamp + plan.tunables.deadlines.stop)
        stop = plan.status.stop
        assert stop is not None
    if not plan.has_workers:
        plan.delete_live_pods(stop.reason)  # all the notice that a program without a worker can get
    if not _ranks_have_ended(plan, leaving) and not plan.reached(stop.deadline):
        return
    _end_history(plan, Recorded(stop.reason), stop.message)
    if stop.reason in (StopReason.SUSPENDED, *REQUEUES):
        # A program without a worker has its own grace, in which it may be saving.
        plan.delete_live_pods(stop.reason, plan.tunables.stop_grace if plan.has_workers else None)
        if not any(holds_up(pod, plan.snapshot.nodes) for pod in plan.live_pods):
            _release(plan, stop.reason)
        return
    finish(plan, False, Recorded(stop.reason), stop.message)
    if _is_failure(stop.reason) and stop.reason not in OUT_OF_SHARE:
        hold_for_debugging(plan)  # what ran out of its share has nothing to show, and is to hold no node beyond it
        if is_kept(plan.status):
            tell_who_leaves(plan, held_until(plan))


def finish(plan: PlanBuilder, succeeded: bool, reason: StopReason | Recorded, message: str) -> None:
    """The end of the run, for good. A failure names the way back."""
    if not succeeded and _is_failure(reason):
        way = way_back(plan.run, plan.status, reason)
        message = f"{message[: MOST_WORDS - len(way)]}; {way}"
    plan.status = changed(forget_stop(plan.status), preemption=None, reservation=None, queue=QueueStatus())
    plan.condition(ConditionType.SUCCEEDED, succeeded, reason, message)
    plan.condition(ConditionType.FINISHED, True, reason, message)
    plan.event(EventReason.SUCCEEDED if succeeded else reason, message, action=ActionWord.FINISH, warning=not succeeded)
    plan.admission_changed = True


def tell_who_leaves(plan: PlanBuilder, until: float) -> None:
    """Of a run that has ended: that its pods still have nodes, and until when at most."""
    nodes, told = {pod.node for pod in plan.live_pods if holds_node(pod)}, plan.status.leaving
    by = float(int(until))
    fewer = told is not None and told.nodes != len(nodes) and plan.now < held_until(plan)  # else they all go just now
    if nodes and (told is None or told.until != by or fewer):
        plan.status = changed(plan.status, leaving=LeavingStatus(nodes=len(nodes), until=by))
    elif not nodes and told is not None:
        plan.status = changed(plan.status, leaving=None)


def _is_failure(reason: str) -> bool:
    return reason not in (StopReason.SUSPENDED, StopReason.CANCELLED, *REQUEUES)


def why_without_save(state: RunState) -> str:
    """Said only where somebody may have expected one."""
    trained = state.phase is Phase.RUNNING and state.spec.checkpoint is not None
    return "; without a save, as no process asks for one" if trained else ""


def _give_up_save_of_broken_gang(plan: PlanBuilder, leaving: frozenset[int]) -> None:
    """A save is of all ranks: with one of them lost there is none, and no attempt is begun just to save."""
    bad = [failed for failed in failed_exits(plan, leaving) if failed.exit.reason not in STOPPED_FROM_OUTSIDE]
    lost = [
        loss for loss in losses(plan, leaving) if plan.rank(loss.slot) >= 0 and not goes_on_without(plan, loss.slot)
    ]
    if lost:
        fail_save(plan, lost[0].message)
    elif bad:
        fail_save(plan, f"rank {plan.rank(bad[0].slot)} failed")


def _ranks_have_ended(state: RunState, leaving: frozenset[int]) -> bool:
    """No rank still has a process, as far as anybody is left to say so."""
    if not state.has_workers:
        return not any(holds_up(pod, state.snapshot.nodes) for pod in state.live_pods)
    lost = {loss.slot for loss in losses(state, leaving)}
    for slot in state.ranked_slots():
        pod, report = state.pod(slot), state.report(slot)
        if slot in lost or pod is None or pod.is_terminal or pod.started_at is None:
            continue
        if report is None and state.status.start is not None:
            return False
        if report is not None and report.phase not in _AT_REST:
            return False
    return True


def _release(plan: PlanBuilder, reason: str) -> None:
    let_go_of_group(plan)
    plan.status = slots.put(plan.status, slots.released(plan.status.assignment))
    keep_fence(plan)  # what is left of the gang may write on, and afterwards nobody knows who took part
    plan.status = forget_lost_pods(plan.status)
    if reason in (StopReason.REQUEUED, StopReason.NODES_LOST):
        tunables = plan.tunables
        requeues = plan.status.recovery.requeues
        wait = backoff(requeues + 2, tunables.backoff_base, tunables.backoff_max, plan.run.uid)
        refusals, avoided = plan.status.recovery.refusals, tunables.excluded_shortly_seconds
        if refusals is not None and refusals.waits:  # for as long, too, as it keeps off these nodes
            wait = max(wait, backoff(requeues + 2, avoided, LONGEST_WAIT * avoided, plan.run.uid))
        plan.status = record_requeue(plan.status, float(int(plan.now + wait)))
    plan.status = given_back(plan.status, reason, plan.stamp)
    plan.admission_changed = True


def given_back(status: TrainingRunStatus, reason: str, now: float) -> TrainingRunStatus:
    """``status``, whose nodes are released, of a run that stopped for ``reason`` and may come back."""
    since = status.last_admitted
    held = 0 if reason in REQUEUES or since is None else status.held_seconds + max(0, int(now - since))
    if reason != StopReason.EVICTED_BY_KUEUE:  # Kueue knows of its own evictions
        status = give_up_reservation(status)
    status = requeue(forget_stop(forget_start(status)), reason)
    return changed(status, preemption=None, last_admitted=None, held_seconds=held)


def _end_history(plan: PlanBuilder, cause: Recorded, message: str) -> None:
    entry = plan.attempt_entry(plan.status.attempt)
    if entry is not None and entry.ended_at is None:
        # Nobody is left to ask once the pods are gone.
        latest = latest_valid(plan.snapshot, plan.status)
        plan.status = record_latest(plan.status, latest)
        step = last_trained(plan)
        if step is not None:
            plan.status = record_saved_step(plan.status, step, plan.stamp)
        plan.put_attempt(
            changed(plan.attempt(entry.number), ended_at=plan.stamp, message=message, last_step=step),
            cause=cause,
            action=ActionWord.STOP,
        )
