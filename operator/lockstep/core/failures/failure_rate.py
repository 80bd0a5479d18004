"""How often nodes fail: learnt per run and pool, never assumed.

Rates are failures per node-day. The model is Gamma-Poisson: failures come independently at a rate that
is itself uncertain, Gamma(shape, node_days), and every observed node-day and failure sharpens it. Published
fleets differ by a factor of ten, so the prior weighs little (docs/formulae.md has the sources).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from lockstep.core.failures.incomplete_gamma import gamma_quantile
from lockstep.core.model.snapshot import PoolRecord

SECONDS_PER_DAY = 86_400.0
FEW_FAILURES = 3.0
"""Below this many observed failures decisions rest on an upper bound of the rate, not on its mean."""


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Gamma-distributed belief about the failures of one node per day; ``shape`` failures in ``node_days``."""

    shape: float
    node_days: float

    @property
    def mean(self) -> float:
        """Expected failures per node-day."""
        return self.shape / self.node_days

    def quantile(self, probability: float) -> float:
        """The rate that the true one stays below with ``probability``."""
        return gamma_quantile(self.shape, probability) / self.node_days

    def interval(self, mass: float = 0.9) -> tuple[float, float]:
        """Credible interval with equal tails."""
        tail = (1.0 - mass) / 2.0
        return self.quantile(tail), self.quantile(1.0 - tail)

    def mttf(self, nodes: int) -> float:
        """Mean seconds to the first failure among ``nodes``, at the mean rate."""
        return SECONDS_PER_DAY / (nodes * self.mean)

    def given(self, observed: "Exposure") -> "FailureRate":
        """The belief after what was observed."""
        return FailureRate(self.shape + observed.failures, self.node_days + observed.node_days)

    def as_prior(self) -> "FailureRate":
        """The same mean with no more weight than the general prior's: what a run inherits from its pool."""
        return FailureRate(PRIOR.shape, PRIOR.shape / self.mean) if self.shape > PRIOR.shape else self


PRIOR = FailureRate(shape=2.0, node_days=500.0)
"""Mean 4e-3 a node-day, amid what fleets report (2.3e-3 to 6.5e-3)."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """Failures and node-days seen until ``at`` (Unix seconds), older ones discounted: half after a half-life."""

    at: float
    failures: float = 0.0
    node_days: float = 0.0

    def later(self, now: float, nodes: int, half_life_days: float) -> "Exposure":
        """After ``nodes`` nodes ran from ``at`` to ``now``. Exact however the time is cut into calls."""
        days = max(0.0, now - self.at) / SECONDS_PER_DAY
        kept = 2.0 ** (-days / half_life_days)
        seen = nodes * half_life_days / math.log(2.0) * (1.0 - kept)
        return Exposure(max(now, self.at), self.failures * kept, self.node_days * kept + seen)

    def failed(self) -> "Exposure":
        """One more failure, now."""
        return replace(self, failures=self.failures + 1.0)


def pool_prior(record: PoolRecord) -> FailureRate:
    """What a run of this pool expects before it has seen anything itself."""
    return FailureRate(PRIOR.shape + record.failures, PRIOR.node_days + record.node_days).as_prior()


def planning_rate(prior: FailureRate, observed: Exposure) -> float:
    """The rate to plan with: the posterior mean, or its 80 % upper bound while little was seen.

    Saving a little too often costs less than losing hours to a rate that was hoped for.
    """
    posterior = prior.given(observed)
    return posterior.quantile(0.8) if observed.failures < FEW_FAILURES else posterior.mean


class Remedy(StrEnum):
    """The cheapest tier a failure of this class can be resumed from."""

    LOCAL = "local"  # processes died, the nodes' own disks are there
    SHARED = "shared"  # a node is gone, and its shards with it
    ARCHIVE = "archive"  # the shared tier is gone or spoilt


PRIOR_SHARES: Mapping[Remedy, float] = {Remedy.LOCAL: 0.75, Remedy.SHARED: 0.24, Remedy.ARCHIVE: 0.01}
PRIOR_WEIGHT = 10.0


def failure_shares(counts: Mapping[Remedy, float]) -> dict[Remedy, float]:
    """Share of each class among failures: the mean of the Dirichlet posterior. Adds up to 1."""
    total = PRIOR_WEIGHT + sum(counts.get(remedy, 0.0) for remedy in Remedy)
    return {remedy: (PRIOR_WEIGHT * PRIOR_SHARES[remedy] + counts.get(remedy, 0.0)) / total for remedy in PRIOR_SHARES}
