"""Kueue on a real API server, with queues for one namespace: its manager where LOCKSTEP_TEST_KUEUE names one, else its
double.

Tests write what people write to Kueue's objects, and read what came of it there. Who decides does not show.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.kube import remove_definitions, wait_until_established
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import ApiError
from support import kueue_manager
from support.kueue_double import HOSTNAME, KueueDouble, Pool, condition

Json = dict[str, Any]
CRDS = Path(__file__).with_name("kueue_crds.yaml")
API_VERSION = "kueue.x-k8s.io/v1beta2"
API = f"/apis/{API_VERSION}"
QUEUE, CLUSTER_QUEUE, FLAVOR, TOPOLOGY = "team", "cluster-queue", "gpus", "racks"
PLENTY = 10**6
_CYCLE = 0.2


@dataclass(frozen=True)
class KueueAtWork:
    """One LocalQueue of ``namespace``, with a quota of ``pods``: a gang has one on each node."""

    cluster: LocalCluster
    namespace: str
    levels: Sequence[str]
    pods: int
    is_real: bool

    @property
    def workloads(self) -> list[Json]:
        """As the API server has them."""
        return self._all(f"namespaces/{self.namespace}/workloads")

    def of(self, run: str) -> Json:
        """The Workload of a run."""
        owners = ((w, w["metadata"].get("ownerReferences", ())) for w in self.workloads)
        return next(workload for workload, refs in owners if any(ref["name"] == run for ref in refs))

    def told(self, run: str, kind: str) -> tuple[str, str]:
        """Status and reason of a condition; empty when there is no Workload or no such condition."""
        with contextlib.suppress(StopIteration):
            found = condition(self.of(run), kind) or {}
            return found.get("status", ""), found.get("reason", "")
        return "", ""

    def make_queues(self) -> None:
        """Of one flavor, which places by ``levels`` where there are any."""
        flavor: Json = {"nodeLabels": {"kubernetes.io/os": "linux"}}
        if self.levels:
            levels = [{"nodeLabel": level} for level in self.levels]
            self._make("topologies", "Topology", TOPOLOGY, {"levels": levels})
            flavor |= {"topologyName": TOPOLOGY}
        self._make("resourceflavors", "ResourceFlavor", FLAVOR, flavor)
        self._make("clusterqueues", "ClusterQueue", CLUSTER_QUEUE, self._cluster_queue(self.pods))
        self.make_local_queue()

    def remove_all(self) -> None:
        """Its queues, and what asked there: Kueue lets go of each thing once nothing is left that uses it."""
        here = f"namespaces/{self.namespace}"
        kinds = (f"{here}/workloads", f"{here}/localqueues", "clusterqueues", "resourceflavors", "topologies")
        for kind in kinds:
            self.cluster.api.send(Request("DELETE", f"{API}/{kind}"))
            wait_for(f"no {kind} are left", partial(self._has_no, kind), seconds=60)

    def _has_no(self, kind: str) -> bool:
        return not self._all(kind)

    def _all(self, kind: str) -> list[Json]:
        found: list[Json] = self.cluster.api.get(f"{API}/{kind}")["items"]
        return found

    def make_local_queue(self, name: str = QUEUE) -> None:
        """Of the one ClusterQueue. Returns when Kueue knows it; the double knows all that is there."""
        place = f"namespaces/{self.namespace}/localqueues"
        self._make(place, "LocalQueue", name, {"clusterQueue": CLUSTER_QUEUE})

        def is_known() -> bool:
            said = condition(self.cluster.api.get(f"{API}/{place}/{name}"), "Active")
            return not self.is_real or said is not None

        wait_for(f"Kueue knows LocalQueue {name}", is_known, seconds=60)

    def delete_local_queue(self, name: str = QUEUE) -> None:
        """`kubectl delete localqueue`."""
        self.cluster.api.send(Request("DELETE", f"{API}/namespaces/{self.namespace}/localqueues/{name}"))

    def give(self, pods: int) -> None:
        """Another quota. What is admitted stays so."""
        self._patch(f"clusterqueues/{CLUSTER_QUEUE}", {"spec": self._cluster_queue(pods)})

    def stop(self, policy: str) -> None:
        """None, Hold, or HoldAndDrain, which evicts all that it admitted."""
        self._patch(f"clusterqueues/{CLUSTER_QUEUE}", {"spec": {"stopPolicy": policy}})

    def activate(self, run: str, active: bool) -> None:
        """`kubectl patch workload`."""
        self._patch(self._path_of(run), {"spec": {"active": active}})

    def give_up(self, run: str) -> None:
        """What Kueue writes when it has requeued a Workload too often, and deactivates it for it."""
        said = {"type": "DeactivationTarget", "status": "True", "reason": "RequeuingLimitExceeded"}
        said["message"] = "exceeding the maximum number of re-queuing retries"
        said["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._apply_as_kueue(run, lambda status: status["conditions"].append(said))

    def lose_node(self, run: str, host: str) -> None:
        """What Kueue writes of a node that it holds to be bad; its scheduler then seeks another."""
        self._apply_as_kueue(run, lambda status: status.update(unhealthyNodes=[{"name": host}]))

    @contextlib.contextmanager
    def rival(self) -> Iterator[None]:
        """Somebody whose priority takes the whole quota away from the others, for a while."""
        pod_set = {
            "name": "main",
            "count": self.pods,
            "template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}},
        }
        place = f"namespaces/{self.namespace}/workloads"
        self._make(place, "Workload", "rival", {"queueName": QUEUE, "priority": 1000, "podSets": [pod_set]})
        try:
            yield
        finally:
            self.cluster.api.send(Request("DELETE", f"{API}/{place}/rival", absence_is_fine=True))

    def _cluster_queue(self, pods: int) -> Json:
        quota = {"pods": pods, "nvidia.com/gpu": PLENTY}
        resources = [{"name": name, "nominalQuota": str(amount)} for name, amount in quota.items()]
        flavor = {"name": FLAVOR, "resources": resources}
        return {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": list(quota), "flavors": [flavor]}],
        }

    def _path_of(self, run: str) -> str:
        return f"namespaces/{self.namespace}/workloads/{self.of(run)['metadata']['name']}"

    def _apply_as_kueue(self, run: str, change: Callable[[Json], None]) -> None:
        """Server-side, with all that Kueue has said: what it leaves out later it must be the only one to own."""

        def is_taken() -> bool:
            workload = self.of(run)
            meta, status = workload["metadata"], dict(workload["status"])
            for name in ("admissionChecks", "reclaimablePods"):  # others of its field managers
                status.pop(name, None)
            change(status)
            known = {name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion")}
            body = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": known, "status": status}
            path = f"{API}/{self._path_of(run)}/status?fieldManager=kueue-admission&force=true"
            with contextlib.suppress(ApiError):  # it changed meanwhile
                self.cluster.api.send(Request("PATCH", path, body, "application/apply-patch+yaml"))
                return True
            return False

        wait_for(f"the Workload of {run} takes what Kueue says", is_taken, seconds=30, every=0.1)

    def _patch(self, path: str, body: Json) -> None:
        self.cluster.api.send(Request("PATCH", f"{API}/{path}", body, MERGE_PATCH))

    def _make(self, place: str, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.cluster.api.send(Request("POST", f"{API}/{place}", body))


_CONTAINER = {"name": "main", "image": "none", "resources": {"requests": {"nvidia.com/gpu": "8"}}}


@contextlib.contextmanager
def kueue_at_work(
    cluster: LocalCluster, namespace: str, nodes: Sequence[str], levels: Sequence[str] = (HOSTNAME,)
) -> Iterator[KueueAtWork]:
    """Kueue is installed, with one LocalQueue in ``namespace`` and a pod for each of ``nodes``; in the end it is
    removed again."""
    with kueue_installed(cluster), queues_of_kueue(cluster, namespace, nodes, levels) as work:
        yield work


def kueue_installed(cluster: LocalCluster) -> contextlib.AbstractContextManager[None]:
    """Its API is served, and it decides, of no queue yet; in the end it is removed with all that is of it."""
    given = kueue_manager.given()
    return _the_double(cluster) if given is None else kueue_manager.installed(cluster, given)


@contextlib.contextmanager
def queues_of_kueue(
    cluster: LocalCluster, namespace: str, nodes: Sequence[str], levels: Sequence[str] = (HOSTNAME,)
) -> Iterator[KueueAtWork]:
    """Where it is installed: one LocalQueue in ``namespace``, with a pod for each of ``nodes``, until the end."""
    work = KueueAtWork(cluster, namespace, levels, len(nodes), is_real=kueue_manager.given() is not None)
    work.make_queues()
    try:
        yield work
    finally:
        work.remove_all()


@contextlib.contextmanager
def _the_double(cluster: LocalCluster) -> Iterator[None]:
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS))
    wait_until_established(cluster.kubectl, "-f", str(CRDS))
    stopped = threading.Event()
    thread = threading.Thread(target=_decide, args=(cluster, stopped), name="kueue")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        remove_definitions(cluster.kubectl, CRDS)


def _decide(cluster: LocalCluster, stopped: threading.Event) -> None:
    """One cycle after the other, each for every Workload."""
    while not stopped.wait(_CYCLE):
        try:
            workloads = cluster.api.get(f"{API}/workloads")["items"]
            active = {workload["metadata"]["uid"]: workload["spec"].get("active", True) for workload in workloads}
            for workload in _double(cluster).decide(workloads, time.time()):
                with contextlib.suppress(ApiError):  # it changed meanwhile: the next cycle looks again
                    _write(cluster, workload, active[workload["metadata"]["uid"]])
        except (ApiError, LookupError) as error:  # what it names may come and go between two reads
            print(f"Kueue's double did not decide: {error!r}", file=sys.stderr)


def _double(cluster: LocalCluster) -> KueueDouble:
    """As the queues are now."""

    def listed(kind: str) -> list[Json]:
        found: list[Json] = cluster.api.get(f"{API}/{kind}")["items"]
        return found

    def named(kind: str) -> dict[str, Json]:
        return {each["metadata"]["name"]: each["spec"] for each in listed(kind)}

    # In the order in which each names the next: what is named was made before.
    local_queues, cluster_queues = listed("localqueues"), named("clusterqueues")
    flavors, topologies = named("resourceflavors"), named("topologies")
    pools = {name: _pool(name, spec, flavors, topologies) for name, spec in cluster_queues.items()}
    queues = {
        (queue["metadata"]["namespace"], queue["metadata"]["name"]): pools[queue["spec"]["clusterQueue"]]
        for queue in local_queues
    }
    nodes = [node["metadata"]["labels"] for node in cluster.api.get("/api/v1/nodes")["items"]]
    return KueueDouble(queues, {labels.get(HOSTNAME, ""): labels for labels in nodes})


def _pool(name: str, spec: Json, flavors: Mapping[str, Json], topologies: Mapping[str, Json]) -> Pool:
    flavor = spec["resourceGroups"][0]["flavors"][0]
    (pods,) = (int(each["nominalQuota"]) for each in flavor["resources"] if each["name"] == "pods")
    found = flavors[flavor["name"]]
    topology = topologies.get(found.get("topologyName", ""), {"levels": ()})
    levels = tuple(level["nodeLabel"] for level in topology["levels"])
    preempts = spec["preemption"]["withinClusterQueue"] == "LowerPriority"
    stopped = spec.get("stopPolicy", "None")
    return Pool(name, pods, flavor["name"], levels, found["nodeLabels"], preempts, stopped)


def _write(cluster: LocalCluster, workload: Json, was_active: bool) -> None:
    meta = workload["metadata"]
    path = f"{API}/namespaces/{meta['namespace']}/workloads/{meta['name']}"
    version = {"resourceVersion": meta["resourceVersion"]}
    if workload["spec"].get("active", True) != was_active:
        body = {"metadata": version, "spec": {"active": workload["spec"]["active"]}}
        written = cluster.api.send(Request("PATCH", path, body, MERGE_PATCH))
        version = {"resourceVersion": written["metadata"]["resourceVersion"]}
    body = {"metadata": version, "status": {"unhealthyNodes": None, **workload["status"]}}
    cluster.api.send(Request("PATCH", f"{path}/status", body, MERGE_PATCH))
