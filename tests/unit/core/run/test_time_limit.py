"""How long a run may have its nodes, and what becomes of one whose time or budget is used up."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.queue import QueueLimits
from lockstep.core.model.reasons import StopReason
from lockstep.core.run.time_limit import keep_to_limits, limit_in_force, time_is_over
from lockstep.core.run.undecidable import obeying_alone
from support.world import spec, world_with_gang


@pytest.mark.parametrize(
    ("asks", "granted", "asked_then", "limits", "in_force"),
    [
        (None, None, "", {}, None),
        ("1h", None, "", {}, 3600),
        ("1h", 600, "1h", {}, 600),
        ("2h", 3600, "1h", {}, 3600),  # more it has once that is granted
        ("30m", 3600, "1h", {}, 1800),  # less at once
        ("2h", None, "", {"maxTimeLimit": "1h"}, 3600),
        (None, None, "", {"defaultTimeLimit": "1h"}, 3600),
    ],
)
def test_the_limit_is_what_was_granted_or_less(
    asks: str | None, granted: int | None, asked_then: str, limits: dict[str, str], in_force: int | None
) -> None:
    w = world_with_gang(1)
    admission = changed(w.status("one").admission, time_limit=granted, asked_limit=asked_then)
    asked = spec(1) if asks is None else spec(1, timeLimit=asks)
    status = changed(w.status("one"), admission=admission)
    assert limit_in_force(asked, status, QueueLimits.model_validate(limits)) == in_force


@pytest.mark.parametrize(
    ("limit", "had_nodes", "held", "over"),
    [("1h", True, 0, 3600.0), ("1h", True, 600, 3000.0), ("1h", False, 0, None), (None, True, 0, None)],
)
def test_what_it_held_before_counts(limit: str | None, had_nodes: bool, held: int, over: float | None) -> None:
    w = world_with_gang(1, **({} if limit is None else {"timeLimit": limit}))
    status = changed(w.status("one"), last_admitted=0.0 if had_nodes else None, held_seconds=held)
    assert time_is_over(w.plan("one"), status) == over


@pytest.mark.parametrize(
    ("used", "action", "reason"),
    [
        (0, "Fail", None),
        (3600, "Fail", StopReason.TIME_LIMIT),
        (3600, "Requeue", StopReason.REQUEUED),
    ],
)
def test_a_run_whose_time_is_over_stops(used: int, action: str, reason: StopReason | None) -> None:
    w = world_with_gang(1, timeLimit="1h", onTimeLimit={"action": action})
    w.now += used
    plan = w.plan("one")
    assert keep_to_limits(plan) is (reason is not None)
    assert (plan.status.stop.reason if plan.status.stop is not None else None) == reason
    assert (plan.build().wake_at is not None) or reason is not None


def test_a_limit_that_cannot_be_read_is_as_it_was_granted_and_its_end_is_nothing_final() -> None:
    w = world_with_gang(1, timeLimit="1h")
    w.queue("default", limits={"defaultTimeLimit": "10m"})
    w.amend("one", admission=changed(w.status("one").admission, time_limit=3600, asked_limit="1h"))
    w.runs["one"] = replace(w.runs["one"], spec=spec(1), spec_error="spec.timeLimit: no; spec.onTimeLimit: no")
    w.now += 1800
    assert not keep_to_limits(w.plan("one"))
    assert obeying_alone(w.snapshot("one"), w.tunables, w.now).status is None
    w.now += 1800
    plan = w.plan("one")
    assert keep_to_limits(plan)
    resting = obeying_alone(w.snapshot("one"), w.tunables, w.now).status
    for status in (plan.status, resting):
        assert status is not None
        assert status.stop is not None
        assert status.stop.reason == StopReason.REQUEUED
