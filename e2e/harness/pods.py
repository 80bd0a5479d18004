"""Pods of one test: made through kubectl, placed by kube-scheduler, looked at through the API server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from localcluster import LocalCluster

Json = dict[str, Any]


def wait_until(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Poll until ``holds()`` is true; its value."""
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return value


class Pods:
    """Runs pods in one namespace and looks at them."""

    def __init__(self, cluster: LocalCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def create(self, name: str, script: str, node: str = "", **spec: Any) -> None:
        """A pod that runs ``script`` with sh, placed by kube-scheduler; ``container`` adds to its container."""
        container = {"name": "main", "image": "none", "command": ["sh", "-c", script]} | spec.pop("container", {})
        body: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"test": name}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 5,
                "containers": [container],
                "nodeSelector": {"localcluster/kind": "process"} | ({"kubernetes.io/hostname": node} if node else {}),
                # A gang pod's own: it stays where it is until somebody decides otherwise.
                "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
            }
            | spec,
        }
        self.apply(body)

    def apply(self, *bodies: Json) -> None:
        for body in bodies:
            self.cluster.kubectl("-n", self.namespace, "apply", "-f", "-", input=json.dumps(body))

    def get(self, name: str) -> Json:
        found: Json = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        return found

    def names(self) -> set[str]:
        listing = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["name"] for pod in listing["items"]}

    def wait_for_phase(self, name: str, *phases: str) -> Json:
        wait_until(lambda: self.get(name)["status"]["phase"] in phases)
        return self.get(name)

    def wait_until_gone(self, name: str) -> None:
        wait_until(lambda: name not in self.names())

    def delete(self, name: str, *options: str) -> None:
        self.cluster.kubectl("-n", self.namespace, "delete", "pod", name, "--wait=false", *options)

    def logs(self, name: str, *options: str) -> str:
        return self.cluster.kubectl("-n", self.namespace, "logs", name, *options)

    def run(self, name: str, script: str, **spec: Any) -> list[str]:
        """Run to the end, which has to be a success; the lines it printed."""
        self.create(name, script, **spec)
        pod = self.wait_for_phase(name, "Succeeded", "Failed")
        lines = self.logs(name).splitlines()
        assert pod["status"]["phase"] == "Succeeded", (pod["status"]["containerStatuses"], lines)
        return lines
