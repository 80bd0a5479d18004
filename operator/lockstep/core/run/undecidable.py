"""What is done for a run without deciding anything for it: what it owes to others.

For one that ``decide`` fails with, which is a defect of the operator, and for one that rests, as deciding for it costs
the others too much. Whoever wants its nodes back gets them: its deletion, cancel, suspend, its queue, its time limit,
Kueue, a preemptor; of one that fails also everybody who waits while a launch makes no pod. What trains goes on, to its
end. Nothing is made, replaced or resumed here, and no pod is deleted but those of a gang that stops or has stopped.

It rests on the status, the pods, and who has been heard of at rest; each question is asked by itself, so that a defect
in one keeps no other from being asked. Of a run whose nodes cannot be read (``unread``) what has to be known of them
waits: it comes to no success, and gives none back; when it stops, its pods go.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from lockstep.api.base.changes import changed
from lockstep.core.accounting.account import keep_account, over_budget
from lockstep.core.checkpoints.saves import settle_save
from lockstep.core.failures.ranks import record_ends, succeeded_ranks
from lockstep.core.failures.recovery_record import forget_lost_pods, record_requeue
from lockstep.core.failures.silence import rejoins_within
from lockstep.core.failures.step_evidence import has_succeeded, success_in_words
from lockstep.core.kueue.choice import workload_name
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import cannot_decide, find, is_true
from lockstep.core.model.lifecycle import Outcome, Phase
from lockstep.core.model.limits import end_notice
from lockstep.core.model.plan import Plan
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, ConditionReason, ConditionType, EventReason, Recorded, StopReason
from lockstep.core.model.run_state import RunContext, RunState
from lockstep.core.model.snapshot import RunSnapshot
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.model.worker_report import WorkerPhase
from lockstep.core.pods.leftover_pods import holds_up
from lockstep.core.pods.pod_groups import let_go_of_group
from lockstep.core.run.backoff import backoff
from lockstep.core.run.debug_hold import held_until
from lockstep.core.run.directive import directive_for
from lockstep.core.run.handover import Handover
from lockstep.core.run.regression import LONGEST_HOLD, anything_to_stop
from lockstep.core.run.requeueing import has_run, or_end
from lockstep.core.run.stop_record import end_save_of_stop, turn_stop
from lockstep.core.run.stopping import (
    OUT_OF_SHARE,
    REQUEUES,
    begin_stop,
    carry_out_stop,
    finish,
    given_back,
    stop_after_save,
    tell_who_leaves,
)
from lockstep.core.run.time_left import limit_of
from lockstep.core.run.time_limit import save_by_the_limit, then_at_its_limit
from lockstep.core.run.waiting import forget_when_due, missed_deadline

WITHOUT_PODS = 15.0
"""Seconds after which a gang gives its nodes back that has no pod: one that was made just now has been heard of."""
_AT_REST = (WorkerPhase.EXITED, WorkerPhase.READY, WorkerPhase.PREPARING)
_ON_ITS_WAY = (Phase.LAUNCHING, Phase.RECOVERING)
_HOLDING_NODES = (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING)
_SAVED_FIRST = (
    StopReason.CANCELLED,
    StopReason.SUSPENDED,
    StopReason.QUEUE_DRAINED,
    StopReason.EVICTED_BY_KUEUE,
    StopReason.BUDGET_SPENT,
    StopReason.PREEMPTED,
)
"""What a run that rests is stopped for after a save: for the others there is no time left, or nothing to save."""

T = TypeVar("T")

Wish = tuple[StopReason, str]
"""What a gang is to stop for, and the words for it."""


def without_deciding(snapshot: RunSnapshot, tunables: Tunables, now: float, error: str) -> Plan:
    """What is to be done for one run at ``now``; ``error`` is the kind of what ``decide`` raises, or why the nodes of
    one that is ``unread`` cannot be read."""
    if tunables.mode is Mode.REPORT_ONLY:
        return Plan()
    plan = _begun(snapshot, tunables, now)
    if not _let_end_if_over(plan):
        _tell(plan, error)
        _keep_to(plan, _wish(plan), saves=False)
        if not plan.run.unread:
            _tried(_charge, plan)
        _conclude(plan, ConditionType.UNDECIDABLE.value)
    _answer_workers(plan)
    return plan.build()


def obeying_alone(snapshot: RunSnapshot, tunables: Tunables, now: float) -> Plan:
    """What is to be done at ``now`` for one run that rests: nothing but to begin the stop that somebody asks for, and
    to carry out one that has begun."""
    if tunables.mode is Mode.REPORT_ONLY:
        return Plan()
    plan = _begun(snapshot, tunables, now)
    if not _let_end_if_over(plan):
        wish = _wish(plan)
        if wish is None and plan.status.stop is None:
            return plan.build()
        _keep_to(plan, wish, saves=True)
        _tried(_charge, plan)
        _conclude(plan, EventReason.PACED.value)
    _answer_workers(plan)
    return plan.build()


def obey_without_spec(plan: PlanBuilder) -> None:
    """Of a run of whose spec nothing can be read: what can be asked of it all the same, and the end of a stop. A gang
    that nobody knows a queue, a limit or a class of gives its nodes back after a while."""
    if plan.status.stop is not None:
        _carry_out_stop(plan)
        return
    wish = (_wish(plan) if plan.phase in _HOLDING_NODES else None) or _unreadable_for_long(plan)
    if wish is not None:
        begin_stop(plan, *wish)


def end_long_launch(plan: PlanBuilder) -> bool:
    """A gang that does not train, and cannot come to it as a part of its spec cannot be read, gives its nodes back
    after as long. True when it stops."""
    wish = _unreadable_for_long(plan) if plan.run.spec_error and plan.phase in _ON_ITS_WAY else None
    if wish is not None:
        begin_stop(plan, *wish)
    return wish is not None


def _unreadable_for_long(state: RunState) -> Wish | None:
    told = find(state.run.status, ConditionType.ACCEPTED)
    if told is None or told.status != "False" or not (state.phase in _HOLDING_NODES or anything_to_stop(state)):
        return None
    if not state.reached(told.last_transition_time + LONGEST_HOLD):
        return None
    words = f"its spec cannot be read for {LONGEST_HOLD / 60:.0f} minutes ({state.run.spec_error})"
    return or_end(state, StopReason.REQUEUED, words, unasked=has_run(state))


def _begun(snapshot: RunSnapshot, tunables: Tunables, now: float) -> PlanBuilder:
    plan = PlanBuilder(RunContext(snapshot, tunables, now))
    plan.status = snapshot.run.status  # a damaged assignment too: it holds nodes
    return plan


def _let_end_if_over(plan: PlanBuilder) -> bool:
    """The run is being deleted or has ended, and what is left of it goes."""
    if plan.run.deleting:
        plan.delete_live_pods("the run is being deleted")
        return True
    if plan.phase is Phase.FINISHED:
        _end_pods(plan)
        if not plan.run.unread:
            _tried(_charge, plan)
        _tried(_forget_when_due, plan)
        return True
    return False


def _answer_workers(plan: PlanBuilder) -> None:
    with suppress(Exception):  # workers that are not answered go on, and those of a gang that stops lose their pods
        plan.directive = directive_for(plan, Handover())


def _tell(plan: PlanBuilder, error: str) -> None:
    run, told = plan.run, find(plan.status, ConditionType.UNDECIDABLE)
    why, remedy = cannot_decide(error), "undo what is unusual in its spec or its annotations, or cancel it"
    orders = "cancel, suspend, time limits, drained queues and preemption"
    reason = ConditionReason.NODES_UNKNOWN if run.unread else ConditionReason.DECISION_FAILS
    if run.unread:
        if told is not None and told.reason == reason:
            return  # the words may be others each time
        why = f"ConfigMap {run.status.assignment.config_map}, which has its nodes, cannot be read ({error[:256]})"
        remedy = f"correct what keeps the operator from ConfigMaps of namespace {run.namespace}, or cancel the run"
        orders = "cancel, suspend, time limits and drained queues"
    message = (
        f"{why}; the operator goes on trying, and until it can, {orders} stop the run without a save, and nothing else "
        f"is done for it; {remedy}"
    )
    if told is None or told.status != "True":
        plan.admission_changed = True
        plan.event(EventReason.UNDECIDABLE, message, action=ActionWord.REPORT, warning=True)
    plan.condition(ConditionType.UNDECIDABLE, True, reason, message)


def _wish(state: RunState) -> Wish | None:
    """What the run is to be stopped for, if it is not stopping yet."""
    if state.status.stop is not None:
        return None
    questions = _WISHES if state.phase in _HOLDING_NODES else (_end_of_waiting,)
    return next((wish for question in questions if (wish := _answer(question, state)) is not None), None)


def _keep_to(plan: PlanBuilder, wish: Wish | None, *, saves: bool) -> None:
    """``saves``: the gang is stopped as usual, after a save, as far as that can be decided."""
    if not plan.run.unread and _tried(_finish_if_succeeded, plan):
        return
    if plan.status.stop is not None:
        if plan.damage or not (saves and _tried(_carry_out_as_usual, plan)):
            _carry_out_stop(plan)
    elif plan.phase not in _HOLDING_NODES:
        if wish is not None:
            finish(plan, False, *wish)
        delete_pods_given_up(plan)
    elif wish is not None and not (saves and wish[0] in _SAVED_FIRST and _tried(partial(_save_first, wish=wish), plan)):
        begin_stop(plan, *wish)


def _carry_out_as_usual(plan: PlanBuilder) -> bool:
    settle_save(plan)
    save_by_the_limit(plan)
    carry_out_stop(plan, frozenset())
    return True


def _save_first(plan: PlanBuilder, wish: Wish) -> bool:
    stop_after_save(plan, *wish)
    return True


def _answer(question: Callable[[RunState], T | None], state: RunState) -> T | None:
    try:
        return question(state)
    except Exception:  # it may well be what ``decide`` fails by
        return None


def _cancel(state: RunState) -> Wish | None:
    return (StopReason.CANCELLED, state.run.set_says or "cancel: true") if state.spec.cancel else None


def _suspend(state: RunState) -> Wish | None:
    return (StopReason.SUSPENDED, state.run.set_says or "suspend: true") if state.spec.suspend else None


def _drained_queue(state: RunState) -> Wish | None:
    queue = state.snapshot.queue
    if queue is None or queue.spec.stop_policy != "HoldAndDrain":
        return None
    return StopReason.QUEUE_DRAINED, f"queue {queue.name} has stopPolicy HoldAndDrain; it queues again"


def _evicted_by_kueue(state: RunState) -> Wish | None:
    kueue, known = state.status.kueue, state.snapshot.kueue.workloads
    workload = known.get((state.run.namespace, workload_name(state.run))) if kueue is not None else None
    if kueue is None or workload is None or workload.uid != kueue.workload_uid:
        return None
    wanted_back = workload.is_evicted or not workload.active
    return (StopReason.EVICTED_BY_KUEUE, "Kueue wants the nodes back; it queues again") if wanted_back else None


def _end_of_time(state: RunState) -> Wish | None:
    """Early enough for pods to end by then."""
    status, limit = state.status, limit_of(state, state.status)
    since = status.last_admitted
    if since is None:  # nothing better is known than the age of the pods
        since = min((pod.created_at for pod in state.live_pods), default=None)
    if limit is None or since is None:
        return None
    if not state.reached(since + limit - status.held_seconds - end_notice(limit, state.tunables.stop_grace)):
        return None
    reason, then = then_at_its_limit(state)
    return reason, f"the time limit of {limit} s; {then}"


def _budget_spent(state: RunState) -> Wish | None:
    return (StopReason.BUDGET_SPENT, "the GPU-hours of spec.budget were used") if over_budget(state) else None


def _preempted(state: RunState) -> Wish | None:
    notice, waits = state.status.preemption, state.snapshot.preemptor
    kept = waits.status.reservation if notice is not None and waits is not None and waits.uid == notice.by else None
    if notice is None or kept is None or state.run.uid not in kept.victims:
        return None
    return StopReason.PREEMPTED, f"preempted for {notice.name or 'another run'}; it queues again"


def _holds_nodes_for_nothing(state: RunState) -> Wish | None:
    """A launch that stands still: without a pod at once, with some that train nothing after as long as any may take."""
    told = find(state.run.status, ConditionType.UNDECIDABLE)  # in status before anything rests on how long
    pods, reports = state.snapshot.pods, state.snapshot.reports.values()
    if told is None or state.run.unread or (pods and state.status.start is not None):
        return None
    is_heard = any(state.now - report.received_at <= state.silent_after for report in reports)
    is_empty = not pods and not is_heard  # who speaks has a pod that will be heard of
    deadlines = state.tunables.deadlines
    patience = WITHOUT_PODS if is_empty else deadlines.started + deadlines.registered + deadlines.ready
    heard = state.snapshot.leadership.since + (WITHOUT_PODS if is_empty else rejoins_within(state))
    if not state.reached(max(told.last_transition_time + patience, heard)):
        return None
    return StopReason.REQUEUED, "it cannot be launched, and gives back the nodes that it makes no use of"


_WISHES = (
    _cancel,
    _suspend,
    _drained_queue,
    _evicted_by_kueue,
    _end_of_time,
    _budget_spent,
    _preempted,
    _holds_nodes_for_nothing,
)


def _finish_if_succeeded(plan: PlanBuilder) -> bool:
    """Exits outlive the pods, also those of a gang whose nodes others want back."""
    done = succeeded_ranks(plan) if plan.trains else frozenset[int]()
    if not done:
        return False
    record_ends(plan, done)
    if not has_succeeded(plan, done):
        return False
    finish(plan, True, StopReason.ALL_RANKS_SUCCEEDED, success_in_words(plan))
    return True


def _charge(plan: PlanBuilder) -> bool:
    """What it used counts against its queue and its namespace all the same."""
    if plan.phase is Phase.FINISHED and not plan.live_pods:
        tell_who_leaves(plan, plan.stamp)
    keep_account(plan)
    return True


def _tried(work: Callable[[PlanBuilder], bool], plan: PlanBuilder) -> bool:
    """Of what may well fail nothing is left when it does."""
    status, events, wants_cycle = plan.status, len(plan.events), plan.admission_changed
    try:
        return work(plan)
    except Exception:
        plan.status, plan.admission_changed = status, wants_cycle
        del plan.events[events:]
        return False


def _end_of_waiting(state: RunState) -> Wish | None:
    """Of a run without nodes."""
    spec = state.spec
    if spec.cancel:
        return StopReason.CANCELLED, state.run.set_says or "cancel: true"
    late = "" if spec.suspend else missed_deadline(state)
    return (StopReason.DEADLINE_UNREACHABLE, late) if late else None


def _carry_out_stop(plan: PlanBuilder) -> None:
    """The ranks end, each until the deadline of the stop; then its pods go, and with them its nodes."""
    stop, tunables = plan.status.stop, plan.tunables
    assert stop is not None
    if stop.save and not plan.reached(stop.deadline - tunables.deadlines.stop):
        return  # asked for before, and the ranks may be at it
    comes_back = stop.reason in (StopReason.SUSPENDED, *REQUEUES)
    if comes_back and (wish := _answer(_cancel, plan)) is not None:
        comes_back, plan.status = False, turn_stop(plan.status, *wish)
    if stop.save:
        plan.status = end_save_of_stop(plan.status, plan.stamp + tunables.deadlines.stop)
    stop = plan.status.stop
    assert stop is not None
    are_told = plan.has_workers and not plan.run.unread
    if not are_told:
        plan.delete_live_pods(stop.reason)
    if not _ranks_are_at_rest(plan) and not plan.reached(stop.deadline):
        return
    if not comes_back:
        finish(plan, False, Recorded(stop.reason), stop.message)
        return
    plan.delete_live_pods(stop.reason, tunables.stop_grace if are_told else None)
    if not (plan.damage or plan.run.unread) and not any(holds_up(pod, plan.snapshot.nodes) for pod in plan.live_pods):
        _give_back(plan, stop.reason)


def _ranks_are_at_rest(state: RunState) -> bool:
    reports = state.snapshot.reports
    for pod in state.live_pods:
        report = reports.get(pod.slot)
        is_heard = report is not None and report.pod_uid == pod.uid
        if not state.has_workers or (is_heard and report is not None and report.phase not in _AT_REST):
            return False
        if not is_heard and pod.started_at is not None and state.status.start is not None:
            return False
    return True


def _give_back(plan: PlanBuilder, reason: str) -> None:
    let_go_of_group(plan)
    plan.status = forget_lost_pods(slots.put(plan.status, slots.released(plan.status.assignment)))
    if reason in (StopReason.REQUEUED, StopReason.NODES_LOST):
        tunables = plan.tunables
        wait = backoff(plan.status.recovery.requeues + 2, tunables.backoff_base, tunables.backoff_max, plan.run.uid)
        plan.status = record_requeue(plan.status, float(int(plan.now + wait)))
    plan.status = given_back(plan.status, reason, plan.stamp)
    plan.admission_changed = True


def delete_pods_given_up(plan: PlanBuilder) -> None:
    """Creations whose answers came late. What status does not know of may be a gang that it has lost."""
    known = plan.status.assignment.incarnations
    for pod in plan.live_pods:
        if pod.slot < len(known) and pod.incarnation <= known[pod.slot]:
            plan.delete(pod, "its gang was given up")


def _end_pods(plan: PlanBuilder) -> None:
    """Workers leave by themselves; those that don't are deleted."""
    finished = find(plan.status, ConditionType.FINISHED)
    assert finished is not None
    since = max(_answer(held_until, plan) or 0.0, finished.last_transition_time)
    tunables, is_out_of_share = plan.tunables, finished.reason in OUT_OF_SHARE
    if plan.reached(since + (tunables.stop_grace if is_out_of_share else tunables.deadlines.registered)):
        grace = tunables.stop_grace if is_out_of_share and plan.has_workers else None
        plan.delete_live_pods("the run has finished", grace)


