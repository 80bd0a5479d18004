"""How fast a gang comes back, from the failure that was reported to the last rank that runs again.

In one world of process nodes (the real worker, real processes, a real API server):
  in place   the training process of one rank is killed; from the arrival of the worker's report until the last rank
             has acknowledged START. What lies between: the decision in status, every other rank's process ended,
             the inventory taken, the checkpoint chosen and read, START in status. A worker acknowledges once it
             has recorded the attempt as run, before it starts the process, whose own start-up does not count. When the
             last of them was started is told as well (programs)
  replace    a node loses its power and its Node object; from the moment when the operator knows of the loss until
             the last rank has acknowledged START: a pod on a free node, its worker, and then as above
  flatness   the operator's CPU per rank and recovery with all nodes, divided by the same with a small gang
In another one, of simulated nodes and workers:
  commanded  a simulated rank fails; from the arrival of its report until START was written and offered to all

All moments are taken where they happen: by the operator when words arrive (its log has a line for each recovery, its
metrics have them by phase), by the simulated workers when they are told START. The writes are all requests that change
something at the API server, events included, Leases and TokenReviews left out. The last line is JSON; what did not hold
is named in "failed", and the exit code is then 1: with --full, as a few recoveries have no 95th percentile.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from statistics import median

from bench import sizes
from bench.commanded import Commanded, command
from bench.gang import NAMESPACE, Series, launched, prepare_namespace
from bench.recoveries import Recovery, quantile
from harness import world
from harness.kube import create_namespace
from harness.waiting import WaitedInVain
from localcluster.control_plane import SETTINGS
from localcluster.errors import LocalClusterError
from localcluster.kwok import NodeBatch
from localcluster.processnodes import ProcessNodesError
from localcluster.processnodes.node import NodeShape, numbered

SPARE = 4
_NODES_PER_RACK = 16
_KUBELET_HEARTBEAT = 10.0  # seconds: as a real kubelet's; with dozens of them on one machine it counts
# GPUs are none here; losses that follow each other on purpose are no disruption.
_SETTINGS = {"checkGpus": False, "breaker": {"window": 1.0}}
IN_PLACE, REPLACE, FLATNESS, COMMANDED = 1.0, 5.0, 1.5, 2.0
"""What must hold: seconds, and one ratio."""
_FULL = {"nodes": 64, "small": 8, "simulated": 512, "recoveries": 40, "replacements": 10, "commands": 5}


def real_gangs(options: argparse.Namespace) -> tuple[Series, Series, Series]:
    """(in place, replacements, in place with the small gang)."""
    count = options.nodes + SPARE
    shapes = numbered("bench", 0, count, -(-count // _NODES_PER_RACK), NodeShape("", gpus=0))
    with world.started(
        process_nodes=shapes, settings=_SETTINGS, heartbeat_seconds=_KUBELET_HEARTBEAT, report=_say
    ) as here:
        for setting in SETTINGS:
            _say(f"setting: {setting}")
        create_namespace(here.kubectl, NAMESPACE)
        prepare_namespace(here)
        with launched(here, "large", options.nodes) as gang:
            _say(f"{options.nodes} ranks train")
            in_place = gang.restart_in_place(options.recoveries, options.pause)
            _tell("in place", in_place)
            replaced = gang.replace_nodes(options.replacements, options.pause)
            _tell("replace", replaced)
        with launched(here, "small", options.small) as gang:
            small = gang.restart_in_place(-(-options.recoveries // 4), options.pause)
            _tell("in place", small)
    return in_place, replaced, small


def simulated_gang(options: argparse.Namespace) -> Commanded:
    """The gang of simulated workers."""
    batch = NodeBatch(count=options.simulated, racks=-(-options.simulated // _NODES_PER_RACK))
    with world.started(kwok=batch, settings=_SETTINGS, report=_say) as here:
        create_namespace(here.kubectl, NAMESPACE)
        found = command(here, NAMESPACE, options.simulated, options.commands)
    offered = ", ".join(f"{seconds:.2f}" for seconds in found.offered)
    _say(f"commanded: {options.simulated} simulated ranks, offered after {offered} s; {_phases(found.recoveries)}")
    return found


def summary(
    options: argparse.Namespace, size: str, in_place: Series, replaced: Series, small: Series, commanded: Commanded
) -> dict[str, object]:
    """The figures, and which of them are not what they must be."""
    flatness = in_place.cpu_per_rank / small.cpu_per_rank
    in_place_p95 = quantile([one.seconds for one in in_place.recoveries], 0.95)
    replace_p95 = quantile([one.seconds for one in replaced.recoveries], 0.95)
    offered = max(commanded.offered)
    writes = [small.writes, in_place.writes, commanded.writes]
    holds = {
        "in_place_p95_s": in_place_p95 <= IN_PLACE,
        "replace_p95_s": replace_p95 <= REPLACE,
        "flatness": flatness <= FLATNESS,
        "commanded_512_s": offered <= COMMANDED,
        # A whole write more or less: a count at the barrier is told only where it takes its time.
        "writes_in_place_512": max(writes) - min(writes) <= 1.0,
    }
    return {
        "bench": "recover",
        "size": size,
        "in_place_p95_s": round(in_place_p95, 3),
        "replace_p95_s": round(replace_p95, 3),
        "flatness": round(flatness, 2),
        "commanded_512_s": round(offered, 3),
        "writes_in_place_512": round(commanded.writes, 1),
        "writes_in_place": {str(options.small): round(writes[0], 1), str(options.nodes): round(writes[1], 1)},
        "in_place_programs_p95_s": round(quantile(in_place.programs, 0.95), 3),
        "in_place_p50_s": round(median(one.seconds for one in in_place.recoveries), 3),
        "nodes": options.nodes,
        "simulated_nodes": options.simulated,
        "recoveries": len(in_place.recoveries),
        "replacements": len(replaced.recoveries),
        "operator_cpu_ms_per_rank": round(in_place.cpu_per_rank * 1000, 2),
        "failed": sorted(name for name, held in holds.items() if not held and size == "full"),
    }


def _tell(what: str, series: Series) -> None:
    seconds = [one.seconds for one in series.recoveries]
    programs = f"last program after {median(series.programs):.2f} s; " if series.programs else ""
    writes = ", ".join(f"{count / len(seconds):.1f} {name}" for name, count in sorted(series.cost.writes.items()))
    _say(
        f"{what}: {series.ranks} ranks, {len(seconds)} recoveries, median {median(seconds):.2f} s, p95 "
        f"{quantile(seconds, 0.95):.2f} s, longest {max(seconds):.2f} s; {_phases(series.recoveries)}; "
        f"{programs}per recovery {series.cost.cpu / len(seconds) * 1000:.0f} ms of the operator's CPU, {writes}; load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def _phases(recoveries: Sequence[Recovery]) -> str:
    names = recoveries[0].phases
    return "medians " + ", ".join(f"{name} {median(r.phases[name] for r in recoveries):.2f}" for name in names)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.recover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=64, help="process nodes of the gang (default: 64)")
    parser.add_argument("--small", type=int, default=8, help="process nodes of the small gang (default: 8)")
    parser.add_argument("--simulated", type=int, default=512, help="simulated nodes (default: 512)")
    parser.add_argument(
        "--recoveries", type=int, default=8, help="in place (default: 8; a quarter of them with the small gang)"
    )
    parser.add_argument("--replacements", type=int, default=3, help="of a node (default: 3)")
    parser.add_argument("--commands", type=int, default=2, help="failures of the simulated gang (default: 2)")
    parser.add_argument(
        "--pause",
        type=float,
        default=8.0,
        help="seconds of training between, in which all workers tell of what was saved (default: 8)",
    )
    options, size = sizes.parsed(parser, _FULL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped then as well
    try:
        figures = summary(options, size, *real_gangs(options), simulated_gang(options))
    except (LocalClusterError, ProcessNodesError, WaitedInVain, RuntimeError) as error:
        _say(f"error: {error}")
        return 1
    print(json.dumps(figures), flush=True)
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
