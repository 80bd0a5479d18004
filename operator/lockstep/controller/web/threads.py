"""Answers are made beside the event loop, one at a time, and not all of the time: the operator has other work to do."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from lockstep.controller.runtime.clock import Clock

REST = 3.0
"""Times what an answer took, between it and the next: all who look together have a quarter of one core at most."""
LONGEST_REST = 10.0
"""Seconds."""
MOST_WAITING = 64
"""Answers that are waited for, the one under way included; who hangs up meanwhile leaves theirs in line."""
BUSY_SECONDS = 5.0

_Made = TypeVar("_Made")


class BusyError(Exception):
    """More answers are waited for than are soon made: come again in ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__("this page is busy with the questions of others; it asks again by itself")
        self.seconds = seconds


class WorkerThreads:
    """Where answers are made. ``spent``: CPU seconds that the calling thread has used."""

    def __init__(self, clock: Clock, spent: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._spent = spent
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0
        self._free_at = 0.0

    async def make(self, work: Callable[[], _Made]) -> _Made:
        """What ``work`` returns, from a thread. Its turn comes when the one before is over and rested from. Raises
        BusyError where too many wait for theirs."""
        if self._waiting >= MOST_WAITING:
            raise BusyError(BUSY_SECONDS)
        self._waiting += 1
        try:
            return await self._in_turn(work)
        finally:
            self._waiting -= 1

    async def _in_turn(self, work: Callable[[], _Made]) -> _Made:
        async with self._turn:
            left = self._free_at - self._clock.monotonic()
            if left > 0:
                await self._clock.sleep(left)
            took = 0.0

            def timed() -> _Made:
                nonlocal took
                before = self._spent()
                try:
                    return work()
                finally:
                    took = self._spent() - before

            try:
                return await asyncio.to_thread(timed)
            finally:
                self._free_at = self._clock.monotonic() + min(LONGEST_REST, REST * took)
