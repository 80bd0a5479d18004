"""From what is seen to what is to be done, for one run. The one module a newcomer must read.

``decide`` is total and deterministic: the same snapshot and time give the same Plan, and carrying out
its Plans one after the other soon comes to rest at an empty one. Nothing here acts. The steps are tried in
order, until one has the last word; what is always done follows them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

from lockstep.api.base.changes import changed
from lockstep.core.accounting.account import keep_account
from lockstep.core.checkpoints.archiving import keep_archive
from lockstep.core.checkpoints.checkpoint_record import record_latest
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.saves import settle_save
from lockstep.core.checkpoints.unknown_saves import report_unknown_saves
from lockstep.core.failures.node_memory import to_forgive, to_remember
from lockstep.core.failures.ranks import record_ends, succeeded_ranks
from lockstep.core.failures.step_evidence import has_succeeded, success_in_words
from lockstep.core.model.conditions import is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import Plan
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, AttemptEnd, ConditionType, StopReason
from lockstep.core.model.run_state import RunContext, RunState
from lockstep.core.model.snapshot import RunSnapshot
from lockstep.core.model.test_only import forget_test_only, is_test_only
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.pods.leftover_pods import never_started
from lockstep.core.pods.pod_groups import delete_ended_groups, let_go_of_group
from lockstep.core.run.acceptance import refuse_what_cannot_run, report_unreadable_spec
from lockstep.core.run.asks import obey_asks
from lockstep.core.run.barrier import gather
from lockstep.core.run.cadence_orders import follow_cadence
from lockstep.core.run.changed_spec import queue_again_if_changed
from lockstep.core.run.debug_hold import held_until
from lockstep.core.run.directive import directive_for
from lockstep.core.run.drain import leave_drained_nodes, leave_drained_nodes_kept
from lockstep.core.run.elastic import follow_size
from lockstep.core.run.handover import Handover
from lockstep.core.run.joining import take_in
from lockstep.core.run.kueue_follow import follow_kueue, leave_for_kueue
from lockstep.core.run.launching import (
    desire_pods,
    enforce_deadlines,
    replace_late_spares,
    stages_of_idle,
    stages_of_ranks,
)
from lockstep.core.run.leaving import save_before_leaving
from lockstep.core.run.lineage import record_next
from lockstep.core.run.plain.gang import follow_plain_gang
from lockstep.core.run.recovery import recover
from lockstep.core.run.regression import anything_to_stop, end_long_hold, hold_or_rebuild
from lockstep.core.run.report import conclude, record_progress
from lockstep.core.run.requests import obey_annotations
from lockstep.core.run.scale_up import follow_scale_up
from lockstep.core.run.spares import promote_spares
from lockstep.core.run.stopping import OUT_OF_SHARE, carry_out_stop, finish, stop_after_save, tell_who_leaves
from lockstep.core.run.time_left import time_is_over
from lockstep.core.run.time_limit import end_pods_by_the_limit, keep_to_limits, save_by_the_limit, tell_time_limit
from lockstep.core.run.undecidable import delete_pods_given_up, end_long_launch, obey_without_spec
from lockstep.core.run.waiting import forget_when_due, give_up_waiting, leave_drained_queue, stop_for_preemption

Step = Callable[[PlanBuilder, Handover], Handover]
"""Takes what earlier steps handed on, and hands it on with what it adds."""
Last = Callable[[PlanBuilder, Handover], None]
"""One of those that follow, whichever step had the last word."""


def decide(snapshot: RunSnapshot, tunables: Tunables, now: float) -> Plan:
    """What is to be done for one run at ``now``."""
    context = RunContext(snapshot, tunables, now)
    if tunables.mode is Mode.REPORT_ONLY:
        # What runs goes on as status has it; nothing is decided.
        return Plan(directive=directive_for(RunState(context), Handover()))
    plan, known = PlanBuilder(context), Handover()
    looks_on = snapshot.run.is_left_alone
    for step in LOOKING_ON if looks_on else STEPS:
        known = step(plan, known)
        if known.is_last:
            break
    for always in ALWAYS_LOOKING_ON if looks_on else ALWAYS:
        always(plan, known)
    return plan.build()


def delete_pods_of_deleted_run(plan: PlanBuilder) -> bool:
    """Its pods go at once; their nodes stay booked until they are gone."""
    if plan.run.deleting:
        plan.delete_live_pods("the run is being deleted")
    return plan.run.deleting


def leave_the_finished_alone(plan: PlanBuilder) -> bool:
    """Terminal is terminal. Workers leave by themselves; those that don't are deleted."""
    if plan.phase is not Phase.FINISHED:
        return False
    if plan.live_pods:  # workers tell of the last saves after the exits
        latest = latest_valid(plan.snapshot, plan.status)
        plan.status = record_latest(plan.status, latest)
    else:
        let_go_of_group(plan)
    if not is_true(plan.status, ConditionType.SUCCEEDED):  # who has succeeded exports what it was to come to
        report_unknown_saves(plan)
    finished = next(c for c in plan.status.conditions if c.type == ConditionType.FINISHED)
    ended, tunables = finished.last_transition_time, plan.tunables
    forget_when_due(plan, ended)
    record_next(plan)
    out_of_share = finished.reason in OUT_OF_SHARE
    since = max(held_until(plan), ended)
    overdue = since + (tunables.stop_grace if out_of_share else tunables.deadlines.registered)
    if (ends := time_is_over(plan, plan.status)) is not None:
        overdue = min(overdue, max(since, ends) + tunables.stop_grace)
    # Without a worker pods have the grace of their template to save in, and are about to end by it.
    grace = tunables.stop_grace if out_of_share and plan.has_workers else None
    plan.wake(held_until(plan))
    tell_who_leaves(plan, overdue)
    leave_drained_nodes_kept(plan)
    heard = {report.pod_uid for report in plan.snapshot.reports.values()}
    for pod in plan.live_pods:
        # What is left of it are containers beside the training container: they would hold the node for nobody.
        until = max(since, pod.ended_at or 0.0) + tunables.stop_grace
        if pod.exit_code is not None and plan.reached(min(overdue, until)):
            plan.delete(pod, "the run has finished, and containers beside the training container go on", grace)
        elif never_started(pod) and pod.uid not in heard and plan.reached(since):
            # Should its kubelet have begun meanwhile, what runs there has the grace of its pod.
            plan.delete(pod, "the run has finished, and nothing of this pod ever ran", grace)
    if plan.live_pods and plan.reached(overdue):
        plan.delete_live_pods("the run has finished", grace)
    return True


