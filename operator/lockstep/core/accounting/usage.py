"""What a run holds and what that costs: GPU-hours, energy, money, and the budget for them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from lockstep.core.model.settings import GpuRates

_MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """GPU time held, by GPU type, and what is held since ``since``. Milliseconds; amounts are GPU-milliseconds."""

    since: int
    gpus: int = 0
    gpu_type: str = ""
    held: tuple[tuple[str, int], ...] = ()

    def until(self, now: float) -> "GpuUsage":
        """The same with the time up to ``now`` counted."""
        at = max(self.since, round(now * 1000))
        amounts = dict(self.held)
        if self.gpus:
            amounts[self.gpu_type] = amounts.get(self.gpu_type, 0) + self.gpus * (at - self.since)
        return replace(self, since=at, held=tuple(sorted(amounts.items())))

    def holding(self, gpus: int, gpu_type: str, now: float) -> "GpuUsage":
        """From ``now`` on so many GPUs are held."""
        return replace(self.until(now), gpus=gpus, gpu_type=gpu_type if gpus else "")

    @property
    def gpu_hours(self) -> float:
        """GPU-hours up to ``since``."""
        return sum(amount for _, amount in self.held) / _MS_PER_HOUR

    def energy_kwh(self, rates: Mapping[str, GpuRates]) -> float | None:
        """Kilowatt-hours; None unless the power of every type that was held is known."""
        return self._priced({name: rate.watts / 1000.0 for name, rate in rates.items()})

    def cost(self, rates: Mapping[str, GpuRates]) -> float | None:
        """Money; None unless the price of every type that was held is known."""
        return self._priced({name: rate.price for name, rate in rates.items()})

    def _priced(self, per_hour: Mapping[str, float]) -> float | None:
        if not self.held or any(per_hour.get(name, 0.0) <= 0.0 for name, _ in self.held):
            return None
        return sum(amount * per_hour[name] for name, amount in self.held) / _MS_PER_HOUR


class BudgetUse(StrEnum):
    """How much of a budget of GPU-hours is used."""

    WITHIN = "Within"
    MOST = "Most"  # 80 % and more
    ALL = "All"


MOST_SHARE = 0.8


def budget_use(gpu_hours: float, budget: float) -> BudgetUse:
    """How far ``gpu_hours`` have come in the budget."""
    if gpu_hours >= budget:
        return BudgetUse.ALL
    return BudgetUse.MOST if gpu_hours >= MOST_SHARE * budget else BudgetUse.WITHIN


def seconds_until(usage: GpuUsage, gpu_hours: float) -> float | None:
    """Seconds until that many GPU-hours are held if nothing changes; None: never, or already so."""
    lacking = gpu_hours - usage.gpu_hours
    return lacking * 3600.0 / usage.gpus if usage.gpus and lacking > 0.0 else None


def model_flops_utilisation(
    tokens_per_second: float, flops_per_token: float, gpus: int, peak_flops: float
) -> float | None:
    """MFU (PaLM, appendix B): model FLOPs done a second by those the GPUs could do; None where unknown."""
    peak = gpus * peak_flops
    return tokens_per_second * flops_per_token / peak if peak > 0.0 else None


def step_efficiency(steps: int, best_step_seconds: float, productive_seconds: float) -> float | None:
    """Share of the productive time that the steps would have taken had each been as fast as the best ones."""
    if productive_seconds <= 0.0 or best_step_seconds <= 0.0:
        return None
    return min(1.0, steps * best_step_seconds / productive_seconds)
