"""What each way to order a queue makes of the same jobs: FIFO, priorities, EASY and conservative backfill.

The engine that admits runs (lockstep.core.admission.engine.backfill) decides over simulated time; no cluster is needed.
  fifo          in order of arrival; nobody starts before somebody who waits
  priority      the same, in order of three classes, of which each job has one at random
  easy          in order of arrival; whoever does not delay the first starts before it
  conservative  in order of arrival; whoever delays nobody starts before others
Jobs come from two models (bench.traces), by the seed: "synthetic" is easy to reckon with, "shaped" is shaped like the
logs of public supercomputers. With --swf they come from a log instead, of your site or of the Parallel Workloads
Archive: https://www.cs.huji.ac.il/labs/parallel/workload/logs.html
The last line is JSON: for each trace the load that comes, and for each way the mean wait, the mean bounded slowdown (at
least 10 s of runtime are reckoned with) and the share of all node-seconds, until the last job ended, in which nodes
worked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from statistics import fmean
from time import perf_counter

from bench import swf
from bench.traces import Arrival, Workload, at_load, offered_load, shaped, synthetic
from lockstep.core.admission.engine.backfill import BackfillPolicy, backfill
from lockstep.core.admission.engine.jobs import Choose, Job, Option, RunningJob
from lockstep.core.admission.engine.quota import QuotaRules
from lockstep.core.model import node_set

_BOUND = 10.0  # seconds: a shorter job is not slowed down the more for being short
_NO_QUOTA = QuotaRules.from_quotas({})


@dataclass(frozen=True)
class Stay:
    """When a job had its nodes, in seconds, and which."""

    start: float
    end: float
    nodes: node_set.NodeSet


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


def simulate(arrivals: Sequence[Arrival], nodes: int, way: Way) -> Figures:
    """What comes of a way: see the last line."""
    stays = played(arrivals, nodes, way)
    waits = [stay.start - arrival.at for stay, arrival in zip(stays, arrivals, strict=True)]
    slowdowns = (
        max(1.0, (wait + arrival.runtime) / max(_BOUND, arrival.runtime))
        for wait, arrival in zip(waits, arrivals, strict=True)
    )
    worked = sum(arrival.nodes * arrival.runtime for arrival in arrivals)
    return Figures(fmean(waits), fmean(slowdowns), worked / (nodes * max(stay.end for stay in stays)))


def played(arrivals: Sequence[Arrival], nodes: int, way: Way) -> list[Stay]:
    """Let all of them come, wait and run; each ends after its runtime, whatever its limit."""
    everything = free = node_set.span(0, nodes)
    jobs = [_job(number, arrival, everything) for number, arrival in enumerate(arrivals)]
    waiting: dict[str, int] = {}
    running: dict[str, RunningJob] = {}
    starts: dict[str, float] = {}
    stays: dict[int, Stay] = {}
    ends: list[tuple[float, str]] = []
    come = 0
    while come < len(arrivals) or ends:
        now = min([arrival.at for arrival in arrivals[come : come + 1]] + [end for end, _ in ends[:1]])
        while ends and ends[0][0] <= now:
            uid = heappop(ends)[1]
            free |= running[uid].nodes
            stays[int(uid)] = Stay(starts[uid], now, running.pop(uid).nodes)
        while come < len(arrivals) and arrivals[come].at <= now:
            waiting[jobs[come].uid] = come
            come += 1
        numbers = sorted(waiting.values(), key=lambda number: (way.by_class and arrivals[number].level, number))
        in_order = [jobs[number] for number in numbers]
        for start in backfill(now, in_order, [*running.values()], free, (), _NO_QUOTA, way.policy).starts:
            number = waiting.pop(start.uid)
            starts[start.uid] = now
            free &= ~start.nodes
            running[start.uid] = RunningJob(start.uid, "", "", start.nodes, start.option.count, start.until)
            heappush(ends, (now + arrivals[number].runtime, start.uid))
    return [stays[number] for number in range(len(arrivals))]


def compared(name: str, arrivals: Sequence[Arrival], nodes: int) -> dict[str, object]:
    """A trace in the last line: its load, and the figures of all ways, which are told as they come."""
    load = offered_load(arrivals, nodes)
    shown: dict[str, object] = {"offered_load": None if load is None else round(load, 4)}
    for way_name, way in WAYS.items():
        begun = perf_counter()
        figures = simulate(arrivals, nodes, way)
        shown[way_name] = figures.shown()
        print(f"{name}, {way_name}: {figures.shown()} in {perf_counter() - begun:.1f} s", flush=True)
    return shown


def _job(number: int, arrival: Arrival, everything: node_set.NodeSet) -> Job:
    option = Option("", arrival.nodes, everything, _first(arrival.nodes))
    return Job(str(number), "", (option,), arrival.limit)


@cache
def _first(count: int) -> Choose:
    """Takes the first ``count`` nodes that there are."""

    def choose(available: node_set.NodeSet) -> node_set.NodeSet | None:
        return node_set.lowest(available, count) if available.bit_count() >= count else None

    return choose


def main() -> int:
    default = Workload()
    parser = argparse.ArgumentParser(
        prog="python -m bench.schedule",
        description=__doc__,
        epilog=f"--swf: {swf.__doc__}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=_whole, help=f"how many (default: {default.jobs}, or all of the log)")
    parser.add_argument("--nodes", type=_whole, help=f"(default: {default.nodes}, or what the log's head says)")
    parser.add_argument("--load", type=_positive, help=f"that comes, of 1 (default: {default.load}, or the log's own)")
    parser.add_argument(
        "--overestimate",
        type=float,
        default=default.overestimate,
        help="f of the time limits of the synthetic trace (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=default.seed, help="(default: %(default)s)")
    parser.add_argument("--swf", type=Path, metavar="FILE", help="a log in the Standard Workload Format, or its .gz")
    parser.add_argument(
        "--processors-per-node", type=_whole, default=1, metavar="N", help="of the log (default: %(default)s)"
    )
    options = parser.parse_args()
    traces: dict[str, Sequence[Arrival]]
    if options.swf is not None:
        try:
            log = swf.parsed(
                swf.opened(options.swf),
                nodes=options.nodes,
                per_node=options.processors_per_node,
                most=options.jobs,
                seed=options.seed,
            )
        except swf.LogError as error:
            parser.error(str(error))
        print(
            f"{len(log.arrivals)} jobs for {log.nodes} nodes; {log.left_out} that never ran are left out; "
            f"no limit is known of {log.unlimited}, whose runtime stands for it",
            flush=True,
        )
        jobs, nodes, load = len(log.arrivals), log.nodes, options.load
        traces = {"swf": log.arrivals if load is None else at_load(log.arrivals, nodes, load)}
    else:
        workload = Workload(
            jobs=options.jobs or default.jobs,
            nodes=options.nodes or default.nodes,
            load=options.load or default.load,
            overestimate=options.overestimate,
            seed=options.seed,
        )
        jobs, nodes, load = workload.jobs, workload.nodes, workload.load
        traces = {"synthetic": synthetic(workload), "shaped": shaped(workload)}
    summary: dict[str, object] = {"bench": "schedule", "jobs": jobs, "nodes": nodes, "load": load, "seed": options.seed}
    for name, arrivals in traces.items():
        summary[name] = compared(name, arrivals, nodes)
    print(json.dumps(summary), flush=True)
    return 0


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
