"""Saves of earlier runs of the same name in this run's own path: its user is asked what is to become of them.

A name is used again to go on, mostly; to begin at step 0 beside what was saved before would be a silent loss.
"""

from collections.abc import Sequence

from lockstep.api.base import names
from lockstep.api.checkpoint_status import PreviousSave
from lockstep.core.checkpoints.verdicts import RankView
from lockstep.core.model.run_state import RunState

MOST = 4
"""Kept in status."""


def previous_saves(state: RunState, view: RankView) -> tuple[PreviousSave, ...]:
    """What workers see of them, while nothing was ever started: whoever began at step 0 has answered."""
    if state.status.totals.attempts:
        return ()
    own = state.run.uid
    seen = {
        (row.run_uid, row.step, row.path): row
        for rank in sorted(view.reports)
        for row in view.reports[rank].previous_saves
        if row.run_uid != own and directory_of(row.path, row.run_uid)
    }
    return tuple(PreviousSave(uid=row.run_uid, step=row.step, path=row.path) for row in seen.values())[:MOST]


def directory_of(path: str, uid: str) -> str:
    """The directory of the run with this UID that a checkpoint lies in, inside the claim, as ``checkpoint.start.path``
    takes it; empty where it lies in none."""
    parts = path.removeprefix(f"{names.SHARED_CHECKPOINTS_MOUNT}/").split("/")
    inside = path.startswith(f"{names.SHARED_CHECKPOINTS_MOUNT}/") and not {"", ".", ".."} & {*parts}
    return "/".join(parts[: parts.index(uid) + 1]) if inside and uid in parts[1:] else ""


def to_be_asked(found: Sequence[PreviousSave]) -> str:
    """What lies there, and each answer for whoever writes manifests: commands are named by the end's message."""
    first = found[0]
    directory = directory_of(first.path, first.uid)
    more = f", others ({len(found) - 1}) left theirs" if len(found) > 1 else ""
    return (
        f"an earlier run of this name saved step {first.step} in this run's path{more}, which step 0 would pass over; "
        f"a new run answers by checkpoint.start: {{path: {directory}}}, by start.mode: Fresh, or by another "
        "checkpoint.shared.path"
    )
