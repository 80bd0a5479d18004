"""What is measured of a program: where it is, how long its steps take, what its saves cost."""

from __future__ import annotations

import collections
import statistics
from typing import Deque, NamedTuple, Optional

from lockstep.worker.settings import JSON

INIT, STEP, SAVE = "Init", "Step", "Save"
REMEMBERED = 100  # intervals
WARM_UP_INTERVALS = 5  # the first of an attempt: compilation and cold caches
CLOCK_JUMP = 60.0  # seconds by which the wall clock differs from the time that has passed: it was set


class _Interval(NamedTuple):
    begin: float  # unix seconds
    end: float
    steps: int


class Timing:
    """Of one attempt. ``now`` is monotonic; ``at`` is on the wall clock of this machine, as progress lines carry it.

    Saves are known exactly when the program reports them. Else they are inferred: the interval between two steps in
    which a checkpoint was committed held a save, and what it took beyond the usual is what the save cost. Such an
    interval still counts for ``longest``: nothing tells this save from the next step while it lasts.
    """

    def __init__(self, now: float) -> None:
        self.section = INIT
        self._began = now
        self._last: Optional[_Interval] = None  # ends at the last step
        self._last_seen = now
        self._skipped = 0
        self._intervals: Deque[_Interval] = collections.deque(maxlen=REMEMBERED)
        self._reported = False  # the program tells of its saves
        self._save_began: Optional[float] = None  # the last one reported, until it is committed
        self._save_in_interval = False
        self._block_began: Optional[float] = None
        self._committed_at: Optional[float] = None  # not yet attributed to an interval
        self._step = 0
        self._longest_init = self._longest_save = self._save_block = self._persist = 0.0

    def reached(self, step: int, at: float, now: float) -> None:
        """The program has done ``step``."""
        if self._last is None:
            self._longest_init = now - self._began
            self._last = _Interval(at, at, 0)
        elif step > self._step and self._clock_was_set(self._last.end, at, now):
            self._last = _Interval(at, at, 0)
        elif step > self._step and at > self._last.end:
            interval = _Interval(self._last.end, at, step - self._step)
            self._last = interval
            self._close(interval)
        elif step < self._step:  # it went back by itself
            self._last = _Interval(at, at, 0)
        elif step == self._step:
            return
        self._step, self._last_seen = step, now
        if self.section != SAVE or not self._reported:
            self.section = STEP

    def enters(self, section: str, at: float) -> None:
        """The program says what it does from now on."""
        if section == SAVE:
            self._reported = True
            self._save_began = self._block_began = at
            self._save_in_interval = True
        elif self._block_began is not None:
            self._save_block = max(0.0, at - self._block_began)
            self._longest_save = max(self._longest_save, self._save_block)
            self._block_began = None
        self.section = section

    def save_seen(self) -> None:
        """A checkpoint directory has appeared that is not committed: unless steps go on, this is a save."""
        if not self._reported and self.section == STEP:
            self.section = SAVE

    def committed(self, at: float) -> None:
        """A checkpoint of this attempt was committed at ``at``."""
        if self._reported:
            if self._save_began is not None and at >= self._save_began - 1.0:
                self._persist = max(0.0, at - self._save_began)
                self._save_began = None
            return
        for interval in self._intervals:
            if interval.begin <= at <= interval.end:
                self._infer_save(interval, at)
                return
        if self._last is not None and at > self._last.end:
            self._committed_at = at

    def report(self) -> JSON:
        """As the protocol carries it: seconds, 0 where nothing was measured."""
        lengths = [interval.end - interval.begin for interval in self._intervals]
        values = {
            "step": self._median(), "longest": max(lengths, default=0.0),
            "longestInit": self._longest_init, "longestSave": self._longest_save, "saveBlock": self._save_block,
            "persist": self._persist,
        }  # fmt: skip
        rounded = {name: round(max(0.0, value), 3) for name, value in values.items()}
        return dict(rounded, section=self.section, intervals=len(lengths))

    def _clock_was_set(self, before: float, at: float, now: float) -> bool:
        """Else an hour's jump would pass for a step of an hour, and hangs would be waited for as long."""
        return at < before - CLOCK_JUMP or at - before > now - self._last_seen + CLOCK_JUMP

    def _close(self, interval: _Interval) -> None:
        saved, self._save_in_interval = self._save_in_interval, self._block_began is not None
        if self._skipped < WARM_UP_INTERVALS:
            self._skipped += 1
        elif not saved:
            self._intervals.append(interval)
        at, self._committed_at = self._committed_at, None
        if at is not None and interval.begin <= at <= interval.end:
            self._infer_save(interval, at)

    def _infer_save(self, interval: _Interval, at: float) -> None:
        usual = self._median() * interval.steps
        length = interval.end - interval.begin
        self._save_block = max(0.0, length - usual) if usual else 0.0
        self._persist = at - interval.begin
        self._longest_save = max(self._longest_save, length)

    def _median(self) -> float:
        """Seconds of a step."""
        if not self._intervals:
            return 0.0
        return statistics.median((interval.end - interval.begin) / interval.steps for interval in self._intervals)
