"""Lockstep at work on a real control plane: an operator behind a proxy, simulated nodes, recorded workers."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.kube import OPERATOR_NAMESPACE, Kubectl, install, operator_kubeconfig
from harness.operator import OperatorProcess
from harness.proxy import ApiProxy, Write
from harness.recorded_workers import Heard, RecordedWorkers
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import ApiError, LocalClusterError
from localcluster.kwok import NodeBatch
from localcluster.state import free_ports
from lockstep.api.base import names

Json = dict[str, Any]
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/lockstep-operator"
TLS_SECRET = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets/lockstep-worker-tls"
SETTINGS = {"heartbeatMin": 1.0, "progressWriteInterval": 2.0, "archive": {"image": "lockstep-operator"}}
PATIENCE = 90.0
"""Seconds for what takes a few on an idle machine."""


@dataclass(frozen=True)
class Run:
    """A TrainingRun that was applied."""

    site: Site
    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        return f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.RUNS}/{self.name}"

    @property
    def status(self) -> Json:
        found: Json = self.site.cluster.api.get(self.path).get("status", {})
        return found

    @property
    def heard(self) -> Heard:
        return self.site.workers.heard(self.uid)

    @property
    def pods(self) -> list[Json]:
        selector = f"labelSelector={names.LABEL_RUN_UID}={self.uid}"
        found: list[Json] = self.site.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods?{selector}")["items"]
        return found

    @property
    def pod_uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods}

    def condition(self, kind: str) -> Json:
        found = [c for c in self.status.get("conditions", ()) if c["type"] == kind]
        return found[0] if found else {}

    def is_true(self, kind: str) -> bool:
        return bool(self.condition(kind).get("status") == "True")

    def wait(self, what: str, look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        return wait_for(f"{self.name}: {what}", look, seconds=seconds, every=0.1, last_seen=self._seen)

    def wait_until_running(self, attempt: int, seconds: float = PATIENCE) -> None:
        """Until status says so and every worker really is in that attempt."""

        def whole_gang_runs() -> bool:
            status = self.status
            nodes = status.get("assignment", {}).get("nodes", ())
            started = status.get("start", {}).get("attempt") == attempt
            return started and bool(nodes) and self.site.workers.running(self.uid, attempt) == len(nodes)

        self.wait(f"attempt {attempt} runs on every rank", whole_gang_runs, seconds)

    def wait_until_finished(self, seconds: float = PATIENCE) -> None:
        self.wait("Finished", lambda: self.is_true("Finished"), seconds)

    def patch_spec(self, patch: Json) -> None:
        self.site.cluster.api.send(Request("PATCH", self.path, {"spec": patch}, MERGE_PATCH))

    def patch_status(self, patch: Json | None) -> None:
        self.site.cluster.api.send(Request("PATCH", f"{self.path}/status", {"status": patch}, MERGE_PATCH))

    def delete(self) -> None:
        """Ask for it; the answer does not wait for anything."""
        self.site.cluster.api.send(Request("DELETE", self.path, absence_is_fine=True))

    def written(self) -> list[Json]:
        """Every status the operator wrote, in order."""
        status = [w for w in self.site.proxy.writes if w.path == f"{self.path}/status"]
        return [write.object["status"] for write in status if write.object["metadata"]["uid"] == self.uid]

    def deleted_pods(self) -> list[str]:
        """Names of the run's pods that the operator deleted, in order."""
        return [
            write.path.rpartition("/")[2]
            for write in self.site.proxy.writes
            if write.method == "DELETE" and self.owns(write)
        ]

    def owns(self, write: Write) -> bool:
        """Whether the write is of one of this run's pods."""
        labels = write.object.get("metadata", {}).get("labels", {})
        return "/pods" in write.path and labels.get(names.LABEL_RUN_UID) == self.uid

    def pod_name(self, slot: int, incarnation: int) -> str:
        return names.pod_name(self.name, self.uid, slot, incarnation)

    def _seen(self) -> str:
        with contextlib.suppress(ApiError):
            status = self.status
            shown = {key: status.get(key) for key in ("state", "reason", "attempt", "nodesReady", "stop", "queue")}
            shown["assignment"] = status.get("assignment", {}).get("nodes")
            shown["ready"] = self.condition("GangReady").get("message")
            workers = self.site.workers.phases(self.uid)
            writes = "\n".join(f"{w.words} {json.dumps(w.body)[:300]}" for w in self.site.proxy.writes[-12:])
            operator = self.site.operator.log_tail(5)
            return f"{json.dumps(shown)}; workers {workers}; writes:\n{writes}\noperator:\n{operator}"
        return "the run is gone"


