"""The barrier: no rank runs user code before every rank is there, and all start from the same record."""

from dataclasses import replace

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import RejectedCandidate, SavedCheckpoint
from lockstep.api.run_status import StartRecord
from lockstep.core.checkpoints.checkpoint_record import record_ceiling, record_no_choice, record_resume
from lockstep.core.checkpoints.inventory import is_foreign, is_own
from lockstep.core.checkpoints.local_retention import local_retention
from lockstep.core.checkpoints.removals import is_removal_there
from lockstep.core.checkpoints.resume import Rejection, ResumeDecision, ResumeKind
from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.failures.recovery_record import record_start, skip_to
from lockstep.core.model import assignment as slots
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.plural import plural
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import ActionWord, EventReason, LossReason, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.start_record import put_start
from lockstep.core.model.tiers import SHARED
from lockstep.core.model.worker_report import Verdict, WorkerReport
from lockstep.core.run.attendance import is_present
from lockstep.core.run.cadence_orders import from_the_start
from lockstep.core.run.elastic import take_saved_size
from lockstep.core.run.fencing import hold_for_writers, keep_fence
from lockstep.core.run.handover import Gathering
from lockstep.core.run.launching import SlotStage, Stage
from lockstep.core.run.pointers import PointingState, ensure_pointers
from lockstep.core.run.preflight import check_gang
from lockstep.core.run.recovery import report_steps_lost
from lockstep.core.run.replacement import replace_before_start
from lockstep.core.run.requeueing import may_be_requeued
from lockstep.core.run.resume_point import choose, expected_resume
from lockstep.core.run.root_cause import recheck_root_cause
from lockstep.core.run.stopping import begin_stop


def gather(plan: PlanBuilder, reached: list[SlotStage]) -> Gathering:
    """With everybody at the barrier, choose what to resume from and write START; before, have it read."""
    expected = Gathering(verify=expected_resume(plan))
    keep_fence(plan)
    if any(at.stage is not Stage.READY for at in reached):
        return expected
    beat = plan.heartbeat + plan.lag.loop  # polls are answered and opened again no faster
    if any(not is_present(plan.report(at.slot), plan.now, beat) for at in reached):
        plan.wake(plan.now + 1.0)
        return expected
    if recheck_root_cause(plan):
        return expected
    not_before = plan.status.recovery.not_before
    if not_before is not None and not plan.reached(not_before):
        return replace(expected, waiting_for="waits before the next attempt, as the last ones made no progress")
    if _avoid_attempts_used_before(plan) or _look_anew_at_what_was_restored(plan):
        return expected
    preflight = check_gang(plan)
    if not preflight.passed:
        return replace(expected, warm_up=preflight.warm_up, waiting_for=preflight.waiting_for)
    if is_removal_there(plan.status.checkpoint.archive, plan.snapshot.jobs, plan.now):
        words = "waits for the removal of old checkpoints to end, before one of them is chosen"
        return replace(expected, waiting_for=words)
    return _resume(plan, choose(plan))


def _resume(plan: PlanBuilder, decision: ResumeDecision) -> Gathering:
    """Write START as decided, or wait for what is lacking."""
    gathering = Gathering(
        verify=decision.verify,
        look_again=decision.look_again,
        restore=decision.restore,
        search_archive=decision.search,
    )
    rejected = tuple(map(_as_rejected, decision.rejected))
    blind = _nodes_without_the_tier(plan) if _passes_over_what_some_see(decision) else []
    if blind:
        replace_before_start(plan, blind)
        return gathering
    if decision.kind in (ResumeKind.WAIT, ResumeKind.VERIFY, ResumeKind.RESTORE):
        if decision.wait_until is not None:
            plan.wake(decision.wait_until)
        return replace(gathering, waiting_for=decision.message)
    if take_saved_size(plan, decision.worlds):
        return gathering
    if decision.kind is ResumeKind.BLOCKED:
        plan.status = record_no_choice(plan.status, rejected, decision.message[:512], decision.previous)
        _report_rejected(plan, rejected)
        assert isinstance(decision.reason, StopReason)
        begin_stop(plan, decision.reason, decision.message)
        return gathering
    held = hold_for_writers(plan)
    if held:
        return replace(gathering, waiting_for=held)
    pointing = ensure_pointers(plan, decision.choice)
    if pointing.state is PointingState.DONE:
        _write_start(plan, decision, rejected)
    return replace(gathering, point=pointing.request, waiting_for=pointing.waiting_for)


