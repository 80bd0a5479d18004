"""What a job of the archive tier that ended means for status, and what is said of it. Pure."""

from collections.abc import Iterable, Sequence

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import ArchivedCheckpoint, ArchiveJobStatus, ArchiveStatus, SavedCheckpoint
from lockstep.core.checkpoints.archive_job import LIST, PRUNE, RESTORE, TIDY, UPLOAD, JobResult, parse_result
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, ArchiveFailure, EventReason
from lockstep.core.model.snapshot import JobPhase, JobView
from lockstep.core.model.tiers import SHARED

MAX_PUBLISHED = 8
MAX_DAMAGED = 16
BACKOFF_BASE, BACKOFF_MAX = 60.0, 3600.0
BACKOFF_MAX_WAITING = 300.0
"""While a gang waits for the job, it is tried again sooner."""
MAX_REMOVAL_FAILURES = 8
"""Removals in a row that may fail, in two days and a half, before the next one waits for a newer save or copy."""
FETCHES = frozenset({RESTORE, LIST})
_SPENT_SOURCE = frozenset({ArchiveFailure.SOURCE_INVALID, ArchiveFailure.SOURCE_VANISHED, "Conflict"})
_DAMAGED_COPY = frozenset({ArchiveFailure.ARCHIVE_CORRUPT, ArchiveFailure.DESTINATION_TAKEN})
_USELESS_COPY = _DAMAGED_COPY | {ArchiveFailure.NOT_PUBLISHED}


def conclude_job(
    status: ArchiveStatus, work: ArchiveJobStatus, job: JobView, now: float, attempt: int
) -> tuple[ArchiveStatus, tuple[Event, ...]]:
    """The status after a job that ended, and what is said of it. ``attempt``: that of the run now."""
    result = parse_result(job.result)
    if job.phase is JobPhase.COMPLETE and (result is not None or work.action not in FETCHES):
        return _succeeded(status, work, result, float(int(job.finished_at or now)), attempt)
    if work.stopped is not None and work.action not in FETCHES:
        return changed(status, job=None), ()
    outcome = result.outcome if result is not None else ""
    words = result.message if result is not None and result.message else job.message or "its pods left no message"
    return fail_job(status, work, outcome, words, now)


def _succeeded(
    status: ArchiveStatus, work: ArchiveJobStatus, result: JobResult | None, at: float, attempt: int
) -> tuple[ArchiveStatus, tuple[Event, ...]]:
    if work.action == TIDY:
        words = copy_label(work.attempt, work.step)
        return changed(status, job=None, tidied=at, tidied_for=words, tidy_failures=0), ()
    if work.action == PRUNE:
        left = status.published if result is None or result.published is None else result.published
        published = _newest_first(_without_damaged(status, left))
        words = copy_label(work.attempt, work.step)
        return changed(status, job=None, published=published, pruned=at, pruned_for=words, prune_failures=0), ()
    if work.action in FETCHES:
        status = changed(status, fetched=status.fetched + 1)
    if work.action == LIST:  # nothing was brought back by it: failures count on
        assert result is not None
        found = _without_damaged(status, result.published or ())
        note = f"the archive holds {len(found)} of this run's checkpoints"
        if damaged := len(result.published or ()) - len(found):
            note = f"{note}, and {damaged} that are damaged"
        message = "" if status.message.startswith(LIST) else status.message
        status = changed(status, job=None, restore_not_before=None, published=found, listed=at, message=message)
        return status, (archive_event(EventReason.ARCHIVE_LISTED, note),)
    # The store answers: what waits for the other kind is tried at once, too.
    status = changed(status, job=None, not_before=None, restore_failures=0, restore_not_before=None, message="")
    if work.action == RESTORE:
        assert result is not None
        back = SavedCheckpoint(tier=SHARED, step=work.step, path=result.path, attempt=work.attempt or None, time=at)
        note = f"step {work.step} was brought back from the archive to {result.path}"
        return changed(status, restored=back, restored_for=attempt), (archive_event(EventReason.RESTORED, note),)
    # The exit code alone proves an upload.
    reported = result.checkpoint if result is not None and result.checkpoint is not None else ArchivedCheckpoint(step=0)
    copied = changed(reported, step=work.step, attempt=work.attempt, time=at)
    published = _newest_first([copied, *status.published])
    note = f"step {work.step} of attempt {work.attempt} is in the archive"
    took = max(0, round(at - work.time)) if work.time is not None else 0
    status = changed(status, failures=0, published=published, time=at, copy_seconds=took)
    return status, (archive_event(EventReason.ARCHIVED, note),)


