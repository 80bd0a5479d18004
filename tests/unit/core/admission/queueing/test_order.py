"""Who comes first: points by class, age, fair share and size, and when they change by time alone."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AdmissionStatus, QueueStatus
from lockstep.core.admission.queueing.order import Order, Points, order_key, waits_since
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.settings import Weights
from lockstep.core.model.snapshot import RunView
from support.admission import NOW, held, run

WEIGHTS = Weights(priority_class=1000, age=100, fair_share=10, size=100)
SETTINGS = AdmissionSettings(weights=WEIGHTS, max_age=1000.0)
CLASSES = {"high": 200, "low": 50, "below": -5, "system-node-critical": 2_000_000}


def order(**changes: Any) -> Order:
    return Order(replace(SETTINGS, **changes), CLASSES, 10, NOW)


def requeued(view: RunView) -> RunView:
    return replace(view, status=changed(view.status, admission=AdmissionStatus(requeued_for="Preempted")))


@pytest.mark.parametrize(
    ("view", "points"),
    [
        (run("a", 10, at=NOW), Points(0, 0, 5, 100, 0)),
        (run("a", 1, at=NOW), Points(0, 0, 5, 10, 0)),
        (run("a", 99, at=NOW), Points(0, 0, 5, 100, 0)),
        (run("a", 10, at=NOW, priorityClassName="high"), Points(1000, 0, 5, 100, 0)),
        (run("a", 10, at=NOW, priorityClassName="low"), Points(250, 0, 5, 100, 0)),
        (run("a", 10, at=NOW, priorityClassName="below"), Points(0, 0, 5, 100, 0)),
        (run("a", 10, at=NOW, priorityClassName="gone"), Points(0, 0, 5, 100, 0)),
        (run("a", 10, at=NOW - 500), Points(0, 50, 5, 100, 0)),
        (run("a", 10, at=NOW - 1000), Points(0, 100, 5, 100, 0)),
        (run("a", 10, at=NOW + 500), Points(0, 0, 5, 100, 0)),
        (run("a", 10, at=NOW, nice=7), Points(0, 0, 5, 100, 7)),
        (requeued(run("a", 1, at=NOW, nice=7)), Points(0, 100, 10, 100, 0)),
    ],
)
def test_a_run_has_points_for_its_class_age_share_and_size(view: RunView, points: Points) -> None:
    assert order().points(view, fair_share=0.5) == points


def test_small_runs_have_the_points_for_size_where_they_are_preferred() -> None:
    assert [order(prefer_small=True).points(run("a", nodes), 1.0).size for nodes in (1, 5, 10)] == [90, 50, 0]


@pytest.mark.parametrize(
    ("view", "weights", "until"),
    [
        (run("a", at=NOW), WEIGHTS, NOW + 10),
        (run("a", at=NOW - 9), WEIGHTS, NOW + 1),
        (run("a", at=NOW - 10), WEIGHTS, NOW + 10),
        (run("a", at=NOW - 999), WEIGHTS, NOW + 1),
        (run("a", at=NOW - 1000), WEIGHTS, inf),
        (run("a", at=NOW), Weights(age=0), inf),
        (requeued(run("a", at=NOW)), WEIGHTS, inf),
    ],
)
def test_points_last_until_the_age_is_worth_one_more(view: RunView, weights: Weights, until: float) -> None:
    assert order(weights=weights).lasts_until(view) == pytest.approx(until, abs=0.02)
    if until < inf:
        later = Order(SETTINGS, CLASSES, 10, until)
        assert later.points(view, 0.0).age == order().points(view, 0.0).age + 1


@pytest.mark.parametrize(
    ("status", "since"),
    [
        ({}, 5.0),
        ({"admission": AdmissionStatus(since=7.0)}, 7.0),
        ({**held(), "attempt": 1}, NOW),
        ({"queue": QueueStatus(reason="Resources", message="")}, NOW),
    ],
)
def test_a_run_waits_since_it_was_made_unless_it_had_its_turn_or_was_held_back(
    status: dict[str, Any], since: float
) -> None:
    assert waits_since(run("a", at=5.0, status=status), NOW + 0.9) == since


@pytest.mark.parametrize(
    ("points", "told", "moved"),
    [
        (Points(1000, 100, 10, 100, 0), {"class": 1000, "age": 100, "fairShare": 10, "size": 100}, False),
        (Points(950, 0, 0, 0, 0), {"class": 1000}, False),
        (Points(949, 0, 0, 0, 0), {"class": 1000}, True),
        (Points(0, 5, 0, 0, 0), {}, False),
        (Points(0, 6, 0, 0, 0), {}, True),
        (Points(0, 0, 0, 0, 1), {}, True),
        (Points(0, 0, 0, 0, 1), {"nice": -1}, False),
    ],
)
def test_points_have_moved_by_more_than_a_twentieth_of_a_weight_or_by_any_given_up(
    points: Points, told: dict[str, int], moved: bool
) -> None:
    assert points.have_moved(told, WEIGHTS) is moved


def test_what_a_run_gives_up_is_taken_off_its_points() -> None:
    assert Points(1, 2, 4, 8, 16).total == -1


def test_status_shows_what_is_not_nothing() -> None:
    assert Points(1000, 0, 10, 0, 7).shown() == {"class": 1000, "fairShare": 10, "nice": -7}
    assert not Points(0, 0, 0, 0, 0).have_moved(
        Points(0, 0, 0, 0, 0).shown(), Weights(priority_class=0, age=0, fair_share=0, size=0)
    )


def test_the_most_points_come_first_then_who_lost_its_nodes_then_who_came_first() -> None:
    few, many = Points(1, 0, 0, 0, 0), Points(2, 0, 0, 0, 0)
    line = [
        (run("urgent", at=9.0), many),
        (requeued(run("lost", at=9.0)), few),
        (run("early", at=1.0), few),
        (run("b", at=2.0), few),
        (run("c", at=2.0), few),
    ]
    backwards = line[::-1]
    assert sorted(backwards, key=lambda each: order_key(*each)) == line