def hold_when_status_is_behind(plan: PlanBuilder) -> bool:
    """Never delete on missing knowledge: status is rebuilt, or a person is asked, for a while. A gang on hold obeys
    whoever may stop it."""
    if not hold_or_rebuild(plan):
        return False
    _ = obey_stop_orders(plan) or stop_for_preemption(plan) or end_long_hold(plan)
    return True


def hold_unless_paused(plan: PlanBuilder) -> bool:
    """The same of a run that is not paused."""
    return not plan.run.is_paused and hold_when_status_is_behind(plan)


def obey_stop_orders(plan: PlanBuilder) -> bool:
    """What is asked of a run for which nothing else is done: to stop, after a save, for whoever may have it stopped,
    and the end of a stop that has begun. True when it stops, or nothing more can be known of it."""
    if plan.run.spec is None:
        report_unknown_saves(plan)
        obey_without_spec(plan)
        return True
    settle_save(plan)
    return _stop_as_asked(plan, frozenset(), on_hold=True) or end_long_launch(plan)


def obey_requests(plan: PlanBuilder, known: Handover) -> Handover:
    """Whether it has ended well; then cancel, suspend, limits, and the one-shot requests by annotation. What a gang is
    stopped for is saved first."""
    settle_save(plan)
    obey_asks(plan)
    leaving = save_before_leaving(plan)
    return replace(known, leaving=leaving, is_last=_stop_as_asked(plan, leaving))


