"""How long a gang may take for a step, and who stands out when none comes. Whole hangs: test_slow_failures."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.failures.hangs import LONGEST, SHORTEST, SHORTEST_INIT, patience_of, suspected
from lockstep.core.failures.stack_groups import StackGroup
from lockstep.core.model.worker_report import ProgressReport, TimingReport
from support.world import world_with_gang


@pytest.mark.parametrize(
    ("setting", "longest_known", "init_known", "timing", "step", "section", "limit"),
    [
        ("Disabled", 30, 0, TimingReport(longest=30.0, intervals=9), 20, "", None),
        ("Adaptive", 0, 0, TimingReport(), 1, "", None),  # not two steps yet
        ("Adaptive", 0, 0, TimingReport(), 2, "Step", LONGEST),
        ("Adaptive", 0, 0, TimingReport(longest=30.0, intervals=9), 20, "Step", 150.0),
        ("Adaptive", 50, 0, TimingReport(longest=30.0, intervals=9), 20, "Step", 250.0),
        ("Adaptive", 0, 0, TimingReport(longest=1.0, intervals=9), 20, "Step", SHORTEST),
        ("Adaptive", 0, 0, TimingReport(longest=999.0, intervals=9), 20, "Step", LONGEST),
        ("Adaptive", 0, 0, TimingReport("Save", longest=30.0, intervals=9), 20, "Save", LONGEST),
        ("Adaptive", 0, 0, TimingReport("Save", longest=30.0, longest_save=60.0, intervals=9), 20, "Save", 300.0),
        ("Adaptive", 30, 0, TimingReport(), None, "Init", LONGEST),
        ("Adaptive", 30, 10, TimingReport(), None, "Init", SHORTEST_INIT),
        ("Adaptive", 30, 100, TimingReport(), None, "Init", 500.0),
        ("10m", 30, 0, TimingReport(longest=30.0, intervals=9), 20, "Step", 600.0),
        ("10m", 30, 10, TimingReport(), None, "Init", 600.0),
    ],
)
def test_the_time_allowed_follows_the_pace_of_the_run(
    setting: str,
    longest_known: int,
    init_known: int,
    timing: TimingReport,
    step: int | None,
    section: str,
    limit: float | None,
) -> None:
    w = world_with_gang(2, recovery={"hangTimeout": setting})
    known = w.status("one").progress
    w.amend("one", progress=changed(known, longest_interval=longest_known, longest_init=init_known))
    plan = w.plan("one")
    progress = None if step is None else ProgressReport(step, w.now)
    reports = {
        slot: replace(report, timing=timing, progress=progress) for slot, report in plan.snapshot.reports.items()
    }
    patience = patience_of(plan, reports)
    assert (patience.section, patience.limit) == (section, limit)


def group(*ranks: int, text: str = "in recv") -> StackGroup:
    return StackGroup(ranks, text)


@pytest.mark.parametrize(
    ("steps", "groups", "ranks"),
    [
        ((5, 5, 5, 5), [], ()),
        ((5, 5, 4, 5), [], (2,)),
        ((5, 4, 4, 5), [], ()),  # half of them are no outliers
        ((5, 5, 5, 5), [group(0, 1, 2), group(3, text="in read")], (3,)),
        ((5, 5, 5, 5), [group(0, 1), group(2, 3, text="in read")], ()),
        ((5, 5, 4, 5), [group(0, 1, 2), group(3, text="in read")], (3,)),
        ((5, 5, 5, 5), [group(0, 2, 3), group(1, text="python [stopped]")], (1,)),
        ((5, 5, 5, 5), [group(0, 1, 2, 3)], ()),
        ((5, 4), [], (1,)),
    ],
)
def test_the_one_that_is_stopped_stands_elsewhere_or_is_behind_stands_out(
    steps: tuple[int, ...], groups: list[StackGroup], ranks: tuple[int, ...]
) -> None:
    found, words = suspected(dict(enumerate(steps)), groups)
    assert found == ranks
    assert bool(words) is bool(ranks)
