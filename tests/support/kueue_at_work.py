"""The double of Kueue on a real API server: its CRDs, queues for one namespace, and a thread that decides."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.kube import wait_until_established
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import ApiError, KubectlError
from support.kueue_double import HOSTNAME, KueueDouble, Pool, condition

Json = dict[str, Any]
CRDS = Path(__file__).with_name("kueue_crds.yaml")
API = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE, CLUSTER_QUEUE = "team", "cluster-queue"
_CYCLE = 0.2


@dataclass
class KueueAtWork:
    """``pool`` may be changed by tests at any time."""

    cluster: LocalCluster
    namespace: str
    pool: Pool
    nodes: Sequence[str]
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def workloads(self) -> list[Json]:
        """As the API server has them."""
        found: list[Json] = self.cluster.api.get(f"{API}/namespaces/{self.namespace}/workloads")["items"]
        return found

    def of(self, run: str) -> Json:
        """The Workload of a run."""
        return next(w for w in self.workloads if w["metadata"]["ownerReferences"][0]["name"] == run)

    def told(self, run: str, kind: str) -> tuple[str, str]:
        """Status and reason of a condition; empty when there is no Workload or no such condition."""
        with contextlib.suppress(StopIteration):
            found = condition(self.of(run), kind) or {}
            return found.get("status", ""), found.get("reason", "")
        return "", ""

    def evict(self, run: str, reason: str) -> None:
        """As Kueue's controllers do."""

        def mark(workload: Json) -> None:
            self._double().evict(workload, reason, time.time())

        self._amend(lambda: self.of(run), mark)

    def activate(self, run: str, active: bool) -> None:
        """`kubectl patch workload`."""
        path = f"{API}/namespaces/{self.namespace}/workloads/{self.of(run)['metadata']['name']}"
        self.cluster.api.send(Request("PATCH", path, {"spec": {"active": active}}, MERGE_PATCH))

    def decide_for_ever(self) -> None:
        """One cycle after the other, until stopped."""
        while not self._stop.wait(_CYCLE):
            with contextlib.suppress(ApiError, OSError):
                self.cycle()

    def cycle(self) -> None:
        """Every Workload once."""
        with self._lock:
            for workload in self._double().decide(self.workloads, time.time()):
                with contextlib.suppress(ApiError):  # it changed meanwhile: the next cycle looks again
                    self._write(workload)

    def stop(self) -> None:
        """No further cycle begins."""
        self._stop.set()

    def _double(self) -> KueueDouble:
        labels = {
            node["metadata"]["labels"].get(HOSTNAME, ""): node["metadata"]["labels"]
            for node in self.cluster.api.get("/api/v1/nodes")["items"]
            if node["metadata"]["name"] in self.nodes
        }
        return KueueDouble({(self.namespace, QUEUE): self.pool}, labels)

    def _amend(self, read: Callable[[], Json], change: Callable[[Json], None]) -> None:
        with self._lock:
            for _ in range(20):
                workload = read()
                change(workload)
                with contextlib.suppress(ApiError):
                    self._write(workload)
                    return
        raise AssertionError("the Workload changes all the time")

    def _write(self, workload: Json) -> None:
        meta = workload["metadata"]
        path = f"{API}/namespaces/{meta['namespace']}/workloads/{meta['name']}/status"
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "status": {"unhealthyNodes": None, **workload["status"]},
        }
        self.cluster.api.send(Request("PATCH", path, body, MERGE_PATCH))


@contextlib.contextmanager
def kueue_at_work(cluster: LocalCluster, namespace: str, nodes: Sequence[str], **pool: Any) -> Iterator[KueueAtWork]:
    """Kueue is installed, with one LocalQueue in ``namespace`` for ``nodes``; in the end it is removed again."""
    levels = pool.setdefault("levels", (HOSTNAME,))
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS))
    wait_until_established(cluster.kubectl, "-f", str(CRDS))
    flavor = {"nodeLabels": {"kubernetes.io/os": "linux"}} | ({"topologyName": "racks"} if levels else {})
    groups = [{"coveredResources": ["pods"], "flavors": [{"name": "gpus", "resources": []}]}]
    _make(cluster, "topologies", "Topology", "racks", {"levels": [{"nodeLabel": level} for level in levels]})
    _make(cluster, "resourceflavors", "ResourceFlavor", "gpus", flavor)
    _make(cluster, "clusterqueues", "ClusterQueue", CLUSTER_QUEUE, {"resourceGroups": groups})
    _make(cluster, f"namespaces/{namespace}/localqueues", "LocalQueue", QUEUE, {"clusterQueue": CLUSTER_QUEUE})
    work = KueueAtWork(cluster, namespace, Pool(CLUSTER_QUEUE, len(nodes), **pool), nodes)
    thread = threading.Thread(target=work.decide_for_ever, name="kueue")
    thread.start()
    try:
        yield work
    finally:
        work.stop()
        thread.join()
        remove_definitions(cluster.kubectl)


def _make(cluster: LocalCluster, place: str, kind: str, name: str, spec: Json) -> None:
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
    cluster.api.send(Request("POST", f"{API}/{place}", body))


def remove_definitions(kubectl: Callable[..., str]) -> None:
    """Kueue is removed. A definition that is deleted just after it was made may stay ("storage is (re)initializing"):
    the API server looks at it again when it changes."""
    kubectl("delete", "--wait=false", "--ignore-not-found", "-f", str(CRDS))

    def are_gone() -> bool:
        with contextlib.suppress(KubectlError):  # of those that are gone
            kubectl("annotate", "--overwrite", "-f", str(CRDS), f"looked-at={time.time():.0f}")
        return "kueue.x-k8s.io" not in kubectl("get", "crds", "-o", "name")

    wait_for("Kueue's definitions are gone", are_gone, seconds=60, every=1.0)
