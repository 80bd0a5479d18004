"""The time limit of a run, as its spec and its queue have it."""

from typing import Any

import pytest

from lockstep.api.queue import QueueLimits
from lockstep.core.model.limits import LimitNotice, asked_limit, can_be_asked, grace_left, limit_allowed, notice_of
from support.world import spec

HOUR = 3600


@pytest.mark.parametrize(
    ("run", "queue", "asked", "allowed"),
    [
        ({}, {}, None, None),
        ({"timeLimit": "2h"}, {}, 2 * HOUR, 2 * HOUR),
        ({}, {"defaultTimeLimit": "3h"}, 3 * HOUR, 3 * HOUR),
        ({"timeLimit": "2h"}, {"defaultTimeLimit": "3h"}, 2 * HOUR, 2 * HOUR),
        ({"timeLimit": "2h"}, {"maxTimeLimit": "2h"}, 2 * HOUR, 2 * HOUR),
        ({"timeLimit": "2h"}, {"maxTimeLimit": "1h"}, 2 * HOUR, HOUR),
        ({}, {"defaultTimeLimit": "3h", "maxTimeLimit": "1h"}, 3 * HOUR, HOUR),
        ({}, {"maxTimeLimit": "1h"}, None, None),
    ],
)
def test_the_spec_comes_before_the_queues_default_and_the_queues_longest_bounds_both(
    run: dict[str, Any], queue: dict[str, Any], asked: int | None, allowed: int | None
) -> None:
    limits = QueueLimits.model_validate(queue)
    assert asked_limit(spec(**run), limits) == asked
    assert limit_allowed(spec(**run), limits) == allowed


NOBODY_ASKS: dict[str, Any] = {"checkpoint": None}
SIGNALLED: dict[str, Any] = {
    "checkpoint": None,
    "command": [],
    "launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh", "signal": "SIGUSR1"}},
}


@pytest.mark.parametrize(
    ("run", "limit", "own", "notice"),
    [
        ({}, 4 * HOUR, None, LimitNotice(600, 60, 60)),
        ({"onTimeLimit": {"leadTime": "20m"}}, 4 * HOUR, None, LimitNotice(1200, 60, 60)),
        ({}, 240, None, LimitNotice(120, 24, 24)),  # never more than half to save, and a tenth to end
        ({}, 240, 120, LimitNotice(120, 120, 60)),
        ({}, 40, None, LimitNotice(20, 5, 5)),
        ({"onTimeLimit": {"leadTime": "30s"}}, HOUR, None, LimitNotice(60, 60, 30)),
        ({"onTimeLimit": {"leadTime": "90s"}}, HOUR, None, LimitNotice(90, 60, 45)),
        (SIGNALLED, HOUR, None, LimitNotice(600, 60, 60)),
        (NOBODY_ASKS, HOUR, None, LimitNotice(60, 60, 30)),  # all of it but the grace
        (NOBODY_ASKS, 240, None, LimitNotice(24, 24, 12)),
        (NOBODY_ASKS, 120, None, LimitNotice(12, 12, 6)),
        (NOBODY_ASKS, 40, None, LimitNotice(5, 5, 2)),
        (NOBODY_ASKS, 6, None, LimitNotice(3, 3, 1)),
        (NOBODY_ASKS, 40, 3, LimitNotice(3, 3, 1)),
        (NOBODY_ASKS, 40, 60, LimitNotice(20, 20, 10)),  # who asks for a grace has it, up to half
        ({"worker": "Disabled"}, 240, 120, LimitNotice(120, 120, 60)),
        ({"worker": "Disabled"}, 240, None, LimitNotice(24, 24, 12)),
        ({"worker": "Disabled"}, 4 * HOUR, None, LimitNotice(60, 60, 30)),
    ],
)
def test_a_run_that_nobody_can_ask_to_save_loses_the_grace_of_its_pods_alone_and_of_a_short_limit_a_tenth(
    run: dict[str, Any], limit: int, own: int | None, notice: LimitNotice
) -> None:
    """Unless it asks for a grace of its ``own``; the usual one is a minute."""
    assert notice_of(spec(**run), limit, 60, own) == notice


@pytest.mark.parametrize(
    ("left", "grace", "has"),
    [(60, 30, 30), (30, 30, 30), (5, 30, 5), (5.9, 30, 5), (0.4, 30, 1), (0, 30, 30), (-1, 30, 30)],
)
def test_what_is_left_of_a_limit_bounds_what_is_told_to_end_before_it_is_over(
    left: float, grace: int, has: int
) -> None:
    """After it, as when the operator was away, nobody gains by a kill without a word."""
    assert grace_left(left, grace) == has


@pytest.mark.parametrize(
    ("run", "asked"), [({}, True), (SIGNALLED, True), (NOBODY_ASKS, False), ({"worker": "Disabled"}, False)]
)
def test_programs_are_asked_by_workers_where_there_is_something_to_save_to_or_a_signal(
    run: dict[str, Any], asked: bool
) -> None:
    assert can_be_asked(spec(**run)) is asked
