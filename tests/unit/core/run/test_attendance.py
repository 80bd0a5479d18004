"""Everybody is at the barrier, or past START: judged of each report alike, whoever asks."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.model.plan import DesiredPhase, Directive, VerifyRequest
from lockstep.core.model.worker_report import VerifyReport, WorkerPhase, WorkerReport
from lockstep.core.run.attendance import (
    START_REMEMBERED,
    START_TOGETHER_WITHIN,
    StartPace,
    is_present,
    is_release,
    is_where_wanted,
    slots_wanted,
    stands_ready,
)

CANDIDATE = VerifyRequest("shared", "/shared/5", 5)
PREPARE = Directive(attempt=3, phase=DesiredPhase.PREPARE, incarnations=(1, 4), slot_ranks=(0, -1))
RUN = replace(PREPARE, phase=DesiredPhase.RUN)
STOP = replace(PREPARE, phase=DesiredPhase.STOP)
READY = WorkerReport(
    slot=1, incarnation=4, pod_uid="p", node="n", phase=WorkerPhase.READY, received_at=100.0, since=90.0, ready_for=3
)


@pytest.mark.parametrize(
    ("report", "directive", "is_there"),
    [
        (READY, PREPARE, True),
        (replace(READY, ready_for=2), PREPARE, False),
        (replace(READY, phase=WorkerPhase.PREPARING), PREPARE, False),
        (replace(READY, incarnation=3), PREPARE, False),
        (READY, replace(PREPARE, verify=CANDIDATE), False),
        (READY, replace(PREPARE, look_again=frozenset({1})), False),
        (replace(READY, looked_again=2), replace(PREPARE, look_again=frozenset({1})), False),
        (replace(READY, looked_again=3), replace(PREPARE, look_again=frozenset({1})), True),
        (READY, replace(PREPARE, look_again=frozenset({0})), True),
        (READY, RUN, False),
        (replace(READY, attempt=3), RUN, True),
        (replace(READY, attempt=3, phase=WorkerPhase.EXITED), RUN, True),
        (READY, replace(PREPARE, takes_steps=True), False),
        (replace(READY, steps_port=5001), replace(PREPARE, takes_steps=True), True),
        (replace(READY, attempt=3), replace(RUN, takes_steps=True), True),
    ],
)
def test_a_worker_is_where_its_directive_wants_the_gang(
    report: WorkerReport, directive: Directive, is_there: bool
) -> None:
    assert is_where_wanted(report, directive) is is_there


@pytest.mark.parametrize(
    ("changes", "attempt", "takes_steps", "stands"),
    [
        ({}, 3, False, True),
        ({}, 2, False, False),
        ({}, None, False, True),
        ({"phase": WorkerPhase.PREPARING}, None, False, False),
        ({}, 3, True, False),
        ({}, None, True, False),
        ({"steps_port": 5001}, 3, True, True),
        ({"steps_port": 5001}, None, True, True),
        ({"steps_port": 5001}, 2, True, False),
    ],
)
def test_who_stands_ready_says_where_it_takes_steps_if_the_gang_has_any(
    changes: dict[str, Any], attempt: int | None, takes_steps: bool, stands: bool
) -> None:
    assert stands_ready(replace(READY, **changes), attempt, takes_steps=takes_steps) is stands


def test_a_worker_that_is_to_read_is_there_once_it_has() -> None:
    wanted = replace(PREPARE, verify=CANDIDATE)
    answers = [VerifyReport("shared", path, True) for path in ("/shared/4", "/shared/5")]
    assert [is_where_wanted(replace(READY, verified=(answer,)), wanted) for answer in answers] == [False, True]


@pytest.mark.parametrize(("directive", "slots"), [(PREPARE, [0, 1]), (RUN, [0]), (STOP, [])])
def test_spares_are_waited_for_at_the_barrier_and_not_past_it(directive: Directive, slots: list[int]) -> None:
    assert list(slots_wanted(directive)) == slots


@pytest.mark.parametrize(
    ("report", "counts"),
    [
        (None, False),
        (READY, True),
        (replace(READY, received_at=95.0), True),
        (replace(READY, received_at=94.9), False),
        (replace(READY, received_at=0.0, polling=True), True),
    ],
)
def test_an_arrival_counts_only_while_it_is_heard(report: WorkerReport | None, counts: bool) -> None:
    assert is_present(report, now=100.0, heartbeat=5.0) is counts


@pytest.mark.parametrize(
    ("before", "directive", "is_one"),
    [(PREPARE, RUN, True), (None, RUN, False), (RUN, RUN, False), (PREPARE, PREPARE, False), (RUN, STOP, False)],
)
def test_a_gang_is_released_from_its_barrier_once(before: Directive | None, directive: Directive, is_one: bool) -> None:
    assert is_release(before, directive) is is_one


def test_programs_are_held_back_for_as_long_as_the_last_starts_took_to_be_heard() -> None:
    assert StartPace().held_back == 0.0
    pace = StartPace().directed(RUN, PREPARE, 10.0).heard_by_all(10.3)
    assert pace.held_back == pytest.approx(0.3)
    sooner = pace.directed(RUN, PREPARE, 20.0).heard_by_all(20.01)
    assert sooner.held_back == pytest.approx(0.3 * START_REMEMBERED)
    assert sooner.directed(RUN, PREPARE, 30.0).heard_by_all(39.0).held_back == START_TOGETHER_WITHIN


def test_a_start_that_was_taken_back_says_nothing_of_the_next_one() -> None:
    pace = StartPace().directed(RUN, PREPARE, 10.0).directed(STOP, RUN, 11.0)
    assert pace.heard_by_all(20.0) == StartPace()
    assert StartPace().directed(RUN, PREPARE, 10.0).directed(RUN, RUN, 11.0).told_at == 10.0
