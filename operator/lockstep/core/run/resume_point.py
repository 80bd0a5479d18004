"""The resume point of a gang at the barrier, of all that its tiers hold: its own, the archive's, or another run's.

Another run's checkpoints count only as long as the run itself has saved nothing.
"""

from dataclasses import replace

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.accounting.account import book_of
from lockstep.core.checkpoints.archiving import (
    archive_candidates,
    archive_refusal,
    is_about,
    is_worth_a_search,
    published_as,
    restored_candidate,
)
from lockstep.core.checkpoints.inventory import candidates, foreign_candidates, rank_view, reached, uids_there
from lockstep.core.checkpoints.one_directory import is_in_one_directory, starts_in_place
from lockstep.core.checkpoints.origin import directory_of
from lockstep.core.checkpoints.previous_saves import previous_saves, without_theirs
from lockstep.core.checkpoints.resume import ResumeContext, ResumeDecision, ResumeKind, choose_resume
from lockstep.core.checkpoints.step_names import reached_step, without_doubtful
from lockstep.core.checkpoints.unknown_saves import unknown_saves
from lockstep.core.checkpoints.verdicts import Candidate, RankView, merge_checks
from lockstep.core.model.plan import VerifyRequest
from lockstep.core.model.predecessor import predecessor
from lockstep.core.model.quarantine import in_quarantine, quarantine_of
from lockstep.core.model.reasons import ResumeReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.model.worker_report import Verdict

MAX_ARCHIVE_FAILURES = 6
"""Restores and listings in a row that may fail before the gang goes on without the archive."""
_FROM_ARCHIVE = ("Restore", "List")


def expected_resume(state: RunState) -> VerifyRequest | None:
    """What is likely to be chosen, for each worker to read on its arrival: the gang need not wait for it then.

    By status alone, so that nobody is asked anew with each arrival. To have read another one costs no more than that.
    """
    checkpoint = state.status.checkpoint
    if state.status.start is None or state.spec.checkpoint is None:
        return None
    quarantine = quarantine_of(checkpoint)
    known = [
        saved
        for saved in checkpoint.latest
        if saved.tier in (LOCAL, SHARED)
        and not in_quarantine(quarantine, saved.tier, saved.step, saved.attempt)
        and (checkpoint.ceiling is None or saved.step <= checkpoint.ceiling)
    ]
    best = max(known, key=lambda saved: (saved.step, saved.tier == LOCAL), default=None)
    return VerifyRequest(tier=best.tier, path=best.path, step=best.step) if best is not None else None


def choose(state: RunState) -> ResumeDecision:
    """What to resume from, or what to wait for; says so where that takes a job of the archive."""
    if state.spec.checkpoint is None:
        return ResumeDecision(ResumeKind.FRESH, ResumeReason.NO_CHECKPOINT, "the run names no checkpoint tier")
    view = rank_view(state.snapshot, state.status)
    checks = merge_checks(view)
    context = _context(state, view)
    named = bool(state.status.resolved.start_root)
    own = replace(context, mode="Auto") if named else context
    found = [*candidates(state.snapshot, state.status)]
    found += _from_archive(state, view)
    previous = () if named else previous_saves(state, view)
    begun = without_theirs(found, previous, state.run.uid)
    unknown = unknown_saves(view, state.status, begun, own.highest_step)
    own = replace(own, unknown=unknown, previous=previous)
    decision = choose_resume(found, checks, own, state.now)
    archive = state.status.checkpoint.archive
    if decision.kind is ResumeKind.RESTORE:
        assert decision.choice is not None
        trouble = f" (so far: {archive.message})" if archive.message else ""
        copy = published_as(archive, decision.choice)
        return replace(decision, message=decision.message + trouble, restore=copy)
    lost = decision.kind in (ResumeKind.FRESH, ResumeKind.BLOCKED) and decision.reason != ResumeReason.START_MODE_FRESH
    run = replace(state.run, status=state.status)
    if lost and is_worth_a_search(run, archive) and not _hopeless(state):
        words = "asks the archive what it holds of this run"
        return ResumeDecision(ResumeKind.WAIT, ResumeReason.ARCHIVE_ASKED, words, search=True)
    trouble = _hopeless(state) if archive.published else archive.message if archive.damaged else ""
    if decision.kind is ResumeKind.BLOCKED and trouble:
        return replace(decision, message=f"{decision.message}; there is a copy in the archive, but: {trouble}")
    if decision.kind is not ResumeKind.FRESH or not named:
        return decision
    return _from_elsewhere(state, view, context)


