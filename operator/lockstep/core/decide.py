"""From what is seen to what is to be done, for one run. The one module a newcomer must read.

``decide`` is total and deterministic: the same snapshot and time give the same Plan, and carrying out
its Plans one after the other soon comes to rest at an empty one. Nothing here acts. The steps are tried in
order; a step that returns True has the last word.
"""

from collections.abc import Callable

from lockstep.api import names
from lockstep.api.run_status import ExitsStatus, RequestStatus
from lockstep.core.barrier import gather, release
from lockstep.core.draft import Draft
from lockstep.core.evidence import succeeded_ranks
from lockstep.core.gang import dry_run_body
from lockstep.core.inventory import latest_valid
from lockstep.core.launchers import launcher_of
from lockstep.core.launching import desire_pods, enforce_deadlines, stages
from lockstep.core.lifecycle import Phase
from lockstep.core.plan import DesiredPhase, Directive, DryRunPod, Plan
from lockstep.core.ranges import format_ranges
from lockstep.core.recovery import recover
from lockstep.core.regression import hold_or_rebuild
from lockstep.core.report import conclude, record_progress
from lockstep.core.snapshot import RunSnapshot
from lockstep.core.stopping import (
    CANCELLED,
    REQUEUED,
    SUSPENDED,
    begin_stop,
    carry_out_stop,
    finish,
)
from lockstep.core.tunables import Mode, Tunables
from lockstep.core.validation import KnownNames, validate

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
    conclude(draft)
    draft.directive = directive_for(draft)
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
        draft.update(checkpoint=draft.status.checkpoint.model_copy(update={"latest": latest}))
    ended = next(c.last_transition_time for c in draft.status.conditions if c.type == "Finished")
    overdue = ended + draft.tunables.deadlines.registered
    if draft.now >= overdue:
        draft.delete_live_pods("the run has finished")
    elif draft.live_pods:
        draft.wake(overdue)
    return True


def _3_hold_when_status_is_behind(draft: Draft) -> bool:
    """Never delete on missing knowledge: status is rebuilt, or a person is asked."""
    return hold_or_rebuild(draft)


def _4_refuse_what_cannot_run(draft: Draft) -> bool:
    """Accepted: the spec parses, makes sense, and the API server would take its pod."""
    if draft.run.spec is None:
        draft.condition("Accepted", False, "InvalidSpec", draft.run.spec_error)
        return True  # a gang that runs goes on, and waits for a spec that can be read
    if draft.phase not in (Phase.PENDING, Phase.SUSPENDED):
        draft.condition("Accepted", True, "Accepted", "the spec is valid")
        return False
    problems = validate(draft.spec, draft.snapshot.namespace_labels, KnownNames.of(draft.tunables))
    if problems:
        words = "; ".join(f"{problem.field}: {problem.message}" for problem in problems)
        draft.condition("Accepted", False, "InvalidSpec", words)
        return not draft.spec.cancel
    answer = draft.snapshot.dry_run
    if answer is None or answer.generation != draft.run.generation:
        draft.dry_run = DryRunPod(draft.run.generation, dry_run_body(draft.run, draft.tunables))
        return not draft.spec.cancel
    if not answer.accepted:
        draft.condition("Accepted", False, "PodRefused", f"the API server refuses the pod: {answer.message}")
        draft.wake(answer.at + DRY_RUN_AGAIN_AFTER)
        if draft.now >= answer.at + DRY_RUN_AGAIN_AFTER:
            draft.dry_run = DryRunPod(draft.run.generation, dry_run_body(draft.run, draft.tunables))
        return not draft.spec.cancel
    before = draft.status
    draft.condition("Accepted", True, "Accepted", "the spec is valid")
    draft.admission_changed = draft.admission_changed or before.conditions != draft.status.conditions
    return False


def _5_obey_requests(draft: Draft) -> bool:
    """cancel, suspend, and the one-shot requests by annotation."""
    phase = draft.phase
    if phase is Phase.STOPPING:
        carry_out_stop(draft)
        return True
    if draft.spec.cancel:
        if phase in (Phase.PENDING, Phase.SUSPENDED):
            finish(draft, False, CANCELLED, "cancel: true")
        else:
            begin_stop(draft, CANCELLED, "cancel: true")
        return True
    if draft.spec.suspend and phase not in (Phase.PENDING, Phase.SUSPENDED):
        begin_stop(draft, SUSPENDED, "suspend: true")
        return True
    return _requested(draft, phase)


