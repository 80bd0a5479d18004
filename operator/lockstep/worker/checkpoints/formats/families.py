"""Files that only count together: one per coordinate of a grid of ranks."""

from __future__ import annotations

import os
import time
from itertools import product
from typing import Dict, List, Optional, Sequence, Tuple

from lockstep.worker.checkpoints.formats.findings import CheckpointEntry, InvalidError, OrderError, UnsureError

SETTLE_SECONDS = 10.0
# A file server's clock may be ahead by so much; a time still farther in the future says nothing.
CLOCKS_APART = 60.0
# Rank 0 writes a pointer when its own save is done, without waiting for the other ranks.
POINTER_SKEW = 60.0
# Ranks that save together start within the skew, and are done with their own files at this pace, B/s, or faster.
SLOWEST_WRITE = 20e6

Coordinates = Tuple[int, ...]


def check_grid(found: Dict[Coordinates, str], expected: Sequence[Optional[int]], what: str) -> None:
    """Raises InvalidError when a coordinate has no file. ``expected``: size by axis; None: as far as they are found."""
    if not found:
        raise InvalidError(f"there is no {what}")
    sizes = [
        max(coordinates[axis] for coordinates in found) + 1 if size is None else size
        for axis, size in enumerate(expected)
    ]
    for coordinates in product(*map(range, sizes)):
        if coordinates not in found:
            example = found[min(found)]
            raise InvalidError(
                f"the {what} of rank {'/'.join(map(str, coordinates))} is missing ({len(found)} of "
                f"{'x'.join(map(str, sizes))} are there, such as {example})"
            )


def newest_time(entry: CheckpointEntry, names: Sequence[str]) -> float:
    """When the youngest of these files was written. Raises InvalidError, OSError."""
    return max(stat_of(entry, name).st_mtime for name in names)


def stat_of(entry: CheckpointEntry, name: str) -> os.stat_result:
    """Raises InvalidError when it is missing, OSError."""
    try:
        return os.stat(os.path.join(entry.base, name))
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidError(f"{name} is missing") from None


def check_settled(newest: float) -> None:
    """Raises UnsureError while files without a commit marker may still be written."""
    age = time.time() - newest
    if -CLOCKS_APART < age < SETTLE_SECONDS:
        raise UnsureError(f"may still be written: its newest file is {max(0.0, age):.0f} s old, and it has no marker")


def check_pointer(entry: CheckpointEntry, pointer: str, value: str, newest: float) -> None:
    """Raises InvalidError when the pointer beside it names it and is older than its files: a torn overwrite.

    A pointer is no proof of anything else: it may be written before the other ranks' files, or be garbled.
    """
    path = os.path.join(os.path.dirname(entry.path), pointer)
    try:
        with open(path, "rb") as stream:
            written = os.fstat(stream.fileno()).st_mtime
            named = stream.read(4096).decode("utf-8", "replace").strip()
    except OSError:
        return
    if entry.trusts_times and named == value and newest > written + POINTER_SKEW:
        raise OrderError(f"was overwritten, and not to the end: its files are younger than {pointer}, which names it")


def check_one_save(entry: CheckpointEntry, names: Sequence[str], share: float) -> None:
    """Raises InvalidError when a pause parts the files' times that is too long for one save, and OSError.

    ``share``: bytes that one rank writes at most. The pause, not the span: a copy may take any time in all.
    """
    times = sorted((stat_of(entry, name).st_mtime, name) for name in names)
    for (before, old), (after, new) in zip(times, times[1:]):  # noqa: B905, RUF007 (Python 3.8)
        if entry.trusts_times and after - before > POINTER_SKEW + share / SLOWEST_WRITE:
            raise OrderError(f"was overwritten, and not to the end: {old} is {after - before:.0f} s older than {new}")


def sizes_apart(entry: CheckpointEntry, names: Sequence[str], what: str) -> List[str]:
    """Files much smaller than their peers, which all ought to be alike. Raises InvalidError, OSError."""
    sizes = {name: stat_of(entry, name).st_size for name in names}
    usual = max(sizes.values(), default=0)
    return [f"{name} has {size} bytes, other {what} {usual}" for name, size in sizes.items() if size < 0.9 * usual]
