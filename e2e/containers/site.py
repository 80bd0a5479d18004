"""The kind cluster as a site where runs train, and what tests do to its nodes."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.kube import OPERATOR_NAMESPACE, Kubectl, create_namespace
from harness.waiting import wait_for
from kindcluster.cluster import SHARED, KindCluster
from kindcluster.errors import KindClusterError
from localcluster.api import MERGE_PATCH, ApiClient, Request
from lockstep.api import names
from support.training import CLAIM, NAMESPACE, TRAINER, TrainingRun, TrainingSite

OPERATOR_PODS = "--selector=app.kubernetes.io/name=lockstep"
TORCH_TRAINER = Path(__file__).with_name("train_torch.py")
READY_SECONDS = 300.0
"""Until a node that comes back is in order: this machine may be busy."""
_FORGIVEN = ("lockstep.dev/suspect", "lockstep.dev/first-failures", "lockstep.dev/drain")
Json = dict[str, Any]


@dataclass(frozen=True)
class Machines:
    """The API and the log of the operator, as `World` has them of the local cluster."""

    kind: KindCluster
    api: ApiClient

    @property
    def cluster(self) -> Machines:
        return self

    @property
    def operator(self) -> Machines:
        return self

    @property
    def kubectl(self) -> Kubectl:
        return self.kind.kubectl

    def claim_folder(self, namespace: str, claim: str) -> Path:
        """What a claim holds, as a folder of this machine."""
        return self.kind.shared / namespace / claim

    def log_tail(self, lines: int = 15) -> str:
        """The end of the operator's log."""
        return self.kubectl("logs", "-n", OPERATOR_NAMESPACE, OPERATOR_PODS, f"--tail={lines}")


@dataclass
class KindSite(TrainingSite):
    """Runs on the kind cluster, and its nodes, which are machines to everything that runs on them."""

    image: str = ""

    @property
    def kind(self) -> KindCluster:
        return self.world.kind  # type: ignore[attr-defined]

    def apply(self, name: str, nodes: int, command: Sequence[str], **spec: Any) -> TrainingRun:
        """Half a CPU for each: what trains here is small, and machines that build are slow."""
        small = {"cpu": "300m", "memory": "512Mi"}
        return super().apply(name, nodes, command, **{"image": self.image, "resourcesPerNode": small} | spec)

    # What happens to nodes

    def stop_node(self, node: str) -> None:
        """Power off."""
        self.kind.docker("kill", node)

    def start_node(self, node: str) -> None:
        """Power on."""
        self.kind.docker("start", node)

    def freeze_node(self, node: str) -> None:
        """Nothing in it runs, nothing in it ends."""
        self.kind.docker("pause", node)

    def thaw_node(self, node: str) -> None:
        self.kind.docker("unpause", node)

    def cut_node(self, node: str) -> None:
        """Nothing comes in or goes out. What runs in it runs on."""
        for tool in ("iptables", "ip6tables"):
            for chain, direction in (("INPUT", "-i"), ("OUTPUT", "-o")):
                self.kind.inside(node, tool, "-I", chain, direction, "eth0", "-j", "DROP")

    def heal_node(self, node: str) -> None:
        for tool in ("iptables", "ip6tables"):
            for chain, direction in (("INPUT", "-i"), ("OUTPUT", "-o")):
                with contextlib.suppress(KindClusterError):  # it was not cut
                    self.kind.inside(node, tool, "-D", chain, direction, "eth0", "-j", "DROP")

    def trainers(self, node: str) -> list[int]:
        """Pids in the node of training programs, whether the API server knows of them or not.

        Neither the worker, which is process 1 of its container, nor torchrun is one.
        """
        listing = self.kind.inside(node, "ps", "-eo", "pid=,args=")
        lines = (line.split(None, 1) for line in listing.splitlines())
        programs = ((int(pid), words) for pid, words in lines if not re.search(r"/lockstep/worker|torchrun", words))
        return [pid for pid, words in programs if TRAINER.name in words or TORCH_TRAINER.name in words]

    def kill_inside(self, node: str, pid: int) -> None:
        """SIGKILL to a process of a node, as its kernel might."""
        self.kind.inside(node, "kill", "-KILL", str(pid))

    def kill_container(self, node: str, pod: Json) -> None:
        """SIGKILL to process 1 of a pod's container, by the container runtime."""
        [container] = pod["status"]["containerStatuses"]
        name = container["containerID"].removeprefix("containerd://")
        self.kind.inside(node, "ctr", "--namespace=k8s.io", "tasks", "kill", "--signal", "SIGKILL", name)

    # In order again

    def put_in_order(self) -> None:
        """Mend every node, remove every run, and wait until all nodes are free."""
        state = self.kind.docker("inspect", "--format", "{{.Name}} {{.State.Status}}", *self.kind.workers)
        for line in state.splitlines():
            name, status = line.removeprefix("/").split()
            if status == "paused":
                self.thaw_node(name)
            elif status != "running":
                self.start_node(name)
        for node in self.kind.workers:
            self.heal_node(node)
            self.world.kubectl("uncordon", node)
        self.world.kubectl("delete", names.RUNS, "--all", "-n", NAMESPACE, "--wait=false")
        self.runs.clear()
        wait_for("all pods are gone", lambda: not self._pods(), seconds=READY_SECONDS, last_seen=self._pods)
        for node in self.kind.workers:
            wait_for(f"{node} is in order", self._is_in_order(node), seconds=READY_SECONDS)
            forgiven = {"metadata": {"annotations": dict.fromkeys(_FORGIVEN)}}
            self.world.cluster.api.send(Request("PATCH", f"/api/v1/nodes/{node}", forgiven, MERGE_PATCH))

    def _pods(self) -> list[str]:
        listing = self.world.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return [pod["metadata"]["name"] for pod in listing]

    def _is_in_order(self, node: str) -> Callable[[], bool]:
        def look() -> bool:
            found = self.world.cluster.api.get(f"/api/v1/nodes/{node}")
            ready = [c["status"] for c in found["status"]["conditions"] if c["type"] == "Ready"]
            return ready == ["True"] and not found["spec"].get("taints")

        return look


def assert_blamed(run: TrainingRun, node: str, cause: str, words: str) -> None:
    """The first attempt was ended by rank 1, for this reason, and not by its peer, which hung up because of it."""
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["node"]) == (cause, 1, node), run.summary()
    assert words in first["message"], run.summary()


def machines(kind: KindCluster) -> Machines:
    """The cluster of a kubeconfig that holds a client certificate."""
    content = yaml.safe_load(kind.kubeconfig.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    files = {}
    for name, data in (
        ("ca.crt", cluster["certificate-authority-data"]),
        ("user.crt", user["client-certificate-data"]),
        ("user.key", user["client-key-data"]),
    ):
        files[name] = kind.folder / name
        files[name].touch(mode=0o600)
        files[name].write_bytes(base64.b64decode(data))
    return Machines(kind, ApiClient(cluster["server"], files["ca.crt"], files["user.crt"], files["user.key"]))


def prepare(world: Machines) -> None:
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
            "hostPath": {"path": f"{SHARED}/{NAMESPACE}/{CLAIM}"},
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
