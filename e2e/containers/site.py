"""The kind cluster as a site where runs train, and what tests do to its nodes."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from containers.any_cluster import TORCH_TRAINER, Cluster, ClusterSite, Json, api_of
from harness.training import NAMESPACE, TRAINER, TrainingRun
from kindcluster.cluster import SHARED, KindCluster
from kindcluster.errors import KindClusterError
from lockstep.api.base import names

TORCH_NODES = 2
"""Of the workers, from the first: the image with PyTorch is large."""


@dataclass
class KindSite(ClusterSite):
    """Runs on the kind cluster, and its nodes, which are machines to everything that runs on them.

    ``outgoing``: pods of operators whose rights are those of another release by now, which they may be refused.
    """

    kind: KindCluster = field(kw_only=True)
    outgoing: set[str] = field(default_factory=set)

    def refusals(self) -> list[str]:
        return self.kind.refusals(self.outgoing)

    @property
    def gateway(self) -> str:
        found = self.kind.docker("network", "inspect", "kind", "--format", "{{range .IPAM.Config}}{{.Gateway}} {{end}}")
        return next(address for address in found.split() if ":" not in address)

    # What happens to nodes

    def kill_node(self, node: str) -> None:
        """Power off."""
        self.kind.docker("kill", node)

    def return_node(self, node: str) -> None:
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
        programs = [
            (pid, words) for pid, words in self._running(node) if not re.search(r"/lockstep/worker|torchrun", words)
        ]
        return [pid for pid, words in programs if TRAINER.name in words or TORCH_TRAINER.name in words]

    def processes(self, node: str, *programs: str) -> list[int]:
        """Pids in the node of whatever runs one of these programs, by their names."""
        return [pid for pid, words in self._running(node) if Path(words.split()[0]).name in programs]

    def _running(self, node: str) -> list[tuple[int, str]]:
        lines = (line.split(None, 1) for line in self.kind.inside(node, "ps", "-eo", "pid=,args=").splitlines())
        return [(int(pid), words) for pid, words in lines]

    def kill_inside(self, node: str, pid: int) -> None:
        """SIGKILL to a process of a node, as its kernel might."""
        self.kind.inside(node, "kill", "-KILL", str(pid))

    def kill_container(self, node: str, pod: Json) -> None:
        """SIGKILL to process 1 of a pod's container, by the container runtime."""
        [container] = pod["status"]["containerStatuses"]
        name = container["containerID"].removeprefix("containerd://")
        self.kind.inside(node, "ctr", "--namespace=k8s.io", "tasks", "kill", "--signal", "SIGKILL", name)

    def put_in_order(self) -> None:
        """Mend every node, remove every run, and wait until all nodes are free."""
        state = self.kind.docker("inspect", "--format", "{{.Name}} {{.State.Status}}", *self.kind.workers)
        for line in state.splitlines():
            name, status = line.removeprefix("/").split()
            if status == "paused":
                self.thaw_node(name)
            elif status != "running":
                self.return_node(name)
        for node in self.kind.workers:
            self.heal_node(node)
            self.world.kubectl("uncordon", node)
        self.world.kubectl("delete", names.RUNS, "--all", "-n", NAMESPACE, "--wait=false")
        super().put_in_order()


def assert_blamed(run: TrainingRun, node: str, cause: str, words: str) -> None:
    """The first attempt was ended by rank 1, for this reason, and not by its peer, which hung up because of it."""
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["node"]) == (cause, 1, node), run.summary()
    assert words in first["message"], run.summary()


def cluster_of(kind: KindCluster) -> Cluster:
    """Its API, its nodes and what they share."""
    return Cluster(kind.kubeconfig, api_of(kind.kubeconfig, kind.folder), kind.workers, kind.shared, SHARED)
