"""Retention on the shared tier: which checkpoints of a run are there, and the removal of those that may go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from lockstep.archive.outcomes import STORAGE_UNREADABLE, ArchiveError
from lockstep.archive.shared_tier import writing
from lockstep.core.checkpoints.retention import RetentionPolicy, StoredCheckpoint, to_prune
from lockstep.core.model.quarantine import Save
from lockstep.core.model.worker_report import Verdict
from lockstep.worker.checkpoints import formats
from lockstep.worker.checkpoints.formats.ray_train import SNAPSHOT
from lockstep.worker.checkpoints.tiers import ONE_FOR_ALL, PER_ATTEMPT, attempt_steps, step_paths
from lockstep.worker.settings import SHARED, SHARED_SKEW

REMOVED_SUFFIX = ".removed"
"""Ends the name of a checkpoint that is being removed; no scan takes such a name for a checkpoint."""


def checkpoints(
    root: Path, run_uid: str, form: str = "Auto", layout: str = PER_ATTEMPT
) -> tuple[StoredCheckpoint, ...]:
    """Every checkpoint of the run below `root`, whatever its verdict. Raises ArchiveError.

    In one directory for all attempts only those count whose format says which run they are of: others may have
    been there before.
    """
    found = []
    try:
        if layout == ONE_FOR_ALL:
            paths = attempt_steps(str(root), 0, form=form, tier=SHARED)
        else:
            paths = step_paths(str(root / run_uid), form, SHARED)
        for step, attempt, path in paths:
            finding = formats.examine(path, form=form, run_uid=run_uid, step=step, skew=SHARED_SKEW)
            if finding is not None:
                uid = finding.run_uid or (run_uid if layout == PER_ATTEMPT else "")
                verdict = Verdict(finding.verdict)
                attempt = attempt or finding.attempt
                found.append(StoredCheckpoint(step, attempt, uid, path, verdict, finding.committed_at))
    except OSError as error:
        raise ArchiveError(STORAGE_UNREADABLE, f"{error.filename or root}: {error.strerror}") from error
    return tuple(found)


def tidy(
    root: Path,
    run_uid: str,
    policy: RetentionPolicy,
    *,
    now: float,
    form: str = "Auto",
    layout: str = PER_ATTEMPT,
    pinned: frozenset[str] = frozenset(),
    quarantined: frozenset[Save] = frozenset(),
    reached: int = 0,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> tuple[StoredCheckpoint, ...]:
    """Remove what the policy lets go, oldest first; what was removed. Raises ArchiveError.

    A checkpoint is renamed before its files go: it disappears as a whole, and a kill leaves only rubbish that the
    next call removes.
    """
    gone = to_prune(
        checkpoints(root, run_uid, form, layout),
        policy,
        run_uid=run_uid,
        now=now,
        pinned=pinned,
        quarantined=quarantined,
        reached=reached,
    )
    if dry_run:
        return gone
    with writing(root):
        for directory in [root] if layout == ONE_FOR_ALL else [*root.glob(f"{run_uid}/a*")]:
            experiments = [each.parent for each in directory.glob(f"*/{SNAPSHOT}") if not each.parent.is_symlink()]
            for rubbish in [found for each in (directory, *experiments) for found in each.glob(f".*{REMOVED_SUFFIX}")]:
                _remove(rubbish)
        for each in gone:
            path = Path(each.path)
            doomed = path.with_name(f".{path.name}{REMOVED_SUFFIX}")
            path.rename(doomed)
            _remove(doomed)
            say(f"removed {path}")
    return gone


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
