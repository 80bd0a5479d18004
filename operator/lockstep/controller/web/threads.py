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

_Made = TypeVar("_Made")


class WorkerThreads:
    """Where answers are made. ``spent``: CPU seconds that the calling thread has used."""

    def __init__(self, clock: Clock, spent: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._spent = spent
        self._turn = asyncio.Semaphore(1)
        self._free_at = 0.0

    async def make(self, work: Callable[[], _Made]) -> _Made:
        """What ``work`` returns, from a thread. Its turn comes when the one before is over and rested from."""
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
