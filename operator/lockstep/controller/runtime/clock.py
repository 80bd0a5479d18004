"""Time as the controller sees it, behind a protocol so that tests can move it by hand."""

import asyncio
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
