"""What earlier runs of the same name left in the shared tier: step 0 beside it would deny that anything was saved."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from typing import Dict, List, Optional, Tuple

from lockstep.worker.checkpoints.formats.examination import examine
from lockstep.worker.checkpoints.formats.findings import VALID, Finding
from lockstep.worker.checkpoints.tiers import step_paths
from lockstep.worker.settings import JSON, SHARED, Settings

MOST = 4  # told of, newest first
SAVES_COMPARED = 8  # of those whose directories changed last and that have a valid one
STEPS_LOOKED_AT = 8  # of each, the newest
NAMES_READ = 4096  # in the directory of the name
MAX_PATH = 512
RUNS_LOOKED_INTO = 512  # those whose directories changed last: each try of the name leaves one, saved or not
MARKER = ".lockstep-run"  # in the directory of a run's UID: which run's it is
OF_VERY_MANY_FILES = 64  # one in so many is looked at

STATE_THEIR_STEP = (
    "Manifest",
    "HuggingFace",
    "Lightning",
    "NVRxLocal",
    "RayTrain",
)  # formats; of others the name alone does
_DATE = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d\d){0,3}$")
_UID = re.compile(r"^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$")


def previous_saves(settings: Settings) -> List[JSON]:
    """The newest valid save of each. In the directory of the run's own namespace and name every UID is of an earlier
    run; in another one, which others may save in as well, those whose marker names this run are.

    Only reads, and follows no link. What cannot be read is left out: the inventory says so of the tier.
    """
    tier = settings.tiers.get(SHARED)
    if tier is None or settings.fenced or settings.start_root:
        return []
    found: List[Tuple[float, JSON]] = []
    for uid in _uids(settings, tier.root):
        saved = _newest(settings, os.path.join(tier.root, uid), tier.skew)
        if saved is not None:
            committed, step, path = saved
            found.append((committed, {"runUid": uid, "step": step, "path": path}))
        if len(found) == SAVES_COMPARED:
            break
    newest_first = sorted(found, key=lambda each: each[0], reverse=True)
    return [row for _, row in newest_first if len(row["path"]) <= MAX_PATH][:MOST]


def leave_marker(settings: Settings) -> None:
    """Write down in the directory of the run's UID which run's it is, where its path does not say.

    Never raises OSError: without it the next run of that name is not asked, and this one trains all the same.
    """
    tier = settings.tiers.get(SHARED)
    if tier is None or settings.fenced or _is_its_own(settings, tier.root):
        return
    directory, words = os.path.join(tier.root, settings.run_uid), _words(settings)
    if _marker_in(directory) == words:
        return
    draft = os.path.join(directory, f".{settings.slot}{MARKER}")  # nobody is to read half of it
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            whole = os.write(descriptor, words) == len(words)
        finally:
            os.close(descriptor)
        if whole:
            os.replace(draft, os.path.join(directory, MARKER))


def _is_its_own(settings: Settings, root: str) -> bool:
    namespace, run = os.path.split(root)
    return (os.path.basename(namespace), run) == (settings.namespace, settings.run)


def _words(settings: Settings) -> bytes:
    return f"{settings.namespace}/{settings.run}\n".encode()


def _marker_in(directory: str) -> bytes:
    """What it says, as far as one could be long; nothing where there is no plain file of that name."""
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(os.path.join(directory, MARKER), flags)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.read(descriptor, MAX_PATH)
        finally:
            os.close(descriptor)
    return b""


def _uids(settings: Settings, root: str) -> List[str]:
    """Of earlier runs of this name, those that changed last first."""
    changed: Dict[str, float] = {}
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in itertools.islice(entries, NAMES_READ):
            with contextlib.suppress(OSError):
                if entry.name != settings.run_uid and _UID.match(entry.name) and entry.is_dir(follow_symlinks=False):
                    changed[entry.name] = entry.stat(follow_symlinks=False).st_mtime
    uids = sorted(changed, key=lambda uid: changed[uid], reverse=True)[:RUNS_LOOKED_INTO]
    if not _is_its_own(settings, root):
        words = _words(settings)
        uids = [uid for uid in uids if _marker_in(os.path.join(root, uid)) == words]
    return uids


def _newest(settings: Settings, run_root: str, skew: float) -> Optional[Tuple[float, int, str]]:
    """(when it was committed, step, path)."""
    form = settings.checkpoint_format
    valid: List[Tuple[int, str, Finding]] = []
    with contextlib.suppress(OSError):
        for step, _, path in sorted(step_paths(run_root, form, SHARED), reverse=True)[:STEPS_LOOKED_AT]:
            finding = examine(path, form=form, step=step, of=OF_VERY_MANY_FILES, skew=skew)
            if finding is not None and finding.verdict == VALID:
                valid.append((step, path, finding))
                if not _DATE.match(str(step)):
                    break
    beyond = _beyond_all_steps([step for step, _, _ in valid])
    for step, path, finding in valid:
        if step < beyond or finding.format in STATE_THEIR_STEP:
            return finding.committed_at, step, path
    return None


def _beyond_all_steps(steps: List[int]) -> float:
    """From where on a name alone is believed for no step: nothing is known of what the earlier run has reported, so a
    number has to read as a date and to stand out tenfold from the next lower one. ``steps``: highest first.

    As the operator has it (core/checkpoints/step_names.py).
    """
    highest = sorted(set(steps), reverse=True)
    dates = list(itertools.takewhile(lambda step: _DATE.match(str(step)), highest))
    named = highest[: len(dates) + 1][::-1] if dates else []
    for lower, higher in zip(named, named[1:]):  # noqa: B905, RUF007, both are younger than Python 3.8
        if lower and higher > 10 * lower:
            return higher
    return float("inf")