def _stop_as_asked(plan: PlanBuilder, leaving: frozenset[int], *, on_hold: bool = False) -> bool:
    """True when the run stops, or is to be reconciled again after what was asked for.

    ``on_hold``: what lives may be no gang that status knows of, and is to be stopped all the same; nothing is begun.
    A run that came to its end while nobody looked has succeeded, whatever it is to be stopped for by now.
    """
    phase = plan.phase
    if not plan.damage and _finish_if_succeeded(plan):
        return True
    without_nodes = phase in (Phase.PENDING, Phase.SUSPENDED)
    at_rest = without_nodes and not (on_hold and anything_to_stop(plan))
    if without_nodes:
        report_unknown_saves(plan)  # the last words of a worker may come as its pod goes
    if phase is Phase.STOPPING:
        report_unknown_saves(plan)  # a program may save only now; once its pods are gone nobody is left to ask
        save_by_the_limit(plan)
        carry_out_stop(plan, leaving)
        return True
    if plan.spec.cancel:
        if at_rest:
            finish(plan, False, StopReason.CANCELLED, plan.run.set_says or "cancel: true")
        else:
            stop_after_save(plan, StopReason.CANCELLED, plan.run.set_says or "cancel: true")
        return True
    if plan.spec.suspend and not at_rest:
        stop_after_save(plan, StopReason.SUSPENDED, plan.run.set_says or "suspend: true")
        return True
    if not without_nodes and not on_hold and queue_again_if_changed(plan):
        return True
    if not at_rest and leave_drained_queue(plan):
        return True
    if leave_for_kueue(plan):
        return True
    return obey_annotations(plan, only_stops=on_hold) or keep_to_limits(plan)


def wait_for_admission(plan: PlanBuilder) -> bool:
    """Nodes are given by the admission cycle alone, which sees all runs at once."""
    if plan.phase not in (Phase.PENDING, Phase.SUSPENDED):
        return False
    plan.delete_live_pods("its gang was given up")  # creations whose answers came late
    if plan.phase is Phase.PENDING and not is_test_only(plan.run):
        give_up_waiting(plan)
    return True


def wait_without_asking(plan: PlanBuilder) -> bool:
    """Without nodes it asks for none."""
    if plan.phase not in (Phase.PENDING, Phase.SUSPENDED):
        return False
    delete_pods_given_up(plan)
    return True


def follow_plain_pods(plan: PlanBuilder, known: Handover) -> Handover:
    """A gang without workers has steps of its own from here on."""
    if plan.has_workers:
        return known
    return replace(follow_plain_gang(plan, known), is_last=True)


def recover_what_is_lost(plan: PlanBuilder, known: Handover) -> Handover:
    """Nodes to be left, as planned; what was lost, by the earliest evidence; the smallest remedy that mends it;
    and the size that is left."""
    leave_drained_nodes(plan)
    known = recover(plan, known)
    promote_spares(plan)
    follow_size(plan)
    return replace(known, is_last=plan.phase is Phase.STOPPING)


def gather_the_gang(plan: PlanBuilder, known: Handover) -> Handover:
    """Pods, deadlines, the barrier; with everybody there, the resume choice and START."""
    gathering, slow = known.gathering, known.slow
    if plan.phase in (Phase.LAUNCHING, Phase.RECOVERING):
        reached = stages_of_ranks(plan)
        slow = enforce_deadlines(plan, reached) or slow
        if plan.status.stop is None:
            gathering = gather(plan, reached)
    if plan.status.stop is None:
        slow = replace_late_spares(plan, stages_of_idle(plan)) or slow
        take_in(plan)
    if plan.status.stop is None:
        desire_pods(plan)
    return replace(known, gathering=gathering, slow=slow)


def follow_the_training(plan: PlanBuilder) -> bool:
    """Steps, loss, newest checkpoints, and how often to save, into status, now and then."""
    if plan.phase is Phase.RUNNING:
        record_progress(plan, at_once=False)
        follow_cadence(plan)
    report_unknown_saves(plan)
    return False


