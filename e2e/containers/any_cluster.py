"""A cluster with Lockstep as a site where runs train, by its API and a folder that its nodes share with us."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.kube import OPERATOR_NAMESPACE, Kubectl, create_namespace
from harness.training import CLAIM, NAMESPACE, TRAINER, AnySite, TrainingRun
from harness.waiting import wait_for
from localcluster.api import MERGE_PATCH, ApiClient, Request
from localcluster.errors import KubectlError

OPERATOR_PODS = "--selector=app.kubernetes.io/name=lockstep"
TORCH_TRAINER = Path(__file__).with_name("train_torch.py")
READY_SECONDS = 300.0
"""Until a node that comes back is in order: this machine may be busy."""
MOST_NODES = 4
"""That one test takes: gangs have to leave one free."""
_FORGIVEN = ("lockstep.dev/suspect", "lockstep.dev/first-failures", "lockstep.dev/drain")
# Ranks and pids of a run's training processes in one container; with a signal, which is sent to that of a rank.
_FIND = """
import os, sys
uid, rank, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
    try:
        lines = open(f"/proc/{pid}/environ").read().split(chr(0))
    except OSError:
        continue
    told = dict(line.split("=", 1) for line in lines if "=" in line)
    if pid != os.getpid() and told.get("LOCKSTEP_RUN_UID") == uid and "LOCKSTEP_NODE_RANK" in told:
        print(told["LOCKSTEP_NODE_RANK"], pid, flush=True)
        if number and told["LOCKSTEP_NODE_RANK"] == rank:
            os.kill(pid, number)
"""
_KILLED = "exit code 137"
NOBODY_KNOWS = -1
Json = dict[str, Any]


@dataclass(frozen=True)
class Cluster:
    """The API and the log of the operator, as `World` has them of the local cluster.

    ``workers``: the nodes that train. ``shared``: a folder of this machine, which they have at ``mounted``.
    """

    kubeconfig: Path
    api: ApiClient
    workers: Sequence[str]
    shared: Path
    mounted: str

    @property
    def cluster(self) -> Cluster:
        return self

    @property
    def operator(self) -> Cluster:
        return self

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(self.kubeconfig)

    def claim_folder(self, namespace: str, claim: str) -> Path:
        """What a claim holds, as a folder of this machine."""
        return self.shared / namespace / claim

    def log_tail(self, lines: int = 15) -> str:
        """The end of the operator's log."""
        return self.kubectl("logs", "-n", OPERATOR_NAMESPACE, OPERATOR_PODS, f"--tail={lines}")


@dataclass
class ClusterSite(AnySite):
    """Runs on a cluster that is there, in containers of ``image``."""

    world: Cluster
    image: str = ""

    @property
    def gateway(self) -> str:
        pytest.skip("nobody knows the nodes' way to this machine: `make e2e` has nodes of its own")

    @property
    def nodes(self) -> list[str]:
        return list(self.world.workers)

    def kill_node(self, node: str) -> None:
        pytest.skip(f"nobody can power {node} off from here: `make e2e` has nodes of its own")

    def apply(self, name: str, nodes: int, command: Sequence[str], **spec: Any) -> TrainingRun:
        """A third of a CPU for each: what trains here is small, and machines that build are slow."""
        small = {"cpu": "300m", "memory": "512Mi"}
        return super().apply(name, nodes, command, **{"image": self.image, "resourcesPerNode": small} | spec)

    def applied(self, name: str, uid: str, ranks: int, claim: str) -> TrainingRun:
        return ContainedRun(self.world, name, uid, ranks, claim)

    def refusals(self) -> list[str]:
        """What the operator was refused although it had its rights; nothing where no record of it is kept."""
        return []

    def put_in_order(self) -> None:
        """Remove the runs of the test, and wait until all nodes are free."""
        for run in self.runs:
            self.world.cluster.api.send(Request("DELETE", run.path, absence_is_fine=True))
        wait_for("all pods are gone", lambda: not self._pods(), seconds=READY_SECONDS, last_seen=self._pods)
        self.forget_runs()
        for node in self.nodes:
            wait_for(f"{node} is in order", self._is_in_order(node), seconds=READY_SECONDS)
            forgiven = {"metadata": {"annotations": dict.fromkeys(_FORGIVEN)}}
            self.world.cluster.api.send(Request("PATCH", f"/api/v1/nodes/{node}", forgiven, MERGE_PATCH))

    def _pods(self) -> list[str]:
        listing = self.world.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return [pod["metadata"]["name"] for pod in listing]

    def _is_in_order(self, node: str) -> Callable[[], bool]:
        return lambda: is_free(self.world.cluster.api.get(f"/api/v1/nodes/{node}"))


