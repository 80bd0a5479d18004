"""The checkpoints of a tier: where they are, and which are the newest."""

from __future__ import annotations

import itertools
import os
import re
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

from lockstep.worker.checkpoints.formats import nvrx, ray_train
from lockstep.worker.checkpoints.formats.catalogue import AUTO, is_stranger, may_be_begun, step_of
from lockstep.worker.checkpoints.formats.examination import examine, of_a_copy
from lockstep.worker.checkpoints.formats.findings import INVALID, UNKNOWN, VALID, Finding
from lockstep.worker.checkpoints.formats.megatron import MEGATRON
from lockstep.worker.settings import JSON, LOCAL, LOCAL_SKEW

NEWEST = 32  # checkpoints looked at per tier
ENOUGH_VALID = 8  # steps: older ones than the eight newest valid ones that may be chosen are never the best choice
LOOKED_AT = 512  # everything that is named like a checkpoint, strangers included
_STRANGERS_TOLD = 4  # that there is something, in another format than the one that was named
PER_ATTEMPT, ONE_FOR_ALL = "PerAttempt", "Shared"  # layouts
ANY = "Any"  # whichever it turns out to be

# What the protocol has room for: a row beyond it would have the whole inventory refused.
MAX_COUNT, MAX_STEP, MAX_NODE, MAX_OWNERS, MAX_UID, MAX_TIME = (1 << 31) - 1, 1 << 53, 65_535, 1024, 64, 1 << 40
MAX_BYTES = 1 << 62

ATTEMPT_NAME = re.compile(r"^a(\d{1,9})$")

PassesOver = Callable[[str, int, int], bool]
"""Of a tier, step and attempt (0: not known): it may not be chosen, however valid it is."""


def passes_over(order: Optional[JSON]) -> PassesOver:
    """As the operator says at the barrier; None: it says nothing."""
    if not order:
        return lambda tier, step, attempt: False
    beyond = order.get("beyond")
    saves = order.get("saves", ())
    diverged = order.get("diverged", ())

    def is_passed_over(tier: str, step: int, attempt: int) -> bool:
        if beyond is not None and step > beyond:
            return True
        if any(step >= first and 0 < attempt <= last for first, last in diverged):
            return True
        return any(
            (of_tier, of_step) == (tier, step) and (by == attempt or 0 in (by, attempt))
            for of_tier, of_step, by in saves
        )

    return is_passed_over


