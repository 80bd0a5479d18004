"""GPU-hours, what they cost, and how far they have come in a budget."""

import pytest

from lockstep.core.accounting.usage import (
    BudgetUse,
    GpuUsage,
    budget_use,
    model_flops_utilisation,
    seconds_until,
    step_efficiency,
)
from lockstep.core.model.settings import GpuRates


@pytest.mark.parametrize(
    ("hours", "use"),
    [(79.9, BudgetUse.WITHIN), (80.0, BudgetUse.MOST), (99.9, BudgetUse.MOST), (100.0, BudgetUse.ALL)],
)
def test_budget_marks(hours: float, use: BudgetUse) -> None:
    assert budget_use(hours, 100.0) is use


def test_usage_counts_each_type_of_gpu_and_knows_when_more_is_due() -> None:
    usage = GpuUsage(0).holding(16, "H100", 0.0).holding(8, "H200", 3600.0).until(7200.0)
    assert usage.held == (("H100", 16 * 3_600_000), ("H200", 8 * 3_600_000))
    assert usage.gpu_hours == 24.0
    assert usage.cost({"H100": GpuRates(price=2.0)}) is None
    assert usage.cost({"H100": GpuRates(price=2.0), "H200": GpuRates(price=3.0)}) == 56.0
    assert seconds_until(usage, 26.0) == 900.0
    assert seconds_until(usage, 24.0) is None
    assert seconds_until(usage.holding(0, "", 7200.0), 26.0) is None


def test_utilisation_and_efficiency() -> None:
    assert model_flops_utilisation(1000.0, 6e9, 16, 1e12) == pytest.approx(0.375)
    assert model_flops_utilisation(1000.0, 6e9, 0, 1e12) is None
    assert step_efficiency(90, 1.0, 100.0) == pytest.approx(0.9)
    assert step_efficiency(0, 1.0, 0.0) is None
    assert step_efficiency(90, 0.0, 100.0) is None


@pytest.mark.parametrize(
    ("rates", "kwh"),
    [
        ({}, None),
        ({"H100": GpuRates()}, None),
        ({"H100": GpuRates(watts=1000.0)}, 16.0),
        ({"H200": GpuRates(watts=1000.0)}, None),
    ],
)
def test_energy_is_known_where_the_power_of_every_gpu_is(rates: dict[str, GpuRates], kwh: float | None) -> None:
    used = GpuUsage(0).holding(8, "H100", 0.0).until(7200.0)
    assert used.energy_kwh(rates) == kwh
    assert GpuUsage(0).energy_kwh(rates) is None, "nothing was held"


@pytest.mark.parametrize(
    ("now", "hours"), [(0.0, 0.0), (3600.0, 8.0), (1800.0, 4.0), (-10.0, 0.0)], ids=["begin", "hour", "half", "back"]
)
def test_a_clock_that_goes_back_takes_nothing_away(now: float, hours: float) -> None:
    counted = GpuUsage(0).holding(8, "H100", 0.0).until(now)
    assert counted.gpu_hours == hours
    assert counted.until(0.0) == counted
