"""When a loss ends the attempt, and when it is only told of."""

from dataclasses import replace

import pytest

from lockstep.core.failures.divergence import NAN, SPIKE, is_no_number, judge_divergence
from lockstep.core.model.conditions import is_true
from support.values import not_none
from support.world import World, world_with_gang


def shows(*signs: str, on: int = 1, step: int = 7, **recovery: str) -> World:
    w = world_with_gang(3, recovery=recovery)
    w.train("one", 10)
    w.show("one", on, *signs, step=step)
    w.work_reports_only()
    return w


@pytest.mark.parametrize(
    ("loss", "is_none"),
    [("nan", True), ("-inf", True), ("Infinity", True), ("1.5", False), ("", False), ("n/a", False), ("1e3", False)],
)
def test_a_loss_that_cannot_be_read_says_nothing(loss: str, is_none: bool) -> None:
    assert is_no_number(loss) is is_none


@pytest.mark.parametrize(
    ("signs", "on_nan", "on_spike", "ends_with", "told"),
    [
        ((), "RollBack", "RollBack", None, False),
        ((NAN,), "RollBack", "Report", NAN, False),
        ((NAN,), "Ignore", "Report", None, False),
        ((SPIKE,), "RollBack", "RollBack", SPIKE, False),
        ((SPIKE,), "RollBack", "Report", None, True),
        ((SPIKE,), "RollBack", "Ignore", None, False),
        ((SPIKE, NAN), "RollBack", "RollBack", NAN, False),
        ((SPIKE, NAN), "Ignore", "RollBack", SPIKE, False),
    ],
)
def test_the_spec_says_what_a_loss_ends(
    signs: tuple[str, ...], on_nan: str, on_spike: str, ends_with: str | None, told: bool
) -> None:
    plan = shows(*signs, onNaN=on_nan, onLossSpike=on_spike).plan("one")
    found = judge_divergence(plan)
    assert (found.root if found is not None else None) == ends_with
    assert is_true(plan.status, "Diverging") is told
    assert bool(plan.events) is told
    if found is not None:
        assert (found.slot, found.node) == (1, "n1")


@pytest.mark.parametrize(("step", "first", "tied"), [(6, 2, ()), (7, 1, (2,)), (8, 1, ())])
def test_the_earliest_step_is_the_first_and_the_same_one_cannot_be_told_apart(
    step: int, first: int, tied: tuple[int, ...]
) -> None:
    w = shows(NAN)
    w.show("one", 2, NAN, step=step)
    w.work_reports_only()
    found = not_none(judge_divergence(w.plan("one")))
    assert (found.slot, found.tied) == (first, tied)


@pytest.mark.parametrize(("tells", "alone"), [(None, False), ((1,), True)])
def test_who_alone_prints_the_loss_is_not_set_apart_by_it(tells: tuple[int, ...] | None, alone: bool) -> None:
    w = world_with_gang(3)
    w.tells_losses = tells
    w.train("one", 10)
    w.show("one", 1, NAN, step=7)
    w.work_reports_only()
    found = not_none(judge_divergence(w.plan("one")))
    assert found.sole_witness is alone


def test_a_reported_loss_that_is_no_number_needs_no_line_in_the_log() -> None:
    w = shows()
    reports = w.reports[w.runs["one"].uid]
    progress = not_none(reports[2].progress)
    reports[2] = replace(reports[2], progress=replace(progress, loss="nan"))
    found = not_none(judge_divergence(w.plan("one")))
    assert (found.slot, found.message.endswith("loss nan")) == (2, True)
