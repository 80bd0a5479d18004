"""The archive tier of one run: which job is wanted now. Pure.

At most one job at a time. It is in status before it is made, under a name that says what it does, so that making it
again is harmless; what it did is in status before the next one is decided on. Every job may be killed, repeated or
found done: the program goes on from what is there (lockstep.archive). So what a gang waits for waits for no other: a
job in its way is deleted, and seen to be gone with its pods, for ten minutes at most.

The resume choice weighs `archive_candidates`, and `restored_candidate` until inventories are newer than it. Where the
best one is in the archive, it asks for it with `restore` (`published_as`) and waits: the job ends with a restored
candidate, which the ranks read like any other. Where there is none and `is_worth_a_search`, it says `search` and waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.api.checkpoint_spec import ArchiveTier
from lockstep.api.checkpoint_status import ArchivedCheckpoint, ArchiveJobStatus, ArchiveStatus
from lockstep.api.checkpoint_status import SavedCheckpoint as SavedCheckpoint
from lockstep.core.checkpoints.archive_job import (
    LIST,
    PRUNE,
    RESTORE,
    TIDY,
    UPLOAD,
    job_body,
    job_name,
)
from lockstep.core.checkpoints.archive_outcome import FETCHES, archive_event, conclude_job, copy_label, fail_job
from lockstep.core.checkpoints.checkpoint_record import record_archive
from lockstep.core.checkpoints.removals import (
    REMOVALS,
    has_retention,
    may_remove,
    next_look,
    paths_awaited,
    paths_in_use,
    saves_in_quarantine,
    spares_too_little,
    stray_removal,
)
from lockstep.core.checkpoints.verdicts import Candidate
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import CreateJob, DeleteJob, Event
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.quarantine import in_quarantine, quarantine_of
from lockstep.core.model.reasons import EventReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.settings import ArchiveSettings
from lockstep.core.model.snapshot import JobPhase, JobView, RunView
from lockstep.core.model.tiers import ARCHIVE, SHARED
from lockstep.core.model.worker_report import Verdict
from lockstep.core.pods.gang import shared_path
from lockstep.core.pods.pod_policy import AllowedPowers, archive_account_problems

RESTORED_ATTEMPT = 0
"""Restored checkpoints get the directory of an attempt that never trains: nobody else ever writes there."""
IDLE_TOO_LONG = 600.0
"""Seconds after which a job none of whose pods runs is reported: a missing Secret, an image, no room on any node. One
that a gang waits for has failed then."""
STOP_WITHIN = 600.0
"""Seconds for which a job that was told to end is waited for: its node may be cut off."""


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """`status` as it has to be written before `create` or `delete` is carried out. `events` tell of what was found
    out."""

    status: ArchiveStatus
    create: CreateJob | None = None
    delete: DeleteJob | None = None
    wake_at: float | None = None
    events: tuple[Event, ...] = ()


def plan_archive(
    run: RunView,
    jobs: Sequence[JobView],
    settings: ArchiveSettings,
    now: float,
    *,
    ended: bool = False,
    restore: ArchivedCheckpoint | None = None,
    search: bool = False,
    gathers: bool = False,
    awaited: frozenset[str] = frozenset(),
    refused: str = "",
) -> ArchivePlan:
    """What the archive tier of `run` needs at `now`.

    `ended`: the run has finished or was stopped, so that its last checkpoint is copied without waiting for the
    interval. `restore`: the resume choice waits for this copy. `search`: it found nothing, and the archive may hold
    something that status does not know of. `gathers`: a gang is on its way to START. `awaited`: what other runs start
    from (`paths_awaited`). `refused`: why no job may be made as the spec is now.
    """
    archive = _tier(run)
    status = run.status.checkpoint.archive
    if stray := stray_removal(status, jobs, now):
        told = float(int(now))
        status = changed(status, job=ArchiveJobStatus(name=stray.name, action=TIDY, time=told, stopped=told))
    if archive is None and not has_retention(run) and status.job is None:
        return ArchivePlan(status)
    if archive is not None and not is_about(status, archive):
        # What was known is of another archive; a job at work there may end as it likes.
        tidying = status.job if status.job is not None and status.job.action == TIDY else None  # of no archive
        status = ArchiveStatus(
            uri=archive.uri,
            endpoint=archive.endpoint or "",
            job=tidying,
            tidied=status.tidied,
            tidied_for=status.tidied_for,
            tidy_failures=status.tidy_failures,
            fetched=status.fetched + bool(status.uri),  # the run may come back to this archive
        )
    events: tuple[Event, ...] = ()
    work = status.job
    fetches = restore is not None or search
    if work is not None:
        job = next((each for each in jobs if each.name == work.name), None)
        may_go_on = _may_go_on(run, archive, work, gathers=gathers, fetches=fetches)
        if job is None:
            # Not made yet, or gone since it ended. Made again it finds its work done, and says so.
            if may_go_on and work.stopped is None and not refused:
                return ArchivePlan(status, _create(run, archive, work, settings, awaited))
            if work.stopped is None or work.action not in FETCHES:
                message = "" if work.name in status.message else status.message  # it was idle
                status = changed(status, job=None, message=message)
            else:
                status, events = fail_job(status, work, "", f"no pod of its job ran for {IDLE_TOO_LONG:g} s", now)
        elif job.phase is JobPhase.ACTIVE:
            less = work.action in REMOVALS and may_go_on
            if less and spares_too_little(run, archive, work, job, settings, awaited):
                may_go_on = False
            if work.stopped is None and (may_go_on or work.action in FETCHES):
                return _under_way(status, work, job, now)
            if work.stopped is None or now < work.stopped + STOP_WITHIN:
                return _ending(status, work, job, now)
            words = f"its job {job.name} does not end: kubectl describe job {job.name} and its pods say why"
            status, events = fail_job(status, work, "", words, now)
        else:
            status, events = conclude_job(status, work, job, now, run.status.attempt)
        if events and work.action == RESTORE:  # the choice was made without knowing how this one ended
            return ArchivePlan(status, events=events)
    return _next_job(
        run,
        archive,
        status,
        settings,
        now,
        events,
        ended=ended,
        restore=restore,
        search=search,
        gathers=gathers,
        awaited=awaited,
        refused=refused,
    )


def is_about(status: ArchiveStatus, archive: ArchiveTier) -> bool:
    """What is known is of this archive, and of no former one of the run."""
    return status.uri == archive.uri and status.endpoint in (None, archive.endpoint or "")


def archive_candidates(archive: ArchiveStatus) -> tuple[Candidate, ...]:
    """What a resume could rest on once it was restored. Their bytes are checked on the way."""
    return tuple(
        Candidate(
            tier=ARCHIVE,
            step=each.step,
            path=copy_label(each.attempt, each.step),
            verdict=Verdict.VALID,
            attempt=each.attempt,
            world=each.world,
            format=each.format,
            load_bytes=each.bytes,
            committed=True,
        )
        for each in archive.published
    )


def restored_candidate(archive: ArchiveStatus) -> Candidate | None:
    """What the last restore brought back: for the ranks to read, whose inventories are older than it."""
    back = archive.restored
    if back is None:
        return None
    return Candidate(SHARED, back.step, back.path, Verdict.VALID, attempt=back.attempt or 0, committed=True)


def published_as(archive: ArchiveStatus, candidate: Candidate) -> ArchivedCheckpoint | None:
    """The copy that a candidate of the archive tier stands for."""
    found = (each for each in archive.published if (each.attempt, each.step) == (candidate.attempt, candidate.step))
    return next(found, None)


def is_worth_a_search(run: RunView, archive: ArchiveStatus) -> bool:
    """The archive may hold what status does not know of: the run has trained before, and nobody has asked yet."""
    return _tier(run) is not None and run.status.attempt > 1 and archive.listed is None


def _tier(run: RunView) -> ArchiveTier | None:
    spec = run.spec
    if spec is None or spec.checkpoint is None or spec.checkpoint.shared is None:
        return None
    return spec.checkpoint.archive


def _may_go_on(
    run: RunView, archive: ArchiveTier | None, work: ArchiveJobStatus, *, gathers: bool, fetches: bool
) -> bool:
    if work.action in REMOVALS:
        return may_remove(run, archive, work.action, gathers=gathers or fetches)
    return archive is not None and not (fetches and work.action == UPLOAD)


def _next_job(
    run: RunView,
    archive: ArchiveTier | None,
    status: ArchiveStatus,
    settings: ArchiveSettings,
    now: float,
    events: tuple[Event, ...],
    *,
    ended: bool,
    restore: ArchivedCheckpoint | None,
    search: bool,
    gathers: bool,
    awaited: frozenset[str],
    refused: str,
) -> ArchivePlan:
    newest = next((saved for saved in run.status.checkpoint.latest if saved.tier == SHARED and saved.path), None)
    wanted: list[tuple[float, tuple[str, int, int, str]]] = []  # when, and what; earlier ones first
    fetches = restore is not None or search
    if archive is not None:
        awaited_from = status.restore_not_before or 0.0
        copy = next(iter(status.published), None)
        # Of a run that ended before anything was pruned, the first copy is the only one, or its jobs have pruned
        # themselves, as those of an older release did: there may be thousands of such runs.
        may_have_some = status.pruned is not None or not ended
        if copy is not None and may_have_some and may_remove(run, archive, PRUNE, gathers=gathers or fetches):
            earliest = next_look(status.pruned, status.prune_failures)
            if status.pruned_for != copy_label(copy.attempt, copy.step):
                wanted.append((earliest, (PRUNE, copy.attempt, copy.step, "")))
        if restore is not None:
            wanted.append((awaited_from, (RESTORE, restore.attempt, restore.step, _restore_directory(run))))
        elif search and status.listed is None:
            wanted.append((awaited_from, (LIST, 0, 0, "")))
        elif newest is not None and _is_new(status, newest) and _is_trusted(run, newest):
            earliest = status.not_before or 0.0
            if status.time is not None and not ended:
                earliest = max(earliest, status.time + parse_duration(archive.interval))
            wanted.append((earliest, (UPLOAD, newest.attempt or 0, newest.step, newest.path)))
    if newest is not None and not ended and may_remove(run, archive, TIDY, gathers=gathers or fetches):
        earliest = next_look(status.tidied, status.tidy_failures)
        if status.tidied_for != copy_label(newest.attempt or 0, newest.step):
            wanted.append((earliest, (TIDY, newest.attempt or 0, newest.step, _shared_root(run))))
    if not wanted:
        return ArchivePlan(status, events=events)
    due, work = min(wanted, key=lambda each: max(each[0], now))
    if now < due:
        return ArchivePlan(status, wake_at=due, events=events)
    if refused or not settings.image:
        why = refused or "the operator's configuration names no image for it (archive.image)"
        words = f"no archive job can be made: {why}"
        return ArchivePlan(changed(status, message=words), events=events)
    action, attempt, step, path = work
    failures = status.restore_failures if action in FETCHES else status.failures
    if action in REMOVALS:  # the job of an earlier look may still be there
        failures = int((status.tidied if action == TIDY else status.pruned) or 0)
    job = ArchiveJobStatus(
        name=job_name(run, archive, action, attempt, step, failures, status.fetched),
        action=action,
        step=step,
        attempt=attempt,
        path=path,
        time=float(int(now)),
    )
    create = _create(run, archive, job, settings, awaited)
    return ArchivePlan(changed(status, job=job), create, events=events)


def _create(
    run: RunView,
    archive: ArchiveTier | None,
    job: ArchiveJobStatus,
    settings: ArchiveSettings,
    awaited: frozenset[str],
) -> CreateJob:
    checkpoint = run.status.checkpoint
    resume = checkpoint.resume
    pinned: tuple[str, ...] = (copy_label(resume.attempt or 0, resume.step),) if resume is not None else ()
    if job.action == TIDY:
        pinned = tuple(sorted(paths_in_use(checkpoint) | awaited))
    body = job_body(run, archive, job, settings, pinned=pinned, quarantined=saves_in_quarantine(run))
    return CreateJob(run.namespace, job.name, body)


def _under_way(status: ArchiveStatus, work: ArchiveJobStatus, job: JobView, now: float) -> ArchivePlan:
    """Nothing to do, but to say so when nothing happens; what a gang waits for has failed then."""
    if work.action in FETCHES and bool(job.idle_since) is (work.idle is None):
        # A job tells since when it is there, and not since when none of its pods runs.
        work = changed(work, idle=float(int(now)) if job.idle_since else None)
        status = changed(status, job=work)
    if not job.idle_since:
        return ArchivePlan(status)
    since = work.idle if work.idle is not None else job.idle_since
    if now < since + IDLE_TOO_LONG:
        return ArchivePlan(status, wake_at=since + IDLE_TOO_LONG)
    message = f"no pod of job {job.name} runs: kubectl describe job {job.name} and its pods say why"
    is_new = status.message != message
    events = (archive_event(EventReason.ARCHIVE_JOB_IDLE, message, warning=True),) if is_new else ()
    status = changed(status, message=message)
    plan = _ending(status, work, job, now) if work.action in FETCHES else ArchivePlan(status)
    return replace(plan, events=events)


def _ending(status: ArchiveStatus, work: ArchiveJobStatus, job: JobView, now: float) -> ArchivePlan:
    """It is told to end: in status first. What it would have done is decided on anew once it is gone."""
    since = work.stopped if work.stopped is not None else float(int(now))
    status = changed(status, job=changed(work, stopped=since))
    delete = None if job.deleting else DeleteJob(job.namespace, job.name, job.uid)
    return ArchivePlan(status, delete=delete, wake_at=since + STOP_WITHIN)


def _is_new(status: ArchiveStatus, newest: SavedCheckpoint) -> bool:
    words = copy_label(newest.attempt or 0, newest.step)
    if words == status.refused or words in status.damaged:
        return False
    return all(copy_label(each.attempt, each.step) != words for each in status.published)


def _is_trusted(run: RunView, newest: SavedCheckpoint) -> bool:
    """Training did not go wrong after it, as far as is known: a copy of one that it did would push out good ones."""
    checkpoint = run.status.checkpoint
    if in_quarantine(quarantine_of(checkpoint), newest.tier, newest.step, newest.attempt):
        return False
    return checkpoint.ceiling is None or newest.step <= checkpoint.ceiling


def _shared_root(run: RunView) -> str:
    return f"{names.SHARED_CHECKPOINTS_MOUNT}/{run.status.resolved.shared_path or shared_path(run)}"


def _restore_directory(run: RunView) -> str:
    """Where the ranks look for checkpoints; with one directory per attempt, in that of one that never trains."""
    root = _shared_root(run)
    assert run.spec is not None
    assert run.spec.checkpoint is not None
    if run.spec.checkpoint.layout == "Shared":
        return root
    return f"{root}/{run.uid}/a{RESTORED_ATTEMPT}"


def archive_refusal(state: RunState) -> str:
    """Why jobs may not have the account that they would. It changes at any time, and so at times when no spec is
    judged."""
    grant = AllowedPowers.for_namespace(state.tunables.pod_policy, state.snapshot.namespace_labels)
    return "; ".join(f"{each.field}: {each.message}" for each in archive_account_problems(state.spec, grant))


def keep_archive(plan: PlanBuilder, restore: ArchivedCheckpoint | None = None, *, search: bool = False) -> None:
    """Have the run's archive looked after, whatever phase it is in. ``restore`` is the copy that the resume choice
    waits for; ``search``: it found nothing, and the archive may hold what status forgot."""
    if plan.run.deleting or plan.run.spec is None:
        return
    over = plan.phase is Phase.FINISHED and not plan.live_pods  # before that, workers may tell of later saves
    found = plan_archive(
        replace(plan.run, status=plan.status),
        plan.snapshot.jobs,
        plan.tunables.archive,
        plan.now,
        ended=over or plan.phase is Phase.SUSPENDED,
        restore=restore,
        search=search,
        gathers=plan.phase in (Phase.LAUNCHING, Phase.RECOVERING),
        awaited=paths_awaited(plan.run, plan.snapshot.successors),
        refused=archive_refusal(plan),
    )
    if found.status != plan.status.checkpoint.archive:
        plan.status = record_archive(plan.status, found.status)
    if found.create is not None:
        plan.jobs.append(found.create)
    if found.delete is not None:
        plan.ended_jobs.append(found.delete)
    if found.wake_at is not None:
        plan.wake(found.wake_at)
    plan.events.extend(found.events)
