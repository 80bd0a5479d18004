"""The loss of every run over time, as far as it was seen: status keeps the last one only.

In memory, and gone with the process. A few hundred points for each run: where there are too many, every second one
is dropped and from then on half as many are taken.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lockstep.controller.runtime.clock import Clock
from lockstep.core.model.conditions import is_true
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.worker_report import WorkerReport

log = logging.getLogger("lockstep.controller.web")

EVERY = 2.0
"""Seconds between two looks."""
MOST_POINTS = 512
MOST_RUNS = 2000


@dataclass(frozen=True, slots=True)
class Point:
    """A step, when it was reported, its loss, and the attempt that made it."""

    step: int
    at: float
    loss: float
    attempt: int


@dataclass(slots=True)
class Curve:
    """Points in the order they came. ``stride``: one of so many is kept."""

    points: list[Point] = field(default_factory=list)
    stride: int = 1
    skipped: int = 0
    last: Point | None = None

    def add(self, point: Point) -> None:
        """Take in a point, unless it is the one before."""
        if self.last is not None and (self.last.attempt, self.last.step) == (point.attempt, point.step):
            return
        self.last = point
        self.skipped += 1
        if self.skipped < self.stride:
            return
        self.skipped = 0
        self.points.append(point)
        if len(self.points) > MOST_POINTS:
            del self.points[1::2]
            self.stride *= 2

    def seen(self) -> tuple[Point, ...]:
        """What is kept, and the newest, which may be between two of those."""
        newest = (self.last,) if self.last is not None and self.points[-1:] != [self.last] else ()
        return (*self.points, *newest)


class Losses:
    """Watches the runs. ``reports`` gives what the workers of a run last said; status has the same a little later."""

    def __init__(
        self,
        runs: Callable[[], Iterable[RunView]],
        reports: Callable[[str], Mapping[int, WorkerReport]],
        clock: Clock,
    ) -> None:
        self._runs = runs
        self._reports = reports
        self._clock = clock
        self._curves: dict[str, Curve] = {}

    async def follow(self) -> None:
        """Look every two seconds until cancelled. Nothing that is only shown ever ends the operator."""
        while True:
            try:
                self.update()
            except Exception:
                log.exception("the losses of runs could not be taken down")
            await self._clock.sleep(EVERY)

    def update(self) -> None:
        """Take in what is new, and forget the runs that are gone."""
        there = set()
        for run in self._runs():
            there.add(run.uid)
            # Of one that has ended: its last step, where the others were seen.
            if run.status.attempt and (run.uid in self._curves or not is_true(run.status, ConditionType.FINISHED)):
                self._take(run)
        self._curves = {uid: curve for uid, curve in self._curves.items() if uid in there}
        while len(self._curves) > MOST_RUNS:
            del self._curves[next(iter(self._curves))]

    def points(self, run_uid: str) -> tuple[Point, ...]:
        """What was seen of a run."""
        curve = self._curves.get(run_uid)
        return curve.seen() if curve is not None else ()

    def _take(self, run: RunView) -> None:
        status = run.status
        step, at, loss = status.progress.step, status.progress.time, status.progress.loss
        for report in self._reports(run.uid).values():
            progress = report.progress
            if progress is None or report.attempt != status.attempt or not progress.loss:
                continue
            if at is None or progress.at > at:
                step, at, loss = progress.step, progress.at, progress.loss
        if at is None or not loss:
            return
        try:
            value = float(loss)
        except ValueError:
            return
        self._curves.setdefault(run.uid, Curve()).add(Point(step, at, value, status.attempt))
