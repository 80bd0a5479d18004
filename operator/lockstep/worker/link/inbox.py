"""How threads and signals reach the main thread."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import select
import signal
import threading
from typing import Callable, Deque, List, Optional


class Inbox:
    """Calls that the main thread is to make, from any thread and from signal handlers."""

    def __init__(self) -> None:
        self._calls: Deque[Callable[[], None]] = collections.deque()
        self.watched = -1  # a descriptor that wakes the main thread, too, when there is something to read
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
        select.select([self._read, self.watched] if self.watched >= 0 else [self._read], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 65536)
        while self._calls:
            self._calls.popleft()()


Work = Callable[[], Optional[Callable[[], None]]]
KEPT_THREADS = 2  # as many as a gang needs to come to its barrier


class SlowWork:
    """Work on disks, networks and processes, none of which waits for any other. Used by the main thread only."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._delayed: Deque[Work] = collections.deque()
        self._idle: List[queue.SimpleQueue[Work]] = []  # of threads: starting one costs more than most of the work

    def begin(self, work: Work) -> None:
        """Have it done, and the call that it returns made by the main thread."""
        self._delayed.append(work)
        self.begin_delayed()

    def begin_delayed(self) -> None:
        """Begin what could not begin yet: the program may have all threads that the container has room for."""
        while self._delayed:
            if self._idle:
                self._idle.pop().put(self._delayed.popleft())
                continue
            try:
                threading.Thread(target=self._work, args=(self._delayed[0],), daemon=True).start()
            except RuntimeError:
                return
            self._delayed.popleft()

    def _work(self, work: Work) -> None:
        """A thread's life. It ends with work that raises, or where enough others have nothing to do."""
        given: queue.SimpleQueue[Work] = queue.SimpleQueue()
        while True:
            call = work()
            stays = len(self._idle) < KEPT_THREADS
            if stays:
                self._idle.append(given)
            if call is not None:
                self._inbox.post(call)
            if not stays:
                return
            work = given.get()
