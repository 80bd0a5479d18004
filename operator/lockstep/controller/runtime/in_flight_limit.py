"""Adaptive limit of requests in flight, from latency and refusals, shared by all writers."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lockstep.controller.runtime.clock import Clock

_BASE_DRIFT = 1.05  # per window: a server that became slower for good must not hold the window down for ever


class AdaptiveWindow:
    """A concurrency limit that grows while the server answers as fast as ever and halves when it pushes back.

    Grows by ``step`` after each window's worth of answers whose 95th percentile stays below twice the
    usual median; halves at most once per burst of refusals (429, 5xx, timeout).
    """

    def __init__(self, clock: Clock, *, start: int = 32, step: int = 8, minimum: int = 4, maximum: int = 128) -> None:
        self._clock = clock
        self._step = step
        self._minimum = minimum
        self._maximum = maximum
        self.limit = start
        self.in_flight = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._latencies: list[float] = []
        self._base = float("inf")
        self._old_burst = 0  # answers still to come to requests sent before the last halving
        self._not_before = float("-inf")

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one place in the window; first come, first served."""
        if self.in_flight < self.limit and not self._waiters:
            self.in_flight += 1
        else:
            await self._place()
        try:
            while (pause := self._not_before - self._clock.monotonic()) > 0:
                await self._clock.sleep(pause)
            yield
        finally:
            self._free()

    def answered(self, latency: float) -> None:
        """A request came back after ``latency`` seconds without being pushed back."""
        self._old_burst = max(0, self._old_burst - 1)
        self._latencies.append(latency)
        if len(self._latencies) < self.limit:
            return
        latencies = sorted(self._latencies)
        self._latencies.clear()
        self._base = min(self._base * _BASE_DRIFT, latencies[len(latencies) // 2])
        if latencies[int(len(latencies) * 0.95)] < 2 * self._base:
            self.limit = min(self._maximum, self.limit + self._step)
            self._grant()

    def pushed_back(self, retry_after: float = 0.0) -> None:
        """The server refused or timed out; nothing is sent for ``retry_after`` seconds."""
        self._not_before = max(self._not_before, self._clock.monotonic() + retry_after)
        if self._old_burst:
            self._old_burst -= 1
            return
        self.limit = max(self._minimum, self.limit // 2)
        self._old_burst = max(0, self.in_flight - 1)
        self._latencies.clear()

    async def _place(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiters.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._free()  # the place was given just before: hand it on
            raise

    def _free(self) -> None:
        self.in_flight -= 1
        self._grant()

    def _grant(self) -> None:
        while self._waiters and self.in_flight < self.limit:
            place = self._waiters.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)
