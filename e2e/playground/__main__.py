"""A cluster with Lockstep to play on, left up until Ctrl-C: 128 simulated nodes, four whose pods are real processes,
two teams with runs in every state, the web page. It needs root, or user namespaces; nothing outside this machine is
reached, and nothing of it stays.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import yaml

from harness.kube import OPERATOR_NAMESPACE, Kubectl
from harness.simulated_workers import simulated_workers
from harness.waiting import WaitedInVain, wait_for
from harness.world import World, started
from localcluster import build, kubeconfig
from localcluster.errors import LocalClusterError
from localcluster.kwok import NodeBatch
from localcluster.processnodes.node import NodeShape
from localcluster.state import free_ports
from playground import guide
from playground.doors import Doors, rights_or_reenter
from playground.guide import Guide

SAMPLES = [Path(__file__).with_name(name) for name in ("samples.yaml", "waiting.yaml")]
NAMESPACE, ACCOUNT = "playground", "you"
SIMULATED = NodeBatch(count=128, racks=8, zones=2, labels={"playground": "simulated"})
REAL = [
    NodeShape(f"real-{index}", gpus=2, rdma=0, rack=f"rack-{100 + index // 2}", labels={"playground": "real"})
    for index in range(4)
]
# Somebody is watching: progress is written often, and a silent node is given up soon.
SETTINGS = {"progressWriteInterval": 2, "heartbeatMin": 2, "heartbeatMax": 2.5, "checkGpus": False}
SAMPLES_SECONDS = 300.0
DAYS = 7
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _EndedEarly(BaseException):
    """Somebody does not want to wait until it is up."""


class _Ending:
    """Ctrl-C ends what is not up yet, and is waited for afterwards. What is being taken down is let finish."""

    def __init__(self) -> None:
        self.asked = Event()
        self.is_up = False
        for number in SIGNALS:
            signal.signal(number, self._heard)

    def _heard(self, *_: object) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        self.asked.set()
        if not self.is_up:
            raise _EndedEarly


def main() -> int:
    """Exit code 0 when it was up and was ended."""
    parser = argparse.ArgumentParser(
        prog="python -m playground", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--for", type=float, metavar="SECONDS", dest="seconds", help="end by itself so long after")
    parser.add_argument("--doors", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - begun:5.1f} s] {line}", flush=True)

    try:
        doors = rights_or_reenter(options.doors, sys.argv[1:])
        with _alone():
            ending = _Ending()
            with _up(doors, say) as found:
                ending.is_up = True
                print(found.words(), flush=True)
                ending.asked.wait(options.seconds)
                ending.asked.set()
                say("taking it all down")
    except _EndedEarly:
        say("it was ended before it was up; nothing of it runs any more")
        return 130
    except (LocalClusterError, WaitedInVain) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    say("nothing of it is left")
    return 0


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Its files have the same names each time, so there is one at a time."""
    build.build_dir().mkdir(parents=True, exist_ok=True)
    with (build.build_dir() / "playground.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalClusterError(
                f"a playground is up already: `source {guide.folder()}/env`, or end it first (Ctrl-C where it runs)"
            ) from None
        guide.clear()
        try:
            yield
        finally:
            guide.clear()


@contextlib.contextmanager
def _up(doors: Doors, say: Callable[[str], None]) -> Iterator[Guide]:
    """The whole of it, with its samples in the states that they show."""
    port = free_ports(("web",))["web"]
    guide.folder().mkdir(mode=0o700)
    more = {"web": {"enabled": True, "port": port}, "history": {"path": str(guide.folder() / "history.jsonl")}}
    settings = SETTINGS | more
    with started(process_nodes=REAL, kwok=SIMULATED, settings=settings, heartbeat_seconds=2.0, report=say) as world:
        kubectl = world.kubectl
        with simulated_workers(world):
            _publish(kubectl, settings)
            say("two teams make their queues and runs")
            for samples in SAMPLES:
                kubectl("apply", "-f", str(samples))
                wait_for(
                    "every sample is in the state that it shows",
                    lambda: not _show_states(kubectl),
                    seconds=SAMPLES_SECONDS,
                    last_seen=lambda: _show_states(kubectl),
                )
            say("runs train, wait, are suspended, have failed and have succeeded")
            found = _guide(world, doors, f"http://127.0.0.1:{port}")
            found.write()
            yield found


def _publish(kubectl: Kubectl, settings: dict[str, Any]) -> None:
    """As the chart does: `lockstep explain` reads them."""
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "lockstep-operator", "namespace": OPERATOR_NAMESPACE},
        "data": {"operator.yaml": yaml.safe_dump(settings)},
    }
    kubectl("apply", "-f", "-", text=json.dumps(config_map))


def _show_states(kubectl: Kubectl) -> list[str]:
    """The samples that are not in the state that they show, yet; those to be suspended are, once they have steps."""
    missing = []
    for run in kubectl.json("get", "trainingruns", "-A", "-l", "shows")["items"]:
        metadata, status = run["metadata"], run.get("status", {})
        wanted, state = metadata["labels"]["shows"], status.get("state", "new")
        if state == wanted:
            continue
        missing.append(f"{metadata['namespace']}/{metadata['name']} is {state}, not {wanted}")
        if wanted == "Suspended" and status.get("progress", {}).get("step", 0) and not run["spec"].get("suspend"):
            name = ("-n", metadata["namespace"], metadata["name"])
            kubectl("patch", "trainingrun", *name, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    return missing


def _guide(world: World, doors: Doors, page: str) -> Guide:
    def token(*audience: str) -> str:
        days = f"--duration={DAYS * 24}h"
        return world.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE, days, *audience).strip()

    server = doors.lead_to(world.cluster.url)
    access = kubeconfig.with_token(server, world.cluster.ca_file, token())
    access["contexts"][0]["context"]["namespace"] = NAMESPACE
    page_token = token("--audience=lockstep-web")
    return Guide(access, doors.lead_to(page), page_token, world.cluster.state_dir)


if __name__ == "__main__":
    sys.exit(main())