class Site:
    """One of it serves many tests: it takes seconds to come up."""

    def __init__(
        self, cluster: LocalCluster, proxy: ApiProxy, operator: OperatorProcess, workers: RecordedWorkers
    ) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.operator = operator
        self.workers = workers

    @classmethod
    @contextlib.contextmanager
    def started(
        cls,
        cluster: LocalCluster,
        folder: Path,
        settings: Mapping[str, Any] | None = None,
        *,
        is_installed: bool = False,
    ) -> Iterator[Site]:
        """Bring it up on ``cluster``, where Lockstep is installed for it unless it is, and take it down at the end.

        ``settings`` go over the operator's configuration.
        """
        with contextlib.ExitStack() as stack:
            kubectl = Kubectl(cluster.kubeconfig)
            if not is_installed:
                install(kubectl, settings)
            proxy = ApiProxy(operator_kubeconfig(kubectl, folder / "direct.kubeconfig"))
            proxy.start()
            stack.callback(proxy.stop)
            ports = free_ports(("workers", "metrics"))
            given = SETTINGS | dict(settings or {})
            config = given | {
                "workerUrl": f"https://127.0.0.1:{ports['workers']}",
                "workerListen": "127.0.0.1",
                "workerPort": ports["workers"],
                "metricsListen": "127.0.0.1",
                "metricsPort": ports["metrics"],
                "localStorage": {"nvme": "/mnt/nvme"},
            }
            operator = OperatorProcess(folder, config, proxy.kubeconfig(folder / "operator.kubeconfig"))
            operator.run()
            stack.callback(operator.stop)
            operator.wait_until_leading()
            ca = base64.b64decode(cluster.api.get(TLS_SECRET)["data"]["ca.crt"]).decode()
            workers = RecordedWorkers(cluster.kubeconfig, operator.url, ca)
            workers.start()
            stack.callback(workers.stop)
            yield cls(cluster, proxy, operator, workers)

    def mend(self) -> None:
        """Undo whatever the test before has left broken, and forget what it made the operator write."""
        self.proxy.mend()
        self.proxy.writes.clear()
        self.workers.hold_replies(lambda body, reply: True)
        self.workers.outlive([])
        with contextlib.suppress(LocalClusterError):  # it runs, as it should
            self.operator.run()
        self.operator.wait_until_leading()

    @contextlib.contextmanager
    def with_nodes(self, count: int, prefix: str = "site", **batch: Any) -> Iterator[list[str]]:
        """Simulated nodes for one test."""
        nodes = self.cluster.add_kwok_nodes(NodeBatch(count=count, prefix=prefix, **batch))
        try:
            yield nodes
        finally:
            self.cluster.remove_kwok_nodes(nodes)
            self._forget_pods_of(nodes)

    def _forget_pods_of(self, nodes: list[str]) -> None:
        """Their names come back with the next test, and kwok may never end a pod whose node went under it."""
        gone = [
            pod["metadata"]
            for pod in self.cluster.api.get("/api/v1/pods")["items"]
            if pod["spec"].get("nodeName") in nodes
        ]
        paths = [f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}" for pod in gone]
        self.cluster.api.send_all(
            [Request("DELETE", f"{path}?gracePeriodSeconds=0", absence_is_fine=True) for path in paths]
        )

    def apply(self, namespace: str, name: str, nodes: int, **spec: Any) -> Run:
        """A run with a local checkpoint tier, so that a failed process is started again."""
        spec = {"nodes": nodes, "image": "trainer", "command": ["train"]} | spec
        spec.setdefault("checkpoint", {"local": {"storage": "nvme"}})
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.RUN_KIND,
            "metadata": {"name": name},
            "spec": {key: value for key, value in spec.items() if value is not None},
        }
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}"
        made = self.cluster.api.send(Request("POST", path, body))
        return Run(self, namespace, name, made["metadata"]["uid"])

    def make_claim(self, namespace: str, name: str) -> None:
        """A PersistentVolumeClaim that is bound: kube-scheduler places no pod before that."""
        size = {"storage": "1Gi"}
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{namespace}-{name}"},
            "spec": common
            | {
                "capacity": size,
                "hostPath": {"path": "/mnt/shared"},
                "claimRef": {"namespace": namespace, "name": name},
            },
        }
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": common | {"resources": {"requests": size}, "volumeName": f"{namespace}-{name}"},
        }
        self.cluster.api.send(Request("POST", "/api/v1/persistentvolumes", volume))
        self.cluster.api.send(Request("POST", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim))

    def kill_operator(self) -> None:
        """kill -9; its successor need not wait for the lease to run out, as the object goes with it."""
        self.operator.kill9()
        self.drop_lease()

    def drop_lease(self) -> None:
        self.cluster.api.send(Request("DELETE", LEASE, absence_is_fine=True))
