"""Time as the controller sees it, behind a protocol so that tests and simulations can move it by hand."""

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """Where the controller gets its time from. All values in seconds."""

    def now(self) -> float:
        """Unix time. Advances with ``monotonic``, or nearly so: it never jumps."""
        ...

    def monotonic(self) -> float:
        """Time since some fixed moment, for leases and durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...

    async def wait(self, event: asyncio.Event, seconds: float | None = None) -> bool:
        """Return True when ``event`` is set, or False after ``seconds`` (None: wait on)."""
        ...


SLEW = 0.1
"""Of the time that goes by: so fast ``now`` follows the wall clock where that was set."""


class SystemClock:
    """The machine's clock.

    ``now`` is the wall clock at start plus the monotonic time since: were it stepped, every worker would look silent at
    once. It follows the wall clock slowly, as one that was wrong when the process began would be so for ever: tokens
    would have expired, and windows begun, at hours of its own.
    """

    def __init__(self) -> None:
        self._followed = self.monotonic()
        self._offset = time.time() - self._followed

    def now(self) -> float:
        """Unix seconds."""
        monotonic = self.monotonic()
        most = SLEW * (monotonic - self._followed)
        behind = time.time() - monotonic - self._offset
        self._offset += max(-most, min(most, behind))
        self._followed = monotonic
        return self._offset + monotonic

    def monotonic(self) -> float:
        """Seconds since boot, time spent suspended included: a lease runs out during sleep too."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await asyncio.sleep(max(0.0, seconds))

    async def wait(self, event: asyncio.Event, seconds: float | None = None) -> bool:
        """Return True when ``event`` is set, or False after ``seconds`` (None: wait on)."""
        if event.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True


class ManualClock:
    """A clock that stands still until ``advance``: for tests and simulations."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    def now(self) -> float:
        """Unix seconds."""
        return self._now

    def monotonic(self) -> float:
        """The same time without its epoch."""
        return self._now - 1_000_000.0

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was advanced by ``seconds``."""
        await self.wait(asyncio.Event(), seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None = None) -> bool:
        """Return True when ``event`` is set, or False once the clock was advanced by ``seconds``."""
        if event.is_set() or (seconds is not None and seconds <= 0):
            await asyncio.sleep(0)
            return event.is_set()
        alarm = asyncio.Event()
        if seconds is not None:
            heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), alarm))
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(alarm.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return event.is_set()

    async def advance(self, seconds: float) -> None:
        """Move time on, waking every sleeper at its own moment and letting it run."""
        target = self._now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            self._now = max(self._now, self._sleepers[0][0])
            heapq.heappop(self._sleepers)[2].set()
            await self._settle()
        self._now = target
        await self._settle()

    @staticmethod
    async def _settle() -> None:
        # Enough turns of the loop for chains of futures without I/O to come to rest.
        for _ in range(20):
            await asyncio.sleep(0)
