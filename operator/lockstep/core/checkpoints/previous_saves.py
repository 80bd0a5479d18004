"""Saves of earlier runs of the same name in this run's own path: its user is asked what is to become of them.

A name is used again to go on, mostly; to begin at step 0 beside what was saved before would be a silent loss.
"""

from collections.abc import Sequence
from dataclasses import replace
from posixpath import dirname

from lockstep.api.base import names
from lockstep.api.checkpoint_status import PreviousSave
from lockstep.core.checkpoints.one_directory import is_in_one_directory, is_of_another_run
from lockstep.core.checkpoints.origin import has_begun
from lockstep.core.checkpoints.step_names import without_doubtful
from lockstep.core.checkpoints.verdicts import Candidate, RankView, merge_inventories
from lockstep.core.model.run_state import RunState
from lockstep.core.model.worker_report import Verdict

MOST = 4
"""Kept in status."""
_MOUNT = f"{names.SHARED_CHECKPOINTS_MOUNT}/"


def previous_saves(state: RunState, view: RankView) -> tuple[PreviousSave, ...]:
    """What workers see of them, while nothing was ever started: whoever began at step 0 has answered."""
    if has_begun(state.status):
        return ()
    if is_in_one_directory(state.run):
        return _in_the_one_directory(state, view)
    own = state.run.uid
    seen = {
        (row.run_uid, row.step, row.path): row
        for rank in sorted(view.reports)
        for row in view.reports[rank].previous_saves
        if row.run_uid != own and directory_of(row.path, row.run_uid)
    }
    return tuple(PreviousSave(uid=row.run_uid, step=row.step, path=row.path) for row in seen.values())[:MOST]


def _in_the_one_directory(state: RunState, view: RankView) -> tuple[PreviousSave, ...]:
    """The newest of what lies there: all of it is in the same place."""
    reports = {
        rank: replace(
            report,
            inventory=tuple(
                row
                for row in report.inventory
                if row.verdict is Verdict.VALID and is_of_another_run(row, state.run, state.status)
            ),
        )
        for rank, report in view.reports.items()
    }
    found = without_doubtful(merge_inventories(replace(view, reports=reports), ""), 0)
    newest = max(found, key=lambda each: (not each.doubted, each.step), default=None)
    return (PreviousSave(uid=newest.run_uid, step=newest.step, path=newest.path),) if newest is not None else ()


def without_theirs(
    candidates: Sequence[Candidate], previous: Sequence[PreviousSave], run_uid: str
) -> tuple[Candidate, ...]:
    """Without what lies beside saves of earlier runs: whole or not it is theirs, unless it says that it is this
    run's."""
    beside = {dirname(each.path) for each in previous}
    return tuple(each for each in candidates if each.run_uid == run_uid or dirname(each.path) not in beside)


def place_of(save: PreviousSave, run_directory: str) -> str:
    """The directory to go on from, inside the claim, as ``checkpoint.start.path`` takes it: that of the run's UID, or
    the one that all runs of the path save in, which is ``run_directory``."""
    if place := directory_of(save.path, save.uid):
        return place
    in_it = bool(run_directory) and save.path.startswith(f"{run_directory}/")
    return run_directory.removeprefix(_MOUNT) if in_it else "/".join(_inside(save.path)[:-1])


def directory_of(path: str, uid: str) -> str:
    """The directory of the run with this UID that a checkpoint lies in, inside the claim; empty where it lies in
    none."""
    parts = _inside(path)
    return "/".join(parts[: parts.index(uid) + 1]) if uid in parts[1:] else ""


def _inside(path: str) -> list[str]:
    """The names that lead to it from the root of the claim; none where it is not inside."""
    parts = path.removeprefix(_MOUNT).split("/")
    return parts if path.startswith(_MOUNT) and not {"", ".", ".."} & {*parts} else []


def to_be_asked(found: Sequence[PreviousSave], run_directory: str = "") -> str:
    """What lies there, and each answer for whoever writes manifests: commands are named by the end's message."""
    first = found[0]
    named = " of this name" if directory_of(first.path, first.uid) else ""
    more = f", others ({len(found) - 1}) left theirs" if len(found) > 1 else ""
    return (
        f"an earlier run{named} saved step {first.step} in this run's path{more}, which step 0 would pass over; "
        f"a new run answers by checkpoint.start: {{path: {place_of(first, run_directory)}}}, by start.mode: Fresh, or "
        "by another checkpoint.shared.path"
    )
