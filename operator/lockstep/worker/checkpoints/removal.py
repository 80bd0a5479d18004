"""What earlier attempts saved on this node's own disk and nobody needs any more goes, while a later one trains.

The operator says with START which saves those are; it speaks for the whole gang, since a step counts only where all
ranks hold their part. Here each gets a name that no inventory looks at, then its files go, slowly: nobody waits for it.
What is cut off is finished the next time. Links are not followed, and what cannot be removed is told and left.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from lockstep.worker.checkpoints.formats import nvrx
from lockstep.worker.checkpoints.formats.catalogue import is_stranger
from lockstep.worker.checkpoints.formats.examination import examine
from lockstep.worker.checkpoints.formats.findings import UNKNOWN, CheckpointEntry, InvalidError
from lockstep.worker.checkpoints.tiers import ATTEMPT_NAME, attempt_steps, shards
from lockstep.worker.errors import trouble
from lockstep.worker.output import log_line
from lockstep.worker.settings import JSON, LOCAL, Settings

REMOVED = ".lockstep-removed"  # beside the attempts' directories; what is in it only waits for its end
LOWEST_PRIORITY = 19
MOST_TOLD = 3  # troubles of each kind of work: a broken disk has as many as it has files
PAUSE_SECONDS = 1.0  # at most, after each file
ROOM = 64 << 20  # bytes that a tier needs in any case

Save = Tuple[int, int]  # (step, attempt)


class RemovalOrder(NamedTuple):
    """What may go: saves older than ``floor``, but for ``kept``; and what is in ``spent``."""

    floor: Optional[Save]
    kept: List[Save]
    spent: List[Save]

    @classmethod
    def from_reply(cls, told: JSON) -> RemovalOrder:
        """From a reply. Raises KeyError, TypeError, ValueError."""
        floor = told["floor"]
        kept, spent = ([_save(pair) for pair in told[name]] for name in ("kept", "spent"))
        return cls(_save(floor) if floor is not None else None, kept, spent)

    def lets_go(self, save: Save) -> bool:
        """The save may be removed, if an earlier attempt made it."""
        return save in self.spent or (self.floor is not None and save < self.floor and save not in self.kept)


def _save(pair: List[int]) -> Save:
    step, attempt = pair
    return int(step), int(attempt)


class Removal:
    """One thread at most is at it, whatever is asked. ``begin`` is for the main thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._counts = 0  # the attempt whose order counts; 0: none does
        self._renaming = threading.Lock()  # held while something is renamed, by an order that counts
        self._lock = threading.Lock()  # of those below
        self._next: Optional[Tuple[int, JSON]] = None
        self._busy = False

    def begin(self, attempt: int, told: Optional[JSON]) -> None:
        """Remove what the operator's order for ``attempt`` lets go, and what is left over of earlier times."""
        if LOCAL not in self._settings.tiers:
            return
        self._counts = attempt
        with self._lock:
            self._next = (attempt, told or {})
            if self._busy:
                return  # it looks there when it is done
            self._busy = True
        try:
            threading.Thread(target=self._work, daemon=True).start()
        except RuntimeError:  # no room for another thread: the next attempt comes by here, too
            self._busy = False

    def rest(self) -> None:
        """No order counts any more: what still has its name keeps it. Waits for a rename that is under way.

        For whoever takes inventory for another attempt, which may need what this one did not.
        """
        self._counts = 0
        with self._renaming:
            pass

    def _work(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # of this thread alone, on Linux
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
        while True:
            with self._lock:
                if self._next is None:
                    self._busy = False
                    return
                (attempt, told), self._next = self._next, None
            try:
                self._remove(attempt, told)
            except Exception as error:  # nobody's training fails for it
                log_line(f"old local checkpoints are not removed: {error!r}")

    def _remove(self, attempt: int, told: JSON) -> None:
        troubles = _Troubles()
        root = _run_root(self._settings)
        if told:
            order = RemovalOrder.from_reply(told)
            gone = 0
            for earlier in _attempts_before(root, attempt):
                gone += self._put_away(root, earlier, order, attempt, troubles)
            if gone:
                log_line(f"attempt={attempt} old local checkpoints to remove: {gone}")
        freed = finish(root, troubles, _take_turns)
        if freed:
            log_line(f"old local checkpoints removed: {freed / 2**30:.1f} GiB")

    def _put_away(self, root: str, earlier: int, order: RemovalOrder, attempt: int, troubles: _Troubles) -> int:
        """Take what goes of an earlier attempt out of the way of every inventory; returns how many saves that were.

        The attempt's directory goes as well, once there is nothing in it any more.
        """
        directory, gone = os.path.join(root, f"a{earlier}"), 0
        try:
            found = list(attempt_steps(directory, earlier, form=self._settings.checkpoint_format, tier=LOCAL))
            for step, _, path in found:
                if order.lets_go((step, earlier)) and self._is_ours(path, troubles):
                    renamed = [self._rename(each, root, attempt, troubles) for each in _pieces(path, directory)]
                    gone += any(renamed)
            _remove_empty(directory)
        except OSError as error:
            troubles.log(error)
        return gone

    def _is_ours(self, path: str, troubles: _Troubles) -> bool:
        """A checkpoint of this run, as far as can be seen. What is something else, or cannot be read, stays."""
        form, own = self._settings.checkpoint_format, self._settings.run_uid
        held = shards(path, LOCAL)
        findings = [examine(shard, form=form) for shard in held]
        if all(finding is None for finding in findings) or all(is_stranger(shard, form) for shard in held):
            return False
        for finding in findings:
            if finding is not None and finding.verdict == UNKNOWN:
                troubles.tell_words(f"{path} cannot be judged: {finding.reason}")
                return False
            if finding is not None and finding.run_uid not in ("", own):
                return False
        return True

    def _rename(self, path: str, root: str, attempt: int, troubles: _Troubles) -> bool:
        """Atomic: no inventory ever sees a part of it missing."""
        try:
            target = _free_name(root, path)
            with self._renaming:
                if self._counts != attempt:
                    return False
                os.rename(path, target)
            return True
        except OSError as error:
            troubles.log(error)
            return False


class _Troubles:
    """Tells of the first few."""

    def __init__(self) -> None:
        self._told = 0

    def log(self, error: OSError) -> None:
        self.tell_words(trouble(error))

    def tell_words(self, words: str) -> None:
        self._told += 1
        if self._told <= MOST_TOLD:
            log_line(f"an old local checkpoint is not removed: {words}")


def finish(root: str, troubles: _Troubles, after_each: Callable[[float], None]) -> int:
    """Remove what was put away, now or at an earlier time; returns the bytes that were freed. Never raises OSError.

    ``after_each`` is given the seconds that the removal of a file took.
    """
    freed = 0
    directory = os.path.join(root, REMOVED)
    if not _is_directory(directory):
        return 0
    for parent, directories, files in os.walk(directory, topdown=False, onerror=troubles.log):
        links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
        for name in [*files, *links]:
            began = time.monotonic()
            try:
                path = os.path.join(parent, name)
                held = os.lstat(path)
                os.unlink(path)
                freed += held.st_blocks * 512 if held.st_nlink == 1 else 0
            except FileNotFoundError:
                pass  # somebody else is at it
            except OSError as error:
                troubles.log(error)
            after_each(time.monotonic() - began)
        with contextlib.suppress(OSError):  # it is not empty, and why was told
            os.rmdir(parent)
    return freed


def free_space(settings: Settings) -> None:
    """Finish what an earlier life of the worker had begun, at once, where the disk is full without it.

    Never raises OSError.
    """
    tier = settings.tiers.get(LOCAL)
    if tier is None:
        return
    root = _run_root(settings)
    with contextlib.suppress(OSError):
        if _is_directory(os.path.join(root, REMOVED)):
            found = os.statvfs(root)
            if found.f_bavail * found.f_frsize < max(settings.min_disk, ROOM):
                finish(root, _Troubles(), lambda seconds: None)


def _take_turns(seconds: float) -> None:
    """The disk is the training's at least half of the time."""
    time.sleep(min(PAUSE_SECONDS, seconds))


def _run_root(settings: Settings) -> str:
    return os.path.join(settings.tiers[LOCAL].root, settings.run_uid)


def _is_directory(path: str) -> bool:
    """And no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _attempts_before(root: str, attempt: int) -> Iterator[int]:
    if not _is_directory(root):
        return
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for matched in map(ATTEMPT_NAME.match, sorted(names)):
        if matched and int(matched.group(1)) < attempt:
            yield int(matched.group(1))


def _pieces(path: str, directory: str) -> List[str]:
    """What has to be renamed: the checkpoint itself, or the files that its name stands for. Raises OSError."""
    if os.path.lexists(path):
        return [path]
    base = os.path.dirname(path)
    if base != directory and not _is_directory(base):
        return []  # behind a link
    try:
        files = list(nvrx.local_files(CheckpointEntry(path, is_file=True)))
    except InvalidError:
        return []
    return [os.path.join(base, name) for name in files if _is_directory(os.path.join(base, os.path.dirname(name)))]


def _free_name(root: str, path: str) -> str:
    """Where it waits for its end. Raises OSError, also where that place is not a directory of its own."""
    directory = os.path.join(root, REMOVED)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)
    if not _is_directory(directory):
        raise NotADirectoryError(0, "is no directory", directory)
    first = os.path.join(directory, os.path.relpath(path, root).replace(os.sep, "-"))
    target, count = first, 1
    while os.path.lexists(target):
        count += 1
        target = f"{first}-{count}"
    return target


def _remove_empty(directory: str) -> None:
    """The directory and those in it, if there is no file in any of them."""
    found = list(os.walk(directory, topdown=False))
    for parent, names, files in found:
        if files or any(os.path.islink(os.path.join(parent, name)) for name in names):
            return
    for parent, _, _ in found:
        with contextlib.suppress(OSError):
            os.rmdir(parent)