def scan_tier(
    tier: str, root: str, run_uid: str, *, form: str = AUTO, share: int = 0, of: int = 1, skew: float = LOCAL_SKEW,
    layout: str = PER_ATTEMPT, per_node: int = 0, wanted: Optional[int] = None, trusts_times: Optional[bool] = None,
    may_not_be: Optional[PassesOver] = None,
) -> List[JSON]:  # fmt: skip
    """The newest checkpoints under ``<root>/<run_uid>/a<N>/``, newest first, as rows of the inventory.

    With the layout ONE_FOR_ALL they are in ``root`` itself, of no attempt that could be told, and the newest of other
    runs among them: what becomes of these is not decided here. With ANY there, and below ``<root>/a<N>/``; ``run_uid``
    empty: of whatever run.
    In the tier ``local`` each rank's shard is a row of its own. Of a checkpoint with very many files only every
    ``of``-th is looked at, from ``share`` on: the ranks together see all of them. ``per_node``: processes, if known.
    ``wanted``: this step alone. Something else that ends in a number takes no checkpoint's place. What ``may_not_be``
    chosen is listed too, but hides nothing that may.
    Raises OSError when a directory that exists cannot be listed: then nothing is known, not even that there is none.
    """
    rows: List[JSON] = []
    valid: Set[int] = set()
    in_vain: Set[int] = set()  # valid, and may not be chosen
    strangers = theirs = rows_in_vain = 0
    found: Iterator[Tuple[int, int, str]]
    if layout == ONE_FOR_ALL:
        found = attempt_steps(root, 0, form=form, tier=tier)
    elif layout == ANY:
        direct = attempt_steps(root, 0, form=form, tier=tier)
        steps = (each for each in direct if not ATTEMPT_NAME.match(os.path.basename(each[2])))
        found = itertools.chain(steps, step_paths(root, form, tier))
    else:
        found = step_paths(os.path.join(root, run_uid), form, tier)
    newest_first = sorted((each for each in found if wanted in (None, each[0])), reverse=True)
    for step, attempt, path in newest_first[:LOOKED_AT]:
        is_in_vain = may_not_be is not None and may_not_be(tier, step, attempt)
        if is_in_vain and (len(in_vain) >= ENOUGH_VALID or rows_in_vain >= NEWEST // 2):
            continue
        for shard in shards(path, tier):
            judges_all = layout == ONE_FOR_ALL and theirs < ENOUGH_VALID
            said_of = "" if judges_all else run_uid  # then of others' no more is read than that they are
            finding = examine(
                shard, form=form, run_uid=said_of, step=step, share=share, of=of, skew=skew, trusts_times=trusts_times
            )
            if finding is None:
                continue
            if layout == ANY and finding.as_copied:
                words = finding.reason[:110] + of_a_copy(finding) + " (start.acceptCopy)"
                finding = finding._replace(verdict=UNKNOWN, reason=words)  # which of the two it is, a person may say
            if finding.verdict == INVALID and is_stranger(shard, form):
                strangers += 1
                if strangers > _STRANGERS_TOLD:
                    continue
            if finding.verdict == INVALID and not may_be_begun(shard):
                finding = finding._replace(format="")
            of_others = bool(run_uid) and finding.run_uid not in ("", run_uid)
            if of_others:
                theirs += 1
                if theirs > ENOUGH_VALID:  # they hide none of its own
                    continue
            rows.append(inventory_row(tier, step, attempt, shard, finding, per_node))
            rows_in_vain += is_in_vain
            if finding.verdict == VALID and not of_others:
                (in_vain if is_in_vain else valid).add(step)
        if len(valid) >= ENOUGH_VALID or len(rows) >= NEWEST:
            break
    return _without_copies(rows[:NEWEST])


def _without_copies(rows: List[JSON]) -> List[JSON]:
    """Of steps with one and the same commit the lowest is believed: another name does not make it a later step.

    A time in whole seconds may be that of two saves.
    """
    first: Dict[Tuple[str, int, float], JSON] = {}
    for row in sorted(rows, key=lambda each: each["step"]):
        commit = (row["format"], row["bytes"], row["committedAt"])
        if row["verdict"] == VALID and row["bytes"] and row["committedAt"] % 1:
            original = first.setdefault(commit, row)
            if original["step"] != row["step"]:
                name = os.path.basename(original["path"])
                row.update(verdict=INVALID, reason=f"is a copy of {name}: it has the same commit", committedAt=0.0)
    return rows


def inventory_row(tier: str, step: int, attempt: int, path: str, finding: Finding, per_node: int = 0) -> JSON:
    """A finding as the protocol carries it: what a checkpoint says of itself may be anything."""
    if finding.as_copied and finding.verdict == INVALID:
        words = finding.reason[:104] + of_a_copy(finding) + " (checkpoint.trustTimes: false)"
        finding = finding._replace(reason=words)
    nodes = finding.processes // per_node if per_node and finding.processes % per_node == 0 else 0
    return {
        "tier": tier, "step": step, "path": path, "verdict": finding.verdict, "reason": finding.reason[:256],
        "format": finding.format, "attempt": attempt or min(finding.attempt, MAX_COUNT),
        "world": min(finding.world or nodes, MAX_COUNT), "runUid": finding.run_uid[:MAX_UID],
        "bytes": min(finding.bytes, MAX_BYTES),
        "committedAt": min(max(0.0, finding.committed_at), MAX_TIME),
        "asCopied": finding.as_copied,
        "owners": [owner for owner in finding.owners if owner <= MAX_NODE][:MAX_OWNERS],
    }  # fmt: skip


def step_paths(run_root: str, form: str = AUTO, tier: str = "") -> Iterator[Tuple[int, int, str]]:
    """(step, attempt, path) of everything that is named like a checkpoint of some attempt."""
    for name in _directories(run_root):
        matched = ATTEMPT_NAME.match(name)
        if matched:
            yield from attempt_steps(os.path.join(run_root, name), int(matched.group(1)), form=form, tier=tier)


def attempt_steps(directory: str, attempt: int, *, form: str = AUTO, tier: str = "") -> Iterator[Tuple[int, int, str]]:
    """(step, attempt, path) of everything in one directory that the format would call a checkpoint.

    Those of an experiment of Ray Train are one directory below, unless that is the experiment's own.
    """
    try:
        with os.scandir(directory) as found:
            entries = sorted((entry.name, entry.is_file(follow_symlinks=False)) for entry in found
                             if not entry.is_symlink())  # fmt: skip
    except FileNotFoundError:
        return
    for name, is_file in entries:
        path = os.path.join(directory, name)
        if form in (AUTO, ray_train.RAY_TRAIN) and not is_file and _is_experiment(path):
            yield from _reported(path, attempt, form)  # its own name may end in a number, by default in a time
            continue
        step = step_of(path, name, form, is_file)
        if step is not None and step <= MAX_STEP:
            yield step, attempt, path
    if tier == LOCAL and form in (AUTO, MEGATRON):
        for step, path in nvrx.local_steps(directory):
            if step <= MAX_STEP:
                yield step, attempt, path


def _is_experiment(path: str) -> bool:
    """And not that of an attempt: what lies there is of another one than the directory above."""
    own = ATTEMPT_NAME.match(os.path.basename(path))
    return own is None and os.path.lexists(os.path.join(path, ray_train.SNAPSHOT))


def _reported(experiment: str, attempt: int, form: str) -> Iterator[Tuple[int, int, str]]:
    for name in _directories(experiment):
        path = os.path.join(experiment, name)
        step = step_of(path, name, form, is_file=False)
        if step is not None and step <= MAX_STEP:
            yield step, attempt, path


def _directories(directory: str) -> List[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def shards(path: str, tier: str) -> List[str]:
    """The paths with a commit of their own: one per rank in the local tier, else the checkpoint itself."""
    if tier != LOCAL or not os.path.isdir(path):
        return [path]
    held = [name for name in _directories(path) if name.startswith("rank-")]
    return [os.path.join(path, name) for name in held] or [path]
