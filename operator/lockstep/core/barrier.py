"""The barrier: no rank runs user code before every rank is there, and all start from the same record."""

from lockstep.api.run_status import Candidate, RejectedCandidate, StartRecord
from lockstep.core import assignment as slots
from lockstep.core.checkpoints import SHARED, merge_checks
from lockstep.core.draft import Draft
from lockstep.core.evidence import Loss, LossKind
from lockstep.core.inventory import candidates, rank_view
from lockstep.core.launching import SlotStage, Stage
from lockstep.core.plan import DesiredPhase, Directive
from lockstep.core.recovery import replace_before_start
from lockstep.core.resume import ResumeContext, ResumeDecision, ResumeKind, choose_resume
from lockstep.core.snapshot import Verdict
from lockstep.core.start import to_record
from lockstep.core.stopping import begin_stop


def gather(draft: Draft, reached: list[SlotStage]) -> None:
    """With everybody at the barrier, choose what to resume from and write START; before, do nothing."""
    if any(at.stage is not Stage.READY for at in reached):
        return
    if any(not _is_present(draft, at.slot) for at in reached):
        draft.wake(draft.now + 1.0)
        return
    not_before = draft.status.recovery.not_before
    if not_before is not None and draft.now < not_before:
        draft.wake(not_before)
        draft.barrier_waits = "waits before the next attempt, as the last ones made no progress"
        return
    if _avoid_attempts_used_before(draft):
        return
    decision = _choose_resume(draft)
    rejected = tuple(
        RejectedCandidate(tier=r.candidate.tier, step=r.candidate.step, path=r.candidate.path, reason=r.reason[:512])
        for r in decision.rejected
    )
    if decision.kind in (ResumeKind.WAIT, ResumeKind.VERIFY):
        draft.verify = decision.verify
        draft.barrier_waits = decision.message
        if decision.wait_until is not None:
            draft.wake(decision.wait_until)
    elif decision.kind is ResumeKind.BLOCKED and (blind := _nodes_without_the_tier(draft)):
        replace_before_start(draft, blind)
    elif decision.kind is ResumeKind.BLOCKED:
        draft.update(checkpoint=draft.status.checkpoint.model_copy(update={"rejected": rejected}))
        _tell_of_rejected(draft, rejected)
        begin_stop(draft, decision.reason, decision.message)
    else:
        _write_start(draft, decision, rejected)


def release(draft: Draft) -> Directive | None:
    """RUN with the START record of status, once the addresses of all its members are known."""
    start = draft.status.start
    assert start is not None
    by_rank = [""] * len(draft.status.assignment.nodes)
    for slot in draft.slot_range():
        report = draft.report(slot)
        if report is None or not report.address:
            return None  # workers that are not answered go on with what they do
        by_rank[draft.rank(slot)] = report.address
    return draft.directed(DesiredPhase.RUN, start=to_record(start), nodelist=tuple(by_rank))


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
            if row.run_uid == draft.run.uid
        ),
        default=0,
    )
    if saved < draft.status.attempt:
        return False
    draft.event(
        "AttemptSkipped",
        f"there are checkpoints of attempt {saved}, so attempt {draft.status.attempt} becomes {saved + 1}",
        action="Start",
        warning=True,
    )
    draft.update(attempt=saved + 1)
    return True


def _nodes_without_the_tier(draft: Draft) -> list[Loss]:
    """Nodes that cannot look into a shared tier that others see: theirs is the fault, not the checkpoints'."""
    blind = []
    for slot in draft.slot_range():
        report = draft.report(slot)
        rows = report.inventory if report is not None else ()
        unseen = next((r for r in rows if r.tier == SHARED and not r.step and r.verdict is Verdict.UNKNOWN), None)
        if unseen is not None:
            node = draft.status.assignment.nodes[slot]
            words = f"{node} cannot look into the shared tier: {unseen.reason}"
            blind.append(Loss(slot, node, LossKind.POD, "NodeCheckFailed", words, draft.now))
    return blind if len(blind) < len(draft.slot_range()) else []


def _choose_resume(draft: Draft) -> ResumeDecision:
    if draft.spec.checkpoint is None:
        return ResumeDecision(ResumeKind.FRESH, "NoCheckpoint", "the run names no checkpoint tier")
    status = draft.status
    reports = [report for slot in draft.slot_range() if (report := draft.report(slot)) is not None]
    steps = [report.progress.step for report in reports if report.progress is not None]
    context = ResumeContext(
        attempt=status.attempt,
        world=len(status.assignment.nodes),
        run_uid=draft.run.uid,
        since=max(report.since for report in reports),
        highest_step=max([status.progress.step, *steps]),
        saved_before=bool(status.checkpoint.latest),
        mode=draft.spec.checkpoint.start.mode,
        probe_grace=draft.tunables.deadlines.probe,
    )
    view = rank_view(draft.snapshot, status)
    return choose_resume(candidates(draft.snapshot, status), merge_checks(view), context, draft.now)


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
        resume=Candidate(tier=choice.tier, step=choice.step, path=choice.path) if choice else None,
        members=slots.members(assignment),
    )
    totals = draft.status.totals
    recovery = draft.status.recovery.model_copy(update={"not_before": None, "requeues": 0})
    if choice is not None and choice.step > recovery.best_step:
        # Saved too late in the last attempt to be heard of before its end: it made progress after all.
        recovery = recovery.model_copy(update={"best_step": choice.step, "consecutive_no_progress": 0})
    draft.update(
        start=start,
        checkpoint=draft.status.checkpoint.model_copy(update={"resume": start.resume, "rejected": rejected}),
        totals=totals.model_copy(update={"attempts": totals.attempts + 1}),
        recovery=recovery,
    )
    draft.amend_attempt(attempt, started_at=draft.stamp, resume_step=choice.step if choice else None)
    nodes = len(assignment.nodes)
    draft.event("Started", f"attempt {attempt} starts on {nodes} nodes: {decision.message}", action="Start")
    _tell_of_rejected(draft, rejected)


def _tell_of_rejected(draft: Draft, rejected: tuple[RejectedCandidate, ...]) -> None:
    for candidate in rejected:
        draft.event(
            "CheckpointRejected",
            f"step {candidate.step} ({candidate.tier}) was passed over: {candidate.reason}",
            action="ChooseResume",
            warning=True,
        )
