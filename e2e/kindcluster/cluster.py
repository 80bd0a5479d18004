"""A kind cluster: real kubeadm, kubelet, containerd and kube-proxy, each node a container."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from harness.kube import Kubectl
from kindcluster import commands, refusals
from kindcluster.commands import Report, told
from kindcluster.docker import Docker
from localcluster import build

NAME = "lockstep-e2e"
CONTROL_PLANE = f"{NAME}-control-plane"
WORKERS = 3
GPUS = 8
RACKS = 2
_NETWORK = "kind"  # by which name kind has one for all of its clusters
SHARED = "/shared"  # the same folder of this machine in every node
_READY = "180s"
# A silent node is called so after 12 s instead of 50 s: tests wait for it often.
_STATUS_EVERY = "2s"
_GRACE = "12s"
# A pod has what changes in its ConfigMaps within seconds instead of a minute or two: tests wait for it thrice.
_SYNC_EVERY = "5s"
# Whether the operator may do what it does is read from the API server's own record of it.
_AUDIT_POLICY = Path(__file__).with_name("audit.yaml")
_AUDIT = "/var/log/lockstep-audit"  # in the control plane
_POLICY = "/etc/kubernetes/lockstep-audit.yaml"


@dataclass(frozen=True)
class KindCluster:
    """One that runs. ``folder`` holds its kubeconfig, and what its nodes share as `shared`."""

    docker: Docker
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(self.kubeconfig)

    @property
    def shared(self) -> Path:
        """What the nodes see at SHARED."""
        return self.folder / "shared"

    @property
    def workers(self) -> list[str]:
        """Names of the nodes that train."""
        return [NAME + "-worker" + ("" if number == 1 else str(number)) for number in range(1, WORKERS + 1)]

    def create(self, image: str, report: Report) -> None:
        """Bring it up, every node Ready. One of the same name goes first. Raises KindClusterError."""
        self.delete()
        self.shared.mkdir(mode=0o777, exist_ok=True)
        self.shared.chmod(0o777)
        config = self.folder / "cluster.yaml"
        config.write_text(yaml.safe_dump(self._config(image), sort_keys=False))
        with told(report, f"creating a kind cluster: a control plane and {WORKERS} nodes"):
            if _NETWORK not in self._networks():
                self._network_is_ours.touch()
            self._kind("create", "cluster", "--config", config, "--kubeconfig", self.kubeconfig)
            self.kubectl("wait", "--for=condition=Ready", "node", "--all", f"--timeout={_READY}")
        for number, worker in enumerate(self.workers):
            self.put_gpus(worker)
            rack = f"topology.kubernetes.io/rack=rack-{number % RACKS}"
            self.kubectl("label", "node", worker, "--overwrite", rack, "topology.kubernetes.io/zone=zone-0")

    def delete(self) -> None:
        """Take it down. None there is fine."""
        if build.binary("kind").exists():
            self._kind("delete", "cluster", "--kubeconfig", self.kubeconfig)

    def put_gpus(self, node: str) -> None:
        """Let a node have GPUs, as a device plugin would; kubelet keeps the number."""
        gpus = {"nvidia.com/gpu": str(GPUS)}
        patch = json.dumps({"status": {"capacity": gpus, "allocatable": gpus}})
        self.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch)

    def load(self, images: Sequence[str], nodes: Sequence[str], report: Report) -> None:
        """Bring images of Docker's to nodes. Raises KindClusterError."""
        archive = self.folder / f"{images[0].partition(':')[0]}.tar"
        with told(report, f"loading {', '.join(images)} into {len(nodes)} nodes"):
            self.docker("save", "--output", archive, *images)
            try:
                with ThreadPoolExecutor() as pool:
                    list(pool.map(lambda node: self._import(node, archive), nodes))
            finally:
                archive.unlink()

    def name(self, image: str, name: str, nodes: Sequence[str]) -> None:
        """Let nodes have a loaded image by another name as well. Raises KindClusterError."""
        names = [f"docker.io/library/{each}" for each in (image, name)]
        for node in nodes:
            self.inside(node, "ctr", "--namespace=k8s.io", "images", "tag", "--force", *names)

    def inside(self, node: str, *command: str) -> str:
        """Run a command in a node; its output. Raises KindClusterError."""
        return self.docker("exec", node, *command)

    def refusals(self, outgoing: Collection[str] = ()) -> list[str]:
        """What the operator asked for and was refused, though it had its rights; oldest first.

        ``outgoing``: pods that do not count.
        """
        # All files: the API server begins another one after 100 MB.
        found = f"grep -hE '{refusals.PATTERN}' {_AUDIT}/audit*.log || true"
        return refusals.refused(self.inside(CONTROL_PLANE, "sh", "-c", found).splitlines(), outgoing)

    def remove_network(self) -> None:
        """kind leaves its network: it goes if it was made for us and no container is on it, not even a stopped one."""
        if not (self.docker.is_ours or self._network_is_ours.exists()):
            return
        if _NETWORK in self._networks():
            if self.docker("ps", "--all", "--quiet", "--filter", f"network={_NETWORK}").strip():
                return
            self.docker("network", "rm", _NETWORK)
        self._network_is_ours.unlink(missing_ok=True)

    @property
    def _network_is_ours(self) -> Path:
        """A file that is there from before our network is."""
        return self.folder / "network-is-ours"

    def _networks(self) -> list[str]:
        return self.docker("network", "ls", "--format", "{{.Name}}").split()

    def _kind(self, *arguments: str | Path) -> None:
        commands.run(
            [build.binary("kind"), *arguments, "--name", NAME],
            log=self.folder / "kind.log",
            environment=self.docker.environment,
        )

    def _import(self, node: str, archive: Path) -> None:
        with archive.open("rb") as content:
            ctr = ["ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "-"]
            commands.run(
                ["docker", "exec", "--interactive", node, *ctr],
                log=self.folder / f"load-{node}.log",
                environment=self.docker.environment,
                stdin=content,
            )

    def _config(self, image: str) -> dict[str, object]:
        kubelet = {
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "nodeStatusUpdateFrequency": _STATUS_EVERY,
            "syncFrequency": _SYNC_EVERY,
        }
        grace = {"name": "node-monitor-grace-period", "value": _GRACE}
        audit = {"audit-policy-file": _POLICY, "audit-log-path": f"{_AUDIT}/audit.log"}
        api_server = {
            "extraArgs": [{"name": name, "value": value} for name, value in audit.items()],
            "extraVolumes": [
                {"name": "audit", "hostPath": _AUDIT, "mountPath": _AUDIT, "pathType": "DirectoryOrCreate"},
                {"name": "audit-policy", "hostPath": _POLICY, "mountPath": _POLICY, "readOnly": True},
            ],
        }
        cluster = {
            "kind": "ClusterConfiguration",
            "controllerManager": {"extraArgs": [grace]},
            "apiServer": api_server,
        }
        shared = [{"hostPath": str(self.shared), "containerPath": SHARED}]
        policy = {"hostPath": str(_AUDIT_POLICY), "containerPath": _POLICY, "readOnly": True}
        control_plane = {"role": "control-plane", "image": image, "extraMounts": [policy]}
        worker = {"role": "worker", "image": image, "extraMounts": shared}
        return {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "kubeadmConfigPatches": [json.dumps(kubelet), json.dumps(cluster)],
            "nodes": [control_plane, *[worker] * WORKERS],
        }
