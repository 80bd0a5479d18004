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
PLACING_NOTICED = 2.0
"""The same of kube-scheduler, whose times are known in whole seconds."""
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
    least until kube-scheduler placed them, where it had nothing against them, in half of the namespaces.
    ``allowance``: by how much deadlines are later for it."""

    loop: float = 0.0
    write: float = 0.0
    placing: float = 0.0
    allowance: float = 0.0


class LagMeter:
    """Measures by how much the event loop is late, and how long writes and kube-scheduler take. All that it keeps is
    bounded.

    Each namespace has one say in how slow writes and kube-scheduler are: where those of one are held up (by a webhook
    that admits its pods), however many, nobody else's deadlines move.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stalls: deque[tuple[float, float]] = deque(maxlen=_MOST)  # until when (Unix seconds), for how long
        self._looks: deque[tuple[float, float]] = deque(maxlen=int(_RECENT / LOOK_EVERY))  # when, by how much late
        self._writes, self._placed = _Places(), _Places()
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
        self._writes.note(namespace, self._clock.now(), seconds)

    def placed(self, namespace: str, seconds: float) -> None:
        """kube-scheduler has placed a pod that was made so long before."""
        self._placed.note(namespace, self._clock.now(), seconds)

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
            write=self._writes.usual(now),
            placing=self._placed.usual(now),
            allowance=self.lag().allowance,
        )

    def _measured(self, now: float) -> Lag:
        stalls = _recent(self._stalls, now)
        loop = statistics.median(stalls) if len(stalls) >= _OFTEN else 0.0
        write, placing = self._writes.usual(now), self._placed.usual(now)
        deaf = tuple(stall for stall in self._stalls if now - stall[0] <= _REMEMBERED)
        return Lag(
            loop, write if write >= NOTICED else 0.0, deaf, placing=placing if placing >= PLACING_NOTICED else 0.0
        )


class _Places:
    """How long something took, by the namespace that it was done for."""

    def __init__(self) -> None:
        self._known: dict[str, deque[tuple[float, float]]] = {}  # when it was over, after how long

    def note(self, namespace: str, now: float, seconds: float) -> None:
        """It was done once more."""
        known = self._known.pop(namespace, None)
        self._known[namespace] = known = deque(maxlen=_MOST_OF_A_PLACE) if known is None else known  # the last now
        known.append((now, seconds))
        if len(self._known) > _MOST_PLACES:
            del self._known[next(iter(self._known))]

    def usual(self, now: float) -> float:
        """What it takes in half of the namespaces at least; 0 where it was hardly ever done of late."""
        usual, all_recent = [], 0
        for each in self._known.values():
            recent = _recent(each, now)
            all_recent += len(recent)
            if known := recent or _recent(each, now, _A_WHILE):
                usual.append(_usual(known, _recent(each, now, _JUST_NOW)))
        return statistics.median_low(usual) if all_recent >= _OFTEN else 0.0


def _recent(measured: Iterable[tuple[float, float]], now: float, within: float = _RECENT) -> list[float]:
    return [seconds for at, seconds in measured if now - at <= within]


def _usual(recent: Sequence[float], newest: Sequence[float]) -> float:
    """What half of them took at least, of late or just now: many that were fast before hide no slowness."""
    usual = statistics.median(recent) if recent else 0.0
    return max(usual, statistics.median(newest)) if len(newest) >= _OFTEN else usual
