"""One process node: a machine with a network of its own, and the kubelet that reports for it."""

import asyncio
import contextlib
import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from localcluster.processnodes.containers import launcher_command, processes_in_network, send_all, stop_all
from localcluster.processnodes.errors import ProcessNodesError
from localcluster.processnodes.kubeapi import UNREACHABLE, ApiError, KubeApi
from localcluster.processnodes.network import Machine, Network
from localcluster.processnodes.pods import Host, PodRun
from localcluster.processnodes.podstatus import lost_status, rfc3339

Json = dict[str, Any]
LEASE_SECONDS = 40
LOG_PORT = 10250
_DYING_SECONDS = 10.0
_STATUS_EVERY = 5  # heartbeats: the status is small, and this also mends what others wrote over it
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Cut(StrEnum):
    """What a node can be cut off from."""

    OPERATOR = "operator"  # everything in the host's network, which is where the operator listens
    PEERS = "peers"  # the other process nodes
    APISERVER = "apiserver"  # its own kubelet's contact: heartbeats, pod status, orders to start and stop


@dataclass(frozen=True)
class NodeShape:
    """What a node offers and where it stands."""

    name: str
    gpus: int = 8
    gpu_product: str = "NVIDIA-H100-80GB-HBM3"
    rdma: int = 8
    cpu: str = "64"
    memory: str = "256Gi"
    zone: str = "zone-0"
    rack: str = "rack-000"
    labels: dict[str, str] = field(default_factory=dict)


