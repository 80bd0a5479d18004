"""How much longer Lockstep takes to launch a gang than the control plane alone takes for the same pods.

On one control plane, in turns, and with a freshly started operator each time:
  floor    the very pods that Lockstep would create, byte for byte, sent by a bare HTTP client with the operator's
           account and connections, placed by kube-scheduler; from the first request until all are Running
  running  a TrainingRun is applied; from there until all its pods are Running. As in the floor there are no workers
           in the pods: in a cluster they run, and get their tokens, on machines of their own
  started  another launch, this time with a simulated worker for every pod, all of them on this machine; from the
           apply until the last one was told START. The operator's cost is that of this launch
One launch before the first round is not counted, nor is a round that the operator did not live through (it ends when a
starved API server does not renew its lease in time): another one takes its place. The last line is JSON with the
medians over all rounds; ratio is running_s / floor_s.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

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
_TRIES = 3
"""As many rounds for each that counts, at most."""


@dataclass(frozen=True)
class Round:
    """One of each, right after another."""

    floor: float  # seconds
    bare: Launch  # without workers
    full: Launch

    @property
    def counts(self) -> bool:
        """The operator lived through it."""
        return not (self.bare.restarts or self.full.restarts)


def rounds(options: argparse.Namespace) -> Iterator[Round]:
    """Bring up a world, measure, tear it down."""
    nodes = NodeBatch(count=options.nodes, racks=-(-options.nodes // _NODES_PER_RACK))
    with world.started(kwok=nodes, report=_say) as here:
        for setting in SETTINGS:
            _say(f"setting: {setting}")
        create_namespace(here.kubectl, NAMESPACE)
        launcher = Launcher(here, NAMESPACE, options.nodes)
        warm_up = uvloop.run(launcher.launch(with_workers=True))
        floor = Floor(here, NAMESPACE, warm_up.run, options.concurrency)
        here.operator.stop()
        counted = 0
        for _ in range(_TRIES * options.rounds):
            seconds = uvloop.run(floor.measure())
            launches = []
            for with_workers in (False, True):
                here.operator.run()
                here.operator.wait_until_leading()
                launches.append(uvloop.run(launcher.launch(with_workers=with_workers)))
                here.operator.stop()
            one = Round(seconds, *launches)
            yield one
            counted += one.counts
            if counted == options.rounds:
                return


def summary(nodes: int, found: Sequence[Round]) -> dict[str, object]:
    """The medians of all rounds."""
    floor = median(one.floor for one in found)
    running = median(one.bare.running for one in found)
    return {
        "bench": "launch",
        "nodes": nodes,
        "floor_s": round(floor, 2),
        "running_s": round(running, 2),
        "ratio": round(running / floor, 2),
        "started_s": round(median(one.full.started for one in found), 2),
        "api_requests_per_pod": round(median(one.full.api_requests for one in found) / nodes, 2),
        "operator_cpu_s": round(median(one.full.operator_cpu for one in found), 2),
        "rss_mb": round(median(one.full.rss for one in found) / 1e6),
    }


def _in_words(number: int, one: Round) -> str:
    words = (
        f"round {number} at {time.strftime('%H:%M:%S')}: floor {one.floor:.2f} s, running {one.bare.running:.2f} s "
        f"(x {one.bare.running / one.floor:.2f}); with workers running {one.full.running:.2f} s, "
        f"started {one.full.started:.2f} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    return words if one.counts else f"{words}; NOT COUNTED, the operator was started anew meanwhile"


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
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped then as well
    found: list[Round] = []
    try:
        for number, one in enumerate(rounds(options), 1):
            _say(_in_words(number, one))
            found += [one] if one.counts else []
    except (LocalClusterError, WaitedInVain, TimeoutError) as error:
        _say(f"error: {str(error) or type(error).__name__}")
        return 1
    if not found:
        _say("error: the operator did not live through any round: this machine has too much else to do")
        return 1
    print(json.dumps(summary(options.nodes, found)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