def fail_job(
    status: ArchiveStatus, work: ArchiveJobStatus, outcome: str, words: str, now: float
) -> tuple[ArchiveStatus, tuple[Event, ...]]:
    """The status after a job that failed, or that is waited for no longer: when it is tried again, or what else is."""
    message = f"{work.action} of {copy_label(work.attempt, work.step)}" if work.step else work.action
    message = f"{message} failed: {outcome + ': ' if outcome else ''}{words}"[:512]
    status = changed(status, job=None, message=message)
    if work.action == TIDY:  # holds up no copy
        failures = status.tidy_failures + 1
        done = copy_label(work.attempt, work.step) if failures >= MAX_REMOVAL_FAILURES else status.tidied_for
        status = changed(status, tidied=float(int(now)), tidied_for=done, tidy_failures=failures)
    elif work.action == PRUNE:
        failures = status.prune_failures + 1
        done = copy_label(work.attempt, work.step) if failures >= MAX_REMOVAL_FAILURES else status.pruned_for
        status = changed(status, pruned=float(int(now)), pruned_for=done, prune_failures=failures)
    elif work.action == UPLOAD:
        failures = status.failures + 1
        status = changed(status, failures=failures, not_before=_backoff(failures, BACKOFF_MAX, now))
        if outcome in _SPENT_SOURCE:
            status = changed(status, refused=copy_label(work.attempt, work.step))
    else:
        failures = status.restore_failures + 1
        not_before = _backoff(failures, BACKOFF_MAX_WAITING, now)
        status = changed(status, restore_failures=failures, restore_not_before=not_before)
        if work.action == RESTORE and outcome in _USELESS_COPY:
            # No candidate any more; the choice falls on another, and what there is is asked anew.
            kept = (each for each in status.published if (each.attempt, each.step) != (work.attempt, work.step))
            status = changed(status, published=tuple(kept), listed=None, restore_not_before=None)
            if outcome in _DAMAGED_COPY:  # a listing compares sizes alone, and would name it again
                status = changed(status, damaged=(*status.damaged, copy_label(work.attempt, work.step))[-MAX_DAMAGED:])
    return status, (archive_event(EventReason.ARCHIVE_JOB_FAILED, message, warning=True),)


def _backoff(failures: int, longest: float, now: float) -> float:
    return float(int(now + min(longest, BACKOFF_BASE * 2 ** min(failures - 1, 16))))


def _without_damaged(status: ArchiveStatus, found: Sequence[ArchivedCheckpoint]) -> tuple[ArchivedCheckpoint, ...]:
    return tuple(each for each in found if copy_label(each.attempt, each.step) not in status.damaged)


def _newest_first(found: Iterable[ArchivedCheckpoint]) -> tuple[ArchivedCheckpoint, ...]:
    """Each once, the first word on it counting; bounded."""
    each_once: dict[tuple[int, int], ArchivedCheckpoint] = {}
    for each in found:
        each_once.setdefault((each.attempt, each.step), each)
    return tuple(each_once[key] for key in sorted(each_once, reverse=True)[:MAX_PUBLISHED])


def copy_label(attempt: int, step: int) -> str:
    """As the archive calls a copy."""
    return f"a{attempt}/step-{step}"


def archive_event(reason: EventReason, note: str, *, warning: bool = False) -> Event:
    """Of what the archive's jobs do."""
    return Event("Warning" if warning else "Normal", reason, ActionWord.ARCHIVE, note)
