"""What each way to order a queue makes of the same jobs: FIFO, priorities, EASY and conservative backfill.

The engine that admits runs (lockstep.core.admission.backfill) decides over simulated time; no cluster is needed.
Jobs come as a Poisson process. Their sizes and runtimes are log-uniform, their time limits too long: uniform between
the runtime and (1 + f) times it, the model of Mu'alem and Feitelson (IEEE TPDS 12(6), 2001). The seed decides all.
  fifo          in order of arrival; nobody starts before somebody who waits
  priority      the same, in order of three classes, of which each job has one at random
  easy          in order of arrival; whoever does not delay the first starts before it
  conservative  in order of arrival; whoever delays nobody starts before others
The last line is JSON: for each, the mean wait, the mean bounded slowdown (at least 10 s of runtime are reckoned with)
and the share of all node-seconds, until the last job ended, in which nodes worked.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from statistics import fmean
from time import perf_counter

from lockstep.core import node_set
from lockstep.core.admission.backfill import BackfillPolicy, backfill
from lockstep.core.admission.jobs import Choose, Job, Option, Running
from lockstep.core.admission.quota import QuotaRules

_BOUND = 10.0  # seconds: a shorter job is not slowed down the more for being short
_CLASSES = 3
_NO_QUOTA = QuotaRules.of({})


@dataclass(frozen=True)
class Workload:
    """What jobs come. ``load``: the share of all nodes that they would use; ``overestimate``: f of their limits."""

    jobs: int = 2000
    nodes: int = 256
    load: float = 0.85
    shortest: float = 60.0  # seconds
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


@dataclass(frozen=True)
class Figures:
    """How one way did. Seconds, and shares of 1."""

    mean_wait: float
    mean_bounded_slowdown: float
    utilisation: float

    def shown(self) -> dict[str, float]:
        """As in the last line."""
        return {
            "mean_wait_s": round(self.mean_wait, 1),
            "mean_bounded_slowdown": round(self.mean_bounded_slowdown, 2),
            "utilisation": round(self.utilisation, 4),
        }


@dataclass(frozen=True)
class Way:
    """An order and a policy."""

    policy: BackfillPolicy
    by_class: bool = False


_ALL_AT_ONCE = sys.maxsize
WAYS: Mapping[str, Way] = {
    "fifo": Way(BackfillPolicy(admissions=_ALL_AT_ONCE, overtaking=False)),
    "priority": Way(BackfillPolicy(admissions=_ALL_AT_ONCE, overtaking=False), by_class=True),
    "easy": Way(BackfillPolicy(admissions=_ALL_AT_ONCE)),
    "conservative": Way(BackfillPolicy(None, depth=_ALL_AT_ONCE, admissions=_ALL_AT_ONCE)),
}


def trace(workload: Workload) -> list[Arrival]:
    """The jobs, in the order in which they come."""
    chance = random.Random(workload.seed)
    drawn = []
    for _ in range(workload.jobs):
        nodes = min(workload.nodes, round(_log_uniform(chance, 1, workload.nodes)))
        runtime = _log_uniform(chance, workload.shortest, workload.longest)
        limit = runtime * chance.uniform(1.0, 1.0 + workload.overestimate)
        drawn.append((nodes, runtime, limit, chance.randrange(_CLASSES)))
    work = fmean(nodes * runtime for nodes, runtime, _, _ in drawn)
    rate = workload.load * workload.nodes / work
    at, arrivals = 0.0, []
    for nodes, runtime, limit, level in drawn:
        at += chance.expovariate(rate)
        arrivals.append(Arrival(at, nodes, runtime, limit, level))
    return arrivals


def simulate(arrivals: Sequence[Arrival], nodes: int, way: Way) -> Figures:
    """Let all of them come, wait and run; each ends after its runtime, whatever its limit."""
    everything = free = node_set.span(0, nodes)
    jobs = [_job(number, arrival, everything) for number, arrival in enumerate(arrivals)]
    waiting: dict[str, int] = {}
    running: dict[str, Running] = {}
    ends: list[tuple[float, str]] = []
    waits = [0.0] * len(arrivals)
    come = 0
    now = 0.0
    while come < len(arrivals) or ends:
        now = min([arrival.at for arrival in arrivals[come : come + 1]] + [end for end, _ in ends[:1]])
        while ends and ends[0][0] <= now:
            free |= running.pop(heappop(ends)[1]).nodes
        while come < len(arrivals) and arrivals[come].at <= now:
            waiting[jobs[come].uid] = come
            come += 1
        numbers = sorted(waiting.values(), key=lambda number: (way.by_class and arrivals[number].level, number))
        in_order = [jobs[number] for number in numbers]
        for start in backfill(now, in_order, [*running.values()], free, (), _NO_QUOTA, way.policy).starts:
            number = waiting.pop(start.uid)
            waits[number] = now - arrivals[number].at
            free &= ~start.nodes
            running[start.uid] = Running(start.uid, "", "", start.nodes, start.option.count, start.until)
            heappush(ends, (now + arrivals[number].runtime, start.uid))
    slowdowns = (
        max(1.0, (wait + arrival.runtime) / max(_BOUND, arrival.runtime))
        for wait, arrival in zip(waits, arrivals, strict=True)
    )
    worked = sum(arrival.nodes * arrival.runtime for arrival in arrivals)
    return Figures(fmean(waits), fmean(slowdowns), worked / (nodes * now))


def _log_uniform(chance: random.Random, least: float, most: float) -> float:
    return float(least * (most / least) ** chance.random())


def _job(number: int, arrival: Arrival, everything: int) -> Job:
    option = Option("", arrival.nodes, everything, _first(arrival.nodes))
    return Job(str(number), "", (option,), arrival.limit)


@cache
def _first(count: int) -> Choose:
    """Takes the first ``count`` nodes that there are."""

    def choose(available: int) -> int | None:
        return node_set.lowest(available, count) if available.bit_count() >= count else None

    return choose


def main() -> int:
    default = Workload()
    parser = argparse.ArgumentParser(
        prog="python -m bench.schedule", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=default.jobs, help="(default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=default.nodes, help="(default: %(default)s)")
    parser.add_argument("--load", type=float, default=default.load, help="that comes, of 1 (default: %(default)s)")
    parser.add_argument(
        "--overestimate", type=float, default=default.overestimate, help="f of the time limits (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=default.seed, help="(default: %(default)s)")
    options = parser.parse_args()
    workload = Workload(
        jobs=options.jobs,
        nodes=options.nodes,
        load=options.load,
        overestimate=options.overestimate,
        seed=options.seed,
    )
    arrivals = trace(workload)
    summary: dict[str, object] = {
        "bench": "schedule",
        "jobs": workload.jobs,
        "nodes": workload.nodes,
        "load": workload.load,
        "seed": workload.seed,
    }
    for name, way in WAYS.items():
        begun = perf_counter()
        figures = simulate(arrivals, workload.nodes, way)
        summary[name] = figures.shown()
        print(f"{name}: {figures.shown()} in {perf_counter() - begun:.1f} s", flush=True)
    print(json.dumps(summary), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
