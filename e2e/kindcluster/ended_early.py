"""What changes this machine runs alone on it, and whoever ends it early finds everything put back."""

from __future__ import annotations

import fcntl
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kindcluster.commands import Report
from kindcluster.errors import KindClusterError

_ENDS_US = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@contextmanager
def ends_like_an_error() -> Iterator[Callable[[], None]]:
    """Whoever stops us wants everything put back first, however often they say so.

    What it gives is called before that begins: from then on they are not heard, nor by the programs that we run.
    """

    def ignore() -> None:
        for number in _ENDS_US:
            signal.signal(number, signal.SIG_IGN)

    def end(number: int, _: object) -> None:
        ignore()
        raise KindClusterError(f"ended by {signal.Signals(number).name}")

    before = {number: signal.signal(number, end) for number in _ENDS_US}
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def alone(name: str, what: str, report: Report) -> Iterator[None]:
    """One at a time on this machine: networks and daemons are its own."""
    with (Path(tempfile.gettempdir()) / f"lockstep-{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another checkout's {what} to end ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
