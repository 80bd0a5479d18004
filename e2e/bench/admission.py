"""What admission costs: passes over a long queue, and runs admitted on a real control plane.

  full_pass_s       one pass that remembers nothing, over RUNS queued runs and NODES nodes in racks of 16, nine tenths
                    of which are held by runs with time limits (bench.crowd); the median, in seconds of the processor
  incremental_s     the same for the pass right after one event (a run arrives, is edited or ends, a node goes NotReady
                    or comes back) in a queue where nobody else can start: the median of the one of five kinds that
                    takes longest. Each decides what a pass that remembers nothing does
  incremental_p95_s what 95 of 100 of them do not exceed, of the kind where that is most
  incremental_preempting_s  as incremental_s, where queues preempt within themselves and reclaim in their cohort, and
                    many may send others away once these have run for long enough: of two crowds (10 minutes for
                    those who came lately, 30 days for everybody) the one that takes longer
  peak_mb           what a first pass allocates at most (tracemalloc)
  admissions_per_s  ADMITTED one-node runs on as many simulated nodes, from the moment that their queue is opened until
                    all have their nodes in status; pods are held back (bench.admitting says how)
  operator_cpu_ms   the operator's CPU per admission meanwhile, operator_mb the memory that it then holds
  control_plane_cpu_ms  the same of API server and etcd together
  floor_per_s       the smallest status that there is, one integer in an object of a plain kind, written as often by a
                    bare client while nothing else is done; floor_cpu_ms what that costs API server and etcd
  with_pods_per_s   the same with pods and simulated workers, until all were told START
  gang64_*          GANGS runs of 64 nodes in waves that fill GANG_NODES nodes, from the opening until each is
                    admitted
  writes_per_admission  requests that change something at the API server, events and leases aside

The last line is JSON. Seconds are of this machine, with all that runs on it. What takes longer than it is to, or is
less, is named in "failed", and the exit code is then 1: of the size that `make bench-admission` has, incremental_s and
admissions_per_s alone. Other sizes than that and the full one are not judged.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any

import uvloop

from bench import admitting, passes, patching, sizes
from bench.recoveries import quantile
from harness import world
from harness.kube import create_namespace
from harness.waiting import WaitedInVain
from localcluster.control_plane import LARGE, SETTINGS
from localcluster.errors import LocalClusterError
from localcluster.kwok import NodeBatch

_NODES_PER_RACK = 16
_GANG = 64
_WRITES_AT_ONCE = 16  # as many as the operator has under way
_FULL = {"runs": 10_000, "nodes": 16_384, "rounds": 20, "admitted": 5_000, "gangs": 500, "gang_nodes": 2_048}
_AT_MOST = {"incremental_s": 0.05}
_AT_LEAST = {"admissions_per_s": 250.0}
_AT_MOST_FULL = {"full_pass_s": 1.0, "incremental_preempting_s": 0.15}


def measure(options: argparse.Namespace, size: str) -> dict[str, object]:
    """All figures."""
    figures: dict[str, object] = {
        "bench": "admission",
        "size": size,
        "runs": options.runs,
        "nodes": options.nodes,
        "admitted": options.admitted,
    }
    pure = passes.measure(options.runs, options.nodes, options.rounds, _say)
    figures["full_pass_s"] = round(median(pure.full), 3)
    figures["incremental_s"] = round(pure.worst, 4)
    figures["incremental_p95_s"] = round(pure.worst_p95, 4)
    figures["incremental_preempting_s"] = round(pure.worst_preempting, 4)
    figures["peak_mb"] = round(pure.peak / 1e6, 1)
    if not options.admitted:
        return figures
    for setting in (
        *SETTINGS,
        *LARGE,
        f"the operator's lease lasts {admitting.PATIENT['leaseDuration']} s (ours: 10 s)",
    ):
        _say(f"setting: {setting}")
    with world.started(kwok=_racks(options.admitted), settings=admitting.PATIENT, large=True, report=_say) as here:
        create_namespace(here.kubectl, admitting.NAMESPACE)
        admitted = uvloop.run(admitting.admit(here, options.admitted, 1))
        _say(f"{options.admitted} runs admitted in {max(admitted.seconds):.1f} s; load {os.getloadavg()[0]:.1f}")
        floor = uvloop.run(patching.measure(here, admitting.NAMESPACE, options.admitted, _WRITES_AT_ONCE))
        _say(f"the floor: {floor.per_second:.0f}/s; load {os.getloadavg()[0]:.1f}")
        launched = uvloop.run(admitting.launch(here, options.admitted))
        _say(f"{options.admitted} runs started in {launched:.1f} s; load {os.getloadavg()[0]:.1f}")
    figures["admissions_per_s"] = round(admitted.per_second, 1)
    figures["floor_per_s"] = round(floor.per_second, 1)
    figures["operator_cpu_ms"] = round(admitted.cpu_ms, 2)
    figures["control_plane_cpu_ms"] = round(admitted.control_plane_cpu_ms, 2)
    figures["floor_cpu_ms"] = round(floor.cpu_ms, 2)
    figures["operator_mb"] = round(admitted.memory / 1e6, 1)
    figures["with_pods_per_s"] = round(options.admitted / launched, 1)
    if options.gangs:
        racks = _racks(options.gang_nodes)
        with world.started(kwok=racks, settings=admitting.PATIENT, large=True, report=_say) as here:
            create_namespace(here.kubectl, admitting.NAMESPACE)
            at_once = options.gang_nodes // _GANG
            seconds = uvloop.run(admitting.waves(here, options.gangs, _GANG, at_once, _say))
        figures["gang64_p50_s"] = round(quantile(seconds, 0.5), 3)
        figures["gang64_p99_s"] = round(quantile(seconds, 0.99), 3)
    figures["writes_per_admission"] = round(admitted.writes, 2)
    return figures


def failed(figures: Mapping[str, Any]) -> list[str]:
    """Which of the figures are not what they are to be, at their size; for passes alone as well."""
    is_full = figures["runs"] >= _FULL["runs"] and figures["admitted"] in (0, _FULL["admitted"])
    if not is_full and figures["size"] != "short":
        return []
    at_most = _AT_MOST | (_AT_MOST_FULL if is_full else {})
    beyond = [name for name, most in at_most.items() if figures[name] > most]
    return beyond + [name for name, least in _AT_LEAST.items() if figures.get(name, least) < least]


def _racks(nodes: int) -> NodeBatch:
    return NodeBatch(count=nodes, racks=-(-nodes // _NODES_PER_RACK))


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.admission", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=500, help="that wait in a pass (default: 500)")
    parser.add_argument("--nodes", type=int, default=1_024, help="that a pass looks at (default: 1024)")
    parser.add_argument("--rounds", type=int, default=4, help="of every event (default: 4)")
    parser.add_argument("--admitted", type=int, default=500, help="one-node runs; 0: none (default: 500)")
    parser.add_argument("--gangs", type=int, default=32, help="of 64 nodes; 0: none (default: 32)")
    parser.add_argument("--gang-nodes", type=int, default=1_024, help="for the gangs (default: 1024)")
    options, size = sizes.parsed(parser, _FULL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped then as well
    try:
        figures = measure(options, size)
    except (LocalClusterError, WaitedInVain, TimeoutError) as error:
        _say(f"error: {str(error) or type(error).__name__}")
        return 1
    figures["failed"] = failed(figures)
    print(json.dumps(figures), flush=True)
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
