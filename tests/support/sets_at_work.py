"""An operator with its arrays, and an API server that fails on request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.reconcile.run_set import RunSetReconciler
from lockstep.controller.store.store import Store
from lockstep.core.model.snapshot import Leadership, RunView
from lockstep.core.model.tunables import Tunables
from support.manual_clock import ManualClock
from support.values import not_none

LEADER = Leadership(0.0)


RUN = {"nodes": 1, "image": "trainer", "command": ["train"]}


def merged(old: Any, patch: Any) -> Any:
    """As the API server merges a patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    old = old if isinstance(old, dict) else {}
    changed = {key: merged(old.get(key), value) for key, value in patch.items() if value is not None}
    return {key: value for key, value in old.items() if key not in patch} | changed


class Api:
    """An API server for sets and runs, which fails on request."""

    def __init__(self, clock: ManualClock) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 10
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.fail: dict[str, KubeError] = {}
        self._clock = clock

    def put(self, name: str, **parts: Any) -> dict[str, Any]:
        self.version += 1
        metadata = {
            "namespace": "team",
            "name": name,
            "uid": f"uid-{name}-{self.version}",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **parts.pop("metadata", {}),
            "resourceVersion": str(self.version),
        }
        self.objects[name] = {**self.objects.get(name, {}), **parts, "metadata": metadata}
        return self.objects[name]

    async def create(self, resource: Any, body: Any, namespace: str) -> bytes:
        self._check("create")
        name = body["metadata"]["name"]
        if name in self.objects:
            raise ApiError(409, "AlreadyExists", f'"{name}" already exists')
        self.created.append(name)
        return orjson.dumps(self.put(name, **body))

    async def get(self, resource: Any, name: str, namespace: str) -> bytes:
        self._check("get")
        if name not in self.objects:
            raise ApiError(404, "NotFound", f'{resource.plural} "{name}" not found')
        return orjson.dumps(self.objects[name])

    async def patch_status(
        self, resource: Any, name: str, namespace: str, *, resource_version: str, patch: Any
    ) -> bytes:
        self._check("patch")
        found = self.objects[name]
        if found["metadata"]["resourceVersion"] != resource_version:
            raise ApiError(409, "Conflict", "the object has been modified")
        status = merged(found.get("status", {}), patch)
        return orjson.dumps(self.put(name, **{**found, "status": status}))

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str, resource_version: str) -> None:
        self.deleted.append(name)

    def _check(self, verb: str) -> None:
        if verb in self.fail:
            raise self.fail.pop(verb)


class Operator:
    """One process, and what it was told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = WorkQueue(self.clock)
        self.store = Store(self.queue, self.clock)
        self.api = Api(self.clock)
        self.said: list[str] = []
        events = SimpleNamespace(run_set_event=lambda view, event: self.said.append(event.reason))
        kube = cast(KubeClient, self.api)
        recorder = cast(EventRecorder, events)
        self.sets = RunSetReconciler(kube, self.store, recorder, self.queue, self.clock, Tunables)

    def apply(self, name: str = "sweep", **spec: Any) -> None:
        known = self.api.objects.get(name, {})
        generation = known.get("metadata", {}).get("generation", 0) + 1
        metadata = known.get("metadata", {}) | {"uid": f"uid-{name}", "generation": generation}
        body = self.api.put(name, metadata=metadata, spec={"indices": "0-4", "template": {"spec": RUN}} | spec)
        self.store.run_sets.apply(body)

    def annotate(self, annotations: dict[str, str]) -> None:
        found = self.api.objects["sweep"]
        metadata = found["metadata"] | {"annotations": annotations}
        self.store.run_sets.apply(self.api.put("sweep", **{**found, "metadata": metadata}))

    def change_run(self, name: str, **status: Any) -> None:
        found = self.api.objects[name]
        self.store.runs.apply(self.api.put(name, **{**found, "status": status}))

    def delete_run(self, name: str) -> None:
        metadata = self.api.objects.pop(name)["metadata"]
        self.store.runs.remove("team", name, metadata["uid"])

    async def look(self) -> None:
        await self.sets.reconcile("team", "sweep")

    def run(self, name: str) -> RunView:
        return not_none(self.store.runs.named("team", name))

    def status(self) -> Any:
        view = not_none(self.store.run_sets.named("team", "sweep"))
        return view.status


SUCCEEDED_AT = 1_767_225_600.0


SUCCEEDED = [
    {"type": kind, "status": "True", "reason": "AllRanksSucceeded", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for kind in ("Finished", "Succeeded")
]


HOLDING = {"assignment": {"nodes": ["n0"], "incarnations": [1]}}
