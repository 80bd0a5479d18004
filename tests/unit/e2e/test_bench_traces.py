"""The jobs that the simulation of queues lets come have the shape that the models they are of publish."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from statistics import fmean

import pytest

from bench.traces import LONGEST_LIMIT, POPULAR_LIMITS, Arrival, Workload, at_load, offered_load, shaped, synthetic

Trace = Callable[[Workload], list[Arrival]]

DAY = 86_400
SHORT = Workload(jobs=100, nodes=64)
LONG = Workload(jobs=20_000)


@pytest.fixture(scope="module")
def long() -> list[Arrival]:
    return shaped(LONG)


@pytest.mark.parametrize("trace", [synthetic, shaped])
def test_the_seed_alone_decides_the_jobs(trace: Trace) -> None:
    assert trace(SHORT) == trace(SHORT)
    assert trace(SHORT) != trace(Workload(jobs=100, nodes=64, seed=2))


def test_the_first_job_of_a_seed_stays_what_it_was() -> None:
    """Figures of one version can be compared with those of another only if the jobs are the same."""
    first = shaped(Workload())[0]
    assert (first.nodes, first.limit) == (1, 600)
    assert first.at == pytest.approx(68.56968)
    assert first.runtime == pytest.approx(16.733995)


def test_synthetic_limits_are_never_shorter_than_the_runtime_and_no_job_is_larger_than_the_cluster() -> None:
    for arrival in synthetic(SHORT):
        assert arrival.runtime <= arrival.limit <= arrival.runtime * (1 + SHORT.overestimate)
        assert 1 <= arrival.nodes <= SHORT.nodes


@pytest.mark.parametrize("nodes", [1, 2, 7, 100, 240, 256])
def test_shaped_limits_are_never_shorter_than_the_runtime_and_no_job_is_larger_than_the_cluster(nodes: int) -> None:
    for seed in range(5):
        for arrival in shaped(Workload(jobs=200, nodes=nodes, seed=seed)):
            assert arrival.runtime <= arrival.limit <= LONGEST_LIMIT
            assert 1 <= arrival.nodes <= nodes


@pytest.mark.parametrize("load", [0.3, 0.85, 1.2])
def test_the_load_is_the_one_asked_for(load: float) -> None:
    workload = Workload(jobs=500, load=load)
    assert offered_load(shaped(workload), workload.nodes) == pytest.approx(load)
    assert offered_load(synthetic(workload), workload.nodes) == pytest.approx(load, rel=0.15)


def test_another_load_leaves_the_jobs_and_the_length_of_the_day_as_they_are() -> None:
    """Twice the time is twice as many nights, and no night of 48 hours."""
    busy, calm = (shaped(Workload(jobs=5000, load=load)) for load in (0.85, 0.425))
    assert [(one.nodes, one.runtime, one.limit) for one in busy] == [
        (one.nodes, one.runtime, one.limit) for one in calm
    ]
    assert calm[-1].at == pytest.approx(2 * busy[-1].at)
    for arrivals in (busy, calm):
        assert share(arrivals, lambda job: 12 <= hour(job) < 18) > 0.3
        assert share(arrivals, lambda job: 2 <= hour(job) < 6) < 0.1


@pytest.mark.slow
def test_jobs_come_in_order(long: list[Arrival]) -> None:
    assert long[0].at > 0
    assert all(earlier.at <= later.at for earlier, later in pairwise(long))


def test_a_quarter_takes_one_node_and_most_others_a_power_of_two(long: list[Arrival]) -> None:
    """24.4% are serial by design and 57.6% powers of two; some of the rest round to one."""
    assert share(long, lambda job: job.nodes == 1) == pytest.approx(0.244, abs=0.03)
    assert share(long, lambda job: job.nodes > 1 and job.nodes & (job.nodes - 1) == 0) == pytest.approx(0.6, abs=0.04)


def test_few_jobs_are_large(long: list[Arrival]) -> None:
    """14% of parallel jobs are larger than the cluster divided by 2 to the power of 2.5."""
    assert share(long, lambda job: job.nodes > LONG.nodes / 2**2.5) == pytest.approx(0.14 * 0.756, abs=0.03)
    assert share(long, lambda job: job.nodes == LONG.nodes) > 0.005


def test_a_power_of_two_beyond_the_cluster_is_the_one_below_and_not_the_whole_cluster() -> None:
    assert share(shaped(Workload(jobs=5000, nodes=240)), lambda job: job.nodes == 240) < 0.005


def test_a_job_that_outruns_all_limits_that_are_left_gets_the_longest() -> None:
    for seed in range(300):
        for job in shaped(Workload(jobs=2, seed=seed)):
            assert job.runtime <= job.limit <= LONGEST_LIMIT


def test_larger_jobs_run_longer(long: list[Arrival]) -> None:
    means = [
        fmean(job.runtime for job in long if least <= job.nodes <= most) for least, most in ((1, 8), (9, 64), (65, 256))
    ]
    assert means == sorted(means)
    assert means[2] > 2 * means[0]


def test_runtimes_are_of_two_kinds(long: list[Arrival]) -> None:
    """Of jobs of one node 77% are short, around a minute; the others run for some three hours."""
    serial = [job for job in long if job.nodes == 1]
    assert share(serial, lambda job: job.runtime < 3000) == pytest.approx(0.77, abs=0.03)
    assert share(serial, lambda job: 5_000 < job.runtime < 30_000) > 0.15


def test_fewer_jobs_come_at_night_and_half_as_many_at_weekends(long: list[Arrival]) -> None:
    hours = Counter(hour(job) for job in long)
    assert sum(hours[at] for at in (13, 14, 15, 16)) > 5 * sum(hours[at] for at in (3, 4, 5, 6))
    whole_weeks = long[-1].at // (7 * DAY) * 7 * DAY
    days = Counter(int(job.at // DAY) % 7 for job in long if job.at < whole_weeks)
    weekend, working = fmean(days[day] for day in (5, 6)), fmean(days[day] for day in range(5))
    assert weekend / working == pytest.approx(0.5, abs=0.1)


def test_nine_of_ten_ask_for_one_of_twenty_limits_and_most_of_all_for_the_longest(long: list[Arrival]) -> None:
    limits = Counter(job.limit for job in long)
    assert len(POPULAR_LIMITS) == len(set(POPULAR_LIMITS)) == 20
    assert sum(limits[limit] for limit in POPULAR_LIMITS) / len(long) == pytest.approx(0.89, abs=0.02)
    assert limits.most_common(1)[0][0] == LONGEST_LIMIT
    assert limits[LONGEST_LIMIT] / len(long) == pytest.approx(0.217, abs=0.02)
    assert 100 < len(limits) < 200
    assert all(limit % 60 == 0 for limit in limits)


def test_most_limits_are_far_too_long(long: list[Arrival]) -> None:
    assert share(long, lambda job: job.runtime < job.limit / 4) > 0.5


def test_a_stretched_trace_has_the_load_and_keeps_the_jobs(long: list[Arrival]) -> None:
    stretched = at_load(long, LONG.nodes, 0.4)
    assert offered_load(stretched, LONG.nodes) == pytest.approx(0.4)
    assert [job.runtime for job in stretched] == [job.runtime for job in long]


def test_jobs_that_all_come_at_once_have_no_load() -> None:
    at_once = [Arrival(0, 1, 10, 10, 0), Arrival(0, 1, 10, 10, 0)]
    assert offered_load(at_once, 1) is None
    assert at_load(at_once, 1, 0.5) == at_once


def share(jobs: list[Arrival], is_so: Callable[[Arrival], bool]) -> float:
    return sum(map(is_so, jobs)) / len(jobs)


def hour(job: Arrival) -> int:
    return int(job.at % DAY // 3600)