def _avoid_attempts_used_before(plan: PlanBuilder) -> bool:
    """Move on when something was saved under this attempt's number, as can be after status was lost.

    Each attempt must have a directory to itself: that is what fences it off from those before it.
    """
    saved = max(
        (
            row.attempt
            for slot in plan.slot_range()
            if (report := plan.report(slot)) is not None
            for row in report.inventory
            if is_own(row, plan)
        ),
        default=0,
    )
    # Until START nothing of this attempt is written: what lies there is of another one of its number.
    strange = (row.attempt for report in plan.snapshot.reports.values() for row in report.unrecognised or ())
    saved = max(saved, *strange, 0)
    if saved < plan.status.attempt:
        return False
    plan.event(
        EventReason.ATTEMPT_SKIPPED,
        f"there are checkpoints of attempt {saved}, so attempt {plan.status.attempt} becomes {saved + 1}",
        action=ActionWord.START,
        warning=True,
    )
    plan.status = skip_to(plan.status, saved + 1, plan.stamp)
    return True


def _look_anew_at_what_was_restored(plan: PlanBuilder) -> bool:
    """What was brought back may have the name of a save that was damaged. Whoever saw or read that one stands by it,
    but at the barrier of another attempt. Clocks do not say who did: those of jobs are others, and a leader that is new
    dates what it hears anew."""
    archive = plan.status.checkpoint.archive
    back = archive.restored
    if back is None or archive.restored_for != plan.status.attempt:
        return False
    reports = [report for slot in plan.ranked_slots() if (report := plan.report(slot)) is not None]
    said = {(row.path, row.verdict) for report in reports for row in report.inventory}
    said |= {(share.path, share.verdict) for report in reports for share in report.verified}
    if (back.path, Verdict.INVALID) not in said:
        return False
    attempt = plan.status.attempt
    plan.event(
        EventReason.ATTEMPT_SKIPPED,
        f"step {back.step} was brought back in the place of a damaged one, so attempt {attempt} becomes {attempt + 1}, "
        "and all nodes look at it anew",
        action=ActionWord.START,
        warning=True,
    )
    plan.status = skip_to(plan.status, attempt + 1, plan.stamp)
    return True


def _passes_over_what_some_see(decision: ResumeDecision) -> bool:
    """Nothing can be resumed from, or a later step lies in the shared tier that not every rank could judge."""
    chosen = decision.choice.step if decision.choice is not None else 0
    passed_over = (each.candidate for each in decision.rejected)
    return decision.kind is ResumeKind.BLOCKED or any(
        each.tier == SHARED and each.verdict is Verdict.UNKNOWN and each.step > chosen for each in passed_over
    )


def _nodes_without_the_tier(state: RunState) -> list[Loss]:
    """Nodes that cannot look into a shared tier that others see: theirs is the fault, not the checkpoints'."""
    blind = []
    for slot in state.ranked_slots():
        report = state.report(slot)
        rows = report.inventory if report is not None else ()
        unseen = next((r for r in rows if r.tier == SHARED and not r.step and r.verdict is Verdict.UNKNOWN), None)
        if unseen is not None:
            node = state.status.assignment.nodes[slot]
            words = f"{node} cannot look into the shared tier: {unseen.reason}"
            blind.append(Loss(slot, node, LossKind.POD, LossReason.NODE_CHECK_FAILED, words, state.now))
    return blind if len(blind) < state.world else []


