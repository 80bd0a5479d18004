"""What looks like a save and is none of a format that is known here: no evidence that nothing was saved."""

from __future__ import annotations

import contextlib
import os
import re
from time import monotonic
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from lockstep.worker.checkpoints.formats import nvrx, plain, ray_train
from lockstep.worker.checkpoints.formats.catalogue import (
    AUTO,
    PASSED_OVER,
    is_foreign,
    is_of_another_format,
    step_of,
)
from lockstep.worker.checkpoints.formats.megatron import MEGATRON
from lockstep.worker.checkpoints.formats.noise import LARGE, is_a_save_by_name, is_looked_into, is_noise, is_tensors
from lockstep.worker.checkpoints.tiers import ATTEMPT_NAME, shards
from lockstep.worker.settings import JSON, LOCAL, SHARED, Settings, attempt_directory

MOST = 8  # told of, newest first
LOOKED_AT = 10_000  # names, in one tier
LOOK_SECONDS = 10.0  # for one tier, while the program runs
DEEPEST = 8  # directories in one another: lightning_logs/version_0/checkpoints/30/default/params/layer/c/0
MAX_PATH = 512
NO_FORMAT = "no format that Lockstep knows"
LOOKS = 6  # after which what is written again and again is told all the same

_INPUT = re.compile(r"data|model|token|teacher|base|pretrain|init|load|resume|cache|vocab|input|from", re.IGNORECASE)
_OUTPUT = re.compile(r"out|save|dest|(?:^|[-_])model[-_]?dir$", re.IGNORECASE)
# Variables that say where programs and their libraries are.
_SURROUNDINGS = re.compile(
    r"^(?:HOME|PWD|OLDPWD|T?E?MP(?:DIR)?)$|_HOME$|(?:^|PYTHON|MAN|CLASS|LIBRARY_|INCLUDE_)PATH$|^(?:XDG|WANDB|PIP|CONDA)_"
)
_UID = re.compile(r"^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$")
_IN_COMMAND = re.compile(r"[\s='\",:;]+")


class _Found(NamedTuple):
    written: float
    path: str


class _File(NamedTuple):
    name: str
    written: float
    size: int


