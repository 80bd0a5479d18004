"""The worker's own lines and the child's bytes on this process's streams."""

from __future__ import annotations

import os
import select
import time
from typing import Iterator, Optional

SAY_SECONDS = 1.0  # for whoever reads our stderr; a container runtime that restarts reads nothing meanwhile
PIPE_BYTES = 4096  # a pipe that can be written to takes so many without waiting
LINE_SECONDS = 0.05  # that the end of a line is waited for
_READ_BYTES = 65536


class _Own:
    """Whether the worker's own lines find a reader. Races do no harm: a line more or less waits."""

    patience = SAY_SECONDS


def log_line(message: str) -> None:
    """One line on the worker's own stderr, beside the child's output; lost when nobody reads there."""
    line = message.replace("\n", " ")
    write_own(f"lockstep: {line}\n".encode("utf-8", "replace"))


def write_own(data: bytes) -> None:
    """To stderr, without being held up for longer than a moment: reports and signals come first."""
    _Own.patience = SAY_SECONDS if write_all(2, data, _Own.patience) else 0.0


def write_all(descriptor: int, data: bytes, patience: Optional[float] = None) -> bool:
    """False when nobody can read there any more: output must then be dropped, not block the training.

    ``patience``: seconds to wait for a reader each time; None: for ever, as the child's output does.
    """
    view = memoryview(data)
    while view:
        try:
            if patience is None:
                view = view[os.write(descriptor, view) :]
            elif select.select([], [descriptor], [], patience)[1]:
                view = view[os.write(descriptor, view[:PIPE_BYTES]) :]
            else:
                return False
        except BlockingIOError:
            select.select([], [descriptor], [], 1.0)
        except (OSError, ValueError):
            return False
    return True


def whole_lines(descriptor: int) -> Iterator[bytes]:
    """What is read there until its end, cut where lines end, unless the rest of one takes longer than a moment.

    Python without buffers writes the words of a print one by one, and other streams of the same log would come between.
    """
    held, begun, more = b"", 0.0, select.poll()
    more.register(descriptor, select.POLLIN)
    while True:
        left = begun + LINE_SECONDS - time.monotonic()
        if held and (left <= 0 or not more.poll(left * 1000)):
            yield held
            held = b""
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            break
        begun = begun if held else time.monotonic()
        held += data
        end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1
        if len(held) - end >= _READ_BYTES:
            end = len(held)
        if end:
            yield held[:end]
            held, begun = held[end:], time.monotonic()
    if held:
        yield held