def _context(state: RunState, view: RankView) -> ResumeContext:
    status, spec = state.status, state.spec.checkpoint
    assert spec is not None
    steps = [report.progress.step for report in view.reports.values() if report.progress is not None]
    back = status.checkpoint.archive.restored
    since = max(report.since for report in view.reports.values())
    # While the gang waited for something else, nobody had to read.
    waited = (status.recovery.not_before, status.recovery.fenced_at, back.time if back is not None else None)
    return ResumeContext(
        attempt=max(status.attempt, status.totals.attempts + 1),  # of those before status may have lost the number
        world=state.world,
        run_uid=state.run.uid,
        since=max([since, *(until for until in waited if until is not None and until <= state.now)]),
        highest_step=max([status.progress.step, *steps]),
        reached=reached(state.snapshot, status),
        saved_before=bool(status.checkpoint.latest),
        directory=directory_of(state.run) if is_in_one_directory(state.run) else "",
        mode=spec.start.mode,
        ceiling=status.checkpoint.ceiling,
        diverged_from=status.recovery.diverged_from,
        diverged_attempt=status.recovery.diverged_attempt,
        may_see_more=tuple(rank for rank in view.reports if not view.has_looked_again(rank)),
        quarantine=quarantine_of(status.checkpoint),
        probe_grace=state.tunables.deadlines.probe + state.lag.allowance,
        bandwidth=state.tunables.bandwidth,
        step_seconds=book_of(state).best_step_ms / 1000.0,
    )


def _from_archive(state: RunState, view: RankView) -> list[Candidate]:
    """What the archive holds, and what of it was brought back and is in no inventory yet."""
    archive = state.status.checkpoint.archive
    spec = state.spec.checkpoint
    if spec is None or spec.archive is None or not is_about(archive, spec.archive):
        return []
    found = list(archive_candidates(archive))
    back = archive.restored
    restored = restored_candidate(archive)
    if back is not None and restored is not None:
        is_seen = any(row.path == back.path for report in view.reports.values() for row in report.inventory)
        looked_before = archive.restored_for == state.status.attempt
        if is_seen or looked_before:  # else it is gone, and may be brought back once more
            # The one brought back stands for it.
            found = [each for each in found if (each.attempt, each.step) != (back.attempt or 0, back.step)]
        if looked_before and not is_seen:
            found.append(restored)
    why = _hopeless(state)
    if not why:
        return found
    return [
        replace(each, verdict=Verdict.INVALID, reason=f"is in the archive: {why}") if each.tier != SHARED else each
        for each in found
    ]


def _hopeless(state: RunState) -> str:
    """Why nothing more is awaited from the archive; empty while something is."""
    archive = state.status.checkpoint.archive
    if not state.tunables.archive.image:
        return "the operator's configuration names no image for archive jobs (archive.image)"
    refused = archive_refusal(state)
    if refused:
        return refused
    given_up = archive.restore_failures >= MAX_ARCHIVE_FAILURES and archive.message.startswith(_FROM_ARCHIVE)
    return archive.message if given_up else ""


def _from_elsewhere(state: RunState, view: RankView, context: ResumeContext) -> ResumeDecision:
    """The run itself has saved nothing, and its spec names what to start from."""
    resolved, wanted = state.status.resolved, _wanted_step(state)
    origin = f"run {resolved.start_run}" if resolved.start_run else resolved.start_root
    before = predecessor(state.status, uids_there(view))
    if before is not None and starts_in_place(state.run, state.status):
        origin = f"run {before.name} (UID {before.uid}) in {resolved.start_root}"
    if wanted is not None:
        origin = f"step {wanted} of {origin}"
    found = start_candidates(state, state.status)
    newest = max((each.step for each in found), default=0)
    highest = max(newest, context.highest_step)
    context = replace(context, origin=origin, highest_step=highest, reached=_reached_there(state))
    return choose_resume(found, merge_checks(view), context, state.now)


def start_candidates(state: RunState, status: TrainingRunStatus) -> tuple[Candidate, ...]:
    """What the spec says to start from, as the ranks of ``status`` see it, newest first."""
    wanted = _wanted_step(state)
    found = [
        each
        for each in foreign_candidates(state.snapshot, status)
        if wanted is None or each.step == wanted or not each.step
    ]
    return without_doubtful(found, _reached_there(state))


def _wanted_step(state: RunState) -> int | None:
    return state.spec.checkpoint.start.step if state.spec.checkpoint is not None else None


def _reached_there(state: RunState) -> int:
    """The highest step of the run that it starts from, as far as that is known; 0: it is not."""
    resolved, origin = state.status.resolved, state.snapshot.origin
    # Of one that is gone the path has the UID, where that alone is named.
    places = (resolved.start_run_uid, *resolved.start_root.split("/"))
    then = (each.step for each in state.status.previous if each.uid in places)
    now = reached_step(origin.status) if origin is not None and origin.uid == resolved.start_run_uid else 0
    return max((now, *then))
