"""When older checkpoints may be removed, of the shared tier (Tidy) or of the archive (Prune), and when no more. Pure.

What such a job spares is on its command line, and its pod may start a day later: for lack of room, or of an image. So a
job that is there counts as one at work, whatever its pods do, and is ended where it was told less than is true now.
"""

from collections.abc import Iterable, Sequence

from lockstep.api.checkpoint_spec import ArchiveTier
from lockstep.api.checkpoint_status import ArchiveJobStatus, ArchiveStatus, CheckpointStatus
from lockstep.core.checkpoints.archive_job import PRUNE, TIDY, UPLOAD, job_arguments, options_told
from lockstep.core.checkpoints.origin import directory_of
from lockstep.core.model.conditions import is_true
from lockstep.core.model.quarantine import Save, quarantine_of
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.settings import ArchiveSettings
from lockstep.core.model.snapshot import JobPhase, JobView, RunView
from lockstep.core.model.tiers import ARCHIVE, SHARED

REMOVALS = frozenset({TIDY, PRUNE})
LOOK_EVERY = 1800.0
"""Seconds between two looks for checkpoints of a tier that may go."""
LOOK_EVERY_FAILING = 86_400.0
"""The longest of them, after failures."""


def may_remove(run: RunView, archive: ArchiveTier | None, action: str, *, gathers: bool) -> bool:
    """A policy is set, and nobody may need what it lets go: no gang that gathers and is about to choose, and not the
    run that goes back, which cannot trust what is newest."""
    if gathers or run.status.checkpoint.ceiling is not None:
        return False
    return has_retention(run) if action == TIDY else archive is not None and archive.retention is not None


def next_look(last: float | None, failures: int) -> float:
    """When a tier may be looked through again, after so many failures in a row."""
    if last is None:
        return 0.0
    return last + min(LOOK_EVERY_FAILING, LOOK_EVERY * 2.0 ** min(max(failures - 1, 0), 16))


def has_retention(run: RunView) -> bool:
    """A policy for the shared tier is set."""
    checkpoint = run.spec.checkpoint if run.spec is not None else None
    return checkpoint is not None and checkpoint.shared is not None and checkpoint.retention is not None


def spares_too_little(
    run: RunView,
    archive: ArchiveTier | None,
    work: ArchiveJobStatus,
    job: JobView,
    settings: ArchiveSettings,
    awaited: frozenset[str],
) -> bool:
    """What other runs start from (``awaited``), quarantine or the policy have changed since it was made. Saves that are
    newer than it are nothing that it removes."""
    pinned = tuple(sorted(awaited)) if work.action == TIDY else ()
    options = options_told(job_arguments(run, archive, work, settings, pinned, saves_in_quarantine(run)))
    return not {each for each in options if each[0] != "--reached"} <= job.told


def saves_in_quarantine(run: RunView) -> tuple[Save, ...]:
    """What does not count as kept."""
    bad = {save for tier, save in quarantine_of(run.status.checkpoint) if tier in (SHARED, ARCHIVE)}
    return tuple(sorted(bad, key=lambda save: (save.step, save.attempt)))


def stray_removal(status: ArchiveStatus, jobs: Sequence[JobView], now: float) -> JobView | None:
    """A job that removes checkpoints and that status has forgotten, as one from a backup has. None just after the end
    of one was awaited in vain."""
    if status.job is not None or now < max(status.tidied or 0.0, status.pruned or 0.0) + LOOK_EVERY:
        return None
    active = (job for job in jobs if job.removes and job.phase is JobPhase.ACTIVE)
    return next((job for job in active if not job.deleting and not job.finished_at), None)


def is_removal_there(status: ArchiveStatus, jobs: Sequence[JobView], now: float) -> bool:
    """A job may remove checkpoints, now or once its pod starts."""
    work = status.job
    if work is None:
        return stray_removal(status, jobs, now) is not None
    return work.action in REMOVALS and any(job.name == work.name and job.phase is JobPhase.ACTIVE for job in jobs)


def paths_in_use(checkpoint: CheckpointStatus) -> frozenset[str]:
    """Paths of the shared tier that no retention may touch: of the resume point, the newest, and what is copied."""
    job = checkpoint.archive.job
    held = [each.path for each in (checkpoint.resume, checkpoint.archive.restored, *checkpoint.latest) if each]
    return frozenset(held) | ({job.path} if job is not None and job.action == UPLOAD else set())


def paths_awaited(run: RunView, successors: Iterable[RunView]) -> frozenset[str]:
    """What other runs start from, as paths, or as step-N where one is named and not chosen yet. Not what they have
    saved themselves, which no job of this run removes."""
    held = set()
    ours = f"{directory_of(run)}/"
    for other in successors:
        checkpoint = other.spec.checkpoint if other.spec is not None else None
        if checkpoint is None or is_true(other.status, ConditionType.FINISHED):
            continue
        if other.status.resolved.start_run_uid not in ("", run.uid):
            continue  # started from an earlier run of this name
        resume = other.status.checkpoint.resume
        if resume is not None and resume.path.startswith(ours):
            held.add(resume.path)
        if checkpoint.start.step is not None and not other.status.checkpoint.latest:
            held.add(f"step-{checkpoint.start.step}")
    return frozenset(held)
