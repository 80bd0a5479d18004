"""How often to save: published optima as tables, and what a planned cadence always keeps to."""

import dataclasses
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lockstep.core.checkpoints.cadence import (
    ArchiveGoal,
    Bounds,
    Cadence,
    CadenceInputs,
    Held,
    Level,
    SaveCost,
    plan_cadence,
    worth_publishing,
)
from lockstep.core.failures.failure_rate import PRIOR_SHARES, SECONDS_PER_DAY, Remedy
from support.published_formulae import (
    availability_period,
    cheap_tier_pays,
    daly_work,
    efficiency,
    expected_wall,
    finite_ettr,
    first_order_waste,
    nested_optimum,
    optimal_work,
    young_work,
)

RSC_1 = 6.5e-3


def failures_per_second(nodes: int, rate: float = RSC_1) -> float:
    return nodes * rate / SECONDS_PER_DAY


@pytest.mark.parametrize(
    ("cost", "mttf", "restart", "young", "daly", "exact", "available", "efficient", "first_order"),
    [
        (300, 86400, 600, 7200.00, 7001.39, 7001.40, 7531.18, 0.91261, 0.90971),
        (300, 21600, 600, 3600.00, 3402.78, 3402.84, 3961.97, 0.81938, 0.80549),
        (300, 900, 600, 734.85, 548.46, 549.99, 1294.99, 0.19967, -0.49),
        (60, 6490.4, 300, 882.52, 842.98, 842.99, 964.68, 0.83081, 0.81777),
        (10, 6490.4, 300, 360.29, 353.65, 353.65, 378.66, 0.90280, 0.89826),
        (1, 6490.4, 120, 113.93, 113.27, 113.27, 115.99, 0.96455, 0.96396),
        (120, 25961.5, 300, 2496.15, 2416.79, 2416.80, 2633.40, 0.89649, 0.89228),
        (30, 3092.6, 300, 430.76, 410.99, 411.00, 482.17, 0.78694, 0.76367),
        (5, 811.3, 120, 90.07, 86.77, 86.77, 101.63, 0.77026, 0.74105),
    ],
)
def test_intervals_are_those_of_the_literature(
    cost: float,
    mttf: float,
    restart: float,
    young: float,
    daly: float,
    exact: float,
    available: float,
    efficient: float,
    first_order: float,
) -> None:
    assert young_work(cost, mttf) == pytest.approx(young, abs=0.0051)
    assert daly_work(cost, mttf) == pytest.approx(daly, abs=0.0051)
    work = optimal_work(cost, mttf)
    assert work == pytest.approx(exact, abs=0.0051)
    assert availability_period(cost, mttf, restart) == pytest.approx(available, abs=0.0051)
    assert efficiency(work, cost, mttf, restart) == pytest.approx(efficient, abs=5.1e-6)
    digits = 0.0051 if first_order < 0 else 5.1e-6
    assert 1 - first_order_waste(work + cost, cost, mttf, restart) == pytest.approx(first_order, abs=digits)


@pytest.mark.parametrize(("hours", "minutes"), [(24, 116.69), (6, 56.71), (0.25, 9.14)])
def test_dalys_own_check_points(hours: float, minutes: float) -> None:
    assert daly_work(300, hours * 3600) / 60 == pytest.approx(minutes, abs=0.0051)


def test_a_save_dearer_than_two_failures_apart_waits_for_one() -> None:
    assert daly_work(250, 100) == 100
    assert optimal_work(250, 100) == pytest.approx(96.88, abs=0.0051)
    assert optimal_work(1e6, 100) == 100


