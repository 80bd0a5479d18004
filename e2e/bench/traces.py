"""The jobs that bench.schedule lets come, drawn from a model; bench.swf reads them from a log instead.

  synthetic  A Poisson process. Sizes and runtimes are log-uniform, time limits too long: uniform between the runtime
             and (1 + f) times it, the model of Mu'alem and Feitelson (IEEE TPDS 12(6), 2001).
  shaped     What the logs of public supercomputers look like. Sizes, runtimes and hours of arrival are those of Lublin
             and Feitelson ("The workload on parallel supercomputers: modeling the characteristics of rigid jobs",
             JPDC 63(11), 2003), with the numbers of their program m_lublin99.c for jobs of any type: a share of jobs
             takes one node and most others a power of two, larger jobs run longer, few come at night. Time limits are
             those of Tsafrir, Etsion and Feitelson ("Modeling user runtime estimates", JSSPP 2005), with the numbers
             of their program est_model: most users choose one of twenty round values, above all the longest.
             Chosen by us, as neither program says: half as many jobs at weekends, 48 h as the longest limit.

The seed decides all. Times are in seconds; the shaped trace begins on a Monday at 0:00.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, floor, log2
from statistics import fmean

_CLASSES = 3

# m_lublin99.c, jobs of any type. Sizes: shares of all jobs, then the logarithms to base 2 of a two-stage uniform.
_SERIAL, _POWER_OF_TWO = 0.244, 0.576
_SMALLEST, _BELOW_LARGEST, _SMALL = 0.8, 2.5, 0.86
# Natural logarithms of runtimes: a gamma for short jobs, one for long ones, and who is short by size: slope * n + base.
_SHORT, _LONG = (4.2, 0.94), (312.0, 0.03)
_SHORT_SLOPE, _SHORT_BASE = -0.0054, 0.78
_LONGEST_RUNTIME, _LONGEST_GAP = 12.0, 13.0  # logarithms of seconds: what is drawn above is drawn again
# Natural logarithms of gaps between jobs, the density of arrivals over half hours, and the half hour a day begins at.
_GAP = (10.2303 * 1.0225, 0.4871)
_DAY_SHAPE, _DAY_SCALE, _DAY_BEGINS = 8.1737, 3.9631, 11
_HALF_HOUR, _HALF_HOURS = 1800.0, 48
_WEEKEND = 0.5  # chosen by us

# est_model: the limits popular in all logs, filled up with round ones; and the place of each by popularity, as in the
# column of its table for SDSC Blue Horizon (which of the four logs: chosen by us).
_MINUTE, _HOUR = 60.0, 3600.0
LONGEST_LIMIT = 48 * _HOUR  # chosen by us: the runtimes end below it
POPULAR_LIMITS = (
    LONGEST_LIMIT,
    *(_MINUTE * minutes for minutes in (5, 10, 15, 20, 30)),
    *(_HOUR * hours for hours in (1, 2, 3, 4, 5, 6, 8, 10, 12, 18, 20, 30, 40, 45)),
)
_RANKS = (1, 6, 5, 3, 7, 2, 18, 19, 4, 11, 20, 9, 10, 14, 13, 16, 15, 17, 8, 12)
_POPULAR_SHARE = 0.89


@dataclass(frozen=True)
class Workload:
    """What jobs come. ``load``: the share of all nodes that they would use; ``overestimate``: f of their limits.

    ``shortest``, ``longest`` (seconds) and ``overestimate`` are of the synthetic trace; the shaped one has its own.
    """

    jobs: int = 2000
    nodes: int = 256
    load: float = 0.85
    shortest: float = 60.0
    longest: float = 43_200.0
    overestimate: float = 4.0
    seed: int = 1


@dataclass(frozen=True)
class Arrival:
    """A job of the trace. ``runtime`` is known to nobody before it is over; ``level`` 0 is the first class."""

    at: float
    nodes: int
    runtime: float
    limit: float
    level: int


def synthetic(workload: Workload) -> list[Arrival]:
    """The jobs, in the order in which they come. The load is that of the rate: a sample may come somewhat faster."""
    chance = random.Random(workload.seed)
    drawn = []
    for _ in range(workload.jobs):
        nodes = min(workload.nodes, round(_log_uniform(chance, 1, workload.nodes)))
        runtime = _log_uniform(chance, workload.shortest, workload.longest)
        limit = runtime * chance.uniform(1.0, 1.0 + workload.overestimate)
        drawn.append((nodes, runtime, limit, any_level(chance)))
    work = fmean(nodes * runtime for nodes, runtime, _, _ in drawn)
    rate = workload.load * workload.nodes / work
    at, arrivals = 0.0, []
    for nodes, runtime, limit, level in drawn:
        at += chance.expovariate(rate)
        arrivals.append(Arrival(at, nodes, runtime, limit, level))
    return arrivals


def shaped(workload: Workload) -> list[Arrival]:
    """The jobs, in the order in which they come, as in public logs. The last one comes when the load is as asked."""
    chance = random.Random(workload.seed)
    sizes = [_size(chance, workload.nodes) for _ in range(workload.jobs)]
    runtimes = [_runtime(chance, nodes) for nodes in sizes]
    limits = _limits(chance, runtimes)
    last = sum(nodes * runtime for nodes, runtime in zip(sizes, runtimes, strict=True))
    last /= workload.load * workload.nodes
    return [
        Arrival(at, nodes, runtime, limit, any_level(chance))
        for at, nodes, runtime, limit in zip(
            _moments(chance, workload.jobs, last), sizes, runtimes, limits, strict=True
        )
    ]


def offered_load(arrivals: Sequence[Arrival], nodes: int) -> float | None:
    """The share of ``nodes`` that the jobs would use if each ran when it came: node-seconds by the time of the last.

    The definition in m_lublin99.c. None where all come at once.
    """
    last = arrivals[-1].at
    return sum(arrival.nodes * arrival.runtime for arrival in arrivals) / (nodes * last) if last > 0 else None


def at_load(arrivals: Sequence[Arrival], nodes: int, load: float) -> list[Arrival]:
    """The same jobs with the time between them stretched until their load is ``load``; all at once they stay so."""
    offered = offered_load(arrivals, nodes)
    stretch = offered / load if offered is not None else 1.0
    return [replace(arrival, at=arrival.at * stretch) for arrival in arrivals]


def any_level(chance: random.Random) -> int:
    """One of the classes, each as likely."""
    return chance.randrange(_CLASSES)


def _log_uniform(chance: random.Random, least: float, most: float) -> float:
    return float(least * (most / least) ** chance.random())


def _size(chance: random.Random, most: int) -> int:
    kind = chance.random()
    if kind <= _SERIAL:
        return 1
    high = log2(most)
    low = min(_SMALLEST, high)
    middle = max(low, high - _BELOW_LARGEST)
    size = chance.uniform(low, middle) if chance.random() <= _SMALL else chance.uniform(middle, high)
    if kind <= _SERIAL + _POWER_OF_TWO:
        size = min(floor(size + 0.5), floor(high))
    return min(most, floor(2**size + 0.5))


def _runtime(chance: random.Random, nodes: int) -> float:
    short = chance.random() <= _SHORT_SLOPE * nodes + _SHORT_BASE
    return exp(_gamma(chance, _SHORT if short else _LONG, _LONGEST_RUNTIME))


def _gamma(chance: random.Random, shape_and_scale: tuple[float, float], most: float) -> float:
    while (drawn := chance.gammavariate(*shape_and_scale)) > most:
        pass
    return drawn


@cache
def _week() -> tuple[float, ...]:
    """How many jobs come in each half hour of a week from Monday 0:00 on, where 1 is the mean of a working day.

    The density of the gamma in the middle of each half hour: m_lublin99.c integrates it, which differs by 0.5% at most.
    """
    day = [0.0] * _HALF_HOURS
    for moment in range(_DAY_BEGINS, _DAY_BEGINS + _HALF_HOURS):
        day[(moment - 1) % _HALF_HOURS] = moment ** (_DAY_SHAPE - 1) * exp(-moment / _DAY_SCALE)
    mean = fmean(day)
    return tuple(share / mean * (_WEEKEND if number >= 5 else 1.0) for number in range(7) for share in day)


def _moments(chance: random.Random, jobs: int, last: float) -> list[float]:
    """When ``jobs`` jobs come, the last of them at ``last``.

    Gaps are drawn in a time that passes faster in busy hours, as in m_lublin99.c, and stretched in it: to stretch them
    in seconds would make days of another length.
    """
    week = _week()
    gaps = [exp(_gamma(chance, _GAP, _LONGEST_GAP)) for _ in range(jobs)]
    slots = int(last // _HALF_HOUR)
    busy = sum(week[slot % len(week)] for slot in range(slots)) * _HALF_HOUR
    stretch = (busy + week[slots % len(week)] * (last % _HALF_HOUR)) / sum(gaps)
    moments: list[float] = []
    slot, passed, due = 0, 0.0, 0.0
    for gap in gaps:
        due += gap * stretch
        while passed + (lasts := week[slot % len(week)] * _HALF_HOUR) <= due:
            passed += lasts
            slot += 1
        moments.append((slot + (due - passed) / lasts) * _HALF_HOUR)
    return moments


def _limits(chance: random.Random, runtimes: Sequence[float]) -> list[float]:
    """A limit per job, none shorter than its runtime; who would find none left takes the longest.

    est_model assigns them alike: from the longest job on, each takes any of those left that are long enough.
    """
    shares = _shares(chance, len(runtimes))
    drawn = sorted(chance.choices([*shares], [*shares.values()], k=len(runtimes)))
    limits = [LONGEST_LIMIT] * len(runtimes)
    enough: list[float] = []
    for number in sorted(range(len(runtimes)), key=lambda number: -runtimes[number]):
        first = bisect_left(drawn, runtimes[number])
        enough += drawn[first:]
        del drawn[first:]
        if enough:
            place = chance.randrange(len(enough))
            enough[place], enough[-1] = enough[-1], enough[place]
            limits[number] = enough.pop()
    return limits


def _shares(chance: random.Random, jobs: int) -> dict[float, float]:
    """What share of ``jobs`` asks for which limit, by seconds; the popular ones are always the same.

    The formulas of est_model.hh: a popular limit has an exponential of its rank, the most popular one what is left of
    their 89%; the number of values is a power of that of the jobs, and the rare ones lie on (a-1)x / (a-x) of the
    longest and have powers of their rank. Unlike there, which limit a popular rank belongs to is not drawn.
    """
    by_rank = {rank: 0.140491 * exp(-0.177531 * rank) + 0.00462513 for rank in range(2, len(_RANKS) + 1)}
    by_rank[1] = _POPULAR_SHARE - sum(by_rank.values())
    shares = {limit: by_rank[rank] for limit, rank in zip(POPULAR_LIMITS, _RANKS, strict=True)}

    values = round(0.653566 * jobs**0.547761)
    bend = 1 + 12.1039 * values**-0.6026
    others = max(0, values - len(shares))
    minutes = (
        round((bend - 1) * place / (bend * others - place) * LONGEST_LIMIT / _MINUTE) for place in range(1, others + 1)
    )
    rare = sorted({minute * _MINUTE for minute in minutes if minute} - shares.keys())
    sizes = [(len(_RANKS) + place) ** -2.267 for place in range(1, len(rare) + 1)]
    chance.shuffle(sizes)
    return shares | {limit: (1 - _POPULAR_SHARE) * size / sum(sizes) for limit, size in zip(rare, sizes, strict=True)}