def _write_start(plan: PlanBuilder, decision: ResumeDecision, rejected: tuple[RejectedCandidate, ...]) -> None:
    assignment = plan.status.assignment
    first = plan.report(slots.slot_of_rank(assignment, 0))
    assert first is not None
    attempt = plan.status.attempt
    choice = decision.choice
    reached = max(plan.status.progress.step, *(each.last_step or 0 for each in plan.status.attempts), 0)
    start = StartRecord(
        attempt=attempt,
        assignment_hash=assignment.hash,
        master_address=first.address,
        master_port=first.port,
        resume=SavedCheckpoint(tier=choice.tier, step=choice.step, path=choice.path, attempt=choice.attempt or None)
        if choice
        else None,
        members=slots.members(assignment),
        order=slots.order(assignment),
        dashboard=_dashboard(first),
        runs_once=not may_be_requeued(plan.run),
    )
    begins_again = _begins_again(plan, decision)
    status = record_resume(
        plan.status,
        start.resume,
        rejected=rejected,
        words=_in_words(decision),
        cadence=from_the_start(plan.status.checkpoint.cadence),
        retention=local_retention(plan, choice),
    )
    ceiling, went_wrong = status.checkpoint.ceiling, status.recovery.diverged_from
    if choice is not None and ceiling is not None and ceiling < choice.step < went_wrong:  # nothing older was left
        status = record_ceiling(status, choice.step)
    status = record_start(status, choice.step if choice is not None else None)
    plan.status = put_start(status, start)
    report_steps_lost(plan, choice.step if choice else 0, choice.attempt if choice else 0)
    begun = changed(
        plan.attempt(attempt), started_at=plan.stamp, admitted_at=plan.status.last_admitted, nodes=plan.world
    )
    if choice is not None:
        begun = changed(begun, resume_step=choice.step, resume_tier=choice.tier)
    plan.put_attempt(begun)
    loses = begins_again and plan.status.totals.attempts > 1
    steps = f"the steps up to {reached} are" if reached else "what was done before is"
    again = f", and {steps} done again" if loses else ""
    plan.event(
        EventReason.STARTED,
        f"attempt {attempt} starts on {plural(plan.world, 'node')}: {decision.message}{again}",
        action=ActionWord.START,
        warning=loses,
    )
    _report_rejected(plan, rejected)


def _begins_again(state: RunState, decision: ResumeDecision) -> bool:
    """At step 0, or where the spec says to start from and no later there than the attempt before it."""
    choice, before = decision.choice, state.status.checkpoint.resume
    if choice is None:
        return True
    is_theirs = is_foreign(choice.path, state.status.resolved.start_root, state.run)
    return is_theirs and (before is None or choice.step <= before.step)


def _dashboard(first: WorkerReport) -> str:
    if not first.dashboard_port:
        return ""
    return f"{f'[{first.address}]' if ':' in first.address else first.address}:{first.dashboard_port}"


def _in_words(decision: ResumeDecision) -> str:
    cost = f", which costs {decision.seconds:.0f} s in loading and repeated steps" if decision.choice else ""
    return (decision.message + cost)[:512]


def _as_rejected(rejection: Rejection) -> RejectedCandidate:
    passed = rejection.candidate
    seconds = round(rejection.seconds)
    return RejectedCandidate(
        tier=passed.tier,
        step=passed.step,
        path=passed.path,
        attempt=passed.attempt or None,
        reason=rejection.reason[:512],
        seconds=seconds,
    )


def _report_rejected(plan: PlanBuilder, rejected: tuple[RejectedCandidate, ...]) -> None:
    for candidate in rejected:
        save = Save(candidate.step, candidate.attempt or 0)
        plan.event(
            EventReason.CHECKPOINT_REJECTED,
            f"{save.label} ({candidate.tier}) was passed over: {candidate.reason}",
            action=ActionWord.CHOOSE_RESUME,
            warning=True,
        )
