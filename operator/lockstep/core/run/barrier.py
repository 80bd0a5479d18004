"""The barrier: no rank runs user code before every rank is there, and all start from the same record."""

from dataclasses import replace

from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.api.checkpoint_status import RejectedCandidate, SavedCheckpoint
from lockstep.api.run_status import StartRecord
from lockstep.core.checkpoints.archiving import is_tidying
from lockstep.core.checkpoints.inventory import is_own
from lockstep.core.checkpoints.local_retention import local_retention, retention_told
from lockstep.core.checkpoints.resume import Rejection, ResumeDecision, ResumeKind
from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.model import assignment as slots
from lockstep.core.model.draft import Draft
from lockstep.core.model.plan import DesiredPhase, Directive
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import ActionWord, EventReason, LossReason, StopReason
from lockstep.core.model.snapshot import Verdict
from lockstep.core.model.start_record import to_record
from lockstep.core.model.tiers import SHARED
from lockstep.core.run.cadence_orders import cadence_order, from_the_start
from lockstep.core.run.fencing import hold_for_writers, keep_fence
from lockstep.core.run.launching import SlotStage, Stage
from lockstep.core.run.pointers import pointers_are_right
from lockstep.core.run.preflight import passes_preflight
from lockstep.core.run.recovery import look_again, tell_steps_lost
from lockstep.core.run.replacement import replace_before_start
from lockstep.core.run.resume_point import choose, expected_resume
from lockstep.core.run.stopping import begin_stop


def gather(draft: Draft, reached: list[SlotStage]) -> None:
    """With everybody at the barrier, choose what to resume from and write START; before, have it read."""
    draft.verify = expected_resume(draft)
    keep_fence(draft)
    if any(at.stage is not Stage.READY for at in reached):
        return
    if any(not _is_present(draft, at.slot) for at in reached):
        draft.wake(draft.now + 1.0)
        return
    if look_again(draft):
        return
    not_before = draft.status.recovery.not_before
    if not_before is not None and draft.now < not_before:
        draft.wake(not_before)
        draft.barrier_waits = "waits before the next attempt, as the last ones made no progress"
        return
    if _avoid_attempts_used_before(draft):
        return
    if not passes_preflight(draft):
        return
    checkpoint = draft.status.checkpoint
    goes_back = checkpoint.ceiling is not None or bool(checkpoint.quarantined)
    if goes_back and is_tidying(checkpoint.archive, draft.snapshot.jobs):
        draft.barrier_waits = "waits for the removal of old checkpoints to end, before one of them is chosen"
        return
    decision = choose(draft)
    draft.verify = decision.verify
    rejected = tuple(map(_as_rejected, decision.rejected))
    blind = _nodes_without_the_tier(draft) if _passes_over_what_some_see(decision) else []
    if blind:
        replace_before_start(draft, blind)
    elif decision.kind in (ResumeKind.WAIT, ResumeKind.VERIFY, ResumeKind.RESTORE):
        draft.barrier_waits = decision.message
        if decision.wait_until is not None:
            draft.wake(decision.wait_until)
    elif decision.kind is ResumeKind.BLOCKED:
        draft.status = changed(
            draft.status, checkpoint=changed(draft.status.checkpoint, rejected=rejected, choice=decision.message[:512])
        )
        _tell_of_rejected(draft, rejected)
        assert isinstance(decision.reason, StopReason)
        begin_stop(draft, decision.reason, decision.message)
    elif held := hold_for_writers(draft):
        draft.barrier_waits = held
    elif pointers_are_right(draft, decision.choice):
        _write_start(draft, decision, rejected)


def release(draft: Draft) -> Directive | None:
    """RUN with the START record of status, once the addresses of all its members are known."""
    start = draft.status.start
    assert start is not None
    by_rank = []
    for slot in draft.ranked_slots():
        report = draft.report(slot)
        if report is None or not report.address:
            return None  # workers that are not answered go on with what they do
        by_rank.append(report.address)
    spec = draft.run.spec  # may have become unreadable while the gang trains
    spread = spec.preflight.start_jitter if spec is not None else None
    rules = spec.recovery.rules if spec is not None else ()
    return replace(
        draft.directed(DesiredPhase.RUN),
        start=to_record(start),
        nodelist=tuple(by_rank),
        cadence=cadence_order(draft),
        jitter=parse_duration(spread) if spread is not None else 0.0,
        retention=retention_told(draft.status),
        watch=tuple((rule.name, rule.log_pattern) for rule in rules if rule.log_pattern is not None),
    )


def _is_present(draft: Draft, slot: int) -> bool:
    """An arrival counts only while its poll is alive."""
    report = draft.report(slot)
    if report is None:
        return False
    beat = draft.heartbeat
    return report.polling or draft.now - report.received_at <= beat