@dataclass(frozen=True)
class ContainedRun(TrainingRun):
    """A run whose processes are found, and sent signals, from inside of their containers."""

    def processes(self) -> dict[int, int]:
        """Pid of the training process of each rank that has one, as its container counts. ``NOBODY_KNOWS`` is among the
        ranks where a container that seems to run could not be asked."""
        found: dict[int, int] = {}
        for pod in self.pods:
            if pod["status"].get("phase") == "Running":
                try:
                    found |= self._asked(pod)
                except KubectlError:  # it may be about to end
                    found[NOBODY_KNOWS] = 0
        return found

    def signal_process(self, rank: int, number: signal.Signals) -> None:
        found: dict[int, int] = {}
        for pod in self.pods:
            try:
                found |= self._asked(pod, rank, number)
            except KubectlError as error:
                if _KILLED not in str(error):  # by the worker, which ends whatever its program has left
                    raise
                return
        assert rank in found, f"rank {rank} has no process, ranks {sorted(found)} have"

    def _asked(self, pod: Json, rank: int = NOBODY_KNOWS, number: int = 0) -> dict[int, int]:
        python = ("python3", "-c", _FIND, self.uid, str(rank), str(int(number)))
        told = self.world.kubectl("exec", "-n", NAMESPACE, pod["metadata"]["name"], "--", *python)
        return {int(rank): int(pid) for rank, pid in map(str.split, told.splitlines())}


def is_free(node: Json) -> bool:
    """Ready, and without a taint."""
    ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
    return ready == ["True"] and not node["spec"].get("taints")


def given(kubeconfig: Path, shared: Path, folder: Path) -> Cluster:
    """Any cluster. ``shared``: what all its nodes have at the same path as this machine."""
    api = api_of(kubeconfig, folder)
    workers = sorted(node["metadata"]["name"] for node in api.get("/api/v1/nodes")["items"] if is_free(node))
    return Cluster(kubeconfig, api, workers[:MOST_NODES], shared, str(shared))


def api_of(kubeconfig: Path, folder: Path) -> ApiClient:
    """The API that a kubeconfig leads to, whose user has a client certificate; it is kept in ``folder``."""
    content = yaml.safe_load(Kubectl(kubeconfig)("config", "view", "--minify", "--raw", "--flatten"))
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    if "client-certificate-data" not in user:
        pytest.fail(f"{kubeconfig}: its user has to have a client certificate; these tests sign in with nothing else")
    files = {}
    for name, data in (
        ("ca.crt", cluster["certificate-authority-data"]),
        ("user.crt", user["client-certificate-data"]),
        ("user.key", user["client-key-data"]),
    ):
        files[name] = folder / name
        files[name].touch(mode=0o600)
        files[name].write_bytes(base64.b64decode(data))
    return ApiClient(cluster["server"], files["ca.crt"], files["user.crt"], files["user.key"])


def prepare(world: Cluster) -> None:
    """The namespace with the trainers and a claim that all nodes share."""
    create_namespace(world.kubectl, NAMESPACE)
    folder = world.claim_folder(NAMESPACE, CLAIM)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)  # the trainers are no root
    size = {"storage": "1Gi"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": CLAIM},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": size,
            "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
            "hostPath": {"path": f"{world.mounted}/{NAMESPACE}/{CLAIM}"},
            "storageClassName": "",
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": size},
            "storageClassName": "",
            "volumeName": CLAIM,
        },
    }
    for made in (volume, claim):
        world.kubectl("apply", "-f", "-", text=json.dumps(made))
    world.kubectl("delete", "configmap", "trainer", "-n", NAMESPACE, "--ignore-not-found")
    world.kubectl(
        "create", "configmap", "trainer", "-n", NAMESPACE, f"--from-file={TRAINER}", f"--from-file={TORCH_TRAINER}"
    )
