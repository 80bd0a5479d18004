"""Curves of losses: which points they have, and how long they are kept."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.controller.web.losses import EVERY, MOST_POINTS, Losses
from lockstep.core.model.worker_report import ProgressReport
from support import sample_runs, web_site
from support.manual_clock import ManualClock
from support.web_answers import NOW, OWN
from support.web_views import report


class Watched:
    """Losses of one run, whose progress a test sets."""

    def __init__(self) -> None:
        self.runs = [OWN]
        self.reports: dict[int, Any] = {}
        self.losses = Losses(lambda: self.runs, lambda uid: self.reports, ManualClock())

    def at(self, step: int, loss: str, attempt: int = 2, told_at: float = NOW) -> None:
        progress = changed(OWN.status.progress, step=step, loss=loss, time=told_at)
        status = changed(OWN.status, progress=progress, attempt=attempt)
        self.runs = [replace(OWN, status=status)]
        self.losses.update()

    @property
    def points(self) -> list[tuple[int, float]]:
        return [(point.step, point.loss) for point in self.losses.points(OWN.uid)]


def test_each_step_is_one_point_however_often_it_is_seen() -> None:
    watched = Watched()
    for step, loss in ((1, "3.0"), (1, "3.0"), (2, "2.5"), (3, "broken"), (4, "")):
        watched.at(step, loss)
    assert watched.points == [(1, 3.0), (2, 2.5)]


def test_a_step_that_is_repeated_by_another_attempt_is_another_point() -> None:
    watched = Watched()
    watched.at(10, "2.0", attempt=2)
    watched.at(10, "2.1", attempt=3)
    assert watched.points == [(10, 2.0), (10, 2.1)]


def test_what_a_worker_said_since_status_was_written_counts() -> None:
    watched = Watched()
    watched.reports = {
        0: report(0, "n0", 20, loss="1.5", now=NOW + 5),
        1: report(1, "n1", 99, loss="9.9", now=NOW + 9, attempt=1),  # of an attempt that is over
        2: report(2, "n2", 21, now=NOW + 9, progress=ProgressReport(21, NOW + 9)),
    }
    watched.at(10, "2.0")
    assert watched.points == [(20, 1.5)]


def test_the_curve_of_a_run_that_has_ended_ends_with_its_last_step() -> None:
    """Which was reported after the last look at it."""
    watched = Watched()
    watched.at(10, "2.0")
    ended = web_site.parse_run(sample_runs.failed())
    progress = changed(OWN.status.progress, step=44, loss="1.5", time=NOW + 1)
    status = changed(ended.status, progress=progress, attempt=2)
    watched.runs = [replace(OWN, status=status), replace(OWN, uid="one that ended long ago", status=status)]
    watched.losses.update()
    watched.losses.update()
    assert watched.points == [(10, 2.0), (44, 1.5)]
    assert watched.losses.points("one that ended long ago") == ()


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    watched = Watched()
    for step in range(6000):
        watched.at(step, "1.0")
    steps = [step for step, _ in watched.points]
    assert len(steps) <= MOST_POINTS + 1
    assert steps[0] == 0
    assert steps[-1] > 5900
    assert steps == sorted(steps)


async def test_what_cannot_be_followed_does_not_end_the_operator() -> None:
    watched = Watched()
    clock = ManualClock()
    asked: list[str] = []

    def broken(uid: str) -> dict[int, Any]:
        asked.append(uid)
        raise KeyError("defect")

    following = asyncio.create_task(Losses(lambda: watched.runs, broken, clock).follow())
    for _ in range(3):
        await clock.advance(EVERY)
    assert len(asked) >= 3
    assert not following.done()
    following.cancel()


@pytest.mark.slow
def test_the_newest_point_is_there_however_far_a_curve_was_thinned() -> None:
    watched = Watched()
    for step in range(6000):
        watched.at(step, "1.0")
        assert watched.points[-1] == (step, 1.0)


def test_curves_of_runs_that_are_gone_are_forgotten() -> None:
    watched = Watched()
    watched.at(1, "3.0")
    watched.runs = []
    watched.losses.update()
    assert watched.points == []
