"""How long a run may have its nodes, and what becomes of one whose time or budget is used up."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.queue import QueueLimits
from lockstep.api.run_status import TimeLimitStatus
from lockstep.core.model.limits import limit_in_force
from lockstep.core.model.reasons import StopReason
from lockstep.core.run.time_left import time_is_over
from lockstep.core.run.time_limit import keep_to_limits, tell_time_limit
from lockstep.core.run.undecidable import obeying_alone
from support.values import not_none
from support.world import World, spec, world, world_with_gang


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


UNSAVED = {"checkpoint": None}


def limited(listens: bool, **fields: object) -> tuple[World, float]:
    """A gang that trains with a time limit, and when that is over."""
    w = world(2, listens=listens)
    w.roll_out("one", spec(2, **fields))
    w.work()
    return w, not_none(time_is_over(w.plan("one"), w.status("one")))


def stops(w: World, at: float) -> str:
    """What the run does at that moment: nothing, save first, or end without."""
    w.now = at
    plan = w.plan("one")
    if not keep_to_limits(plan):
        return ""
    stop = not_none(plan.status.stop)
    assert stop.reason == StopReason.TIME_LIMIT
    return "saves" if stop.save else "ends"


@pytest.mark.parametrize(
    ("fields", "listens", "moments"),
    [
        ({"timeLimit": "4m"}, True, {121: "", 120: "saves", 25: "saves"}),
        ({"timeLimit": "4m"}, False, {120: "", 25: "", 24: "ends"}),
        ({"timeLimit": "4m", **UNSAVED}, False, {120: "", 25: "", 24: "ends"}),
        ({"timeLimit": "30m", **UNSAVED}, False, {600: "", 61: "", 60: "ends"}),
        ({"timeLimit": "2m", **UNSAVED}, False, {60: "", 13: "", 12: "ends"}),
        ({"timeLimit": "40s", **UNSAVED}, False, {20: "", 6: "", 5: "ends"}),
        ({"timeLimit": "40s"}, True, {21: "", 20: "saves"}),
        ({"timeLimit": "1h"}, True, {601: "", 600: "saves", 300: "saves"}),
        ({"timeLimit": "1h"}, False, {600: "", 300: "", 60: "ends"}),
    ],
)
def test_who_does_not_save_when_asked_has_all_of_its_time_but_the_grace(
    fields: dict[str, object], listens: bool, moments: dict[int, str]
) -> None:
    w, over = limited(listens, **fields)
    assert {left: stops(w, over - left) for left in moments} == moments


def test_a_program_that_begins_to_listen_late_is_asked_at_once_and_has_what_is_left() -> None:
    w, over = limited(False, timeLimit="1h")
    assert stops(w, over - 400) == ""
    w.listens = True
    w.work_reports_only()
    assert stops(w, over - 399) == "saves"
    plan = w.plan("one")
    assert keep_to_limits(plan)
    assert not_none(plan.status.checkpoint.save).deadline == pytest.approx(min(w.now + 300, over - 60), abs=1)


@pytest.mark.parametrize(("listened", "at_once"), [(True, "saves"), (False, "")])
def test_right_after_a_failover_those_are_asked_who_are_known_to_listen_and_others_are_heard_first(
    listened: bool, at_once: str
) -> None:
    """Whoever listens loses nothing of its lead time, and who does not loses nothing of its limit."""
    w, over = limited(listened, timeLimit="1h")
    w.settle()
    assert (not_none(w.status("one").time_limit).save_at is not None) is listened
    w.now = over - 600
    w.crash()
    assert stops(w, w.now) == at_once
    plan = w.plan("one")
    assert keep_to_limits(plan) or plan.build().wake_at == pytest.approx(w.now + w.plan("one").silent_after)
    w.work_reports_only()
    assert stops(w, w.now) == at_once


@pytest.mark.parametrize(
    ("fields", "listens", "told"),
    [
        ({"timeLimit": "1h"}, True, (3600, 3000, 3540, 3600)),
        ({"timeLimit": "1h"}, False, (3600, None, 3540, 3600)),
        ({"timeLimit": "4m", **UNSAVED}, False, (240, None, 216, 240)),
        ({"timeLimit": "40s", **UNSAVED}, False, (40, None, 35, 40)),
        ({}, True, None),
    ],
)
def test_status_tells_when_the_run_saves_and_ends_and_others_count_on_that_end(
    fields: dict[str, object], listens: bool, told: tuple[int, int | None, int, int] | None
) -> None:
    w = world(2, listens=listens)
    w.roll_out("one", spec(2, **fields))
    w.settle()
    since = not_none(w.status("one").last_admitted)
    expected = None
    if told is not None:
        seconds, save, end, over = told
        save_at = None if save is None else since + save
        expected = TimeLimitStatus(seconds=seconds, save_at=save_at, end_at=since + end, over_at=since + over)
    assert w.status("one").time_limit == expected
    if expected is not None:
        assert expected.over_at == since + not_none(w.status("one").admission.time_limit)


def test_what_is_told_goes_with_the_nodes_and_outlives_a_restart_of_the_program() -> None:
    w, _ = limited(True, timeLimit="1h")
    w.settle()
    w.listens = False  # it starts anew, and has not asked yet
    w.work_reports_only()
    plan = w.plan("one")
    tell_time_limit(plan)
    assert not_none(plan.status.time_limit).save_at is not None
    w.roll_out("one", spec(2, timeLimit="1h", suspend=True))
    assert w.status("one").time_limit is None


def test_a_limit_below_nothing_that_somebody_wrote_into_the_status_is_told_as_nothing() -> None:
    plan = world_with_gang(1, timeLimit="10m").plan("one")
    plan.status = changed(plan.status, admission=changed(plan.status.admission, time_limit=-1))
    tell_time_limit(plan)
    assert not_none(plan.status.time_limit).seconds == 0
