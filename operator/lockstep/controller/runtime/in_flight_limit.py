"""Adaptive limit of requests in flight, from latency and refusals, shared by all writers, in one lane for each kind of
write in each namespace: what holds up those of one lane, as a webhook of a namespace may, holds up no others."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from lockstep.controller.runtime.clock import Clock

SLOW_FOR = 60.0
"""Seconds for which a lane counts as slow after a request of it that was."""
LONGEST_WAIT = 120.0
"""Seconds for which a write waits, all its tries together. It holds a worker, and none may be held for minutes."""
IN_VAIN = 3
"""Requests of a lane that end without an answer, one after the other: those behind them are not even sent."""
_SLOW_ANSWER = 2.0
_BASE_DRIFT = 1.05  # per window: a server that became slower for good must not hold the window down for ever


class NoPlaceError(Exception):
    """It was not sent: others before it have met with no answer, or for too long."""


class _Limit:
    """Grows by ``step`` after each window's worth of answers whose 95th percentile stays below twice the usual median;
    halves at most once per burst of refusals (429, 5xx, timeout)."""

    def __init__(self, value: int, step: int, minimum: int, maximum: int, base: float = float("inf")) -> None:
        self.value = value
        self._step, self._minimum, self._maximum = step, minimum, maximum
        self._latencies: list[float] = []
        self._base = base
        self._old_burst = 0  # answers still to come to requests sent before the last halving

    def alike(self) -> "_Limit":
        """Another one that begins where this one is."""
        return _Limit(self.value, self._step, self._minimum, self._maximum, self._base)

    def answered(self, latency: float) -> None:
        self._old_burst = max(0, self._old_burst - 1)
        self._latencies.append(latency)
        if len(self._latencies) < self.value:
            return
        latencies = sorted(self._latencies)
        self._latencies.clear()
        self._base = min(self._base * _BASE_DRIFT, latencies[len(latencies) // 2])
        if latencies[int(len(latencies) * 0.95)] < 2 * self._base:
            self.value = min(self._maximum, self.value + self._step)

    def pushed_back(self, in_flight: int) -> None:
        if self._old_burst:
            self._old_burst -= 1
            return
        self.value = max(self._minimum, self.value // 2)
        self._old_burst = max(0, in_flight - 1)
        self._latencies.clear()


@dataclass
class _Lane:
    """How the requests of one lane have fared of late. All moments are monotonic seconds."""

    heard: float = float("-inf")
    slow_until: float = float("-inf")
    own: _Limit | None = None
    """Since it was pushed back: the limit that its own answers move."""
    not_before: float = float("-inf")
    in_vain: int = 0
    in_flight: int = 0
    waiting: deque[tuple[asyncio.Future[None], float]] = field(default_factory=deque)
    """Places that are waited for, and until when."""


class AdaptiveWindow:
    """A concurrency limit that grows while the server answers as fast as ever and gives way when it pushes back.

    A lane that is alone has all of it. What one has beyond half of it is not held against those who come beside
    it, and those who wait get places in turn. Who is pushed back has a smaller limit of its own; that of all is moved
    by it only when as many lanes are slow as are not, and two at least.
    """

    def __init__(self, clock: Clock, *, start: int = 32, step: int = 8, minimum: int = 4, maximum: int = 128) -> None:
        self._clock = clock
        self._shared = _Limit(start, step, minimum, maximum)
        self._lanes: dict[str, _Lane] = {}
        self._busy: dict[str, _Lane] = {}  # with something in flight
        self._turns: dict[str, _Lane] = {}  # who waits, the next one first
        self._next_look = float("-inf")

    @property
    def limit(self) -> int:
        """Of all lanes together."""
        return self._shared.value

    @property
    def in_flight(self) -> int:
        """Places that are taken."""
        return sum(each.in_flight for each in self._busy.values())

    def limit_of(self, lane: str) -> int:
        """How many one may have in flight."""
        return self._limit_of(self._lanes.get(lane, _Lane()))

    def is_slow(self, lane: str) -> bool:
        """Its requests have lately been pushed back, or took long."""
        known = self._lanes.get(lane)
        return known is not None and known.slow_until > self._clock.monotonic()

    @asynccontextmanager
    async def slot(self, lane: str, since: float | None = None) -> AsyncIterator[None]:
        """Hold one place in the window; first come, first served within a lane. ``since``: when the first try of the
        write began. Raises NoPlaceError."""
        each = self._known(lane)
        until = (self._clock.monotonic() if since is None else since) + LONGEST_WAIT
        if not each.waiting and self._has_room(each, self._counted()):
            self._take(lane, each)
        else:
            await self._place(lane, each, until)
        try:
            while (pause := each.not_before - (now := self._clock.monotonic())) > 0:
                if now + pause > until:
                    raise NoPlaceError
                await self._clock.sleep(pause)
            yield
        finally:
            self._free(lane, each)

    def answered(self, lane: str, latency: float) -> None:
        """A request came back after ``latency`` seconds without being pushed back."""
        each = self._known(lane)
        each.in_vain = 0
        if latency >= _SLOW_ANSWER:
            each.slow_until = each.heard + SLOW_FOR
        own = self._own(each)
        if own is None:
            self._shared.answered(latency)
        else:  # what is slow by itself says nothing of the others
            own.answered(latency)
            if own.value >= self.limit:
                each.own = None

    def pushed_back(self, lane: str, retry_after: float = 0.0) -> None:
        """The server refused or timed out; nothing of the lane is sent for ``retry_after`` seconds. Where it asks
        for no patience, again and again, those who wait are not sent."""
        each = self._known(lane)
        own = each.own = self._own(each) or self._shared.alike()
        own.pushed_back(each.in_flight)
        each.not_before = max(each.not_before, each.heard + retry_after)
        each.slow_until = each.heard + SLOW_FOR
        lately = {name: other for name, other in self._lanes.items() if other.heard + SLOW_FOR > each.heard}
        slow = len({_namespace(name) for name, other in lately.items() if self._own(other) is not None})
        if slow >= 2 and 2 * slow >= len({*map(_namespace, lately)}):
            self._shared.pushed_back(self.in_flight)
        if retry_after:
            return
        each.in_vain += 1
        if each.in_vain >= IN_VAIN:
            self._turn_away(lane, each, math.inf)

    def _known(self, lane: str) -> _Lane:
        now = self._clock.monotonic()
        known = self._lanes.get(lane)
        if known is None:
            for name, each in [*self._lanes.items()]:
                if each.heard + SLOW_FOR <= now and not each.in_flight and not each.waiting:
                    del self._lanes[name]
            known = self._lanes[lane] = _Lane()
        known.heard = now
        if known.slow_until <= now:
            known.own = None
        return known

    def _own(self, each: _Lane) -> _Limit | None:
        return each.own if each.slow_until > self._clock.monotonic() else None

    def _limit_of(self, each: _Lane) -> int:
        own = self._own(each)
        return self.limit if own is None else min(own.value, self.limit)

    # -- places ---------------------------------------------------------------------------------

    def _half(self) -> int:
        return max(1, self.limit // 2)

    def _counted(self) -> int:
        """What is in flight, as it is held against whoever has none of it."""
        half = self._half()
        return sum(min(each.in_flight, half) for each in self._busy.values())

    def _has_room(self, each: _Lane, counted: int) -> bool:
        own = each.in_flight
        return own < self._limit_of(each) and counted - min(own, self._half()) + own < self.limit

    async def _place(self, lane: str, each: _Lane, until: float) -> None:
        place = asyncio.get_running_loop().create_future()
        each.waiting.append((place, until))
        self._turns.setdefault(lane, each)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._free(lane, each)  # the place was given just before: hand it on
            raise

    def _take(self, lane: str, each: _Lane) -> None:
        each.in_flight += 1
        self._busy[lane] = each

    def _free(self, lane: str, each: _Lane) -> None:
        each.in_flight -= 1
        if not each.in_flight:
            del self._busy[lane]
        self._grant()

    def _grant(self) -> None:
        """Give the places that are free to those who wait, one each in turn."""
        self._turn_away_who_waited_too_long()
        counted, half, passed_over = self._counted() if self._turns else 0, self._half(), 0
        while passed_over < len(self._turns) and counted < self.limit:
            lane = next(iter(self._turns))
            each = self._turns.pop(lane)
            if self._has_room(each, counted):
                passed_over = 0
                place, _ = each.waiting.popleft()
                if not place.done():
                    counted += each.in_flight < half
                    self._take(lane, each)
                    place.set_result(None)
            else:
                passed_over += 1
            if each.waiting:
                self._turns[lane] = each  # its next turn comes after the others'

    def _turn_away_who_waited_too_long(self) -> None:
        # Requests in flight end within seconds, so this is looked at often enough.
        now = self._clock.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + 1.0
        for lane, each in [*self._turns.items()]:
            self._turn_away(lane, each, now)

    def _turn_away(self, lane: str, each: _Lane, now: float) -> None:
        """Those who have waited until now."""
        left = [(place, until) for place, until in each.waiting if until > now]
        late = [place for place, until in each.waiting if until <= now]
        each.waiting = deque(left)
        for place in late:
            if not place.done():
                place.set_exception(NoPlaceError)
        if not each.waiting:
            self._turns.pop(lane, None)


def _namespace(lane: str) -> str:
    """What a webhook holds up, it holds up for all lanes of its namespace."""
    return lane.partition("/")[0]
