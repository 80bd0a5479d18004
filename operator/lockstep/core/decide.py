"""From what is seen to what is to be done, for one run. The one module a newcomer must read.

``decide`` is total and deterministic: the same snapshot and time give the same Plan, and carrying out
its Plans one after the other soon comes to rest at an empty one. Nothing here acts. The steps are tried in
order; a step that returns True has the last word.
"""

from collections.abc import Callable

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import ExitsStatus
from lockstep.core.accounting.account import keep_account
from lockstep.core.checkpoints.archiving import keep_archive
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.origin import resolve_origin
from lockstep.core.checkpoints.saves import save_order, settle_save
from lockstep.core.failures.evidence import succeeded_ranks
from lockstep.core.failures.node_memory import to_remember
from lockstep.core.kueue.choice import choice_of, kueue_problems
from lockstep.core.model.draft import Draft
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import DesiredPhase, Directive, DryRunPod, Plan
from lockstep.core.model.problems import Problem
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.reasons import ActionWord, AttemptEnd, ConditionReason, StopReason
from lockstep.core.model.snapshot import RunSnapshot
from lockstep.core.model.test_only import forget_trial, is_test_only
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.pods.gang import dry_run_body
from lockstep.core.pods.launchers import launcher_of
from lockstep.core.pods.plain_pods import plain_dry_run_body
from lockstep.core.pods.pod_groups import delete_ended_groups, let_go_of_group
from lockstep.core.pods.pod_policy import remedy_for
from lockstep.core.pods.validation import KnownNames, validate
from lockstep.core.run.barrier import gather, release
from lockstep.core.run.cadence_orders import follow_cadence
from lockstep.core.run.debug_hold import held_until
from lockstep.core.run.drain import leave_drained_nodes
from lockstep.core.run.elastic import follow_size
from lockstep.core.run.kueue_follow import follow_kueue, leave_for_kueue
from lockstep.core.run.launching import (
    desire_pods,
    enforce_deadlines,
    replace_late_spares,
    stages_of_ranks,
    stages_of_spares,
)
from lockstep.core.run.leaving import ends_with_the_save, save_before_leaving
from lockstep.core.run.plain.gang import follow_plain_gang
from lockstep.core.run.recovery import recover
from lockstep.core.run.regression import hold_or_rebuild
from lockstep.core.run.report import conclude, record_progress
from lockstep.core.run.requests import obey_requests
from lockstep.core.run.spares import seat_spares
from lockstep.core.run.stopping import OUT_OF_SHARE, carry_out_stop, finish, stop_after_save
from lockstep.core.run.time_limit import end_pods_by_the_limit, keep_to_limits, save_by_the_limit, time_is_over
from lockstep.core.run.waiting import forget_when_due, give_up_waiting, leave_drained_queue, make_room

DRY_RUN_AGAIN_AFTER = 60.0
"""Seconds after which a refusal by the API server is put to it again: quotas and accounts get mended."""


def decide(snapshot: RunSnapshot, tunables: Tunables, now: float) -> Plan:
    """What is to be done for one run at ``now``."""
    draft = Draft(snapshot, tunables, now)
    if snapshot.run.annotations.get(names.ANNOTATION_PAUSED) == "true" or tunables.mode is Mode.REPORT_ONLY:
        return _look_on(draft)
    for step in STEPS:
        if step(draft):
            break
    end_pods_by_the_limit(draft)
    forget_trial(draft)
    follow_kueue(draft)
    keep_account(draft)
    keep_archive(draft)
    conclude(draft)
    draft.node_failures = to_remember(draft)
    draft.directive = directive_for(draft)
    delete_ended_groups(draft)
    return draft.plan()


def _look_on(draft: Draft) -> Plan:
    """Paused, or ReportOnly: what runs goes on as status has it; nothing is decided."""
    draft.directive = directive_for(draft)
    return Plan(directive=draft.directive)


def _1_let_go_of_the_deleted(draft: Draft) -> bool:
    """Its pods go at once; their nodes stay booked until they are gone."""
    if draft.run.deleting:
        draft.delete_live_pods("the run is being deleted")
    return draft.run.deleting