class _Walk:
    """A look through one tier that ends after so many names, and ``seconds``, whatever lies there."""

    def __init__(self, settings: Settings, since: float = 0.0, seconds: float = float("inf")) -> None:
        self._settings, self.left, self._since, self._until = settings, LOOKED_AT, since, monotonic() + seconds
        self.is_whole = True  # all that there is was seen

    @contextlib.contextmanager
    def _pass_over_what_fails(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            pass  # nothing is there
        except OSError:
            self.is_whole = False

    def entries(self, directory: str) -> Iterator[os.DirEntry[str]]:
        """Files and directories, no links. Whatever cannot be listed is left out, and the look is not whole."""
        with self._pass_over_what_fails(), os.scandir(directory) as found:
            for entry in found:
                self.left -= 1
                if self.left < 0 or monotonic() > self._until:
                    self.is_whole = False
                    return
                if entry.is_symlink() or PASSED_OVER.search(entry.name) or self._is_resumed_from(entry):
                    continue
                yield entry

    def _is_resumed_from(self, entry: os.DirEntry[str]) -> bool:
        """A program may save where it was to start from: the inventory has that, unless one step alone was named."""
        root, step = self._settings.start_root, self._settings.start_step
        if not root or step is not None or os.path.dirname(entry.path) != root:
            return False
        return _is_known(entry, self._settings.checkpoint_format, SHARED)

    def newest(self, entry: os.DirEntry[str], own: bool = False) -> float:
        """When the newest file that may be of a save was written there; 0: there is none.

        ``own``: it is where the program was told to save, and whatever is large counts; elsewhere what is called as
        tensors are.
        """
        found = list(self._files(entry, own, 1))
        if any(is_a_save_by_name(each.name) for each in found) or sum(each.size for each in found) >= LARGE:
            return max(each.written for each in found)
        return 0.0

    def _files(self, entry: os.DirEntry[str], own: bool, depth: int) -> Iterator[_File]:
        with self._pass_over_what_fails():
            if entry.is_dir(follow_symlinks=False):
                if depth <= DEEPEST and is_looked_into(entry.name):
                    for each in self.entries(entry.path):
                        yield from self._files(each, own, depth + 1)
            elif (own or is_tensors(entry.name)) and not is_noise(entry.name):
                found = entry.stat(follow_symlinks=False)
                if found.st_size and found.st_mtime >= self._since:
                    yield _File(entry.name, found.st_mtime, found.st_size)


class Settling:
    """Passes over what is still being written, from one look to the next: it may come to be of a format."""

    def __init__(self) -> None:
        self._before: Dict[str, Tuple[float, int]] = {}
        self._now: Dict[str, Tuple[float, int]] = {}

    def begin_look(self) -> None:
        """What was found until now was found before."""
        self._before, self._now = self._now, {}

    def settled(self, found: Iterable[_Found]) -> Iterator[_Found]:
        """What has not been written to since the last look, or is found for the sixth time."""
        for each in found:
            written, looks = self._before.get(each.path, (0.0, 0))
            self._now[each.path] = (each.written, looks + 1)
            if written == each.written or looks + 1 >= LOOKS:
                yield each


def _all(found: Iterable[_Found]) -> Iterable[_Found]:
    return found


def left_behind(settings: Settings, rank: int) -> Optional[List[JSON]]:
    """Of earlier attempts, and, as of attempt 0, what lies where others may have put it as well; what a report carries.

    None, which is no word of what is there: not all could be looked at, and nothing was found that speaks for itself.
    """
    rows: List[JSON] = []
    walks: List[_Walk] = []
    for name in _looked_into(settings, rank):
        walk, root = _Walk(settings), settings.tiers[name].root
        walks.append(walk)
        if name == SHARED and settings.fenced:
            rows += _rows(name, 0, _in_attempt(walk, settings, name, root), settings.checkpoint_format)
            continue
        found = [(ATTEMPT_NAME.match(entry.name), entry.path) for entry in walk.entries(_of_run(settings, name))]
        attempts = [(int(matched.group(1)), path) for matched, path in found if matched]
        for attempt, path in sorted(attempts, reverse=True):
            if attempt:  # the archive restores into a0
                found_there = _in_attempt(walk, settings, name, path)
                rows += _rows(name, attempt, found_there, settings.checkpoint_format)
        rows += _rows(name, 0, _beside(settings, name, walk), settings.checkpoint_format)
    told = bounded(rows)
    speaks = any(row["attempt"] for row in told) or all(walk.is_whole for walk in walks)
    return told if speaks else None


def being_saved(
    settings: Settings,
    rank: int,
    attempt: int,
    since: float,
    settled: Callable[[Iterable[_Found]], Iterable[_Found]] = _all,
) -> List[JSON]:
    """By the attempt that runs, which began at ``since`` by this machine's clock (Unix seconds)."""
    rows: List[JSON] = []
    for name in _looked_into(settings, rank):
        one_for_all = name == SHARED and settings.fenced
        after = since - settings.tiers[name].skew
        walk = _Walk(settings, after if one_for_all else 0.0, LOOK_SECONDS)
        found = _in_attempt(walk, settings, name, attempt_directory(settings, name, attempt))
        rows += _rows(name, attempt, settled(found), settings.checkpoint_format)
        if not one_for_all:
            beside = _beside(settings, name, _Walk(settings, after, LOOK_SECONDS))
            rows += _rows(name, 0, settled(beside), settings.checkpoint_format)
    return rows


def never_committed(tier: str, attempt: int, path: str, reason: str) -> JSON:
    """A save that a format calls begun, and that the program left so to go on."""
    return _row(tier, attempt, path, reason)


def _of_run(settings: Settings, tier: str) -> str:
    return os.path.join(settings.tiers[tier].root, settings.run_uid)


def _looked_into(settings: Settings, rank: int) -> List[str]:
    """All see the same shared tier: one looks, and each spare, as it may become that one."""
    return [name for name in settings.tiers if name == LOCAL or rank <= 0]


def _in_attempt(walk: _Walk, settings: Settings, tier: str, directory: str) -> Iterator[_Found]:
    """What lies in the directory of an attempt and would be in no inventory."""
    form = settings.checkpoint_format
    local = _of_local_manager(directory) if tier == LOCAL and form in (AUTO, MEGATRON) else set()
    for entry in _saved(walk, directory, form):
        if entry.name in local or ATTEMPT_NAME.match(entry.name) or _UID.match(entry.name):
            continue
        written = walk.newest(entry, own=True)
        if written and not _is_known(entry, form, tier):
            yield _Found(written, entry.path)


def _saved(walk: _Walk, directory: str, form: str) -> Iterator[os.DirEntry[str]]:
    """What lies there; of an experiment of Ray Train what lies in that."""
    for entry in walk.entries(directory):
        inside = form in (AUTO, ray_train.RAY_TRAIN) and not ATTEMPT_NAME.match(entry.name)
        if inside and entry.is_dir(follow_symlinks=False) and ray_train.is_experiment(entry.path):
            yield from walk.entries(entry.path)
        else:
            yield entry


def _is_known(entry: os.DirEntry[str], form: str, tier: str) -> bool:
    with contextlib.suppress(OSError):
        is_file = entry.is_file(follow_symlinks=False)
        if is_file and entry.name == form.partition(":")[2]:  # its step is inside, once it is whole
            return not plain.lacks_its_step(entry.path, entry.name, form)
        if step_of(entry.path, entry.name, form, is_file) is None:
            return form in (AUTO, ray_train.RAY_TRAIN) and ray_train.is_passing(entry.path)
        if form == AUTO:
            return not all(is_foreign(shard, form) for shard in shards(entry.path, tier))
        return not all(is_of_another_format(shard, form) for shard in shards(entry.path, tier))
    return True  # an inventory has it as unknown


def _of_local_manager(directory: str) -> Set[str]:
    """Names in the directory that hold files of a local checkpoint manager."""
    with contextlib.suppress(OSError):
        found = {os.path.relpath(os.path.dirname(path), directory) for _, path in nvrx.local_steps(directory)}
        return {name.split(os.sep)[0] for name in found if name != "."} | (
            {name for name in os.listdir(directory) if name.isdigit()} if "." in found else set()
        )
    return set()


def _beside(settings: Settings, tier: str, walk: _Walk) -> Iterator[_Found]:
    """Where the program was not told to save: beside the attempts' directories, and where its command, environment or
    batch script says."""
    root = settings.tiers[tier].root
    run_root = _of_run(settings, tier)
    namespace, run = os.path.split(root)
    usual = (os.path.basename(namespace), run) == (settings.namespace, settings.run)
    seen = {run_root}
    for directory in (run_root, *((root,) if usual else ())):  # another one may be shared with other runs
        for entry in walk.entries(directory):
            of_an_attempt = directory == run_root and ATTEMPT_NAME.match(entry.name)
            if of_an_attempt or _UID.match(entry.name) or entry.path in seen:
                continue
            seen.add(entry.path)
            written = walk.newest(entry)
            if written:
                yield _Found(written, entry.path)
    mount = os.path.dirname(namespace) if usual else _mount_of(root)
    for path in _named_in((*settings.command, *settings.places), mount):
        inside = path.startswith((run_root + "/", root + "/") if usual else run_root + "/")
        above = (root + "/").startswith(path + "/") or (run_root + "/").startswith(path + "/")
        others = any(_UID.match(part) and part != settings.run_uid for part in path.split("/"))
        if path not in seen and not inside and not above and not others:
            seen.add(path)
            for entry in walk.entries(path):
                written = walk.newest(entry)
                if written:
                    yield _Found(written, entry.path)


def _mount_of(root: str) -> str:
    """Where the volume of a directory is mounted; the directory itself where it is on the root file system."""
    mount = root
    while mount != os.path.dirname(mount):
        if os.path.ismount(mount):
            return mount
        mount = os.path.dirname(mount)
    return root


def _named_in(texts: Iterable[str], mount: str) -> Iterator[str]:
    """Where it may save: what it reads is named by options that say so."""
    before = ""
    for text in texts:
        for word in map(os.path.expandvars, _IN_COMMAND.split(text[: 1 << 16])):
            if word.startswith(mount.rstrip("/") + "/") and _may_be_output(before):
                yield os.path.normpath(word)
            before = word


def _may_be_output(option: str) -> bool:
    """As an option of a command, or a variable, calls it."""
    return bool(_OUTPUT.search(option)) or not (_INPUT.search(option) or _SURROUNDINGS.search(option))


def _rows(tier: str, attempt: int, found: Iterable[_Found], form: str) -> List[JSON]:
    return [_row(tier, attempt, each.path, _why(each.path, form)) for each in sorted(found, reverse=True)[:MOST]]


def _why(path: str, form: str) -> str:
    with contextlib.suppress(OSError):
        if plain.lacks_its_step(path, os.path.basename(path), form):
            return plain.WITHOUT_STEP
        return ray_train.why_without_step(path) or NO_FORMAT
    return NO_FORMAT


def _row(tier: str, attempt: int, path: str, reason: str) -> JSON:
    return {"tier": tier, "attempt": attempt, "path": path[:MAX_PATH], "reason": reason[:256]}


def as_written(rows: Optional[Sequence[JSON]], seen: Sequence[JSON], attempt: int) -> Optional[List[JSON]]:
    """``rows`` of the barrier, where what lies as others may have put it there is of the attempt that was ``seen`` to
    write it: it may have done so last of all, and nobody have heard of it before. None, where that could not be looked
    at: what was seen before is all that is known."""
    if rows is None:
        return [dict(row, attempt=row["attempt"] or attempt) for row in seen] or None
    written = {(row["tier"], row["path"]) for row in seen}
    return [
        dict(row, attempt=row["attempt"] or attempt) if (row["tier"], row["path"]) in written else row for row in rows
    ]


def bounded(rows: List[JSON]) -> List[JSON]:
    """As many as a report carries; those of attempts first."""
    return sorted(rows, key=lambda row: not row["attempt"])[:MOST]