def follow_archive(plan: PlanBuilder, known: Handover) -> None:
    """Copies to the archive and back, whatever phase the run is in; what the gang waits for comes first."""
    keep_archive(plan, known.gathering.restore, search=known.gathering.search_archive)


def report_status(plan: PlanBuilder, known: Handover) -> None:
    """Every condition of the run, its state and reason, from what was decided."""
    conclude(plan, known.gathering.waiting_for, known.slow)


def remember_on_nodes(plan: PlanBuilder) -> None:
    """First failures are carried to their Nodes, where other runs and people find them, and off them again once it is
    known that the program is to blame."""
    plan.node_failures = [*to_remember(plan), *to_forgive(plan)]


def answer_workers(plan: PlanBuilder, known: Handover) -> None:
    """The workers' directive until the next decision: a function of the status."""
    plan.directive = directive_for(plan, known)


def _step(step: Callable[[PlanBuilder], bool]) -> Step:
    """A step that needs nothing of the others. True: it has the last word."""

    @wraps(step)
    def stepped(plan: PlanBuilder, known: Handover) -> Handover:
        return replace(known, is_last=step(plan))

    return stepped


def _always(last: Callable[[PlanBuilder], None]) -> Last:
    """One that needs nothing of the steps but the status."""

    @wraps(last)
    def done(plan: PlanBuilder, known: Handover) -> None:
        last(plan)

    return done


STEPS: tuple[Step, ...] = (
    _step(delete_pods_of_deleted_run),
    _step(leave_the_finished_alone),
    _step(hold_when_status_is_behind),
    _step(refuse_what_cannot_run),
    obey_requests,
    _step(wait_for_admission),
    _step(stop_for_preemption),
    follow_plain_pods,
    recover_what_is_lost,
    gather_the_gang,
    _step(follow_the_training),
)
"""Tried in order, until one has the last word."""
LOOKING_ON: tuple[Step, ...] = (
    _step(delete_pods_of_deleted_run),
    _step(leave_the_finished_alone),
    _step(report_unreadable_spec),
    _step(hold_unless_paused),
    _step(obey_stop_orders),
    _step(wait_without_asking),
    _step(stop_for_preemption),
)
"""In place of ``STEPS`` for a run that is paused, or whose spec cannot be read: what it owes to others, and nothing for
itself."""
ALWAYS: tuple[Last, ...] = (
    _always(end_pods_by_the_limit),
    _always(tell_time_limit),
    _always(forget_test_only),
    _always(follow_kueue),
    _always(follow_scale_up),
    _always(keep_account),
    follow_archive,
    report_status,
    _always(remember_on_nodes),
    answer_workers,
    _always(delete_ended_groups),
)
"""Follow in order, whichever step had the last word: they rest on the status as it was decided."""
ALWAYS_LOOKING_ON: tuple[Last, ...] = (
    _always(end_pods_by_the_limit),
    _always(tell_time_limit),
    _always(forget_test_only),
    _always(follow_kueue),
    _always(follow_scale_up),
    _always(keep_account),
    report_status,
    answer_workers,
    _always(delete_ended_groups),
)
"""Follow these."""


def _finish_if_succeeded(plan: PlanBuilder) -> bool:
    """Every deciding rank came to its end, be it while the gang was about to be stopped, and nothing speaks against
    it. Exits that were seen outlive the pods: they are in status before anything rests on them."""
    if not plan.trains:
        return False
    done = succeeded_ranks(plan)
    if done:
        record_ends(plan, done)
    if not has_succeeded(plan, done):
        return False
    record_progress(plan, at_once=True)
    plan.put_attempt(
        changed(plan.attempt(plan.status.attempt), ended_at=plan.stamp, last_step=plan.status.progress.step or None),
        cause=AttemptEnd.SUCCEEDED,
        action=ActionWord.FINISH,
    )
    finish(plan, True, StopReason.ALL_RANKS_SUCCEEDED, success_in_words(plan))
    return True
