"""When a rank is slow enough to be told of, and when replacing its node pays."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import StragglerStatus
from lockstep.core.failures.stragglers import (
    ASSUMED_RESTART_SECONDS,
    ENOUGH_INTERVALS,
    WINDOW_SECONDS,
    WINDOWS,
    judge_straggler,
)
from lockstep.core.model.conditions import is_true
from lockstep.core.model.worker_report import TimingReport
from support.world import World, world_with_gang


def paced(*seconds: float, intervals: int = ENOUGH_INTERVALS, **recovery: str) -> World:
    """A gang whose ranks need so long for a step."""
    w = world_with_gang(len(seconds), recovery=recovery)
    reports = w.reports[w.runs["one"].uid]
    for slot, step in enumerate(seconds):
        reports[slot] = replace(reports[slot], timing=TimingReport(step=step, intervals=intervals))
    return w


@pytest.mark.parametrize(
    ("w", "slowest"),
    [
        (paced(1.0, 1.0, 1.0), None),
        (paced(1.0, 1.0, 1.6), (2, 62)),
        (paced(0.7, 1.0), None),
        (paced(0.69, 1.0), (1, 69)),
        (paced(1.0, 1.0, 1.6, intervals=ENOUGH_INTERVALS - 1), None),
        (paced(1.0), None),
        (paced(0.0, 0.0), None),
        (paced(1.0, 1.0, 1.6, onStraggler="Ignore"), None),
        (paced(0.1, 1.0, 1.0, 1.0, 1.0, 1.4), None),  # one that is fast makes nobody slow
    ],
)
def test_a_rank_is_slow_beside_the_best_quarter(w: World, slowest: tuple[int, int] | None) -> None:
    plan = w.plan("one")
    assert judge_straggler(plan) is None
    found = plan.status.recovery.straggler
    assert (None if found is None else (found.slot, found.percent)) == slowest


def known(w: World, windows: int, *, ago: float = 0.0, slot: int = 2) -> World:
    entry = StragglerStatus(slot=slot, percent=50, windows=windows, time=w.now - ago)
    w.amend("one", recovery=changed(w.status("one").recovery, straggler=entry))
    return w


@pytest.mark.parametrize(
    ("windows", "ago", "slot", "counted", "told"),
    [
        (1, WINDOW_SECONDS - 1, 2, 1, False),
        (1, WINDOW_SECONDS, 2, 2, False),
        (WINDOWS - 1, WINDOW_SECONDS, 2, WINDOWS, True),
        (WINDOWS, WINDOW_SECONDS, 0, 0, False),
    ],
)
def test_it_is_told_of_once_it_has_lasted(windows: int, ago: float, slot: int, counted: int, told: bool) -> None:
    w = known(paced(1.0, 1.0, 2.0), windows, ago=ago, slot=slot)
    w.now = float(int(w.now) + 1)
    plan = known(w, windows, ago=ago, slot=slot).plan("one")
    assert judge_straggler(plan) is None
    found = plan.status.recovery.straggler
    assert found is not None
    assert (found.slot, found.windows) == (2, counted)
    assert is_true(plan.status, "Straggling") is told


@pytest.mark.parametrize(
    ("action", "saves", "replaced"),
    [
        ("Replace", 0, False),
        ("Replace", 1, True),
        ("Replace", None, False),
        ("Report", 1, False),
    ],
)
def test_a_node_is_replaced_where_that_takes_less_than_it_saves(action: str, saves: int | None, replaced: bool) -> None:
    w = known(paced(1.0, 1.0, 2.0, onStraggler=action), WINDOWS)
    status = w.status("one")
    cadence = changed(status.checkpoint.cadence, interval=200)
    costs = int(ASSUMED_RESTART_SECONDS) + 100  # half of the steps of 2 s each are so many seconds
    total = None if saves is None else costs + saves
    w.amend(
        "one",
        progress=changed(status.progress, step=0, total_steps=total),
        checkpoint=changed(status.checkpoint, cadence=cadence),
    )
    found = judge_straggler(w.plan("one"))
    assert (found is not None) is replaced
    if found is not None:
        assert (found.slot, found.node) == (2, "n2")
