"""How far the child is, by the file it writes."""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any, List, NamedTuple, Optional, Union

from lockstep.worker.child.timing import INIT, SAVE, STEP
from lockstep.worker.errors import open_plain
from lockstep.worker.settings import JSON

MAX_PROGRESS_LINE = 8192
MAX_UNREAD = 1 << 20  # bytes: of more than this only the newest are looked at
MAX_KEPT = 64 << 20  # bytes: a file that has grown so large is emptied once it is read


class Section(NamedTuple):
    """The program says what it does from now on."""

    name: str
    at: float  # unix seconds


class ProgressTail:
    """Reads a growing file of JSON lines {"step": …, "loss": …, "total_steps": …, "time": …} or {"section": …}."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._partial = b""
        self._emptied_at = 0  # bytes that it had when we emptied it; 0: somebody has written since
        self._hole = 0  # bytes at its beginning that take no room

    def read(self, now: float) -> List[Union[JSON, Section]]:
        """What the whole lines since the last call say, oldest first. ``now``: for lines without a time."""
        try:
            with open_plain(self._path) as stream:
                size = os.fstat(stream.fileno()).st_size
                if size < self._offset:  # written anew
                    self._offset, self._partial, self._hole = 0, b"", 0
                elif size and self._emptied_at:
                    if size >= self._emptied_at:  # whoever writes at a place of its own went on there
                        self._offset = self._hole = self._emptied_at
                    self._emptied_at = 0
                if size - self._offset > MAX_UNREAD:
                    self._offset, self._partial = size - MAX_UNREAD, b""
                stream.seek(self._offset)
                data = stream.read(size - self._offset)
        except OSError:
            return []
        self._offset += len(data)
        if self._offset - self._hole > MAX_KEPT:
            self._empty()
        # No line has a NUL: it is a hole, where somebody else has emptied the file.
        lines = (self._partial + data.replace(b"\0", b"")).split(b"\n")
        self._partial = lines.pop()[-MAX_PROGRESS_LINE - 1 :]
        told = (parse_line(line, now) for line in lines if len(line) <= MAX_PROGRESS_LINE)
        return [entry for entry in told if entry is not None]

    def _empty(self) -> None:
        """Free what was read, unless more has come since. Whoever appends goes on at the beginning; whoever writes at a
        place of its own leaves a hole before it, which takes no room."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_size == self._offset:
                    os.ftruncate(descriptor, 0)
                    self._emptied_at, self._offset, self._hole = self._offset, 0, 0
            finally:
                os.close(descriptor)


def parse_line(line: bytes, now: float) -> Optional[Union[JSON, Section]]:
    """One line: progress as the protocol carries it, or a section; None for anything else."""
    try:
        # Numbers stay the text that the trainer wrote: a loss is shown, never computed with.
        entry = json.loads(line.decode("utf-8"), parse_float=str, parse_constant=str)
        at = float(entry.get("time") or now)
        at = at if 0 <= at < 1 << 40 else now
        if "section" in entry:
            return Section(entry["section"], at) if entry["section"] in (INIT, STEP, SAVE) else None
        return progress_of(entry["step"], entry.get("loss"), entry.get("total_steps"), at)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def progress_of(step: Any, loss: Any, total: Any, at: float) -> Optional[JSON]:
    """As the protocol carries it; None when out of its bounds. Raises ValueError, TypeError, OverflowError."""
    step, total = int(float(step)), None if total is None else int(float(total))
    if not (0 <= step <= 1 << 53 and (total is None or 0 <= total <= 1 << 53)):
        return None
    return {"step": step, "at": at, "loss": "" if loss is None else str(loss)[:32], "totalSteps": total}


def is_no_number(loss: str) -> bool:
    """A loss that says that the training has diverged."""
    try:
        return not math.isfinite(float(loss))
    except ValueError:
        return False  # none was reported, or in words
