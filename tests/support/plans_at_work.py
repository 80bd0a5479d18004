"""What carries out plans, and an API server that answers as it is told."""

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import orjson

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.reconcile.execute import Executor
from lockstep.controller.reconcile.history import History
from lockstep.controller.reconcile.node_marks import NodeMarker
from lockstep.controller.reconcile.reconcile import Reconciler
from lockstep.controller.reconcile.recoveries import Recoveries
from lockstep.controller.reconcile.run_set import RunSetReconciler
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.store.store import Store
from lockstep.controller.store.usage import UsageKeeper
from lockstep.controller.workers.reports import ReportBook
from lockstep.core.model.plan import (
    CreatePod,
    EnsurePodGroup,
    Plan,
)
from lockstep.core.model.tunables import Tunables
from support.manual_clock import ManualClock
from support.stored_runs import run, stored

WEBHOOK_DOWN = UnknownOutcome('create pods: 500 InternalError: failed calling webhook "x": connection refused', 0.0)


GONE = ApiError(404, "NotFound", 'trainingruns.lockstep.dev "llama" not found')


NO_KIND = ApiError(404, "NotFound", "the server could not find the requested resource")


class Kube:
    """Answers writes and reads of the one run as told."""

    def __init__(self) -> None:
        self.write: KubeError | None = None
        self.read: ApiError | Mapping[str, Any] = run(11)
        self.creation: KubeError | None = None
        self.created: Mapping[str, Any] = {"metadata": {"name": "j", "uid": "job-1", "resourceVersion": "20"}}
        self.existing = {"data"}  # of whatever kind somebody names
        self.writes = 0
        self.deleted: list[tuple[str, str, str, dict[str, Any]]] = []
        self.unknown: set[str] = set()  # fields of status that its definition of the kind lacks

    async def patch_status(self, *_: Any, patch: Any, **__: Any) -> bytes:
        self.writes += 1
        if self.write is not None:
            raise self.write
        return orjson.dumps(run(12, status={key: value for key, value in patch.items() if key not in self.unknown}))

    async def get(self, *_: Any) -> bytes:
        if isinstance(self.read, ApiError):
            raise self.read
        return orjson.dumps(self.read)

    async def exists(self, _: Any, name: str, *__: Any, **___: Any) -> bool:
        return name in self.existing

    async def names_of(self, *_: Any, **__: Any) -> list[str]:
        return sorted(self.existing)

    async def create(self, *_: Any, **__: Any) -> bytes:
        if self.creation is not None:
            raise self.creation
        return orjson.dumps(self.created)

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str, **options: Any) -> bytes | None:
        if self.creation is not None:
            raise self.creation
        self.deleted.append((resource.plural, name, uid, options))
        return None


class World:
    def __init__(self, kube: Kube | None = None) -> None:
        self.clock = ManualClock()
        self.queue = WorkQueue(self.clock)
        self.store = Store(self.queue, self.clock)
        self.book = ReportBook(self.clock, lambda uid: None)
        self.kube = kube or Kube()
        client = cast(KubeClient, self.kube)
        self.warnings: list[str] = []
        warn: Callable[..., None] = lambda run, reason, *_: self.warnings.append(reason)  # noqa: E731
        events = cast(EventRecorder, SimpleNamespace(run_event=lambda *_: None, warn=warn))
        tallies = Tallies()
        recoveries = Recoveries(self.clock, self.book.reports, tallies)
        history = History("", 0, self.clock, tallies.drop_history)
        nodes = NodeMarker(client, self.store, self.clock, Tunables)
        self.executor_with = partial(
            Executor, client, self.store, self.book, events, tallies, recoveries, self.clock, nodes, history, self.queue
        )
        self.executor = self.executor_with()
        self.reconciler = Reconciler(
            kube=client,
            store=self.store,
            book=self.book,
            queue=self.queue,
            executor=self.executor,
            nodes=nodes,
            recoveries=recoveries,
            usage=UsageKeeper(client, self.clock, "lockstep-system"),
            clock=self.clock,
            tunables=Tunables,
            tallies=tallies,
            run_sets=RunSetReconciler(client, self.store, events, self.queue, self.clock, Tunables),
        )
        self.store.runs.apply(run(10))

    async def write(self) -> None:
        view = stored(self.store)
        await self.executor.run_plan(view, Plan(status=changed(view.status, state="Pending")))


GROUP = EnsurePodGroup("team", "g", "scheduling.k8s.io/v1alpha2", {})


MEMBER = CreatePod("team", "llama-u1-0-1", 0, 1, "n1", {})


class GroupKube(Kube):
    """Has one PodGroup, or none, and keeps what was asked of it in order."""

    def __init__(self, there: Mapping[str, Any] | None = None, refusal: KubeError | None = None) -> None:
        super().__init__()
        self.there, self.refusal = there, refusal
        self.asked: list[str] = []

    async def create(self, resource: Any, *_: Any, **__: Any) -> bytes:
        self.asked.append(f"create {resource.plural}")
        if resource.plural == "podgroups":
            if self.refusal is not None:
                raise self.refusal
            if self.there is not None:
                raise ApiError(409, "AlreadyExists", "there is one")
            return b"{}"
        labels = {
            names.LABEL_RUN: "llama",
            names.LABEL_RUN_UID: "u1",
            names.LABEL_SLOT: "0",
            names.LABEL_INCARNATION: "1",
        }
        metadata = {"name": MEMBER.name, "namespace": "team", "uid": "p", "resourceVersion": "20", "labels": labels}
        return orjson.dumps({"metadata": metadata | {"creationTimestamp": "2026-01-01T00:00:00Z"}})

    async def get(self, resource: Any, *_: Any) -> bytes:
        if resource.plural != "podgroups":
            return await super().get()
        if self.there is None:
            raise ApiError(404, "NotFound", "none")
        return orjson.dumps(self.there)

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str, **_: Any) -> bytes:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(f"delete {resource.plural} {namespace}/{name} {uid}")
        return b"{}"

    async def patch_status(self, *_: Any, patch: Any, **__: Any) -> bytes:
        self.asked.append("patch status")
        return await super().patch_status(patch=patch)