def _2_leave_the_finished_alone(draft: Draft) -> bool:
    """Terminal is terminal. Workers leave by themselves; those that don't are deleted."""
    if draft.phase is not Phase.FINISHED:
        return False
    if draft.live_pods:  # workers tell of the last saves after the exits
        latest = latest_valid(draft.snapshot, draft.status)
        draft.status = changed(draft.status, checkpoint=changed(draft.status.checkpoint, latest=latest))
    else:
        let_go_of_group(draft)
    finished = next(c for c in draft.status.conditions if c.type == "Finished")
    ended, tunables = finished.last_transition_time, draft.tunables
    forget_when_due(draft, ended)
    out_of_share = finished.reason in OUT_OF_SHARE
    since = max(held_until(draft), ended)
    overdue = since + (tunables.stop_grace if out_of_share else tunables.deadlines.registered)
    if (ends := time_is_over(draft, draft.status)) is not None:
        overdue = min(overdue, max(since, ends) + tunables.stop_grace)
    draft.wake(held_until(draft))
    if draft.now >= overdue:
        draft.delete_live_pods("the run has finished", tunables.stop_grace if out_of_share else None)
    elif draft.live_pods:
        draft.wake(overdue)
    return True


def _3_hold_when_status_is_behind(draft: Draft) -> bool:
    """Never delete on missing knowledge: status is rebuilt, or a person is asked."""
    return hold_or_rebuild(draft)


def _4_refuse_what_cannot_run(draft: Draft) -> bool:
    """Accepted: the spec parses, makes sense, and the API server would take its pod."""
    if draft.run.spec is None:
        draft.condition("Accepted", False, ConditionReason.INVALID_SPEC, draft.run.spec_error)
        return True  # a gang that runs goes on, and waits for a spec that can be read
    if draft.phase not in (Phase.PENDING, Phase.SUSPENDED):
        draft.condition("Accepted", True, ConditionReason.ACCEPTED, "the spec is valid")
        return False
    problems = validate(draft.spec, draft.snapshot.namespace_labels, KnownNames.from_tunables(draft.tunables))
    problems += _refused_with_kueue(draft)
    elsewhere = resolve_origin(draft)
    problems += [elsewhere] if elsewhere is not None else []
    if problems:
        words = "; ".join(f"{problem.field}: {problem.message}" for problem in problems)
        draft.condition("Accepted", False, ConditionReason.INVALID_SPEC, words)
        return not draft.spec.cancel
    if draft.tunables.pod_groups.lack and not draft.tunables.pod_groups.is_optional:
        draft.condition("Accepted", False, ConditionReason.POD_GROUPS_NOT_SERVED, draft.tunables.pod_groups.lack)
        return not draft.spec.cancel
    answer = draft.snapshot.dry_run
    if answer is None or answer.generation != draft.run.generation:
        draft.dry_run = _dry_run(draft)
        return not draft.spec.cancel
    if not answer.accepted:
        words = f"the API server refuses the pod: {answer.message}{remedy_for(answer.message, draft.spec)}"
        draft.condition("Accepted", False, ConditionReason.POD_REFUSED, words)
        draft.wake(answer.at + DRY_RUN_AGAIN_AFTER)
        if draft.now >= answer.at + DRY_RUN_AGAIN_AFTER:
            draft.dry_run = _dry_run(draft)
        return not draft.spec.cancel
    before = draft.status
    draft.condition("Accepted", True, ConditionReason.ACCEPTED, "the spec is valid")
    draft.admission_changed = draft.admission_changed or before.conditions != draft.status.conditions
    return False


def _refused_with_kueue(draft: Draft) -> list[Problem]:
    """What cannot be asked for where Kueue admits."""
    choice = choice_of(draft.run, draft.snapshot.queue)
    if choice is None:
        return []
    if is_test_only(draft.run):
        field = f"metadata.annotations[{names.ANNOTATION_TEST_ONLY}]"
        return [Problem(field, "Kueue tells nobody when a run would start; leave it out")]
    levels = draft.snapshot.kueue.levels_of(draft.run.namespace, choice.queue)
    return list(kueue_problems(draft.spec, levels, draft.tunables))


def _dry_run(draft: Draft) -> DryRunPod:
    body = dry_run_body if draft.has_workers else plain_dry_run_body
    return DryRunPod(draft.run.generation, body(draft.run, draft.tunables))


def _5_obey_requests(draft: Draft) -> bool:
    """cancel, suspend, limits, and the one-shot requests by annotation; what a gang is stopped for is saved first."""
    settle_save(draft)
    save_before_leaving(draft)
    phase = draft.phase
    if phase is Phase.STOPPING:
        if not _ended_by_itself(draft):
            save_by_the_limit(draft)
            carry_out_stop(draft)
        return True
    if draft.spec.cancel:
        if phase in (Phase.PENDING, Phase.SUSPENDED):
            finish(draft, False, StopReason.CANCELLED, draft.run.set_says or "cancel: true")
        else:
            stop_after_save(draft, StopReason.CANCELLED, draft.run.set_says or "cancel: true")
        return True
    if draft.spec.suspend and phase not in (Phase.PENDING, Phase.SUSPENDED):
        stop_after_save(draft, StopReason.SUSPENDED, draft.run.set_says or "suspend: true")
        return True
    if phase not in (Phase.PENDING, Phase.SUSPENDED) and leave_drained_queue(draft):
        return True
    if leave_for_kueue(draft):
        return True
    return obey_requests(draft) or keep_to_limits(draft)