@pytest.mark.parametrize(
    ("nodes", "restart", "period", "cost", "queue", "ettr"),
    [
        (2048, 300, 1800, 10, 0, 0.8096),
        (2048, 300, 360, 10, 0, 0.8983),
        (2048, 60, 360, 10, 0, 0.9352),
        (2048, 60, 114, 1, 0, 0.9732),
        (512, 300, 1800, 10, 0, 0.9482),
        (512, 300, 720, 10, 0, 0.9607),
        (512, 300, 720, 10, 600, 0.9376),
        (512, 300, 720, 10, 3600, 0.8220),
        (64, 600, 3600, 60, 0, 0.9718),
        (16384, 120, 120, 1, 0, 0.7698),
    ],
)
def test_expected_ettr(nodes: int, restart: float, period: float, cost: float, queue: float, ettr: float) -> None:
    waste = first_order_waste(period, cost, 1 / failures_per_second(nodes), restart, queue=queue)
    assert 1 - waste == pytest.approx(ettr, abs=5.1e-5)


def test_a_finite_job_also_pays_for_its_queue() -> None:
    assert finite_ettr(useful=90_000, waste=0.1, mttf=50_000, queue=1000) == pytest.approx(90 / 103)
    assert finite_ettr(useful=90_000, waste=0.1, mttf=50_000, queue=0) == pytest.approx(0.9)


def test_wall_time_grows_as_efficiency_falls() -> None:
    assert expected_wall(353.65, 10, 6490.4, 300, useful=9028.0) == pytest.approx(10_000, rel=1e-4)
    assert expected_wall(1e9, 10, 100, 10, useful=1.0) == math.inf


@pytest.mark.parametrize(
    ("nodes", "local", "shared", "alone"), [(512, 263.1, 1441.2, 720.6), (2048, 131.6, 720.6, 360.3)]
)
def test_each_level_has_the_period_of_its_own_failures(nodes: int, local: float, shared: float, alone: float) -> None:
    failures = failures_per_second(nodes)
    cheap, deep, only = Level(1, 0.75 * failures), Level(10, 0.25 * failures), Level(10, failures)
    assert (cheap.period, deep.period, only.period) == pytest.approx((local, shared, alone), abs=0.051)


def test_three_levels_nest() -> None:
    failures = failures_per_second(2048)
    levels = [Level(cost, share * failures) for cost, share in zip((1, 10, 60), (0.75, 0.24, 0.01), strict=True)]
    assert [level.period for level in levels] == pytest.approx([131.6, 735.4, 8825.2], abs=0.051)
    best = nested_optimum(levels)
    assert best.multiples == (6, 12)
    assert best.base_period == pytest.approx(125.0, abs=0.051)
    assert best.waste == pytest.approx(0.05602, abs=5.1e-6)


@pytest.mark.parametrize(("cost", "pays", "change"), [(1, True, -0.23), (5, False, 0.11)])
def test_a_local_tier_has_to_pay(cost: float, pays: bool, change: float) -> None:
    assert cheap_tier_pays(0.75, cost, 10) is pays
    both, alone = math.sqrt(0.75 * cost) + math.sqrt(0.25 * 10), math.sqrt(10)
    assert both / alone - 1 == pytest.approx(change, abs=0.0051)
    plan = plan_cadence(inputs(64, blocking=(cost, 10), durable=(0, 0), step=0.01))
    assert (plan.local is not None) is pays
    assert ("would not pay" in plan.why) is not pays


QUARTER = {Remedy.LOCAL: 0.75, Remedy.SHARED: 0.24, Remedy.ARCHIVE: 0.01}


def inputs(
    nodes: int = 512,
    rate: float = RSC_1,
    blocking: tuple[float, float] = (1, 10),
    durable: tuple[float, float] = (5, 60),
    step: float = 12,
    **more: object,
) -> CadenceInputs:
    base = CadenceInputs(
        nodes=nodes,
        rate=rate,
        shares=QUARTER,
        step_seconds=step,
        local=SaveCost(blocking[0], durable[0], 1),
        shared=SaveCost(blocking[1], durable[1], 1),
        local_bounds=Bounds(longest=3600),
        shared_bounds=Bounds(longest=14400),
    )
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measured", "local", "shared"),
    [
        (inputs(512), 22, 110),
        (inputs(2048), 11, 55),
        (inputs(16384), 4, 24),
        (inputs(64, blocking=(3, 20), durable=(10, 120), step=8), 162, 648),
        (inputs(2048, 3.789e-3, blocking=(2, 2), durable=(20, 300)), 21, 42),
    ],
)
def test_planned_steps(measured: CadenceInputs, local: int, shared: int) -> None:
    plan = plan_cadence(measured)
    assert (plan.local_steps, plan.shared_steps) == (local, shared)


