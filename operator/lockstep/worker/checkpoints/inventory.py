"""What this node can see of the run's checkpoints: at the barrier, and while it trains."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from lockstep.worker.checkpoints.formats.catalogue import is_stranger, may_be_begun
from lockstep.worker.checkpoints.formats.examination import commit_mark, examine, has_marker
from lockstep.worker.checkpoints.formats.findings import UNKNOWN, VALID, Finding
from lockstep.worker.checkpoints.previous import leave_marker
from lockstep.worker.checkpoints.tiers import (
    ANY,
    LOOKED_AT,
    NEWEST,
    ONE_FOR_ALL,
    PER_ATTEMPT,
    PassesOver,
    attempt_steps,
    inventory_row,
    scan_tier,
    shards,
)
from lockstep.worker.checkpoints.unrecognised import Settling, being_saved, bounded, never_committed
from lockstep.worker.errors import trouble
from lockstep.worker.settings import JSON, PROCESSES_PER_NODE, SHARED, Settings, attempt_directory, is_elsewhere
from lockstep.worker.start import Launch

TIMES_AGAINST = "only its files' times speak against it; where none are kept: checkpoint.trustTimes: false"
FEW_STEPS = 5  # as many apart at most are what ranks save that lose one another
LOOK_AGAIN_SECONDS = 2.0  # at most, at what lay there before the attempt: was it saved over?
_NOT_LOOKED_AT = (-1, -1)

At = Callable[[str], None]
"""Is told what is looked at from now on; nothing: empty."""


def at_nothing(_: str) -> None:
    """Nobody wants to know."""


def survey(
    settings: Settings, attempt: int, rank: int, world: int, at: At = at_nothing,
    may_not_be: Optional[PassesOver] = None,
) -> List[JSON]:  # fmt: skip
    """Take inventory of all tiers, and make the directories that the attempt saves in.

    They are made here, not at the start: a tier that takes no writes is found out before anybody is released.
    A shared tier that cannot be listed is not this node's fault: an UNKNOWN row of step 0 stands for what may be
    there, and the operator sees that this rank is blind. Raises OSError for all other trouble. ``may_not_be``: as in
    scan_tier.
    """
    rows: List[JSON] = []
    for name, root, skew in settings.tiers.values():
        at(f"the {name} checkpoint tier {root}")
        form, run_uid = settings.checkpoint_format, settings.run_uid
        share, of = (rank, world) if name == SHARED and 0 <= rank < world else (0, 1)
        layout = ONE_FOR_ALL if name == SHARED and settings.fenced else PER_ATTEMPT
        try:
            rows += scan_tier(
                name, root, run_uid, form=form, share=share, of=of, skew=skew, layout=layout,
                per_node=PROCESSES_PER_NODE, may_not_be=may_not_be,
            )  # fmt: skip
        except OSError as error:
            if name != SHARED:
                raise
            rows.append(inventory_row(name, 0, 0, os.path.join(root, run_uid), Finding(UNKNOWN, trouble(error))))
        else:
            _make_room_for(settings, name, attempt)
            if name == SHARED and rank <= 0:  # one of them is enough
                leave_marker(settings)
    if settings.start_root and SHARED in settings.tiers:
        at(f"the checkpoints to start from, {settings.start_root}")
        known = {row["path"] for row in rows}
        rows += [row for row in _elsewhere(settings, rank, world, may_not_be) if row["path"] not in known]
    return rows


def _make_room_for(settings: Settings, name: str, attempt: int) -> None:
    """Make the directory of an attempt. What is above it in the usual place is for the namespace's other runs as well,
    who may be other users: they may add to it, and change nothing that is not theirs. Raises OSError."""
    root = settings.tiers[name].root
    namespace, run = os.path.split(root)
    if (os.path.basename(namespace), run) == (settings.namespace, settings.run):
        os.makedirs(os.path.dirname(namespace), exist_ok=True)
        _make_for_all(namespace)
        if attempt_directory(settings, name, attempt) != root:
            _make_for_all(root)
    os.makedirs(attempt_directory(settings, name, attempt), exist_ok=True)


def _make_for_all(directory: str) -> None:
    try:
        os.mkdir(directory)
    except OSError:
        if not os.path.isdir(directory):
            raise
        return
    with contextlib.suppress(OSError):  # a file system without modes, or somebody put a link in its place
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, 0o1777)  # mkdir's own mode is subject to the umask
        finally:
            os.close(descriptor)


def _elsewhere(settings: Settings, rank: int, world: int, may_not_be: Optional[PassesOver]) -> List[JSON]:
    """What the run may start from while it has saved nothing: in the directory itself, and in those of attempts."""
    root = settings.start_root
    share, of = (rank, world) if 0 <= rank < world else (0, 1)
    try:
        return scan_tier(
            SHARED, root, settings.start_run_uid, form=settings.checkpoint_format, share=share, of=of,
            skew=settings.tiers[SHARED].skew, layout=ANY, per_node=PROCESSES_PER_NODE, wanted=settings.start_step,
            trusts_times=False if settings.start_copied else None, may_not_be=may_not_be,
        )  # fmt: skip
    except OSError as error:
        blind = Finding(UNKNOWN, trouble(error))
        return [inventory_row(SHARED, 0, 0, os.path.join(root, "a0"), blind)]


class Commits(NamedTuple):
    """What was saved since the last look."""

    rows: List[JSON]  # of the inventory: committed
    begun: bool  # a save has begun that is not
    unrecognised: Sequence[JSON] = ()  # what may be saves, and no format knows or calls committed


class CommitWatch:
    """Looks for the checkpoints of one attempt, as they come."""

    def __init__(self, settings: Settings, launch: Launch) -> None:
        self._settings, self._launch = settings, launch
        self._told: Dict[str, Tuple[int, int]] = {}  # the commits
        self._before: Dict[str, Optional[Tuple[int, int]]] = {}  # commits that this attempt has not touched …
        self._far_below: Set[str] = set()  # … and so many more that nobody asks whether it has
        self._turn = 0  # where the next look at others begins
        self._begun: Set[str] = set()
        self._as_copied: Dict[str, JSON] = {}  # whole, but for times that speak against them
        self._settling = Settling()
        self._started = time.time()
        # What another run has saved says nothing of this one's saves.
        self._seen_valid = bool(launch.resume_path) and not is_elsewhere(settings, launch.resume_path)
        if settings.fenced:
            self._know_what_is_there()

    def _know_what_is_there(self) -> None:
        """Where all attempts save in one directory, what earlier ones have saved is not this one's."""
        with contextlib.suppress(OSError):
            directory = attempt_directory(self._settings, SHARED, self._launch.attempt)
            found = [path for _, path in self._listed(directory, SHARED)]
            self._before = {path: commit_mark(path) for path in found[:NEWEST]}
            self._before.update(dict.fromkeys(found[NEWEST:LOOKED_AT], _NOT_LOOKED_AT))
            self._far_below = set(found[LOOKED_AT:])

    def _look_again(self, over: bool) -> bool:
        """What lay there before and was saved over is the attempt's own from now on. True: there is such.

        The newest, and others in turn, those first that were not looked at yet: a few, or all where the program is
        ``over``, as far as time allows.
        """
        few, every = NEWEST // 2, list(self._before)
        newest, others = every[:few], every[few:]
        turn = self._turn % max(1, len(others))
        others = others[turn:] + others[:turn]
        new = [path for path in others if self._before[path] == _NOT_LOOKED_AT]
        freed = [path for path in newest if self._note_commit(path)]
        until = time.monotonic() + LOOK_AGAIN_SECONDS
        for path in others if over else new or others[:few]:
            freed += [path] if self._note_commit(path) else []
            self._turn += 1
            if time.monotonic() >= until:
                break
        for path in freed:
            del self._before[path]
        return bool(freed)

    def _note_commit(self, path: str) -> bool:
        """True: it was saved over since it was looked at last. What never was is now."""
        mark, now = self._before[path], commit_mark(path)
        if mark == _NOT_LOOKED_AT:
            self._before[path] = now
            return False
        return now not in (None, mark)  # None: it cannot be told now

    def _listed(self, directory: str, tier: str) -> List[Tuple[int, str]]:
        """(step, path) of all that is named like a checkpoint, newest first. Raises OSError."""
        found = attempt_steps(directory, self._launch.attempt, form=self._settings.checkpoint_format, tier=tier)
        return sorted(((step, path) for step, _, path in found), reverse=True)

    def _newest(self, directory: str, tier: str) -> Iterator[Tuple[int, List[str]]]:
        """(step, what has a commit of its own) of the newest; where nobody has begun to save is left out, and what lay
        there before, however much it is."""
        form, seen = self._settings.checkpoint_format, 0
        others = self._far_below.union(self._before)
        own = [(step, path) for step, path in self._listed(directory, tier) if path not in others]
        for step, path in own[:LOOKED_AT]:
            held = shards(path, tier)
            if any(shard in self._told for shard in held) or not all(is_stranger(shard, form) for shard in held):
                yield step, held
                seen += 1
            if seen == NEWEST:
                return

    def poll(self, over: bool = False) -> Commits:
        """What is new. Never raises OSError: the next look, or the inventory, will say. ``over``: the program is."""
        found = self._look(over)
        if not self._look_again(over):
            return found
        more = self._look(over)
        return Commits(found.rows + more.rows, found.begun or more.begun, more.unrecognised)

    def _look(self, over: bool) -> Commits:
        rows: List[JSON] = []
        begun = False
        left: List[JSON] = []
        settings, launch, form = self._settings, self._launch, self._settings.checkpoint_format
        for name, _, skew in settings.tiers.values():
            directory = attempt_directory(settings, name, launch.attempt)
            newest: Optional[int] = None
            with contextlib.suppress(OSError):
                for step, held in self._newest(directory, name):
                    newest = step if newest is None else newest
                    for shard in held:
                        mark = commit_mark(shard)
                        if mark is not None and self._told.get(shard) == mark:
                            continue
                        gone_on = newest is not None and step + FEW_STEPS <= newest
                        finding = None
                        if mark is not None or gone_on:
                            finding = examine(
                                shard, form=form, run_uid=settings.run_uid, step=step, share=launch.rank,
                                of=launch.world, skew=skew,
                            )  # fmt: skip
                        # Without a marker it may only be half written yet.
                        if finding is not None and mark and (finding.verdict == VALID or has_marker(shard)):
                            self._told[shard] = mark
                            self._seen_valid = self._seen_valid or finding.verdict == VALID
                            row = inventory_row(name, step, launch.attempt, shard, finding, PROCESSES_PER_NODE)
                            rows.append(row)
                            if finding.as_copied:
                                self._as_copied[shard] = never_committed(name, launch.attempt, shard, TIMES_AGAINST)
                        else:
                            begun = begun or shard not in self._begun
                            self._begun.add(shard)
                            if gone_on and finding is not None and may_be_begun(shard):
                                left.append(never_committed(name, launch.attempt, shard, finding.reason))
        if self._seen_valid:
            return Commits(rows, begun)
        left += self._as_copied.values()
        self._settling.begin_look()
        rank, number, since = launch.rank, launch.attempt, self._started
        if over:
            left += being_saved(settings, rank, number, since)
        else:
            left += being_saved(settings, rank, number, since, self._settling.settled)
        return Commits(rows, begun, bounded(left))
