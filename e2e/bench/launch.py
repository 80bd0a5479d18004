"""How much longer Lockstep takes to launch a gang than the control plane alone takes for the same pods.

On one control plane, in turns:
  floor    the very pods that Lockstep would create, byte for byte, sent by a bare HTTP client with the operator's
           account and connections, placed by kube-scheduler; from the first request until all are Running
  running  a TrainingRun is applied to a freshly started operator; from there until all its pods are Running
  started  from the same moment until every worker has been told START
While Lockstep launches, the simulated workers of all pods run too, and share this machine's cores with it; with
--no-workers they don't, and nothing is started. One launch before the first round is not counted. The last line
is JSON with the medians over all rounds; ratio is running_s / floor_s.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

from bench.floor import Floor
from bench.launcher import Launch, Launcher
from harness import world
from harness.kube import create_namespace
from harness.waiting import WaitedInVain
from localcluster.control_plane import SETTINGS
from localcluster.errors import LocalClusterError
from localcluster.kwok import NodeBatch

NAMESPACE = "bench"
_NODES_PER_RACK = 16


@dataclass(frozen=True)
class Round:
    """One of each, right after another."""

    floor: float  # seconds
    launch: Launch

    @property
    def ratio(self) -> float:
        """How many times the floor it took until all pods ran."""
        return self.launch.running / self.floor


def rounds(options: argparse.Namespace) -> Iterator[Round]:
    """Bring up a world, measure, tear it down."""
    nodes = NodeBatch(count=options.nodes, racks=-(-options.nodes // _NODES_PER_RACK))
    with world.started(kwok=nodes, report=_say) as here:
        for setting in SETTINGS:
            _say(f"setting: {setting}")
        create_namespace(here.kubectl, NAMESPACE)
        launcher = Launcher(here, NAMESPACE, options.nodes, with_workers=options.workers)
        warm_up = uvloop.run(launcher.launch())
        _say(f"warm-up: {_in_words(warm_up)}")
        floor = Floor(here, NAMESPACE, warm_up.run, options.concurrency)
        for _ in range(options.rounds):
            here.operator.stop()
            seconds = uvloop.run(floor.measure())
            here.operator.run()
            here.operator.wait_until_leading()
            yield Round(seconds, uvloop.run(launcher.launch()))


def summary(nodes: int, found: list[Round]) -> dict[str, object]:
    """The medians of all rounds."""
    floor = statistics.median(one.floor for one in found)
    running = statistics.median(one.launch.running for one in found)
    started = [one.launch.started for one in found if one.launch.started is not None]
    return {
        "bench": "launch",
        "nodes": nodes,
        "floor_s": round(floor, 2),
        "running_s": round(running, 2),
        "ratio": round(running / floor, 2),
        "started_s": round(statistics.median(started), 2) if started else None,
        "api_requests_per_pod": round(statistics.median(one.launch.api_requests for one in found) / nodes, 2),
        "operator_cpu_s": round(statistics.median(one.launch.operator_cpu for one in found), 2),
        "rss_mb": round(statistics.median(one.launch.rss for one in found) / 1e6),
    }


def _in_words(launch: Launch) -> str:
    started = "" if launch.started is None else f", started after {launch.started:.2f} s"
    cost = f"operator {launch.operator_cpu:.2f} s CPU, {launch.api_requests:.0f} API requests"
    return f"running after {launch.running:.2f} s{started} ({cost})"


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.launch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=512, help="of the gang and of the cluster (default: 512)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument(
        "--concurrency", type=int, default=32, help="of the floor's client (default: 32, as the operator begins)"
    )
    parser.add_argument("--no-workers", dest="workers", action="store_false", help="pods without simulated workers")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped then as well
    found: list[Round] = []
    try:
        for number, one in enumerate(rounds(options), 1):
            found.append(one)
            load = os.getloadavg()[0]
            _say(
                f"round {number} at {time.strftime('%H:%M:%S')}: floor {one.floor:.2f} s, {_in_words(one.launch)}; "
                f"ratio {one.ratio:.2f}, load {load:.1f} on {os.cpu_count()} cores"
            )
    except (LocalClusterError, WaitedInVain, TimeoutError) as error:
        _say(f"error: {str(error) or type(error).__name__}")
        return 1
    print(json.dumps(summary(options.nodes, found)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