def _6_wait_for_admission(draft: Draft) -> bool:
    """Nodes are given by the admission pass alone, which sees all runs at once."""
    if draft.phase not in (Phase.PENDING, Phase.SUSPENDED):
        return False
    draft.delete_live_pods("its gang was given up")  # creations whose answers came late
    return True


def _7_see_who_is_done(draft: Draft) -> bool:
    """Exits that were seen outlive the pods: they are in status before anything rests on them."""
    if draft.phase is not Phase.RUNNING:
        return False
    done = succeeded_ranks(draft)
    if done:
        draft.update(exits=ExitsStatus(attempt=draft.status.attempt, succeeded=format_ranges(done)))
    ranks = len(draft.status.assignment.nodes)
    deciding = launcher_of(draft.spec).deciding_ranks(ranks)
    if not done.issuperset(deciding):
        return False
    record_progress(draft, at_once=True)
    draft.amend_attempt(
        draft.status.attempt,
        ended_at=draft.stamp,
        cause="Succeeded",
        action="Finish",
        last_step=draft.status.progress.step or None,
    )
    finish(draft, True, "AllRanksSucceeded", f"all {len(deciding)} ranks ended with code 0")
    return True


def _8_recover(draft: Draft) -> bool:
    """What was lost, by the earliest evidence; the smallest remedy that mends it."""
    recover(draft)
    return draft.phase is Phase.STOPPING


def _9_gather_the_gang(draft: Draft) -> bool:
    """Pods, deadlines, the barrier; with everybody there, the resume choice and START."""
    if draft.phase in (Phase.LAUNCHING, Phase.RECOVERING):
        reached = stages(draft)
        enforce_deadlines(draft, reached)
        if draft.status.stop is None:
            gather(draft, reached)
    if draft.status.stop is None:
        desire_pods(draft)
    return False


def _10_follow_the_training(draft: Draft) -> bool:
    """Steps, loss and newest checkpoints into status, now and then."""
    if draft.phase is Phase.RUNNING:
        record_progress(draft, at_once=False)
    return False


STEPS: tuple[Callable[[Draft], bool], ...] = (
    _1_let_go_of_the_deleted,
    _2_leave_the_finished_alone,
    _3_hold_when_status_is_behind,
    _4_refuse_what_cannot_run,
    _5_obey_requests,
    _6_wait_for_admission,
    _7_see_who_is_done,
    _8_recover,
    _9_gather_the_gang,
    _10_follow_the_training,
)


def directive_for(draft: Draft) -> Directive | None:
    """What the workers are answered: a function of the status, so that any leader says the same."""
    phase = draft.phase
    assignment = draft.status.assignment
    if not assignment.nodes or draft.run.deleting:
        return None
    if phase is Phase.RUNNING:
        return release(draft)
    desired = {
        Phase.LAUNCHING: DesiredPhase.PREPARE,
        Phase.RECOVERING: DesiredPhase.PREPARE,
        Phase.STOPPING: DesiredPhase.STOP,
        Phase.FINISHED: DesiredPhase.COMPLETE,
    }.get(phase)
    if desired is None:
        return None
    return draft.directed(desired)


def _requested(draft: Draft, phase: Phase) -> bool:
    """Take up a one-shot request whose token is new; requests that do not apply now are said to be so."""
    for annotation in (names.ANNOTATION_RESTART_REQUEST, names.ANNOTATION_REQUEUE_REQUEST):
        token = draft.run.annotations.get(annotation, "")[:64]
        name = annotation.partition("/")[2]
        seen = next((request for request in draft.status.requests if request.name == name), None)
        if not token or (seen is not None and seen.token == token):
            continue
        running = phase in (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING)
        result = "TakenUp" if running else "NotRunning"
        request = RequestStatus(name=name, token=token, time=draft.stamp, result=result)
        draft.update(requests=(*(r for r in draft.status.requests if r.name != name), request))
        if not running:
            continue
        if annotation == names.ANNOTATION_REQUEUE_REQUEST:
            begin_stop(draft, REQUEUED, "requested by annotation")
            return True
        if phase is Phase.RUNNING:
            draft.amend_attempt(draft.status.attempt, ended_at=draft.stamp, cause="Requested", action="RestartInPlace")
            draft.update(attempt=draft.status.attempt + 1)
            draft.event("RestartRequested", "all ranks start again in place", action="RestartInPlace")
    return False
