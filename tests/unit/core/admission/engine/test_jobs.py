"""What a job takes: how long it may have its nodes, and when it can start at the latest."""

import pytest

from lockstep.core.admission.engine.jobs import Job, NodeClaim, Option
from support.small_queues import CHOICES, EVERY

OPTIONS = (Option("A", 1, EVERY, CHOICES["anywhere", 1]),)
SAME = object()


def job(duration: float, least: float | None = None, latest_end: float | None = None) -> Job:
    return Job("a", "q", OPTIONS, duration, min_duration=least, latest_end=latest_end)


@pytest.mark.parametrize(
    ("wanted", "start", "lengths"),
    [
        (job(10.0), 0.0, (10.0, 10.0)),
        (job(10.0, least=4.0), 0.0, (4.0, 10.0)),
        (job(10.0, least=99.0), 0.0, (10.0, 10.0)),
        (job(10.0, least=4.0, latest_end=20.0), 10.0, (4.0, 10.0)),
        (job(10.0, least=4.0, latest_end=20.0), 11.0, (4.0, 9.0)),
        (job(10.0, least=4.0, latest_end=20.0), 16.0, (4.0, 4.0)),
    ],
)
def test_a_job_has_its_whole_time_unless_its_deadline_cuts_it(
    wanted: Job, start: float, lengths: tuple[float, float]
) -> None:
    assert wanted.lengths(start) == lengths


@pytest.mark.parametrize(
    ("wanted", "latest"),
    [(job(10.0), None), (job(10.0, latest_end=20.0), 10.0), (job(10.0, least=4.0, latest_end=20.0), 16.0)],
)
def test_it_starts_early_enough_for_its_shortest_time_before_the_deadline(wanted: Job, latest: float | None) -> None:
    assert wanted.latest_start == latest
    if latest is not None:
        (shortest, longest), (too_long, too_little) = wanted.lengths(latest), wanted.lengths(latest + 1)
        assert shortest == longest
        assert too_long > too_little


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (Job("b", "q", OPTIONS, 10.0), True),
        (Job("b", "r", OPTIONS, 10.0), False),
        (Job("b", "q", (*OPTIONS, *OPTIONS), 10.0), False),
        (Job("b", "q", OPTIONS, 11.0), False),
        (Job("b", "q", OPTIONS, 10.0, min_duration=10.0), False),
        (Job("b", "q", OPTIONS, 10.0, not_before=1.0), False),
        (Job("b", "q", OPTIONS, 10.0, latest_end=1.0), False),
        (Job("b", "q", OPTIONS, 10.0, group=SAME), False),
    ],
)
def test_jobs_that_ask_for_the_same_in_one_queue_are_answered_alike(other: Job, alike: bool) -> None:
    assert (job(10.0).alike == other.alike) is alike


def test_jobs_of_one_group_are_alike_without_a_look_at_them() -> None:
    assert Job("a", "q", OPTIONS, 1.0, group=SAME).alike == Job("b", "r", (), 2.0, group=SAME).alike


def test_maintenance_begins_once_the_time_to_leave_is_over() -> None:
    assert NodeClaim(100.0, 200.0, EVERY, "window:firmware", notice=30.0).begins == 130.0
    assert NodeClaim(100.0, 200.0, EVERY, "window:firmware").begins == 100.0
