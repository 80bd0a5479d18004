"""How slow this process and its API server are of late: what deadlines move with, and what sheds what can wait."""

import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lockstep.controller.runtime.clock import Clock
from lockstep.core.model.snapshot import Lag

LOOK_EVERY = 0.25
NOTICED = 0.5
"""Seconds from which on lag is told of: less is usual."""
_OFTEN = 3
"""Times in a minute that the loop stands still where it is slow; once is an accident, and is held against nobody."""
_RECENT, _JUST_NOW = 60.0, 10.0
_A_WHILE = 180.0
"""Seconds for which a namespace that is written to less often, as in an overload, still has its say."""
_REMEMBERED = 600.0
_MOST = 512
_MOST_PLACES, _MOST_OF_A_PLACE = 128, 64


@dataclass(frozen=True, slots=True)
class Slowness:
    """What was measured in the last minute, in seconds, for people. ``loop``: the latest that the loop was; ``write``:
    what half of the writes took at least, in half of the namespaces; ``placing``: what half of the gangs' pods took at
    least until the scheduler placed them.
    ``allowance``: by how much deadlines are later for it."""

    loop: float = 0.0
    write: float = 0.0
    placing: float = 0.0
    allowance: float = 0.0


class LagMeter:
    """Measures by how much the event loop is late, and how long writes take. All that it keeps is bounded.

    Each namespace has one say in how slow writes are: where those of one are held up (by a webhook that admits its
    pods), however many, nobody else's deadlines move.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stalls: deque[tuple[float, float]] = deque(maxlen=_MOST)  # until when (Unix seconds), for how long
        self._looks: deque[tuple[float, float]] = deque(maxlen=int(_RECENT / LOOK_EVERY))  # when, by how much late
        self._writes: dict[str, deque[tuple[float, float]]] = {}  # by namespace: when it was answered, after how long
        self._placed: deque[tuple[float, float]] = deque(maxlen=_MOST)  # when that was heard, after how long
        self._told: tuple[float, Lag] = (float("-inf"), Lag())

    async def watch(self) -> None:
        """Look at the loop until cancelled."""
        while True:
            begun = self._clock.monotonic()
            await self._clock.sleep(LOOK_EVERY)
            late = self._clock.monotonic() - begun - LOOK_EVERY
            self._looks.append((self._clock.now(), max(0.0, late)))
            if late >= NOTICED:
                self._stalls.append((self._clock.now(), late))
                self._told = (float("-inf"), Lag())

    def wrote(self, namespace: str, seconds: float) -> None:
        """A write was answered, or given up, after so long."""
        writes = self._writes.pop(namespace, None)
        self._writes[namespace] = writes = deque(maxlen=_MOST_OF_A_PLACE) if writes is None else writes  # the last now
        writes.append((self._clock.now(), seconds))
        if len(self._writes) > _MOST_PLACES:
            del self._writes[next(iter(self._writes))]

    def placed(self, seconds: float) -> None:
        """The scheduler has placed a pod that was made so long before."""
        self._placed.append((self._clock.now(), seconds))

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

    def slowness(self) -> Slowness:
        """The same for people, what is usual included."""
        now = self._clock.now()
        return Slowness(
            loop=max(_recent(self._looks, now), default=0.0),
            write=self._usual_write(now),
            placing=_usual(_recent(self._placed, now), _recent(self._placed, now, _JUST_NOW)),
            allowance=self.lag().allowance,
        )

    def _measured(self, now: float) -> Lag:
        stalls = _recent(self._stalls, now)
        loop = statistics.median(stalls) if len(stalls) >= _OFTEN else 0.0
        usual = self._usual_write(now)
        deaf = tuple(stall for stall in self._stalls if now - stall[0] <= _REMEMBERED)
        return Lag(loop, usual if usual >= NOTICED else 0.0, deaf)

    def _usual_write(self, now: float) -> float:
        usual, all_recent = [], 0
        for writes in self._writes.values():
            recent = _recent(writes, now)
            all_recent += len(recent)
            if known := recent or _recent(writes, now, _A_WHILE):
                usual.append(_usual(known, _recent(writes, now, _JUST_NOW)))
        return statistics.median_low(usual) if all_recent >= _OFTEN else 0.0


def _recent(measured: Iterable[tuple[float, float]], now: float, within: float = _RECENT) -> list[float]:
    return [seconds for at, seconds in measured if now - at <= within]


def _usual(recent: Sequence[float], newest: Sequence[float]) -> float:
    """What half of them took at least, of late or just now: many that were fast before hide no slowness."""
    usual = statistics.median(recent) if recent else 0.0
    return max(usual, statistics.median(newest)) if len(newest) >= _OFTEN else usual