def numbered(prefix: str, first: int, count: int, racks: int, like: NodeShape) -> list[NodeShape]:
    """``count`` nodes ``like`` one, numbered from ``first``, filling ``racks`` racks one after the other."""
    per_rack = -(-count // racks)
    return [
        replace(like, name=f"{prefix}-{first + index}", rack=f"rack-{index // per_rack:03d}") for index in range(count)
    ]


class Node:
    """A node of the cluster. ``boot`` before anything else, ``shut_down`` at the end."""

    def __init__(self, shape: NodeShape, api: KubeApi, network: Network, heartbeat_seconds: float) -> None:
        self.shape = shape
        self.name = shape.name
        self.is_dead = False
        self.is_frozen = False
        self.cuts: set[Cut] = set()
        self.runs: dict[str, PodRun] = {}  # by pod UID
        self._api = api
        self._network = network
        self._heartbeat_seconds = heartbeat_seconds
        self._online = asyncio.Event()
        self._boot_id = str(uuid.uuid4())
        self._tasks: list[asyncio.Task[None]] = []
        self._machine: Machine | None = None
        self._holder: asyncio.subprocess.Process | None = None
        self._host: Host | None = None

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            raise ProcessNodesError(f"node {self.name} has not been booted")
        return self._machine

    @property
    def host(self) -> Host:
        if self._host is None:
            raise ProcessNodesError(f"node {self.name} has not been set up")
        return self._host

    async def boot(self) -> Machine:
        """Make the namespaces and plug the node in."""
        holder = await asyncio.create_subprocess_exec(
            *launcher_command("hold", self.name, str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert holder.stdout is not None
        assert holder.stderr is not None
        if await holder.stdout.readline() != b"ready\n":
            words = (await holder.stderr.read()).decode().strip().rpartition("\n")[2]
            raise ProcessNodesError(f"can't make network namespaces: {words}")
        self._holder = holder
        self._machine = await self._network.attach(self.name, holder.pid, self._network.new_address())
        return self._machine

    async def join(self, host: Host) -> None:
        """Register with the API server and begin to run pods."""
        self._host = host
        await self._register()
        self._go_online_or_offline()

    async def wait_online(self) -> None:
        await self._online.wait()

    async def kill(self, *, wipe: bool) -> None:
        """Power off: every process is gone at once and nobody is told."""
        if not self.is_frozen and not self.is_dead:
            await self._network.set_link(self.machine, up=False)  # first, so that no FIN gets out
        self.is_dead, self.is_frozen = True, False
        self._go_online_or_offline()
        await asyncio.gather(self._kill_all(), *(run.abandon() for run in self.runs.values()))
        self.runs.clear()
        if wipe:
            shutil.rmtree(self.host.disks.node_disk, ignore_errors=True)

    async def _kill_all(self) -> None:
        """Returns when all are gone, also those that were being forked: a signal takes a moment to do its work."""
        until = time.monotonic() + _DYING_SECONDS
        while processes := processes_in_network(self.machine.pid):
            send_all(processes, signal.SIGKILL)
            if time.monotonic() > until:
                raise ProcessNodesError(f"node {self.name}: processes {processes} do not die")
            await asyncio.sleep(0.01)

    async def freeze(self) -> None:
        """The machine stands still: no process runs, no packet leaves or arrives."""
        if self.is_dead or self.is_frozen:
            raise ProcessNodesError(f"node {self.name} is {'dead' if self.is_dead else 'frozen'} already")
        self.is_frozen = True
        self._go_online_or_offline()
        await self._network.set_link(self.machine, up=False)
        stop_all(self.machine.pid)

    async def thaw(self) -> None:
        """Go on as if no time had passed."""
        if not self.is_frozen:
            raise ProcessNodesError(f"node {self.name} is not frozen")
        self.is_frozen = False
        await self._network.set_link(self.machine, up=True)
        send_all(processes_in_network(self.machine.pid), signal.SIGCONT)
        self._go_online_or_offline()

    async def cut(self, targets: Iterable[Cut]) -> None:
        """Partition the node from ``targets``; the others stay reachable."""
        for target in set(targets) - self.cuts:
            self.cuts.add(target)
            if target is Cut.OPERATOR:
                await self._network.cut_operator(self.machine)
            elif target is Cut.PEERS:
                await self._network.cut_peers(self.machine)
        self._go_online_or_offline()

    async def heal(self) -> None:
        """End every partition of this node."""
        if Cut.OPERATOR in self.cuts:
            await self._network.heal_operator(self.machine)
        if Cut.PEERS in self.cuts:
            await self._network.heal_peers(self.machine)
        self.cuts.clear()
        self._go_online_or_offline()

    async def come_back(self) -> None:
        """A reboot: no process survives it, the disk does; the node is Ready again."""
        if not self.is_dead:
            await self.kill(wipe=False)
        await self.heal()
        for folder in (self.host.pods_folder, self.host.disks.memory):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        await self._network.set_link(self.machine, up=True)
        self._boot_id = str(uuid.uuid4())
        self.is_dead = False
        await self._register()
        self._go_online_or_offline()

    async def shut_down(self) -> None:
        """End every process and take the Node away."""
        self._cancel_tasks()
        if self._holder is not None:
            send_all(processes_in_network(self._holder.pid), signal.SIGKILL)
        await asyncio.gather(*(run.abandon() for run in self.runs.values()))
        with contextlib.suppress(ApiError, *UNREACHABLE):
            await self._api.request("DELETE", f"/api/v1/nodes/{self.name}", seconds=3)
        if self._holder is not None:
            self._holder.kill()
            await self._holder.wait()

    def _go_online_or_offline(self) -> None:
        """The kubelet's tasks live exactly while it reaches the API server; a relist makes up for the gap."""
        online = not (self.is_dead or self.is_frozen or Cut.APISERVER in self.cuts)
        if online == self._online.is_set():
            return
        if online:
            self._online.set()
            self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._follow_pods())]
        else:
            self._online.clear()
            self._cancel_tasks()

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _register(self) -> None:
        shape = self.shape
        labels = {
            "kubernetes.io/hostname": shape.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": shape.zone,
            "topology.kubernetes.io/rack": shape.rack,
            "localcluster/kind": "process",
        }
        if shape.gpus:
            labels["nvidia.com/gpu.product"] = shape.gpu_product
        metadata = {"name": shape.name, "labels": labels | shape.labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": self._status()}
        try:
            await self._api.post("/api/v1/nodes", body)
        except ApiError as error:
            if error.status != 409:
                raise
            await self._api.patch(f"/api/v1/nodes/{self.name}/status", {"status": self._status()})

    def _status(self) -> Json:
        shape = self.shape
        capacity = {"cpu": shape.cpu, "memory": shape.memory, "pods": "110", "ephemeral-storage": "100Gi"}
        if shape.gpus:
            capacity["nvidia.com/gpu"] = str(shape.gpus)
        if shape.rdma:
            capacity["rdma/hca"] = str(shape.rdma)
        now = rfc3339(time.time())
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "process node is posting ready status",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": self.machine.address}],
            "conditions": [ready],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": LOG_PORT}},
            "nodeInfo": {
                "bootID": self._boot_id,
                "machineID": shape.name,
                "systemUUID": shape.name,
                "kernelVersion": os.uname().release,
                "osImage": "process node",
                "containerRuntimeVersion": "process://1",
                "kubeletVersion": "v1.36.3-process",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }

    async def _beat(self) -> None:
        """Renew the lease; write the status at first, now and then, and after any failure."""
        beats, status_due = 0, True
        while True:
            try:
                await self._renew_lease()
                if status_due or beats % _STATUS_EVERY == 0:
                    await self._write_ready()
                status_due = False
            except (ApiError, *UNREACHABLE):
                status_due = True
            beats += 1
            await asyncio.sleep(self._heartbeat_seconds)

    async def _write_ready(self) -> None:
        """Say Ready again, keeping the transition time while nothing changed."""
        node = await self._api.get(f"/api/v1/nodes/{self.name}")
        status = self._status()
        for condition in node["status"].get("conditions") or ():
            if condition["type"] == "Ready" and condition["status"] == "True":
                status["conditions"][0]["lastTransitionTime"] = condition["lastTransitionTime"]
        await self._api.patch(f"/api/v1/nodes/{self.name}/status", {"status": status})

    async def _renew_lease(self) -> None:
        seconds = time.time()
        renewed = f"{rfc3339(seconds)[:-1]}.{int(seconds % 1 * 1e6):06d}Z"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed}
        try:
            await self._api.patch(f"{_LEASES}/{self.name}", {"spec": spec})
        except ApiError as error:
            if error.status != 404:
                raise
            metadata = {"name": self.name, "namespace": "kube-node-lease"}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            await self._api.post(_LEASES, lease | {"metadata": metadata, "spec": spec})

    async def _follow_pods(self) -> None:
        selector = {"fieldSelector": f"spec.nodeName={self.name}"}
        while True:
            try:
                async for kind, found in self._api.follow("/api/v1/pods", selector):
                    if kind == "LIST":
                        await self._resync(found)
                    elif kind == "DELETED":
                        await self._forget(found["metadata"]["uid"])
                    else:
                        await self._take(found)
            except (ApiError, *UNREACHABLE):
                await asyncio.sleep(0.5)

    async def _resync(self, pods: list[Json]) -> None:
        for uid in set(self.runs) - {pod["metadata"]["uid"] for pod in pods}:
            await self._forget(uid)
        for pod in pods:
            await self._take(pod)

    async def _take(self, pod: Json) -> None:
        metadata, status = pod["metadata"], pod.get("status") or {}
        run = self.runs.get(metadata["uid"])
        if run is not None:
            run.update(pod)
            return
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        is_over = status.get("phase") in ("Succeeded", "Failed")
        was_started = "startTime" in status
        restarts = pod["spec"].get("restartPolicy", "Always") == "Always"
        if "deletionTimestamp" in metadata:
            await self._api.delete(path, metadata["uid"], 0)
        elif was_started and not is_over and not restarts:
            body = {"metadata": {"uid": metadata["uid"]}, "status": lost_status(pod, time.time())}
            await self._api.patch(f"{path}/status", body)
        elif not is_over:
            self.runs[metadata["uid"]] = PodRun(pod, self.host)

    async def _forget(self, uid: str) -> None:
        """The object is gone: whatever still runs of it has no right to."""
        run = self.runs.pop(uid, None)
        if run is not None:
            await run.abandon()
            await asyncio.to_thread(run.remove_files)

    def state(self) -> Json:
        """For people and tests."""
        condition = "dead" if self.is_dead else "frozen" if self.is_frozen else "up"
        return {
            "name": self.name,
            "address": self.machine.address,
            "state": condition,
            "cuts": sorted(self.cuts),
            "pods": len(self.runs),
            "pid": self.machine.pid,
            "disk": str(self.host.disks.node_disk),
        }


def named(nodes: dict[str, Node], name: str) -> Node:
    """The node of that name, or an error that lists those there are."""
    if name not in nodes:
        raise ProcessNodesError(f"no process node {name}; there are {', '.join(sorted(nodes)) or 'none'}")
    return nodes[name]