def test_local_saves_pay_sooner_where_shared_ones_are_slow_to_become_durable() -> None:
    slow = inputs(2048, blocking=(5, 10), durable=(5, 180))
    assert plan_cadence(slow).local is not None
    assert plan_cadence(inputs(2048, blocking=(5, 10), durable=(5, 5))).local is None


@pytest.mark.parametrize(
    ("measured", "held", "seconds"),
    [
        (inputs(16384, local=None), Held.OVERHEAD, 288),
        (inputs(16384, local=None, durable=(0, 900)), Held.DURABLE, 900),
        (inputs(16384, local=None, shared_bounds=Bounds(1200, 7200)), Held.SHORTEST, 1200),
        (inputs(64, local=None, shared_bounds=Bounds(60, 600)), Held.LONGEST, 600),
        (inputs(64, local=None, shared_bounds=Bounds(1800, 1800)), Held.ASKED, 1800),
        (inputs(512, shared=None), Held.NOTHING, 264),
    ],
)
def test_what_holds_an_interval_is_said(measured: CadenceInputs, held: Held, seconds: float) -> None:
    plan = plan_cadence(measured)
    tier = plan.shared or plan.local
    assert tier is not None
    assert (tier.held, tier.seconds) == (held, seconds)
    assert held.value in plan.why


def test_the_reason_reads_well() -> None:
    plan = plan_cadence(inputs(archive=ArchiveGoal(1000.0, 21600.0)))
    assert plan.archive_every == 17
    assert plan.why == (
        "one failure in 7.21 h is expected of 512 nodes (6.50 per 1000 node-days); "
        "a local save blocks 1 s: every 22 steps (4.4 min); a shared save blocks 10 s: every 110 steps (22 min); "
        "one shared save in 17 is archived; saves and repeated steps take 2.2%"
    )


def test_one_node_and_one_step_are_said_as_one() -> None:
    why = plan_cadence(inputs(1, step_seconds=1e6)).why
    assert "is expected of 1 node (" in why
    assert "every 1 step (" in why


def test_without_the_time_of_a_step_the_interval_is_in_seconds() -> None:
    plan = plan_cadence(inputs(step_seconds=None))
    assert plan.local is not None
    assert plan.local.seconds == 264
    assert "every 4.4 min;" in plan.why


def test_archiving_waits_for_the_copy_before() -> None:
    plan = plan_cadence(inputs(archive=ArchiveGoal(4000.0, 60.0)))
    assert plan.archive_every == math.ceil(4000 / (110 * 12))


def test_without_tiers_nothing_is_saved() -> None:
    plan = plan_cadence(inputs(local=None, shared=None, archive=ArchiveGoal(1.0, 1.0)))
    assert (plan.local_steps, plan.shared_steps, plan.archive_every, plan.overhead) == (0, 0, 0, 0.0)


costs = st.floats(0.0, 600.0)
cases = st.builds(
    inputs,
    nodes=st.integers(1, 16384),
    rate=st.floats(1e-4, 0.1),
    blocking=st.tuples(costs, costs),
    durable=st.tuples(costs, costs),
    step=st.floats(0.05, 120.0),
    local_bounds=st.builds(Bounds, st.floats(0, 600), st.floats(600, 7200)),
    shared_bounds=st.builds(Bounds, st.floats(0, 600), st.floats(600, 14400)),
)


def periods(plan: Cadence) -> tuple[float, ...]:
    return tuple(tier.period for tier in (plan.local, plan.shared) if tier is not None)


def same_tiers(one: Cadence, other: Cadence) -> bool:
    return (one.local is None) is (other.local is None)


