"""Simulated GPU nodes: what their Node objects hold. Pure.

`kwok.yaml` beside this file says how kwok plays them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KWOK_LABEL = "kwok.x-k8s.io/node"  # value "fake": kwok plays this node
SIMULATED_LABEL = "type"  # value "kwok": the node is ours, also while it is silent
SELECTOR = f"{SIMULATED_LABEL}=kwok"
RACK_LABEL = "topology.kubernetes.io/rack"
ZONE_LABEL = "topology.kubernetes.io/zone"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

# What NVIDIA's feature discovery writes for the types people say.
GPU_PRODUCTS = {
    "A100": "NVIDIA-A100-SXM4-80GB",
    "H100": "NVIDIA-H100-80GB-HBM3",
    "H200": "NVIDIA-H200",
    "B200": "NVIDIA-B200",
    "L40S": "NVIDIA-L40S",
}

# Loopback addresses, so that a test can bind real ports "on" a simulated node. 127.64.0.1 is the first.
FIRST_ADDRESS = ipaddress.IPv4Address("127.64.0.1")
# Of carriers' address space, so that no pod is said to have an address that something real on this machine has.
POD_RANGE = ipaddress.IPv4Network("100.64.0.0/10")
NODES_AT_MOST = 1 << 14  # as many /24 pod ranges as POD_RANGE holds


@dataclass(frozen=True)
class Taint:
    key: str
    value: str
    effect: str

    @classmethod
    def parse(cls, text: str) -> Taint:
        """From kubectl's notation, `key=value:Effect` or `key:Effect`. Raises ValueError."""
        found = re.fullmatch(r"(?P<key>[^=:\s]+)(=(?P<value>[^:\s]*))?:(?P<effect>\w+)", text)
        if found is None or found["effect"] not in EFFECTS:
            raise ValueError(f"{text!r} is no taint: write key=value:Effect, with Effect one of {', '.join(EFFECTS)}")
        return cls(found["key"], found["value"] or "", found["effect"])

    def as_json(self) -> dict[str, str]:
        return {"key": self.key, "effect": self.effect} | ({"value": self.value} if self.value else {})


@dataclass(frozen=True)
class NodeBatch:
    """Nodes that are alike, spread evenly and in order over racks, and racks over zones.

    `memory`, `cpu`, `hugepages` are Kubernetes quantities; `gpus` and `rdma` are devices per node, 0 for
    none. A `gpu_type` that GPU_PRODUCTS does not know is taken as the product label's value itself.
    """

    count: int
    gpu_type: str = "H100"
    gpus: int = 8
    rdma: int = 8
    cpu: str = "192"
    memory: str = "2Ti"
    hugepages: str = "64Gi"
    racks: int = 1
    zones: int = 1
    prefix: str = "gpu"
    taints: Sequence[Taint] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.zones <= self.racks <= self.count <= NODES_AT_MOST:
            raise ValueError(
                f"{self.count} nodes in {self.racks} racks in {self.zones} zones: there must be at least one "
                f"zone, a rack per zone, a node per rack, and at most {NODES_AT_MOST} nodes"
            )


@dataclass(frozen=True)
class Numbering:
    """The next free numbers in a cluster: of a node with some prefix, of a rack, of an address."""

    node: int = 0
    rack: int = 0
    address: int = 0


def next_numbering(nodes: Iterable[Mapping[str, Any]], prefix: str) -> Numbering:
    """Where a new batch called `prefix` continues after the simulated nodes (API objects) that are there."""
    node = rack = address = -1
    for existing in nodes:
        metadata = existing["metadata"]
        if (number := _number_after(f"{prefix}-", metadata["name"])) is not None:
            node = max(node, number)
        if (number := _number_after("rack-", metadata["labels"].get(RACK_LABEL, ""))) is not None:
            rack = max(rack, number)
        for entry in existing["status"].get("addresses", ()):
            if entry["type"] == "InternalIP":
                address = max(address, int(ipaddress.IPv4Address(entry["address"])) - int(FIRST_ADDRESS))
    return Numbering(node + 1, rack + 1, address + 1)


def node_objects(batch: NodeBatch, start: Numbering, now: str) -> list[dict[str, Any]]:
    """The Node objects of a batch, `now` being RFC 3339. They are born Ready: kwok acts where one is not."""
    if start.address + batch.count > NODES_AT_MOST:
        raise ValueError(f"a local cluster has at most {NODES_AT_MOST} simulated nodes")
    return [_node(batch, start, index, now) for index in range(batch.count)]


def _node(batch: NodeBatch, start: Numbering, index: int, now: str) -> dict[str, Any]:
    name = f"{batch.prefix}-{start.node + index:04d}"
    rack = index * batch.racks // batch.count
    zone = rack * batch.zones // batch.racks
    address = str(FIRST_ADDRESS + start.address + index)
    pod_range = f"{POD_RANGE.network_address + (start.address + index) * 256}/24"
    resources = _resources(batch)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                KWOK_LABEL: "fake",
                SIMULATED_LABEL: "kwok",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                # The controller-manager would add these two, with a request for each node.
                "beta.kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64",
                "node-role.kubernetes.io/worker": "",
                ZONE_LABEL: f"zone-{zone}",
                RACK_LABEL: f"rack-{start.rack + rack:03d}",
                **_gpu_labels(batch),
                **batch.labels,
            },
        },
        "spec": {
            "podCIDR": pod_range,
            "podCIDRs": [pod_range],
            "taints": [taint.as_json() for taint in batch.taints],
        },
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
            ],
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "simulated by kwok",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "simulated",
                "kubeletVersion": "kwok",
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "kwok",
                "kernelVersion": "",
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
            },
        },
    }


def _resources(batch: NodeBatch) -> dict[str, str]:
    resources = {
        "cpu": batch.cpu,
        "memory": batch.memory,
        "ephemeral-storage": "3Ti",
        "hugepages-2Mi": batch.hugepages,
        "pods": "110",
    }
    if batch.gpus:
        resources["nvidia.com/gpu"] = str(batch.gpus)
    if batch.rdma:
        resources["rdma/hca"] = str(batch.rdma)
    return resources


def _gpu_labels(batch: NodeBatch) -> dict[str, str]:
    if not batch.gpus:
        return {}
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": GPU_PRODUCTS.get(batch.gpu_type, batch.gpu_type),
        "nvidia.com/gpu.count": str(batch.gpus),
    }


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether the node takes pods as far as its health goes: Ready, and the taint of a new node gone."""
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"].get("conditions", ())
    )
    taints = node["spec"].get("taints", ())
    return ready and not any(
        taint["key"] in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable") for taint in taints
    )


def silent_status(node: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The node's status as the node lifecycle controller leaves it when a kubelet stops posting."""
    silent = {
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": now,
    }
    conditions = node["status"].get("conditions", ())
    return {"conditions": [{**c, **silent} if c["type"] == "Ready" else c for c in conditions]}


def _number_after(prefix: str, name: str) -> int | None:
    rest = name.removeprefix(prefix)
    return int(rest) if rest != name and rest.isdecimal() else None
