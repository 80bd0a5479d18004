"""Kueue's objects: found when its API is served, and kept like every other kind.

Nothing of this is needed to work without Kueue. Where the operator is told of it, its API is looked for again and
again, so that Kueue may be installed or removed at any time; where it is not, it lacks the rights, and never looks.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from lockstep.api.base import names, nesting
from lockstep.controller.kube.cache import ObjectCache
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.kube.informer import Informer
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.runtime.resources import Resource
from lockstep.core.model.cluster_objects import Versioned
from lockstep.core.model.kueue import api_names, installation
from lockstep.core.model.kueue.installation import Kueue, Presence
from lockstep.core.model.kueue.workload import WorkloadView, parse_workload

T = TypeVar("T")
Key = tuple[str, str]

WORKLOADS = Resource(api_names.GROUP, api_names.VERSION, "workloads")
LOCAL_QUEUES = Resource(api_names.GROUP, api_names.VERSION, "localqueues")
CLUSTER_QUEUES = Resource(api_names.GROUP, api_names.VERSION, "clusterqueues", namespaced=False)
FLAVORS = Resource(api_names.GROUP, api_names.VERSION, "resourceflavors", namespaced=False)
TOPOLOGIES = Resource(api_names.GROUP, api_names.VERSION, "topologies", namespaced=False)
CLASSES = Resource(api_names.GROUP, api_names.VERSION, "workloadpriorityclasses", namespaced=False)

LOOKS_EVERY = 15.0
"""Seconds between two looks for Kueue's API."""

_anything = msgspec.json.Decoder()
log = logging.getLogger("lockstep.kueue")


@dataclass(frozen=True, slots=True)
class _Named(Generic[T]):
    key: Key
    uid: str
    value: T


class _Table(Generic[T]):
    """One kind by namespace and name."""

    def __init__(
        self,
        resource: Resource,
        parse: Callable[[Mapping[str, Any]], T],
        changed: Callable[[T], None],
        left_out: LeftOut,
    ) -> None:
        self._left_out = left_out
        self.resource = resource
        self._parse = parse
        self._changed = changed
        self.by_key: dict[Key, T] = {}
        self._uids: dict[Key, str] = {}
        self.cache: ObjectCache[_Named[T]] = ObjectCache(self._take, self.resource.plural, self._left_out)

    def parse(self, text: bytes | msgspec.Raw) -> Versioned[_Named[T]]:
        """Raises msgspec.DecodeError or ValueError."""
        raw = nesting.decode(_anything, text)
        try:
            meta = raw["metadata"]
            key = meta.get("namespace", ""), meta["name"]
            uid = meta["uid"]
            return Versioned(uid, int(meta["resourceVersion"]), _Named(key, uid, self._parse(raw)))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{self.resource.plural}: {error!r}") from error

    def clear(self) -> None:
        """Forget everything: the kind is not served any more."""
        self.by_key.clear()
        self._uids.clear()
        self.cache = ObjectCache(self._take, self.resource.plural, self._left_out)

    def _take(self, old: _Named[T] | None, new: _Named[T] | None) -> None:
        named = new or old
        assert named is not None
        if new is not None:
            self.by_key[named.key], self._uids[named.key] = named.value, named.uid
        elif self._uids.get(named.key) == named.uid:  # not one that was made under the same name since
            del self.by_key[named.key], self._uids[named.key]
        self._changed(named.value)


