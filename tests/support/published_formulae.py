"""Published formulae that the cadence and the failure rates are held against. All times in seconds.

``cost`` is what one save blocks training for, ``mttf`` the job's mean time to failure, ``restart`` the time
from a failure to training again. ``work`` is compute between two saves; a ``period`` is work plus cost.
Sources and units: docs/formulae.md.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.core.checkpoints.cadence import Level
from lockstep.core.failures.incomplete_gamma import gamma_cdf

FALSE_FLAGS_ALLOWED = 0.1
"""A node is a lemon when fewer healthy nodes than this, in the whole pool, would look as bad by luck."""
SPARE_RISK = 0.01
"""Chance of running out of spares that is accepted."""


def young_work(cost: float, mttf: float) -> float:
    """Young 1974, first order: sqrt(2 C M)."""
    return math.sqrt(2.0 * cost * mttf)


def daly_work(cost: float, mttf: float) -> float:
    """Daly 2006, higher order; all of M once a save costs 2 M."""
    if cost >= 2.0 * mttf:
        return mttf
    ratio = cost / (2.0 * mttf)
    return young_work(cost, mttf) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - cost


def optimal_work(cost: float, mttf: float) -> float:
    """The exact optimum for Poisson failures: M (1 + W0(-exp(-C/M - 1))); Daly's is its series."""
    return mttf * _one_plus_lambert_w(cost / mttf)


def availability_period(cost: float, mttf: float, restart: float) -> float:
    """Saxena et al. 2024 (arXiv 2410.18124): the period of highest availability, longer where restarts are slow."""
    return cost + math.sqrt(2.0 * (mttf + restart) * cost + cost * cost)


def efficiency(work: float, cost: float, mttf: float, restart: float) -> float:
    """Useful share of wall time when failures are Poisson and may hit restarts too."""
    exponent = (work + cost + restart) / mttf
    if exponent > 700.0:  # beyond what a float holds: nothing ever completes
        return 0.0
    return work / (mttf * math.exp(restart / mttf) * math.expm1((work + cost) / mttf))


def expected_wall(work: float, cost: float, mttf: float, restart: float, useful: float) -> float:
    """Seconds of wall time that ``useful`` seconds of compute take."""
    share = efficiency(work, cost, mttf, restart)
    return useful / share if share > 0.0 else math.inf


def first_order_waste(
    period: float, cost: float, mttf: float, restart: float, durable: float = 0.0, queue: float = 0.0
) -> float:
    """Share of wall time not spent on useful steps: C/P + (P/2 + L + R + q)/M. 1 minus it is the long-run ETTR.

    ``durable`` is the time from snapshot to durable, ``queue`` the wait for nodes after a failure. Good for
    P + R well below M; above 0.3 use ``efficiency``.
    """
    return cost / period + (period / 2.0 + durable + restart + queue) / mttf


def finite_ettr(useful: float, waste: float, mttf: float, queue: float) -> float:
    """ETTR of a job of ``useful`` seconds that queues for ``queue`` at first and after every failure."""
    running = useful / (1.0 - waste)
    return useful / ((1.0 + running / mttf) * queue + running)


@dataclass(frozen=True, slots=True)
class NestedPattern:
    """Every ``multiples[l]``-th save of level l also goes to level l + 1."""

    base_period: float
    multiples: tuple[int, ...]
    waste: float


def nested_optimum(levels: Sequence[Level]) -> NestedPattern:
    """The best pattern whose periods divide one another. ``levels`` have positive costs and rates, cheapest first."""
    choices = []
    for level, deeper in itertools.pairwise(levels):
        ratio = deeper.period / level.period
        choices.append(sorted({max(1, math.floor(ratio)), max(1, math.ceil(ratio))}))
    return min((_pattern(levels, multiples) for multiples in itertools.product(*choices)), key=lambda p: p.waste)


def cheap_tier_pays(share: float, cheap_cost: float, deep_cost: float) -> bool:
    """Saving to a cheap tier, which serves ``share`` of failures, beats saving to the deeper tier alone.

    Leaves out that loading from the cheap tier is faster, too.
    """
    return math.sqrt(share * cheap_cost) + math.sqrt((1.0 - share) * deep_cost) < math.sqrt(deep_cost)


def _pattern(levels: Sequence[Level], multiples: tuple[int, ...]) -> NestedPattern:
    strides = [*itertools.accumulate(multiples, lambda stride, n: stride * n, initial=1)]
    saving = sum(level.cost / stride for level, stride in zip(levels, strides, strict=True))
    losing = sum(level.rate * stride for level, stride in zip(levels, strides, strict=True)) / 2.0
    return NestedPattern(math.sqrt(saving / losing), multiples, 2.0 * math.sqrt(saving * losing))


def _one_plus_lambert_w(x: float) -> float:
    """1 + W0(-exp(-x - 1)) for x >= 0, W0 the principal branch of Lambert's function.

    Solved as u + ln(1 - u) = -x by Halley's method: next to the branch point, where saves are cheap, W0
    itself would lose its digits.
    """
    if x <= 0.0:
        return 0.0
    if x > 35.0:  # 1 to the last digit
        return 1.0
    u = min(math.sqrt(2.0 * x), 1.0 - math.exp(-x - 1.0))
    for _ in range(50):
        error = u + math.log1p(-u) + x
        slope = -u / (1.0 - u)
        curvature = -1.0 / (1.0 - u) ** 2
        step = 2.0 * error * slope / (2.0 * slope * slope - error * curvature)
        u = min(max(u - step, u / 2.0), (1.0 + u) / 2.0)
        if abs(step) <= 1e-15 * u:
            break
    return u


def poisson_tail(mean: float, count: int) -> float:
    """P(N >= count) for N ~ Poisson(mean)."""
    return 1.0 if count <= 0 else gamma_cdf(float(count), mean)


def by_luck(failures: int, rate: float, days: float) -> float:
    """P(a node with the common ``rate`` fails first ``failures`` times or more in ``days``)."""
    return poisson_tail(rate * days, failures)


def is_lemon(failures: int, rate: float, days: float, pool: int) -> bool:
    """Luck does not explain that this node of a pool of ``pool`` was first to fail so often."""
    return failures > 0 and pool * by_luck(failures, rate, days) < FALSE_FLAGS_ALLOWED


def spares_needed(nodes: int, rate: float, repair_days: float, risk: float = SPARE_RISK) -> int:
    """The fewest spares that are all in use, with one more node in repair, at most ``risk`` of the time."""
    broken = nodes * rate * repair_days
    spares = 0
    while poisson_tail(broken, spares + 1) > risk:
        spares += 1
    return spares


def survival(shape: float, node_days: float, exposure: float) -> float:
    """P(no failure in ``exposure`` node-days) by a belief Gamma(shape, node_days): (b / (b + x)) ** a.

    What its mean alone would promise, exp(-x a / b), is a little less.
    """
    return math.pow(node_days / (node_days + exposure), shape)


def clique_lost(nodes: int, failed: int) -> float:
    """P(both nodes of some pair are among ``failed`` of ``nodes``), pairs (replicas of shards) on distinct nodes."""
    pairs = nodes // 2
    whole = math.comb(pairs, failed) * 2**failed if failed <= pairs else 0
    return 1.0 - whole / math.comb(nodes, failed)
