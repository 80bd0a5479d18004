"""Where the output of a step goes: to descriptors that may not take it at the moment."""

from __future__ import annotations

import collections
import contextlib
import os
import select
import stat
from typing import Deque, Dict, List, Mapping, Sequence, Tuple

PIPE_BUF = 4096  # a pipe that can be written to takes so many bytes without waiting
FULL_BYTES = 1 << 20  # what waits for a descriptor, before nodes are no longer listened to


class Writer:
    """A descriptor, and what is still to be written to it. It never waits, and changes nothing for others who have it.

    A pipe is opened once more for that. Where this cannot be done, it is written to in pieces that always go.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.unwritten = 0  # bytes
        self.broken = False  # nobody reads it any more
        self._waits: Deque[memoryview] = collections.deque()
        self._piece = PIPE_BUF
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:
            self.broken = True
            return
        if stat.S_ISREG(mode):
            self._piece = FULL_BYTES
        elif stat.S_ISFIFO(mode):
            with contextlib.suppress(OSError):  # somebody else's
                self.descriptor = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._piece = FULL_BYTES

    def write(self, data: bytes) -> None:
        """Now, or when it goes."""
        if data and not self.broken:
            self._waits.append(memoryview(data))
            self.unwritten += len(data)
            self.flush()

    @property
    def is_full(self) -> bool:
        """No more is to be asked for."""
        return self.unwritten >= FULL_BYTES

    def flush(self) -> None:
        """What goes without waiting."""
        while self._waits:
            piece = self._waits[0]
            try:
                if self._piece == PIPE_BUF and not _takes_some(self.descriptor):
                    return
                written = os.write(self.descriptor, piece[: self._piece])
            except BlockingIOError:
                return
            except OSError:
                self.broken, self.unwritten = True, 0
                self._waits.clear()
                return
            self.unwritten -= written
            if written == len(piece):
                self._waits.popleft()
            else:
                self._waits[0] = piece[written:]


def _takes_some(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


class Labels:
    """Lines with the label of their task in front, each line whole: ``3: text``."""

    def __init__(self, labels: Mapping[int, str]) -> None:
        self._labels = {task: text.encode("utf-8", "replace") for task, text in labels.items()}
        self._partial: Dict[Tuple[int, int], List[bytes]] = {}

    def whole_lines(self, task: int, stream: int, data: bytes) -> bytes:
        """The lines that are whole by now."""
        head, newline, rest = data.rpartition(b"\n")
        partial = self._partial.setdefault((task, stream), [])
        if not newline:
            partial.append(rest)
            return b""
        lines = (b"".join(partial) + head).split(b"\n")
        partial[:] = [rest] if rest else []
        label = self._labels[task]
        return b"".join(label + line + b"\n" for line in lines)

    def rest(self, task: int, stream: int) -> bytes:
        """What is left at the end, made a line."""
        partial = b"".join(self._partial.pop((task, stream), []))
        return self._labels[task] + partial + b"\n" if partial else b""


def numbered(tasks: Sequence[int]) -> Dict[int, str]:
    """The number of each task as its label, all of them as wide as the highest."""
    width = len(str(max(tasks, default=0)))
    return {task: f"{task:>{width}}: " for task in tasks}