def _6_wait_for_admission(draft: Draft) -> bool:
    """Nodes are given by the admission cycle alone, which sees all runs at once."""
    if draft.phase not in (Phase.PENDING, Phase.SUSPENDED):
        return False
    draft.delete_live_pods("its gang was given up")  # creations whose answers came late
    if draft.phase is Phase.PENDING and not is_test_only(draft.run):
        give_up_waiting(draft)
    return True


def _7_see_who_is_done(draft: Draft) -> bool:
    """Exits that were seen outlive the pods: they are in status before anything rests on them. Then, whether it is
    to make room for another run."""
    return _ended_by_itself(draft) or make_room(draft)


def _8_follow_plain_pods(draft: Draft) -> bool:
    """A gang without workers has steps of its own from here on."""
    if not draft.has_workers:
        follow_plain_gang(draft)
    return not draft.has_workers


def _9_recover(draft: Draft) -> bool:
    """Nodes to be left, as planned; what was lost, by the earliest evidence; the smallest remedy that mends it;
    and the size that is left."""
    leave_drained_nodes(draft)
    recover(draft)
    seat_spares(draft)
    follow_size(draft)
    return draft.phase is Phase.STOPPING


def _10_gather_the_gang(draft: Draft) -> bool:
    """Pods, deadlines, the barrier; with everybody there, the resume choice and START."""
    if draft.phase in (Phase.LAUNCHING, Phase.RECOVERING):
        reached = stages_of_ranks(draft)
        enforce_deadlines(draft, reached)
        if draft.status.stop is None:
            gather(draft, reached)
    if draft.status.stop is None and draft.has_spares:
        replace_late_spares(draft, stages_of_spares(draft))
    if draft.status.stop is None:
        desire_pods(draft)
    return False


def _11_follow_the_training(draft: Draft) -> bool:
    """Steps, loss, newest checkpoints, and how often to save, into status, now and then."""
    if draft.phase is Phase.RUNNING:
        record_progress(draft, at_once=False)
        follow_cadence(draft)
    return False


STEPS: tuple[Callable[[Draft], bool], ...] = (
    _1_let_go_of_the_deleted,
    _2_leave_the_finished_alone,
    _3_hold_when_status_is_behind,
    _4_refuse_what_cannot_run,
    _5_obey_requests,
    _6_wait_for_admission,
    _7_see_who_is_done,
    _8_follow_plain_pods,
    _9_recover,
    _10_gather_the_gang,
    _11_follow_the_training,
)


def directive_for(draft: Draft) -> Directive | None:
    """What the workers are answered: a function of the status, so that any leader says the same."""
    phase = draft.phase
    assignment = draft.status.assignment
    if not assignment.nodes or not draft.has_workers:
        return None
    if draft.run.deleting:  # else those that listen would go on until a save that nobody orders
        return draft.directed(DesiredPhase.STOP)
    if draft.trains:
        draft.save = save_order(draft.status)
        if draft.save is not None and (draft.status.stop is not None or ends_with_the_save(draft.save.reason)):
            draft.stopping_at = draft.save.deadline
        return release(draft)
    desired = {
        Phase.LAUNCHING: DesiredPhase.PREPARE,
        Phase.RECOVERING: DesiredPhase.PREPARE,
        Phase.STOPPING: DesiredPhase.STOP,
        Phase.FINISHED: DesiredPhase.STOP if draft.now < held_until(draft) else DesiredPhase.COMPLETE,
    }.get(phase)
    if desired is None:
        return None
    return draft.directed(desired)


def _ended_by_itself(draft: Draft) -> bool:
    """Every deciding rank came to its end, be it while the gang was about to be stopped."""
    if not draft.trains:
        return False
    done = succeeded_ranks(draft)
    if done:
        draft.status = changed(
            draft.status, exits=ExitsStatus(attempt=draft.status.attempt, succeeded=format_ranges(done))
        )
    deciding = launcher_of(draft.spec).deciding_ranks(draft.world)
    if not done.issuperset(deciding):
        return False
    record_progress(draft, at_once=True)
    draft.put_attempt(
        changed(
            draft.attempt(draft.status.attempt), ended_at=draft.stamp, last_step=draft.status.progress.step or None
        ),
        cause=AttemptEnd.SUCCEEDED,
        action=ActionWord.FINISH,
    )
    finish(draft, True, StopReason.ALL_RANKS_SUCCEEDED, f"all {len(deciding)} ranks ended with code 0")
    return True
