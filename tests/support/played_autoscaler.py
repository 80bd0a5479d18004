"""A played cluster-autoscaler: there is none here, and this is not one.

It plays what the published sources of cluster-autoscaler say that it does to ProvisioningRequests (conditions in their
status: Accepted, then Provisioned or Failed), and for pods that kube-scheduler calls unschedulable: a simulated node
for each. What a real one thinks of pools, prices and limits is not played.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from localcluster.kwok import NodeBatch
from lockstep.api.base import names

Json = dict[str, Any]


class PlayedAutoscaler:
    """Acts when it is told to. ``nodes``: those that it made."""

    def __init__(self, cluster: LocalCluster, prefix: str, **batch: Any) -> None:
        self._cluster = cluster
        self._batch = {"prefix": prefix, **batch}
        self.nodes: list[str] = []

    @classmethod
    @contextmanager
    def at_work(cls, cluster: LocalCluster, prefix: str, **batch: Any) -> Iterator[PlayedAutoscaler]:
        """Its nodes are gone afterwards."""
        autoscaler = cls(cluster, prefix, **batch)
        try:
            yield autoscaler
        finally:
            cluster.remove_kwok_nodes(autoscaler.nodes)

    def requests(self, namespace: str) -> list[Json]:
        """The ProvisioningRequests of a namespace."""
        path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{namespace}/provisioningrequests"
        found: list[Json] = self._cluster.api.get(path)["items"]
        return found

    def answer(self, request: Json, *conditions: str, message: str = "") -> None:
        """Set conditions of a ProvisioningRequest; where Provisioned is among them, its nodes are there before."""
        if "Provisioned" in conditions:
            self.make(sum(each["count"] for each in request["spec"]["podSets"]))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        given = [
            {"type": each, "status": "True", "reason": each, "message": message, "lastTransitionTime": now}
            for each in conditions
        ]
        meta = request["metadata"]
        path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{meta['namespace']}/provisioningrequests/{meta['name']}"
        self._cluster.api.send(Request("PATCH", f"{path}/status", {"status": {"conditions": given}}, MERGE_PATCH))

    def template(self, request: Json) -> Json:
        """The pod that a ProvisioningRequest is for."""
        (pods,) = request["spec"]["podSets"]
        path = f"/api/v1/namespaces/{request['metadata']['namespace']}/podtemplates/{pods['podTemplateRef']['name']}"
        found: Json = self._cluster.api.get(path)["template"]
        return found

    def unschedulable(self, namespace: str) -> list[Json]:
        """Placeholders for which kube-scheduler says that there is no node."""
        pods = self._cluster.api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={names.LABEL_PLACEHOLDER_OF}")[
            "items"
        ]
        return [pod for pod in pods if not pod["spec"].get("nodeName") and _is_unschedulable(pod)]

    def make(self, count: int) -> list[str]:
        """Nodes that join the cluster."""
        if not count:
            return []
        made = self._cluster.add_kwok_nodes(NodeBatch(count=count, **self._batch))
        self.nodes += made
        return made


def _is_unschedulable(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any((each["type"], each.get("reason")) == ("PodScheduled", "Unschedulable") for each in conditions)
