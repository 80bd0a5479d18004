"""Bandwidth limit and progress of a copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """Shares a bandwidth out over threads: `take` returns when that many bytes may go. 0: no limit."""

    def __init__(
        self,
        bytes_per_second: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = clock()

    def acquire(self, amount: int) -> None:
        """Book the line for `amount` bytes behind everybody who asked before, and wait until it is free."""
        if self._rate <= 0:
            return
        with self._lock:
            now = self._clock()
            start = max(now, self._free_at)
            self._free_at = start + amount / self._rate
        if start > now:
            self._sleep(start - now)


class CopyProgress:
    """Counts of one copy, in bytes, and a line about them now and then."""

    def __init__(
        self,
        total: int,
        say: Callable[[str], None],
        *,
        verb: str = "sent",
        every: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self.moved = 0
        self.skipped = 0
        self._say = say
        self._verb = verb
        self._every = every
        self._clock = clock
        self._started = self._told = clock()
        self._lock = threading.Lock()

    def add(self, moved: int = 0, skipped: int = 0) -> None:
        """Count bytes that went over the line, and bytes that were there already."""
        with self._lock:
            self.moved += moved
            self.skipped += skipped
            now = self._clock()
            if now - self._told < self._every:
                return
            self._told = now
            line = self.line(now)
        self._say(line)

    @property
    def seconds(self) -> float:
        """Since the copy began."""
        return self._clock() - self._started

    def line(self, now: float) -> str:
        """How far, how fast, how long still."""
        rate = self.moved / max(now - self._started, 1e-9)
        left = self.total - self.moved - self.skipped
        words = f"{self._verb} {in_units(self.moved)} of {in_units(self.total)}"
        if self.skipped:
            words += f", {in_units(self.skipped)} there already"
        words += f", {in_units(rate)}/s"
        return f"{words}, {left / rate:.0f} s left" if rate > 0 and left > 0 else words


def in_units(amount: float) -> str:
    """Bytes for people, in powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
