"""The simulation of queues: the same jobs for every way, and the outcome that the literature leads one to expect."""

import pytest

from bench.schedule import WAYS, Arrival, Figures, Workload, simulate, trace

SHORT = Workload(jobs=100, nodes=64)


def figures(workload: Workload, name: str) -> Figures:
    return simulate(trace(workload), workload.nodes, WAYS[name])


@pytest.mark.parametrize("name", WAYS)
def test_the_same_seed_gives_the_same_figures(name: str) -> None:
    assert figures(SHORT, name) == figures(SHORT, name)


def test_another_seed_gives_other_jobs() -> None:
    assert trace(SHORT) != trace(Workload(jobs=100, nodes=64, seed=2))


def test_limits_are_never_shorter_than_the_runtime_and_no_job_is_larger_than_the_cluster() -> None:
    for arrival in trace(SHORT):
        assert arrival.runtime <= arrival.limit <= arrival.runtime * (1 + SHORT.overestimate)
        assert 1 <= arrival.nodes <= SHORT.nodes


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_backfill_makes_jobs_wait_less_than_fifo_and_uses_more_of_the_cluster(seed: int) -> None:
    workload = Workload(jobs=100, nodes=64, seed=seed)
    fifo, easy = figures(workload, "fifo"), figures(workload, "easy")
    assert easy.mean_wait < fifo.mean_wait
    assert easy.mean_bounded_slowdown < fifo.mean_bounded_slowdown
    assert easy.utilisation > fifo.utilisation


def test_waits_slowdowns_and_utilisation_are_those_of_a_case_done_by_hand() -> None:
    """Of two nodes one is taken for 100 s, the second job wants both, the third one for 20 s."""
    arrivals = [Arrival(0, 1, 100, 100, 2), Arrival(10, 2, 50, 50, 1), Arrival(20, 1, 20, 20, 0)]
    assert simulate(arrivals, 2, WAYS["fifo"]) == Figures(
        (0 + 90 + 130) / 3, (1 + 140 / 50 + 150 / 20) / 3, (100 + 100 + 20) / (2 * 170)
    )
    assert simulate(arrivals, 2, WAYS["easy"]) == Figures((0 + 90 + 0) / 3, (1 + 140 / 50 + 1) / 3, 220 / 300)
    assert simulate(arrivals, 2, WAYS["conservative"]) == simulate(arrivals, 2, WAYS["easy"])
    assert simulate(arrivals, 2, WAYS["priority"]).mean_wait == (0 + 90 + 0) / 3


def test_jobs_shorter_than_the_bound_count_as_if_they_were_as_long() -> None:
    arrivals = [Arrival(0, 1, 100, 100, 0), Arrival(0, 1, 1, 1, 0)]
    assert simulate(arrivals, 1, WAYS["fifo"]).mean_bounded_slowdown == (1 + 101 / 10) / 2
