"""The failure rate that runs learn, held against published fleets' figures."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import CadenceStatus, CheckpointStatus
from lockstep.api.goodput_status import GoodputStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.failures.failure_rate import PRIOR, Exposure, FailureRate, Remedy, failure_shares, planning_rate
from lockstep.core.failures.incomplete_gamma import gamma_cdf, gamma_quantile
from lockstep.core.run.backoff import MOST_ATTEMPTS, adaptive_limit, measured_limit
from support.published_formulae import by_luck, clique_lost, is_lemon, poisson_tail, spares_needed, survival

HOUR, DAY = 3600.0, 86_400.0
RSC_1 = 6.5e-3


def after(failures: float, node_days: float) -> FailureRate:
    return PRIOR.given(Exposure(0.0, failures, node_days))


@pytest.mark.parametrize(
    ("rate", "hours_by_nodes"),
    [
        (2.34e-3, {1: 10256.410, 64: 160.256, 128: 80.128, 512: 20.032, 2048: 5.008, 12500: 0.821, 16384: 0.626}),
        (3.789e-3, {1: 6334.125, 64: 98.971, 128: 49.485, 512: 12.371, 2048: 3.093, 12500: 0.507, 16384: 0.387}),
        (6.50e-3, {1: 3692.308, 64: 57.692, 128: 28.846, 512: 7.212, 2048: 1.803, 12500: 0.295, 16384: 0.225}),
    ],
)
def test_mean_time_to_failure_shrinks_with_the_gang(rate: float, hours_by_nodes: dict[int, float]) -> None:
    belief = FailureRate(rate * 1e6, 1e6)
    for nodes, hours in hours_by_nodes.items():
        assert belief.mttf(nodes) / HOUR == pytest.approx(hours, abs=6e-4)


@pytest.mark.parametrize(
    ("failures", "node_days", "nodes", "mean", "low", "high", "hours"),
    [
        (0, 0, 512, 0.004000, 0.000711, 0.009488, 11.719),
        (0, 512, 512, 0.001976, 0.000351, 0.004688, 23.719),
        (5, 512, 512, 0.006917, 0.003246, 0.011702, 6.777),
        (3, 192, 64, 0.007225, 0.002847, 0.013228, 51.900),
        (93, 14336, 512, 0.006403, 0.005362, 0.007521, 7.320),
        (419, 110592, 2048, 0.003790, 0.003491, 0.004098, 3.092),
    ],
)
def test_what_was_seen_sharpens_the_prior(
    failures: float, node_days: float, nodes: int, mean: float, low: float, high: float, hours: float
) -> None:
    belief = after(failures, node_days)
    assert belief.mean == pytest.approx(mean, abs=5e-7)
    assert belief.interval() == pytest.approx((low, high), abs=5.1e-7)
    assert belief.mttf(nodes) / HOUR == pytest.approx(hours, abs=5e-4)


@pytest.mark.parametrize(
    ("days", "failures", "pool", "expected"),
    [
        (28, 2, 2048, 30.1),
        (28, 3, 2048, 1.80),
        (28, 4, 2048, 0.081),
        (7, 2, 2048, 2.06),
        (7, 3, 2048, 0.031),
        (1, 2, 64, 0.0013),
        (1, 2, 512, 0.011),
        (1, 2, 2048, 0.043),
    ],
)
def test_expected_false_flags(days: float, failures: int, pool: int, expected: float) -> None:
    flags = pool * by_luck(failures, RSC_1, days)
    assert flags == pytest.approx(expected, rel=0.04)
    assert is_lemon(failures, RSC_1, days, pool) is (expected < 0.1)


def test_a_node_that_never_failed_first_is_no_lemon() -> None:
    assert not is_lemon(0, RSC_1, 0.0, 1)


@pytest.mark.parametrize(("nodes", "spares"), [(64, (1, 2, 2, 4)), (512, (1, 5, 8, 18)), (2048, (3, 13, 22, 55))])
def test_spares_that_suffice_99_times_in_100(nodes: int, spares: tuple[int, ...]) -> None:
    assert tuple(spares_needed(nodes, RSC_1, days) for days in (1 / 24, 0.5, 1, 3)) == spares


@pytest.mark.parametrize(
    ("nodes", "at_risk", "attempts"),
    [(64, 2100, 3), (512, 1020, 3), (2048, 660, 3), (16384, 660, 12), (16384, 210, 5)],
)
def test_more_attempts_are_allowed_where_luck_alone_ends_many(nodes: int, at_risk: float, attempts: int) -> None:
    assert adaptive_limit(nodes, at_risk, RSC_1) == attempts


def test_the_limit_of_attempts_stays_finite_when_every_attempt_is_doomed() -> None:
    assert adaptive_limit(16384, 1e9, RSC_1) == MOST_ATTEMPTS
    assert adaptive_limit(1, 0.0, RSC_1) == 3


def test_the_limit_of_attempts_follows_what_the_run_has_measured() -> None:
    mttf = round(DAY / (16384 * RSC_1))
    cadence = CadenceStatus(interval=60, mttf=mttf)
    status = TrainingRunStatus(checkpoint=CheckpointStatus(cadence=cadence), goodput=GoodputStatus(mttr_p50=150))
    assert measured_limit(status, 16384) == adaptive_limit(16384, 210, RSC_1) == 5
    assert measured_limit(TrainingRunStatus(), 512) == adaptive_limit(512)
    unrestarted = changed(status, goodput=GoodputStatus())
    assert measured_limit(unrestarted, 16384) == adaptive_limit(16384, 360, RSC_1)


def test_a_run_plans_for_the_worse_until_it_has_seen_three_failures() -> None:
    seen = Exposure(0.0, 2.0, 512.0)
    assert planning_rate(PRIOR, seen) == pytest.approx(after(2, 512).quantile(0.8))
    assert planning_rate(PRIOR, seen) > after(2, 512).mean
    assert planning_rate(PRIOR, seen.failed()) == after(3, 512).mean


def test_a_run_inherits_the_rate_of_its_pool_but_not_its_certainty() -> None:
    inherited = after(419, 110592).as_prior()
    assert inherited.mean == pytest.approx(after(419, 110592).mean)
    assert inherited.shape == PRIOR.shape
    assert PRIOR.as_prior() is PRIOR


def test_shares_start_at_the_prior_and_follow_the_counts() -> None:
    assert failure_shares({}) == pytest.approx({Remedy.LOCAL: 0.75, Remedy.SHARED: 0.24, Remedy.ARCHIVE: 0.01})
    seen = failure_shares({Remedy.SHARED: 30.0})
    assert seen[Remedy.SHARED] == pytest.approx(32.4 / 40)
    assert sum(seen.values()) == pytest.approx(1.0)


def test_what_is_old_counts_less() -> None:
    seen = Exposure(0.0, 4.0, 100.0).later(14 * DAY, 0, half_life_days=14)
    assert (seen.failures, seen.node_days) == pytest.approx((2.0, 50.0))


def test_a_clock_that_steps_back_adds_nothing() -> None:
    seen = Exposure(1000.0, 4.0, 100.0)
    assert seen.later(10.0, 8, 14) == seen


@given(
    st.lists(st.floats(0.0, 30 * DAY), min_size=1, max_size=6),
    st.integers(1, 16384),
    st.floats(1.0, 365.0),
)
def test_forgetting_does_not_depend_on_how_often_one_looks(cuts: list[float], nodes: int, half_life: float) -> None:
    stepwise = Exposure(0.0, 3.0, 70.0)
    for at in sorted(cuts):
        stepwise = stepwise.later(at, nodes, half_life)
    at_once = Exposure(0.0, 3.0, 70.0).later(max(cuts), nodes, half_life)
    assert stepwise.failures == pytest.approx(at_once.failures)
    assert stepwise.node_days == pytest.approx(at_once.node_days, rel=1e-6)


@given(st.floats(0.5, 5000.0), st.floats(1e-4, 1 - 1e-4))
def test_quantiles_invert_the_distribution(shape: float, probability: float) -> None:
    assert gamma_cdf(shape, gamma_quantile(shape, probability)) == pytest.approx(probability, abs=1e-9)


@given(st.floats(0.01, 200.0), st.integers(0, 60))
def test_poisson_tails_are_sums_of_probabilities(mean: float, count: int) -> None:
    below = sum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(count))
    assert poisson_tail(mean, count) == pytest.approx(1.0 - below, abs=1e-9)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1])
def test_there_is_no_quantile_of_what_is_certain(probability: float) -> None:
    with pytest.raises(ValueError, match="inside"):
        gamma_quantile(2.0, probability)


def test_the_next_hour_is_survived_a_little_more_often_than_the_mean_rate_promises() -> None:
    belief, exposure = after(5, 512), 512 / 24.0
    assert survival(belief.shape, belief.node_days, exposure) == pytest.approx(0.86413, abs=5e-6)
    assert math.exp(-exposure * belief.mean) == pytest.approx(0.86281, abs=5e-6)


@pytest.mark.parametrize(
    ("failed", "by_nodes"),
    [
        (1, {16: 0.0, 64: 0.0, 512: 0.0, 2048: 0.0}),
        (2, {16: 0.0667, 64: 0.0159, 512: 0.00196, 2048: 0.00049}),
        (3, {16: 0.200, 64: 0.0476, 512: 0.00587, 2048: 0.00147}),
        (4, {16: 0.385, 64: 0.0945, 512: 0.0117, 2048: 0.00293}),
    ],
)
def test_replicas_in_pairs_are_lost_with_both_nodes_of_one(failed: int, by_nodes: dict[int, float]) -> None:
    for nodes, lost in by_nodes.items():
        assert clique_lost(nodes, failed) == pytest.approx(lost, rel=0.01, abs=1e-9)


def test_at_16384_nodes_three_attempts_in_a_row_fail_by_luck_in_one_case_of_six() -> None:
    cut_short = 1.0 - math.exp(-660.0 * 16384 * RSC_1 / DAY)
    assert cut_short**3 == pytest.approx(0.17, abs=0.005)
    assert (adaptive_limit(16384, 660.0, RSC_1), adaptive_limit(16384, 210.0, RSC_1)) == (12, 5)