def _avoid_attempts_used_before(draft: Draft) -> bool:
    """Move on when something was saved under this attempt's number, as can be after status was lost.

    Each attempt must have a directory to itself: that is what fences it off from those before it.
    """
    saved = max(
        (
            row.attempt
            for slot in draft.slot_range()
            if (report := draft.report(slot)) is not None
            for row in report.inventory
            if is_own(row, draft)
        ),
        default=0,
    )
    if saved < draft.status.attempt:
        return False
    draft.event(
        EventReason.ATTEMPT_SKIPPED,
        f"there are checkpoints of attempt {saved}, so attempt {draft.status.attempt} becomes {saved + 1}",
        action=ActionWord.START,
        warning=True,
    )
    draft.status = changed(draft.status, attempt=saved + 1)
    return True


def _passes_over_what_some_see(decision: ResumeDecision) -> bool:
    """Nothing can be resumed from, or a later step lies in the shared tier that not every rank could judge."""
    chosen = decision.choice.step if decision.choice is not None else 0
    passed_over = (each.candidate for each in decision.rejected)
    return decision.kind is ResumeKind.BLOCKED or any(
        each.tier == SHARED and each.verdict is Verdict.UNKNOWN and each.step > chosen for each in passed_over
    )


def _nodes_without_the_tier(draft: Draft) -> list[Loss]:
    """Nodes that cannot look into a shared tier that others see: theirs is the fault, not the checkpoints'."""
    blind = []
    for slot in draft.ranked_slots():
        report = draft.report(slot)
        rows = report.inventory if report is not None else ()
        unseen = next((r for r in rows if r.tier == SHARED and not r.step and r.verdict is Verdict.UNKNOWN), None)
        if unseen is not None:
            node = draft.status.assignment.nodes[slot]
            words = f"{node} cannot look into the shared tier: {unseen.reason}"
            blind.append(Loss(slot, node, LossKind.POD, LossReason.NODE_CHECK_FAILED, words, draft.now))
    return blind if len(blind) < draft.world else []


def _write_start(draft: Draft, decision: ResumeDecision, rejected: tuple[RejectedCandidate, ...]) -> None:
    assignment = draft.status.assignment
    first = draft.report(slots.slot_of_rank(assignment, 0))
    assert first is not None
    attempt = draft.status.attempt
    choice = decision.choice
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
    )
    totals = draft.status.totals
    recovery = changed(draft.status.recovery, not_before=None, requeues=0, fenced_at=None)
    if choice is not None and choice.step > recovery.best_step:
        # Saved too late in the last attempt to be heard of before its end: it made progress after all.
        recovery = changed(recovery, best_step=choice.step, consecutive_no_progress=0)
    draft.status = changed(
        draft.status,
        start=start,
        checkpoint=changed(
            draft.status.checkpoint,
            resume=start.resume,
            rejected=rejected,
            choice=_in_words(decision),
            cadence=from_the_start(draft.status.checkpoint.cadence),
            local_retention=local_retention(draft, choice),
        ),
        totals=changed(totals, attempts=totals.attempts + 1),
        recovery=recovery,
    )
    tell_steps_lost(draft, choice.step if choice else 0)
    begun = changed(
        draft.attempt(attempt), started_at=draft.stamp, admitted_at=draft.status.last_admitted, nodes=draft.world
    )
    if choice is not None:
        begun = changed(begun, resume_step=choice.step, resume_tier=choice.tier)
    draft.put_attempt(begun)
    draft.event(
        EventReason.STARTED,
        f"attempt {attempt} starts on {draft.world} nodes: {decision.message}",
        action=ActionWord.START,
    )
    _tell_of_rejected(draft, rejected)


def _in_words(decision: ResumeDecision) -> str:
    cost = f", which costs {decision.seconds:.0f} s in loading and repeated steps" if decision.choice else ""
    return (decision.message + cost)[:512]


def _as_rejected(rejection: Rejection) -> RejectedCandidate:
    passed = rejection.candidate
    seconds = max(0, round(rejection.seconds))
    return RejectedCandidate(
        tier=passed.tier,
        step=passed.step,
        path=passed.path,
        attempt=passed.attempt or None,
        reason=rejection.reason[:512],
        seconds=seconds,
    )


def _tell_of_rejected(draft: Draft, rejected: tuple[RejectedCandidate, ...]) -> None:
    for candidate in rejected:
        save = Save(candidate.step, candidate.attempt or 0)
        draft.event(
            EventReason.CHECKPOINT_REJECTED,
            f"{save.label} ({candidate.tier}) was passed over: {candidate.reason}",
            action=ActionWord.CHOOSE_RESUME,
            warning=True,
        )
