"""Time that tests move by hand."""

import asyncio
import heapq
import itertools


class ManualClock:
    """A ``lockstep.controller.runtime.clock.Clock`` that stands still until ``advance``."""

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