@given(cases, st.floats(1.0, 50.0), st.sampled_from(["nodes", "rate"]))
def test_more_failures_never_mean_longer_intervals(case: CadenceInputs, factor: float, what: str) -> None:
    more = (
        dataclasses.replace(case, nodes=math.ceil(case.nodes * factor))
        if what == "nodes"
        else dataclasses.replace(case, rate=case.rate * factor)
    )
    before, after = plan_cadence(case), plan_cadence(more)
    assume(same_tiers(before, after))  # with another tier in use the work is shared out anew
    assert all(new <= old for old, new in zip(periods(before), periods(after), strict=True))
    if before.local is not None:
        assert after.local_steps <= before.local_steps


@given(cases, st.floats(0.0, 300.0), st.sampled_from(["local", "shared"]))
def test_dearer_saves_never_mean_shorter_intervals(case: CadenceInputs, more: float, tier: str) -> None:
    cost = case.local if tier == "local" else case.shared
    assert cost is not None
    dearer = dataclasses.replace(case, **{tier: dataclasses.replace(cost, blocking=cost.blocking + more)})  # type: ignore[arg-type]
    before, after = plan_cadence(case), plan_cadence(dearer)
    assume(same_tiers(before, after))
    assert all(new >= old for old, new in zip(periods(before), periods(after), strict=True))


@given(cases)
def test_planned_intervals_are_ones_that_can_be_kept(case: CadenceInputs) -> None:
    plan = plan_cadence(case)
    assert plan.shared is not None
    assert plan.shared_steps >= 1
    assert plan.shared.seconds >= case.shared.durable * (1 - 1e-9)  # type: ignore[union-attr]
    assert 0.0 <= plan.overhead <= 1.0
    assert str(plan.shared_steps) in plan.why
    if plan.local is not None:
        assert plan.shared_steps % plan.local_steps == 0
        assert plan.local.seconds >= case.local.durable * (1 - 1e-9)  # type: ignore[union-attr]


@given(cases)
def test_the_users_longest_interval_is_kept_where_saves_allow_it(case: CadenceInputs) -> None:
    plan = plan_cadence(case)
    for tier, cost, bounds in (
        (plan.local, case.local, case.local_bounds),
        (plan.shared, case.shared, case.shared_bounds),
    ):
        if tier is not None and cost is not None:
            unit = plan.local.seconds if plan.local and tier is plan.shared else case.step
            assert tier.seconds <= max(bounds.longest, cost.durable + unit, unit) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("published", "planned", "worth"),
    [
        ((20, 100), (22, 110), False),
        ((22, 110), (22, 138), True),
        ((30, 110), (22, 110), True),
        ((22, 110), (17, 110), False),
        ((0, 110), (22, 110), True),
        ((22, 110), (0, 110), True),
        ((0, 0), (0, 0), False),
    ],
)
def test_only_changes_of_a_quarter_and_tiers_that_come_or_go_are_published(
    published: tuple[int, int], planned: tuple[int, int], worth: bool
) -> None:
    assert worth_publishing(published, 0.0, planned, 600.0) is worth


def test_a_published_cadence_stands_for_ten_minutes() -> None:
    assert not worth_publishing((1, 1), 100.0, (22, 110), 699.0)
    assert worth_publishing((1, 1), 100.0, (22, 110), 700.0)


def test_measured_saves_replace_the_guess_and_then_average() -> None:
    cost = SaveCost(60.0, 600.0).measured(10.0, 100.0)
    assert (cost.blocking, cost.durable) == pytest.approx((10.0, 100.0))
    cost = cost.measured(20.0, 200.0)
    assert (cost.blocking, cost.durable, cost.saves) == (pytest.approx(13.0), pytest.approx(130.0), 2)


def test_the_prior_shares_are_those_of_the_tables() -> None:
    assert PRIOR_SHARES == QUARTER


@given(st.floats(1e-9, 1e6), st.floats(1.0, 1e7))
def test_the_exact_optimum_is_one(cost: float, mttf: float) -> None:
    work = optimal_work(cost, mttf)
    assert 0.0 < work <= mttf
    here = efficiency(work, cost, mttf, 0.0)
    for other in (work * 0.98, work * 1.02):
        assert efficiency(other, cost, mttf, 0.0) <= here * (1 + 1e-9)
