"""Ranks told to leave: the gang saves while they still can."""

import pytest

from lockstep.core.run.leaving import MARGIN, ends_with_the_save, save_before_leaving
from support.world import world_with_gang


@pytest.mark.parametrize(
    ("grace", "listens", "leaving"),
    [
        (60.0, True, {1}),
        (60.0, False, set()),
        (MARGIN + 1.0, True, {1}),
        (MARGIN, True, set()),
        (0.0, True, set()),
    ],
)
def test_a_rank_that_is_told_to_leave_is_waited_with_while_a_save_can_still_come(
    grace: float, listens: bool, leaving: set[int]
) -> None:
    w = world_with_gang(2)
    w.listens = listens
    if grace:
        w.tell_to_end("one", 1, grace)
    w.work_reports_only()
    plan = w.plan("one")
    assert save_before_leaving(plan) == leaving
    assert (plan.status.checkpoint.save is not None) is bool(leaving)


@pytest.mark.parametrize(
    ("reason", "ends"),
    [("PodTerminated", True), ("Requested, PodTerminated", True), ("Requested", False), ("", False)],
)
def test_nobody_goes_on_after_the_save_of_ranks_that_leave(reason: str, ends: bool) -> None:
    assert ends_with_the_save(reason) is ends
