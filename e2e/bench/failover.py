"""What it costs when the leader of a busy cluster dies: 50 runs on 512 simulated nodes, and one kill.

Two operators run as the chart installs them, with a Lease of 10 s and the Service's EndpointSlice; a stand-in for
kube-proxy leads 500 simulated workers to whoever leads. The leader is killed with SIGKILL while all of them report, and
stays dead; at that moment another run is applied. Told from the kill on:
  leads_s    the other one has taken the Lease and the EndpointSlice
  acts_s     it has given nodes to the run that came meanwhile
  heard_s    every worker of the 50 runs is heard by it
Then the runs are watched for as long as silence may become evidence, and held against what they were: an attempt, a
START record, an assignment or a pod that differs is a failure, as is acts_s over 20. What the operators need is told
beside (docs/sizing.md):
  standby_mb   memory of the one that does not lead, before the kill
  leader_mb    memory of the one that leads, when the runs were watched
  leader_cores processor time of it in that while, in which every worker reports and nothing happens, per second
The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.launcher import workers_ca
from harness import world
from harness.kube import ROOT, Kubectl, create_namespace, install
from harness.replicas import Replica, Replicas
from harness.waiting import WaitedInVain, wait_for
from localcluster import LocalCluster
from localcluster.api import Request
from localcluster.control_plane import settings as settings_of
from localcluster.errors import LocalClusterError
from localcluster.kwok import NodeBatch
from lockstep.api.base import names

NAMESPACE = "bench"
ACTS_WITHIN = 20.0
"""Seconds from the kill until the next leader acts."""
_RUNS = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUNS}"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_LAUNCH_SECONDS = 600.0
_FAILOVER_SECONDS = 180.0
_NODES_PER_RACK = 16
Json = dict[str, Any]


class Crowd:
    """The runs of the benchmark, and what is seen of them."""

    def __init__(self, cluster: LocalCluster, runs: int, nodes: int) -> None:
        self._api = cluster.api
        self._names = [f"run-{number}" for number in range(runs)]
        self._nodes = nodes
        self.runs = runs
        self.workers = runs * nodes

    def apply(self) -> None:
        """All of them."""
        for name in self._names:
            self.apply_one(name, self._nodes)

    def apply_one(self, name: str, nodes: int) -> None:
        """A run that trains for as long as it is let."""
        spec = {"nodes": nodes, "image": "train", "command": ["torchrun", "train.py"]}
        body = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {"name": name}, "spec": spec}
        self._api.send(Request("POST", _RUNS, body))

    def started(self) -> int:
        """How many of them have been released."""
        return sum(bool(status.get("start")) for status in self._statuses().values())

    def is_admitted(self, name: str) -> bool:
        """It has nodes."""
        return bool(self._api.get(f"{_RUNS}/{name}").get("status", {}).get("assignment", {}).get("nodes"))

    def seen(self) -> dict[str, Json]:
        """What must not change, by run."""
        pods: dict[str, list[str]] = {}
        for pod in self._api.get(_PODS)["items"]:
            pods.setdefault(pod["metadata"]["labels"][names.LABEL_RUN], []).append(pod["metadata"]["uid"])
        return {
            name: {
                "attempt": status.get("attempt"),
                "start": status.get("start"),
                "assignment": status.get("assignment"),
                "pods": sorted(pods.get(name, ())),
            }
            for name, status in self._statuses().items()
        }

    def _statuses(self) -> dict[str, Json]:
        runs = {run["metadata"]["name"]: run.get("status", {}) for run in self._api.get(_RUNS)["items"]}
        return {name: runs.get(name, {}) for name in self._names}


def measure(cluster: LocalCluster, folder: Path, crowd: Crowd, watched: float, say: Callable[[str], None]) -> Json:
    """Bring up operators and runs, kill the leader; what was seen. Raises WaitedInVain."""
    kubectl = Kubectl(cluster.kubeconfig)
    install(kubectl)
    create_namespace(kubectl, NAMESPACE)
    with Replicas.started(kubectl, folder / "replicas", settings={"checkGpus": False}) as replicas:
        say("two operators run, one leads")
        with _workers(cluster, replicas, folder, workers_ca(kubectl)):
            crowd.apply()
            wait_for("all runs train", lambda: crowd.started() == crowd.runs, seconds=_LAUNCH_SECONDS, every=1.0)
            _wait_until_heard(replicas.leader, crowd.workers)
            before = crowd.seen()
            load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
            say(f"{crowd.workers} workers of {crowd.runs} runs train; {load}")
            old = replicas.leader
            new = replicas.other_than(old)
            standby = _metric(new, "process_resident_memory_bytes")
            # As with its node: one that came back at once might win the Lease again, as the standby's equal.
            old.process.kill_for_good()
            killed = time.monotonic()
            crowd.apply_one("later", 2)

            def took(what: str, look: Callable[[], bool]) -> float:
                wait_for(what, look, seconds=_FAILOVER_SECONDS, every=0.1, last_seen=replicas.log_tail)
                say(f"{what}: {time.monotonic() - killed:.1f} s")
                return round(time.monotonic() - killed, 1)

            found: Json = {
                "leads_s": took("the other one leads", lambda: replicas.service.leads_to == new.port),
                "acts_s": took("it acts", lambda: crowd.is_admitted("later")),
                "heard_s": took("it hears every worker", lambda: _heard(new) >= crowd.workers),
            }
            cpu, begun = _metric(new, "process_cpu_seconds_total"), time.monotonic()
            time.sleep(watched)
            cores = (_metric(new, "process_cpu_seconds_total") - cpu) / (time.monotonic() - begun)
            found |= {
                "standby_mb": round(standby / 1e6),
                "leader_mb": round(_metric(new, "process_resident_memory_bytes") / 1e6),
                "leader_cores": round(cores, 3),
            }
            after = crowd.seen()
    changed = [name for name in before if before[name] != after[name]]
    for name in changed:
        say(f"{name} was {json.dumps(before[name])} and is {json.dumps(after[name])}")
    return found | {"runs_changed": len(changed)}


def _metric(replica: Replica, name: str) -> float:
    return sum(replica.process.metrics().get(name, {}).values())


def _heard(replica: Replica) -> float:
    try:
        return _metric(replica, "lockstep_workers")
    except OSError:
        return 0


def _wait_until_heard(replica: Replica, workers: int) -> None:
    wait_for(f"{workers} workers are heard", lambda: _heard(replica) >= workers, seconds=_LAUNCH_SECONDS, every=1.0)


@contextlib.contextmanager
def _workers(cluster: LocalCluster, replicas: Replicas, folder: Path, ca: str) -> Iterator[None]:
    ca_file = folder / "workers-ca.crt"
    ca_file.write_text(ca)
    command = [sys.executable, "-m", "localcluster.simworkers", f"--kubeconfig={cluster.kubeconfig}"]
    options = [f"--operator-url={replicas.service.url}", f"--ca-file={ca_file}"]
    training = ["--step-seconds=1", "--total-steps=1000000"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "e2e")}
    with subprocess.Popen([*command, *options, *training], stdout=subprocess.DEVNULL, env=environment) as process:
        try:
            yield
        finally:
            process.kill()


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cluster-nodes", type=int, default=512, help="(default: 512)")
    parser.add_argument("--runs", type=int, help="(default: nearly all nodes; 50 on 512)")
    parser.add_argument("--nodes", type=int, default=10, help="of each run (default: 10)")
    parser.add_argument(
        "--watched", type=float, default=45.0, help="seconds; more than three heartbeats, and than a node may be silent"
    )
    options = parser.parse_args()
    if options.runs is None:
        options.runs = max(1, (options.cluster_nodes - 2) // options.nodes - 1)
    if options.runs * options.nodes + 2 > options.cluster_nodes:
        parser.error(
            f"--cluster-nodes: {options.runs * options.nodes + 2} are needed, two of them for the run that comes"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped then as well
    nodes = NodeBatch(count=options.cluster_nodes, racks=-(-options.cluster_nodes // _NODES_PER_RACK))
    try:
        with world.control_plane() as cluster:
            cluster.add_kwok_nodes(nodes, wait=120)
            for setting in settings_of(cluster.layout):
                _say(f"setting: {setting}")
            _say("setting: a proxy in Python is between each operator and the API server, and before the Service")
            folder = cluster.state_dir / "failover"
            folder.mkdir()
            crowd = Crowd(cluster, options.runs, options.nodes)
            found = measure(cluster, folder, crowd, options.watched, _say)
            shutil.rmtree(folder, ignore_errors=True)
    except (LocalClusterError, WaitedInVain) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    broken = [f"{found['runs_changed']} runs were touched"] if found["runs_changed"] else []
    if found["acts_s"] > ACTS_WITHIN:
        broken.append(f"the new leader acted after {found['acts_s']} s, not within {ACTS_WITHIN:g} s")
    for words in broken:
        _say(f"broken: {words}")
    shape = {
        "bench": "failover",
        "nodes": options.cluster_nodes,
        "runs": options.runs,
        "workers": options.runs * options.nodes,
    }
    _say(json.dumps(shape | found))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
