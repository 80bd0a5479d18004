"""An API server in memory whose truth is checked at every write, and operators that see it late, if at all.

What is real: the store, the work queue, decisions, and all that carries them out. What is not: the wire. A request may
be refused, stay on its way, or be carried out with an answer that never comes; watches tell of changes when the test
says so. An operator dies with all that it knows, and another begins with what a quorum says.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, cast

import orjson

from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, UnknownOutcome, UnreachableError
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.reconcile.execute import Executor
from lockstep.controller.reconcile.history import History
from lockstep.controller.reconcile.node_marks import NodeMarker
from lockstep.controller.reconcile.reconcile import Reconciler
from lockstep.controller.reconcile.recoveries import Recoveries
from lockstep.controller.reconcile.run_set import RunSetReconciler
from lockstep.controller.runtime.resources import CONFIG_MAPS, NODES, PODS, QUEUES, RUNS, Resource
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.store.job_ids import JobIds
from lockstep.controller.store.store import Store
from lockstep.controller.store.usage import UsageKeeper
from lockstep.controller.workers.reports import ReportBook
from lockstep.core.model.cluster_objects import Versioned, parse_node, parse_pod
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.reasons import EventReason
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from support.manual_clock import ManualClock

Json = dict[str, Any]
NAMESPACE = "ns"
PATIENCE = 10.0
"""Seconds after which a client gives up waiting for an answer …"""
SETTLES = 20.0
"""… and after which a request that was sent does nothing any more."""


class Fate(StrEnum):
    """What becomes of a write."""

    DONE = "done"
    REFUSED = "refused"  # by a server that is overwhelmed
    UNSENT = "unsent"
    SLOW = "slow"  # it is on its way until the test says otherwise
    UNANSWERED = "unanswered"  # it is done, and the answer is on its way


@dataclass
class Request:
    """A write on its way, or its answer."""

    do: Callable[[], bytes]
    sent: float
    outcome: bytes | ApiError | None = None
    over: bool = False  # it does nothing any more
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def carry_out(self) -> None:
        """The server takes it."""
        if self.over:
            return
        self.over = True
        try:
            self.outcome = self.do()
        except ApiError as refused:
            self.outcome = refused


class Api:
    """``checks`` is called with a run's name and the run as it was, whenever its status has changed."""

    def __init__(self, nodes: list[str]) -> None:
        self.clock = ManualClock()
        self.version = 100
        self.runs: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.queues: dict[str, Json] = {}
        self.classes: dict[str, int] = {}
        self.nodes = {name: self._node(name) for name in nodes}
        self.maps: dict[str, Json] = {}
        self.fates: deque[Fate] = deque()
        """Of the next writes."""
        self.fates_of_decisions: deque[Fate] = deque()
        """Of the next that give nodes to somebody, keep some for one, or send one away."""
        self.on_their_way: list[Request] = []
        self.changes: dict[str, list[tuple[str, Json]]] = {"runs": [], "pods": [], "nodes": []}
        self.checks: Callable[[str, RunView], None] = lambda *_: None

    # -- people, kubelets ------------------------------------------------------------------------

    def apply(self, name: str, **spec: Any) -> None:
        """`kubectl apply` of a run."""
        known = self.runs.get(name)
        if known is None:
            meta = self._meta(name, f"uid-{name}") | {"generation": 1}
            self._store("runs", self.runs, {"metadata": meta, "spec": spec, "status": {}})
        elif known["spec"] | spec != known["spec"]:
            new = deepcopy(known)
            new["spec"] |= spec
            new["metadata"]["generation"] += 1
            self._store("runs", self.runs, new)

    def delete(self, name: str) -> None:
        """`kubectl delete` of a run. Its pods are there for some time still."""
        self._remove("runs", self.runs, name)

    def queue(self, name: str, **spec: Any) -> None:
        """`kubectl apply` of a TrainingQueue."""
        meta = self._meta(name, f"uid-{name}") | {"generation": 1}
        self.queues[name] = {"metadata": meta, "spec": spec, "status": {}}

    def view(self, name: str) -> RunView:
        """The run as it is."""
        return parse_run(self.runs[name])

    def kubelets(self) -> None:
        """Pods that are pinned to a node begin there, unless another has it; those being deleted are gone. Those of
        runs that are gone are deleted."""
        living = {run["metadata"]["uid"] for run in self.runs.values()}
        for name, pod in list(self.pods.items()):
            if pod["metadata"].get("deletionTimestamp"):
                self._remove("pods", self.pods, name)
            elif pod["metadata"]["labels"][names.LABEL_RUN_UID] not in living:
                self.delete_pod(name, pod["metadata"]["uid"])
            elif not pod["spec"].get("nodeName"):
                node = parse_pod(orjson.dumps(pod)).view.node
                if node not in self.nodes:
                    continue
                if all(other["spec"].get("nodeName") != node or has_ended(other) for other in self.pods.values()):
                    state = {"running": {"startedAt": to_rfc3339(self.clock.now())}}
                    self._become(pod, {"phase": "Running", "podIP": "10.0.0.1"}, state, node)

    def end_pods(self, run: str) -> None:
        """Its programs come to their end."""
        for pod in self._running_pods(run):
            self._end(pod, "Succeeded", 0, "Completed")

    def fail_pod(self, run: str) -> None:
        """The program of one of its pods fails; those of the others run on."""
        for pod in self._running_pods(run)[:1]:
            self._end(pod, "Failed", 1, "Error")

    def _running_pods(self, run: str) -> list[Json]:
        pods = self.pods.values()
        return [pod for pod in pods if pod["metadata"]["name"].startswith(f"{run}-") and is_running(pod)]

    def _end(self, pod: Json, phase: str, code: int, why: str) -> None:
        at = to_rfc3339(self.clock.now())
        ended = {"terminated": {"exitCode": code, "reason": why, "finishedAt": at, "startedAt": at}}
        self._become(pod, {"phase": phase}, ended, pod["spec"]["nodeName"])

    def lose_node(self, name: str) -> None:
        """A machine is gone for good, and what was on it."""
        self._remove("nodes", self.nodes, name)
        for pod in [pod for pod, raw in self.pods.items() if raw["spec"].get("nodeName") == name]:
            self._remove("pods", self.pods, pod)

    def bring_node(self, name: str) -> None:
        """Another machine of that name comes."""
        self.nodes[name] = self._node(name)
        self._tell("nodes", "ADDED", self.nodes[name])

    def _become(self, pod: Json, status: Json, trainer: Json, node: str) -> None:
        new = deepcopy(pod)
        new["spec"]["nodeName"] = node
        states = [{"name": names.CONTAINER_NAME, "state": trainer}]
        new["status"] |= status | {"containerStatuses": states}
        self._store("pods", self.pods, new)

    # -- requests --------------------------------------------------------------------------------

    async def write(self, do: Callable[[], bytes], *, decides: bool = False) -> bytes:
        """Carry out a write as it is fated to be. Raises any KubeError."""
        fates = self.fates_of_decisions if decides and self.fates_of_decisions else self.fates
        fate = fates.popleft() if fates else Fate.DONE
        if fate is Fate.REFUSED:
            raise ApiError(429, "TooManyRequests", "the server has received too many requests")
        if fate is Fate.UNSENT:
            raise UnreachableError("connection refused")
        request = Request(do, self.clock.now())
        if fate is not Fate.SLOW:
            request.carry_out()
        if fate is not Fate.DONE:
            self.on_their_way.append(request)
            if not await self.clock.wait(request.answered, PATIENCE):
                raise UnknownOutcome("timed out", request.sent + SETTLES)
        if isinstance(request.outcome, ApiError):
            raise request.outcome
        assert request.outcome is not None
        return request.outcome

    def arrive(self, index: int, *, answered: bool) -> None:
        """One that is on its way arrives; ``answered``: so does the answer."""
        if self.on_their_way:
            request = self.on_their_way[index % len(self.on_their_way)]
            request.carry_out()
            if answered and request.outcome is not None:
                request.answered.set()
                self.on_their_way.remove(request)

    def calm_down(self) -> None:
        """Nothing else goes wrong."""
        self.fates.clear()
        self.fates_of_decisions.clear()

    def drop_late(self, *, all_of_them: bool = False) -> None:
        """What is on its way for too long does nothing any more."""
        for request in [*self.on_their_way]:
            if all_of_them or self.clock.now() >= request.sent + SETTLES:
                request.over = True
                self.on_their_way.remove(request)

    def patch_status(self, kind: str, name: str, version: str, patch: Json) -> bytes:
        """A guarded write of status. Raises ApiError when the object has changed."""
        objects = self.runs if kind == "runs" else self.queues
        known = objects.get(name)
        if known is None:
            raise ApiError(404, "NotFound", f'"{name}" not found')
        if known["metadata"]["resourceVersion"] != version:
            raise ApiError(409, "Conflict", "the object has been modified")
        new = deepcopy(known)
        new["status"] = _merged(new["status"], patch)
        self._store(kind, objects, new)
        if kind == "runs":
            self.checks(name, parse_run(known))
        return orjson.dumps(objects[name])

    def patch_node(self, name: str, patch: Json) -> bytes:
        """Raises ApiError when it is gone, or has changed."""
        known = self.nodes.get(name)
        if known is None:
            raise ApiError(404, "NotFound", f'nodes "{name}" not found')
        if known["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        self._store("nodes", self.nodes, _merged(deepcopy(known), patch))
        return orjson.dumps(self.nodes[name])

    def create_pod(self, body: Json) -> bytes:
        """Raises ApiError when there is one of the name."""
        name = body["metadata"]["name"]
        if name in self.pods:
            raise ApiError(409, "AlreadyExists", f'pods "{name}" already exists')
        new = json.loads(json.dumps(body))
        new["metadata"] |= self._meta(name, f"pod-{self.version}")
        self._store("pods", self.pods, new | {"status": {"phase": "Pending"}})
        return orjson.dumps(self.pods[name])

    def delete_pod(self, name: str, uid: str) -> bytes:
        """Mark it as being deleted; the kubelet does the rest. Raises ApiError when it is gone."""
        pod = self.pods.get(name)
        if pod is None or pod["metadata"]["uid"] != uid:
            raise ApiError(404, "NotFound", f'pods "{name}" not found')
        new = deepcopy(pod)
        new["metadata"].setdefault("deletionTimestamp", to_rfc3339(self.clock.now()))
        self._store("pods", self.pods, new)
        return orjson.dumps(self.pods[name])

    def _store(self, kind: str, objects: dict[str, Json], new: Json) -> None:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        objects[new["metadata"]["name"]] = new
        self._tell(kind, "MODIFIED", new)

    def _remove(self, kind: str, objects: dict[str, Json], name: str) -> None:
        self.version += 1
        gone = deepcopy(objects.pop(name))
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell(kind, "DELETED", gone)

    def _tell(self, kind: str, what: str, raw: Json) -> None:
        if kind in self.changes:
            self.changes[kind].append((what, raw))

    def _meta(self, name: str, uid: str) -> Json:
        at = to_rfc3339(self.clock.now())
        return {"namespace": NAMESPACE, "name": name, "uid": uid, "resourceVersion": "1", "creationTimestamp": at}

    def _node(self, name: str) -> Json:
        self.version += 1
        uid, version = f"{name}-{self.version}", str(self.version)
        return {
            "metadata": {"name": name, "uid": uid, "resourceVersion": version, "labels": {names.LABEL_HOSTNAME: name}},
            "spec": {},
            "status": {
                "allocatable": {"cpu": "192", "memory": "2Ti", "nvidia.com/gpu": "8", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        }


class Link:
    """The API server as one operator reaches it."""

    window = SimpleNamespace(is_slow=lambda _: False)

    def __init__(self, api: Api) -> None:
        self._api = api
        self._made = 0

    async def patch_status(
        self, resource: Resource, name: str, namespace: str, *, resource_version: str, patch: Json
    ) -> bytes:
        api = self._api
        if resource is QUEUES:
            return api.patch_status("queues", name, resource_version, patch)
        assert resource is RUNS
        sent = json.loads(json.dumps(patch))
        decides = any(sent.get(changed) for changed in ("assignment", "reservation", "preemption"))
        return await api.write(lambda: api.patch_status("runs", name, resource_version, sent), decides=decides)

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        api = self._api
        objects = {RUNS: api.runs, PODS: api.pods, CONFIG_MAPS: api.maps, NODES: api.nodes}[resource]
        if name not in objects:
            raise ApiError(404, "NotFound", f'{resource.plural} "{name}" not found')
        return orjson.dumps(objects[name])

    async def exists(self, *_: Any, **__: Any) -> bool:
        """Nothing is missing that a run names."""
        return True

    async def patch(self, resource: Resource, name: str, body: Json) -> bytes:
        assert resource is NODES
        return self._api.patch_node(name, body)

    async def create(
        self, resource: Resource, body: Json, namespace: str = "", *, dry_run: bool = False, **_: Any
    ) -> bytes:
        if resource is PODS:
            return b"{}" if dry_run else await self._api.write(lambda: self._api.create_pod(body))
        self._made += 1
        kept = json.loads(json.dumps(body))
        kept["metadata"] |= {"resourceVersion": "1", "uid": f"map-{self._made}"}
        self._api.maps[kept["metadata"]["name"]] = kept
        return orjson.dumps(kept)

    async def replace(self, resource: Resource, name: str, body: Json, namespace: str = "", **_: Any) -> bytes:
        return await self.create(resource, body, namespace)

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str, **_: Any) -> bytes | None:
        try:
            return await self._api.write(lambda: self._api.delete_pod(name, uid))
        except ApiError as gone:
            if gone.status == 404:
                return None
            raise

    async def list_all(self, *_: Any, **__: Any) -> tuple[list[Any], str]:
        return [], "1"


class Operator:
    """One process, from the lists that it begins with until it dies."""

    def __init__(self, api: Api, tunables: Tunables) -> None:
        self.api = api
        clock = api.clock
        self.queue = WorkQueue(clock)
        self.store = store = Store(self.queue, clock)
        book = ReportBook(clock, lambda _: None)
        kube = cast(KubeClient, Link(api))
        self.said: list[EventReason] = []
        """Warnings that are no part of a plan."""
        warn: Callable[..., None] = lambda _, reason, *__: self.said.append(reason)  # noqa: E731
        events = cast(EventRecorder, SimpleNamespace(run_event=lambda *_: None, warn=warn))
        tallies = Tallies()
        recoveries = Recoveries(clock, book.reports, tallies)
        nodes = NodeMarker(kube, store, clock, lambda: tunables)
        history = History("", 0, clock, tallies.drop_history)
        job_ids = JobIds(kube, store, "lockstep-system")
        self.executor = executor = Executor(
            kube, store, book, events, tallies, recoveries, clock, nodes, history, self.queue, None, job_ids
        )
        self.reconciler = Reconciler(
            kube=kube,
            store=store,
            book=book,
            queue=self.queue,
            executor=executor,
            nodes=nodes,
            recoveries=recoveries,
            usage=UsageKeeper(kube, clock, "lockstep-system"),
            clock=clock,
            tunables=lambda: tunables,
            tallies=tallies,
            run_sets=RunSetReconciler(kube, store, events, self.queue, clock, lambda: tunables, job_ids=job_ids),
        )
        self._heard = {kind: len(changes) for kind, changes in api.changes.items()}
        self._list()
        self.reconciler.lead()
        self._work = asyncio.create_task(self.queue.run(self.reconciler.reconcile, 8))

    def hear(self, kind: str, most: int | None = None) -> None:
        """A watch tells of so many changes; None: of all of them."""
        begun, changes = self._heard[kind], self.api.changes[kind]
        told = changes[begun:] if most is None else changes[begun : begun + most]
        self._heard[kind] = begun + len(told)
        for what, raw in told:
            meta = raw["metadata"]
            if kind == "runs" and what == "DELETED":
                self.store.runs.remove(meta["namespace"], meta["name"], meta["uid"])
            elif kind == "runs":
                self.store.runs.apply(raw)
            elif what == "DELETED":
                cache = self.store.nodes if kind == "nodes" else self.store.gang_pods
                cache.remove(meta["uid"], int(meta["resourceVersion"]))
            elif kind == "nodes":
                self.store.nodes.upsert(parse_node(orjson.dumps(raw)))
            else:
                self.store.gang_pods.upsert(parse_pod(orjson.dumps(raw)))

    @property
    def failures(self) -> Iterator[BaseException]:
        """What it ended with, though it should not have."""
        if self._work.done() and not self._work.cancelled() and (error := self._work.exception()) is not None:
            yield error

    async def die(self) -> None:
        """With everything that it was about to do. What it sent may arrive still."""
        tasks = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _list(self) -> None:
        api, store = self.api, self.store
        for raw in api.nodes.values():
            store.nodes.upsert(parse_node(orjson.dumps(raw)))
        for number, (name, value) in enumerate(api.classes.items()):
            store.priority_classes.upsert(Versioned(f"class-{number}", 1, (name, value)))
        store.namespaces.upsert(Versioned("namespace", 1, (NAMESPACE, {})))
        for raw in api.queues.values():
            store.queues.apply(raw)
        for raw in api.pods.values():
            store.gang_pods.upsert(parse_pod(orjson.dumps(raw)))
        for raw in api.runs.values():
            store.runs.apply(raw)
        for cache in (store.nodes, store.runs.cache, store.gang_pods, store.other_pods, store.queues.cache):
            cache.synced = True


def is_running(pod: Json) -> bool:
    """A kubelet has started it."""
    return bool(pod["status"].get("phase") == "Running")


def has_ended(pod: Json) -> bool:
    """Nothing of it holds its node any more."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _merged(old: Json, patch: Json) -> Json:
    """RFC 7386."""
    new = {key: value for key, value in old.items() if patch.get(key, value) is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            below = old.get(key)
            new[key] = _merged(below if isinstance(below, dict) else {}, value)
        elif value is not None:
            new[key] = value
    return new
