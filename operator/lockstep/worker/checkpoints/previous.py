"""What earlier runs of the same name left in the shared tier: step 0 beside it would deny that anything was saved."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from typing import Dict, List, Optional, Tuple

from lockstep.worker.checkpoints.formats.examination import examine
from lockstep.worker.checkpoints.formats.findings import VALID
from lockstep.worker.checkpoints.tiers import step_paths
from lockstep.worker.settings import JSON, SHARED, Settings

MOST = 4  # told of, newest first
RUNS_LOOKED_INTO = 8  # those whose directories changed last
STEPS_LOOKED_AT = 8  # of each, the newest
NAMES_READ = 4096  # in the directory of the name
MAX_PATH = 512
OF_VERY_MANY_FILES = 64  # one in so many is looked at

_UID = re.compile(r"^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$")


def previous_saves(settings: Settings) -> List[JSON]:
    """The newest valid save of each, where the run saves in the directory of its own namespace and name: another one
    may be shared with other runs, and what they left there says nothing.

    Only reads, and follows no link. What cannot be read is left out: the inventory says so of the tier.
    """
    tier = settings.tiers.get(SHARED)
    if tier is None or settings.fenced or settings.start_root:
        return []
    namespace, run = os.path.split(tier.root)
    if (os.path.basename(namespace), run) != (settings.namespace, settings.run):
        return []
    found: List[Tuple[float, JSON]] = []
    for uid in _uids(tier.root, settings.run_uid):
        saved = _newest(settings, os.path.join(tier.root, uid), tier.skew)
        if saved is not None:
            committed, step, path = saved
            found.append((committed, {"runUid": uid, "step": step, "path": path}))
    newest_first = sorted(found, key=lambda each: each[0], reverse=True)
    return [row for _, row in newest_first if len(row["path"]) <= MAX_PATH][:MOST]


def _uids(root: str, own: str) -> List[str]:
    changed: Dict[str, float] = {}
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in itertools.islice(entries, NAMES_READ):
            with contextlib.suppress(OSError):
                if entry.name != own and _UID.match(entry.name) and entry.is_dir(follow_symlinks=False):
                    changed[entry.name] = entry.stat(follow_symlinks=False).st_mtime
    return sorted(changed, key=lambda uid: changed[uid], reverse=True)[:RUNS_LOOKED_INTO]


def _newest(settings: Settings, run_root: str, skew: float) -> Optional[Tuple[float, int, str]]:
    """(when it was committed, step, path)."""
    form = settings.checkpoint_format
    with contextlib.suppress(OSError):
        for step, _, path in sorted(step_paths(run_root, form, SHARED), reverse=True)[:STEPS_LOOKED_AT]:
            finding = examine(path, form=form, step=step, of=OF_VERY_MANY_FILES, skew=skew)
            if finding is not None and finding.verdict == VALID:
                return finding.committed_at, step, path
    return None
