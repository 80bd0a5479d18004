"""What one run may cost the others: so many writes, pods and events a minute, and so much of the processor a look.

Beyond it its key waits, and that is told. Nothing is dropped: what is to be done is found again by the look after the
wait. The bursts are several times what gangs were ever seen to need, however they fail.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.ratelimit import RateLimit
from lockstep.controller.runtime.tallies import Tallies

Excess = Literal["Writes", "Pods", "Refused", "Events", "Processor"]

WRITES_A_MINUTE, WRITES_AT_ONCE = 20, 60
"""Of status. A launch takes about six, a recovery as many. More where progress is to be written so often that it would
take a third of them. What it waits for is told only while it has 30 of the latter left."""
PODS_A_MINUTE, PODS_AT_ONCE = 2, 6
"""Times the pods of its gang."""
REFUSED_A_MINUTE, REFUSED_AT_ONCE = 6, 18
"""Times the pods of its gang, of those that were asked for and not taken. Where none is ever taken, the back-off of a
launch asks ten times in its first minute, and launches follow each other every two."""
EVENTS_A_MINUTE, EVENTS_AT_ONCE = 4, 12
"""Times the pods of its gang."""
LEAST_GANG = 5
"""Smaller gangs count as such a one."""
LOOK_SECONDS, RESTS, LARGE_GANG = 0.5, 100, 2048
"""A look that takes the processor for longer is followed by a rest of so many times as long. Larger gangs have as much
longer as they are larger."""
LONG_REST = 10.0
"""Seconds. A run that rests for longer is looked at meanwhile for stop orders alone, after which others may wait …"""
OBEYS_EVERY = 5.0
"""… no more often than that, nor for more of the processor than any other slow look has."""
TOLD_EVERY = 600.0

_WORDS: dict[Excess, str] = {
    "Writes": f"its status changes more than {WRITES_A_MINUTE} times a minute",
    "Pods": f"more pods are made for it than {PODS_A_MINUTE} gangs of its size a minute",
    "Refused": f"more of its pods are refused, or not answered, than {REFUSED_A_MINUTE} gangs of its size a minute",
    "Events": f"more events come of it than {EVENTS_A_MINUTE} for each of its pods a minute",
    "Processor": f"a look at it took longer than {LOOK_SECONDS} s",
}


class ProcessorTime:
    """Seconds that the thread which made this has had of the processor, garbage collection left out: into whose look
    that falls is chance."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._collecting = 0.0
        self._collected = 0.0
        gc.callbacks.append(self._note)

    def __call__(self) -> float:
        return time.thread_time() - self._collected

    def _note(self, phase: str, _: object) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting


