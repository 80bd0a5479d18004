"""Where the output of a step goes: to descriptors that may not take it at the moment."""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import os
import select
import signal
import stat
import time
from typing import Callable, Deque, Dict, Mapping, Optional, Sequence, Tuple, Union

PIPE_BUF = 4096  # a pipe that can be written to takes so many bytes without waiting
_LINE_BYTES = 64 << 10  # with a label
FULL_BYTES = 1 << 20  # what waits for a descriptor, before nodes are no longer listened to


class Writer:
    """A descriptor, and what is still to be written to it. It never waits, and changes nothing for others who have it.

    A pipe or a terminal is opened once more for that. Where this cannot be done, it is written to in pieces that go, if
    not always to a terminal. A file is written to by a thread, as its file system may hang; not ``in_thread``: at once,
    by who is to fork meanwhile.
    """

    def __init__(self, descriptor: int, name: str = "", *, in_thread: bool = True) -> None:
        self.descriptor = descriptor
        self.name = name or {1: "stdout", 2: "stderr"}.get(descriptor, "a file")
        self.unwritten = 0  # bytes
        self.broken = False  # nobody reads it any more
        self._lost = False  # what is still to be written is thrown away
        self._failure = ""
        self._waits: Deque[memoryview] = collections.deque()
        self._piece = PIPE_BUF
        self._file: Optional[_File] = None
        try:
            mode = os.fstat(descriptor).st_mode
            screen = stat.S_ISCHR(mode) and os.isatty(descriptor)
        except OSError:
            self._lost = True  # it was closed, as by >&-
            return
        if stat.S_ISREG(mode):
            self._piece = FULL_BYTES
            if in_thread:
                with contextlib.suppress(RuntimeError):  # no room for another thread
                    self._file = _File(descriptor)
        elif stat.S_ISFIFO(mode) or screen:
            anew = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            with contextlib.suppress(OSError):  # somebody else's
                self.descriptor = os.open(f"/proc/self/fd/{descriptor}", anew)
                self._piece = FULL_BYTES

    def write(self, data: bytes) -> None:
        """Now, or when it goes."""
        if data and not self._lost:
            self.unwritten += len(data)
            if self._file is None:
                self._waits.append(memoryview(data))
            else:
                self._file.write(data)
            self.flush()

    @property
    def is_full(self) -> bool:
        """No more is to be asked for."""
        return self.unwritten >= FULL_BYTES

    @property
    def awaited(self) -> Tuple[int, int]:
        """(descriptor, what to poll it for) until it is to be flushed."""
        return (self.descriptor, select.POLLOUT) if self._file is None else (self._file.news, select.POLLIN)

    def take_failure(self) -> str:
        """Why what is written here is lost from now on, once; empty: it is not, or nobody would have read it."""
        failure, self._failure = self._failure, ""
        return failure

    def flush(self) -> None:
        """What goes without waiting."""
        if self._lost:
            return
        try:
            if self._file is not None:
                self.unwritten -= self._file.take_written()
            else:
                self._flush()
        except BlockingIOError:
            return
        except OSError as error:
            self.broken = error.errno in (errno.EPIPE, errno.ECONNRESET)
            self._failure = "" if self.broken else error.strerror or str(error)
            self._lost, self.unwritten = True, 0
            self._waits.clear()

    def _flush(self) -> None:
        """Raises OSError."""
        while self._waits:
            piece = self._waits[0]
            if self._piece == PIPE_BUF and not _takes_some(self.descriptor):
                return
            written = os.write(self.descriptor, piece[: self._piece])
            self.unwritten -= written
            if written == len(piece):
                self._waits.popleft()
            else:
                self._waits[0] = piece[written:]


class _File:
    """One that the thread writes to."""

    def __init__(self, descriptor: int) -> None:
        """Raises RuntimeError."""
        self._given = _file_thread()
        self._descriptor = descriptor
        self._failed = False
        self._written: Deque[Union[int, OSError]] = collections.deque()  # by the thread
        self.news, self._teller = os.pipe()
        for end in (self.news, self._teller):
            os.set_blocking(end, False)

    def write(self, data: bytes) -> None:
        """Soon."""
        self._given(lambda: self._write(data))

    def _write(self, data: bytes) -> None:
        try:
            rest = memoryview(data)
            while rest and not self._failed:
                rest = rest[os.write(self._descriptor, rest) :]
            self._written.append(len(data))
        except OSError as error:
            self._failed = True
            self._written.append(error)
        with contextlib.suppress(BlockingIOError):
            os.write(self._teller, b"\0")

    def take_written(self) -> int:
        """Bytes that have been written since. Raises OSError: as they cannot be."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.news, 4096)
        count = 0
        while self._written:
            each = self._written.popleft()
            if isinstance(each, OSError):
                raise each
            count += each
        return count


@functools.lru_cache(maxsize=None)
def _file_thread() -> Callable[[Callable[[], None]], None]:
    """Has one thread make calls in their order, for all files: two streams may be one. Raises RuntimeError."""
    import queue  # whoever writes to no file starts more quickly
    import threading

    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def work() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the other one waits for them
        while True:
            calls.get()()

    threading.Thread(target=work, daemon=True).start()
    return calls.put


def settle(writers: Sequence[Writer], seconds: float) -> None:
    """Let them write what they have, for so long."""
    deadline = time.monotonic() + seconds
    while any(writer.unwritten for writer in writers) and time.monotonic() < deadline:
        for writer in writers:
            writer.flush()
        time.sleep(0.01)


def _takes_some(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


class Labels:
    """Lines with the label of their task in front, each line whole unless it is very long: ``3: text``."""

    def __init__(self, labels: Mapping[int, str]) -> None:
        self._labels = {task: text.encode("utf-8", "replace") for task, text in labels.items()}
        self._partial: Dict[Tuple[int, int], bytearray] = {}

    def whole_lines(self, task: int, stream: int, data: bytes) -> bytes:
        """The lines that are whole by now; and what is too long to wait for its end, made a line."""
        head, newline, rest = data.rpartition(b"\n")
        partial = self._partial.setdefault((task, stream), bytearray())
        if not newline:
            partial += rest
            return self.rest(task, stream) if len(partial) > _LINE_BYTES else b""
        lines = (bytes(partial) + head).split(b"\n")
        partial[:] = rest
        label = self._labels[task]
        return b"".join(label + line + b"\n" for line in lines)

    def rest(self, task: int, stream: int) -> bytes:
        """What is left at the end, made a line."""
        partial = self._partial.pop((task, stream), b"")
        return self._labels[task] + bytes(partial) + b"\n" if partial else b""


def numbered(tasks: Sequence[int]) -> Dict[int, str]:
    """The number of each task as its label, all of them as wide as the highest."""
    width = len(str(max(tasks, default=0)))
    return {task: f"{task:>{width}}: " for task in tasks}