def _forget_when_due(plan: PlanBuilder) -> bool:
    finished = find(plan.status, ConditionType.FINISHED)
    assert finished is not None
    forget_when_due(plan, finished.last_transition_time)
    return True


def _conclude(plan: PlanBuilder, otherwise: str) -> None:
    """The words for people, as far as they follow from the phase. ``otherwise``: the reason of what does not stop."""
    phase, status = plan.phase, changed(plan.status, observed_generation=plan.run.generation)
    if phase is Phase.FINISHED:
        ended = find(status, ConditionType.FINISHED)
        reason = ended.reason if ended is not None else ""
        state = Outcome.CANCELLED if reason == StopReason.CANCELLED else Outcome.FAILED
        state = Outcome.SUCCEEDED if is_true(status, ConditionType.SUCCEEDED) else state
        plan.status = changed(status, state=state.value, reason=reason)
        _deny(plan, ConditionReason.FINISHED)
        return
    stop = status.stop
    reason = stop.reason if stop is not None else otherwise
    plan.status = changed(status, state=phase.value, reason=reason)
    if phase in (Phase.PENDING, Phase.SUSPENDED):
        _deny(plan, ConditionReason(phase.value))
        is_suspended = phase is Phase.SUSPENDED
        why = ConditionReason.SUSPEND_REQUESTED if is_suspended else ConditionReason.NOT_SUSPENDED
        plan.condition(ConditionType.SUSPENDED, is_suspended, why, "no nodes are held" if is_suspended else "")


def _deny(plan: PlanBuilder, reason: ConditionReason) -> None:
    for kind in ConditionType.ADMITTED, ConditionType.GANG_READY, ConditionType.PROGRESSING:
        plan.condition(kind, False, reason, "")
