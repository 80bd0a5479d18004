"""How threads and signals reach the main thread."""

from __future__ import annotations

import collections
import contextlib
import os
import select
import signal
import threading
from typing import Callable, Deque, Optional


class Inbox:
    """Calls that the main thread is to make, from any thread and from signal handlers."""

    def __init__(self) -> None:
        self._calls: Deque[Callable[[], None]] = collections.deque()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def catch(self, number: int, call: Callable[[], None]) -> None:
        """Make that call when the signal arrives. Main thread only."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(number, lambda caught, frame: self._calls.append(call))

    def post(self, call: Callable[[], None]) -> None:
        """Add a call and wake the main thread."""
        self._calls.append(call)
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            os.write(self._write, b"\0")

    def make_calls(self, timeout: float) -> None:
        """Make the calls that came in, after waiting at most ``timeout`` seconds for one."""
        select.select([self._read], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 65536)
        while self._calls:
            self._calls.popleft()()


class SlowWork:
    """Work on disks, networks and processes, each in a thread of its own. Used by the main thread only."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._delayed: Deque[threading.Thread] = collections.deque()

    def begin(self, work: Callable[[], Optional[Callable[[], None]]]) -> None:
        """Have it done, and the call that it returns made by the main thread."""

        def run() -> None:
            call = work()
            if call is not None:
                self._inbox.post(call)

        self._delayed.append(threading.Thread(target=run, daemon=True))
        self.begin_delayed()

    def begin_delayed(self) -> None:
        """Begin what could not begin yet: the program may have all threads that the container has room for."""
        while self._delayed:
            try:
                self._delayed[0].start()
            except RuntimeError:
                return
            self._delayed.popleft()