class RunPace:
    """What runs and arrays have cost lately, by their keys."""

    def __init__(
        self,
        clock: Clock,
        tallies: Tallies,
        processor: Callable[[], float] = time.thread_time,
        progress_write_interval: float = 30.0,
    ) -> None:
        more = max(1.0, 3 * 60 / progress_write_interval / WRITES_A_MINUTE)
        self._clock = clock
        self._tallies = tallies
        self._processor = processor
        self._limits: dict[Excess, RateLimit] = {
            "Writes": RateLimit(clock, per_second=more * WRITES_A_MINUTE / 60, burst=more * WRITES_AT_ONCE),
            "Pods": RateLimit(clock, per_second=PODS_A_MINUTE / 60, burst=PODS_AT_ONCE),
            "Refused": RateLimit(clock, per_second=REFUSED_A_MINUTE / 60, burst=REFUSED_AT_ONCE),
            "Events": RateLimit(clock, per_second=EVENTS_A_MINUTE / 60, burst=EVENTS_AT_ONCE),
        }
        self._rests: dict[str, float] = {}  # until when, monotonic
        self._obeys: dict[str, float] = {}  # from when on stop orders are looked for again, monotonic
        self._told: dict[str, float] = {}

    @property
    def remembered(self) -> int:
        """Keys of which something is known, each as often as that is so."""
        return sum(map(len, self._limits.values())) + len(self._rests) + len(self._obeys) + len(self._told)

    def rest(self, key: str) -> float:
        """Seconds until the key may be looked at again; 0: now."""
        now = self._clock.monotonic()
        left = self._rests.get(key, now) - now
        if left <= 0:
            self._rests.pop(key, None)
        rest = max(0.0, left, self._limits["Writes"].debt(key), self._limits["Events"].debt(key))
        if not rest:
            self._obeys.pop(key, None)
        return rest

    def rest_of_orders(self, key: str) -> float:
        """Seconds until a run that rests may be looked at for stop orders; 0: now."""
        now = self._clock.monotonic()
        return max(0.0, self._obeys.get(key, now) - now)

    def rest_of_pods(self, key: str) -> float:
        """Seconds until more pods may be made for it; 0: now."""
        return max(self._limits["Pods"].debt(key), self._limits["Refused"].debt(key))

    def wrote(self, key: str) -> None:
        """One status was written."""
        self._charge("Writes", key, 1.0)

    def wrote_in_cycle(self, key: str) -> None:
        """An admission cycle has written its status, which waits for nobody's pace: that makes no run wait for long."""
        if not self._limits["Writes"].debt(key):
            self.wrote(key)

    def rest_of_words(self, key: str) -> float:
        """Seconds until it may be told what it waits for; 0: now."""
        return self._limits["Writes"].debt(key, spare=WRITES_AT_ONCE / 2)

    def made(self, key: str, pods: int, gang: int) -> None:
        """So many pods were asked for, of a gang of so many."""
        self._charge("Pods", key, pods / max(LEAST_GANG, gang))

    def not_sent(self, key: str, gang: int) -> None:
        """One of those that were asked for never came to the API server."""
        self._limits["Pods"].charge(key, -1 / max(LEAST_GANG, gang))

    def not_taken(self, key: str, gang: int) -> None:
        """One of those that were asked for was refused, or nobody knows that it was made."""
        self.not_sent(key, gang)
        self._charge("Refused", key, 1 / max(LEAST_GANG, gang))

    def count_events(self, key: str, events: int, gang: int) -> None:
        """So many events were told."""
        if events:
            self._charge("Events", key, events / max(LEAST_GANG, gang))

    @contextmanager
    def measured(self, key: str, gang: int = 0) -> Iterator[None]:
        """Measures what is done within for so many nodes, which must not wait for anything."""
        begun = self._processor()
        try:
            yield
        finally:
            took = self._processor() - begun
            if took > LOOK_SECONDS * max(1.0, gang / LARGE_GANG):
                self._rests[key] = self._clock.monotonic() + RESTS * took
                self._tallies.paced["Processor"] += 1

    @contextmanager
    def obeying(self, key: str) -> Iterator[None]:
        """Measures the look for stop orders that is taken within, as ``measured`` does."""
        begun = self._processor()
        try:
            yield
        finally:
            wait = max(OBEYS_EVERY, RESTS * (self._processor() - begun))
            self._obeys[key] = self._clock.monotonic() + wait

    def news(self, key: str) -> str:
        """Why it waits, in words, if that has not been told lately; else empty."""
        now = self._clock.monotonic()
        why = self._why(key)
        if not why or now - self._told.get(key, -TOLD_EVERY) < TOLD_EVERY:
            return ""
        self._told[key] = now
        return f"{_WORDS[why]}; what is to be done for it waits, and nothing of that is left out"

    def forget(self, key: str) -> None:
        """The object is gone."""
        for limit in self._limits.values():
            limit.forget(key)
        self._rests.pop(key, None)
        self._obeys.pop(key, None)
        self._told.pop(key, None)

    def _why(self, key: str) -> Excess | None:
        if key in self._rests:
            return "Processor"
        return next((excess for excess, limit in self._limits.items() if limit.debt(key)), None)

    def _charge(self, excess: Excess, key: str, tokens: float) -> None:
        limit = self._limits[excess]
        waits = limit.debt(key) > 0
        limit.charge(key, tokens)
        self._tallies.paced[excess] += not waits and limit.debt(key) > 0