class KueueStore:
    """What is known of Kueue. ``touch_all`` has everything reconciled, when its presence changes."""

    def __init__(self, queue: WorkQueue, touch_all: Callable[[], None], left_out: LeftOut | None = None) -> None:
        self.left_out = left_out = left_out or LeftOut()
        self._queue = queue
        self._touch_all = touch_all
        self._presence = Presence.UNKNOWN
        self._refused: dict[Key, str] = {}
        self.workloads: _Table[WorkloadView] = _Table(WORKLOADS, parse_workload, self._workload_changed, left_out)
        self.local_queues: _Table[str] = _Table(
            LOCAL_QUEUES, installation.parse_local_queue, self._rest_changed, left_out
        )
        self.cluster_queues = _Table(CLUSTER_QUEUES, installation.parse_cluster_queue, self._rest_changed, left_out)
        self.flavors = _Table(FLAVORS, installation.parse_flavor, self._rest_changed, left_out)
        self.topologies = _Table(TOPOLOGIES, installation.parse_topology, self._rest_changed, left_out)
        self.classes = _Table(CLASSES, installation.parse_class, self._rest_changed, left_out)

    @property
    def tables(self) -> tuple[_Table[Any], ...]:
        """Every kind."""
        named = (self.local_queues, self.cluster_queues, self.flavors, self.topologies, self.classes)
        return (self.workloads, *named)

    @property
    def presence(self) -> Presence:
        """Whether Kueue is there; PRESENT only once everything of it is known."""
        if self._presence is Presence.PRESENT and not all(table.cache.synced for table in self.tables):
            return Presence.UNKNOWN
        return self._presence

    def found(self, presence: Presence) -> None:
        """Its API is served, or is not."""
        if presence is self._presence:
            return
        self._presence = presence
        if presence is not Presence.PRESENT:
            for table in self.tables:
                table.clear()
            self._refused.clear()
        self._touch_all()

    def listed(self) -> None:
        """Everything was listed for the first time since Kueue was found."""
        self._touch_all()

    def view(self, pod_classes: Mapping[str, int]) -> Kueue:
        """As decisions see it: valid until the next await."""
        return Kueue(
            presence=self.presence,
            workloads=MappingProxyType(self.workloads.by_key),
            local_queues=MappingProxyType(self.local_queues.by_key),
            cluster_queues=_by_name(self.cluster_queues),
            flavors=_by_name(self.flavors),
            topologies=_by_name(self.topologies),
            classes=_by_name(self.classes),
            pod_classes=pod_classes,
            refused=MappingProxyType(self._refused),
        )

    def answered(self, namespace: str, name: str, refusal: str = "") -> None:
        """A Workload was written, or the API server refuses it: the run's pending reason has its words."""
        before = self._refused.pop((namespace, name), "")
        if refusal:
            self._refused[namespace, name] = refusal
        if refusal != before:
            self._queue.add(CLUSTER_KEY)

    def forget(self, namespace: str, name: str) -> None:
        """The run of this Workload is gone."""
        self._refused.pop((namespace, name), None)

    def _workload_changed(self, workload: WorkloadView) -> None:
        if workload.run:
            self._queue.add(run_key(workload.namespace, workload.run))
        self._queue.add(CLUSTER_KEY)

    def _rest_changed(self, _: object) -> None:
        for workload in self.workloads.by_key.values():
            self._workload_changed(workload)
        self._queue.add(CLUSTER_KEY)


class KueueApi:
    """Looks for Kueue, and follows it while it is there."""

    def __init__(self, kube: KubeClient, store: KueueStore, clock: Clock, enabled: bool) -> None:
        self._kube = kube
        self._store = store
        self._clock = clock
        self._enabled = enabled
        self._informers: list[Informer[Any]] = []
        self._following: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Follow Kueue, whether or not it is there, until cancelled."""
        try:
            while True:
                try:
                    await self._discover()
                except KubeError as error:  # what is known stays true
                    log.warning("cannot see whether Kueue is installed: %s", error)
                await self._clock.sleep(LOOKS_EVERY)
        finally:
            await self._stop()

    async def refresh(self) -> None:
        """Take in quorum lists of all that is known, as a new leader has to. Raises UnreachableError.

        What was not listed yet is not waited for: runs that Kueue admits are left as they are until it was.
        """
        try:
            await self._discover()
            known = [informer for informer in self._informers if informer.synced.is_set()]
            await asyncio.gather(*(informer.refresh() for informer in known))
        except ApiError as error:
            log.warning("cannot list what Kueue has: %s", error)

    def ages(self) -> Mapping[str, float]:
        """By kind that is followed: seconds since something was heard of it; infinite before it was listed."""
        now = self._clock.monotonic()
        return {each.name: now - each.last_heard if each.synced.is_set() else inf for each in self._informers}

    async def _discover(self) -> None:
        if not self._enabled:
            self._store.found(Presence.DISABLED)
            return
        served = await self._is_served()
        if self._following is not None and self._following.done():
            await asyncio.gather(self._following, return_exceptions=True)
            log.error("Kueue was not followed any more, and is again")
            await self._stop()
            self._store.found(Presence.UNKNOWN)
        if served and self._following is None:
            log.info("Kueue is there")
            self._follow()
            self._store.found(Presence.PRESENT)
        elif not served:
            if self._following is not None:
                log.warning("Kueue's API is gone")
            await self._stop()
            self._store.found(Presence.ABSENT)

    async def _is_served(self) -> bool:
        """Every kind that is read; a Kueue without one of them is not one that we know."""
        served = await self._kube.served(api_names.API_VERSION)
        return all(table.resource.plural in served for table in self._store.tables)

    def _follow(self) -> None:
        workloads = self._store.workloads.resource
        self._informers = [
            Informer(
                table.resource.plural,
                self._kube,
                self._clock,
                table.resource,
                table.parse,
                table.cache,
                labels=names.LABEL_RUN_UID if table.resource is workloads else "",
                left_out=self._store.left_out,
            )
            for table in self._store.tables
        ]
        self._following = asyncio.create_task(self._run_informers(self._informers), name="kueue")

    async def _run_informers(self, informers: list[Informer[Any]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run(), name=informer.name)
            for informer in informers:
                await informer.synced.wait()
            self._store.listed()

    async def _stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        self._following = None
        self._informers = []


def _by_name(table: _Table[T]) -> Mapping[str, T]:
    return {name: value for (_, name), value in table.by_key.items()}
