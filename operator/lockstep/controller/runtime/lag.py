"""How slow this process and its API server are of late: what deadlines move with, and what sheds what can wait."""

import statistics
from collections import deque

from lockstep.controller.runtime.clock import Clock
from lockstep.core.model.snapshot import Lag

LOOK_EVERY = 0.25
NOTICED = 0.5
"""Seconds from which on lag is told of: less is usual."""
_OFTEN = 3
"""Times in a minute that the loop stands still where it is slow; once is an accident, and is held against nobody."""
_RECENT = 60.0
_REMEMBERED = 600.0
_MOST = 512


class LagMeter:
    """Measures by how much the event loop is late, and how long writes take. All that it keeps is bounded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stalls: deque[tuple[float, float]] = deque(maxlen=_MOST)  # until when (Unix seconds), for how long
        self._writes: deque[tuple[float, float]] = deque(maxlen=_MOST)  # when it was answered, after how long
        self._told: tuple[float, Lag] = (float("-inf"), Lag())

    async def watch(self) -> None:
        """Look at the loop until cancelled."""
        while True:
            begun = self._clock.monotonic()
            await self._clock.sleep(LOOK_EVERY)
            late = self._clock.monotonic() - begun - LOOK_EVERY
            if late >= NOTICED:
                self._stalls.append((self._clock.now(), late))
                self._told = (float("-inf"), Lag())

    def wrote(self, seconds: float) -> None:
        """A write was answered, or given up, after so long."""
        self._writes.append((self._clock.now(), seconds))

    def lag(self) -> Lag:
        """How slow it all is, worked out once a second."""
        now = self._clock.now()
        at, told = self._told
        if now - at >= 1.0:
            told = self._measured(now)
            self._told = (now, told)
        return told

    def is_overloaded(self) -> bool:
        """What can wait should."""
        return self.lag().allowance > 0

    def _measured(self, now: float) -> Lag:
        stalls = [seconds for until, seconds in self._stalls if now - until <= _RECENT]
        loop = statistics.median(stalls) if len(stalls) >= _OFTEN else 0.0
        writes = [seconds for at, seconds in self._writes if now - at <= _RECENT]
        usual = statistics.median(writes) if writes else 0.0
        deaf = tuple(stall for stall in self._stalls if now - stall[0] <= _REMEMBERED)
        return Lag(loop, usual if usual >= NOTICED else 0.0, deaf)
