"""Our own kinds: queues watched by kopf, event -> store -> queue, and no more; runs and arrays by informers.

Of kopf only ``on.event`` is used: no finalizer, no annotation, no state of its own on anybody's object. An object
deleted while a watch was down is never reported by kopf, so our kinds are listed and compared with the store after
every reconnect and each minute. Why runs and arrays are not kopf's: see ``run_sink``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import kopf

from lockstep.api.base import names
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.kube.informer import Informer
from lockstep.controller.kube.kopf_storage import NoDiffBase, NoProgress
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import QUEUES, RUN_SETS, RUNS
from lockstep.controller.store.run_sink import RunSetSink, RunSink
from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import Unread, parse_unread

log = logging.getLogger("lockstep.own_kinds")
_LIST_EVERY = 60.0
_RETRY_AFTER = 2.0


class OwnKinds:
    """Keeps the store's runs, sets of runs and queues equal to the cluster's. ``load`` reads kopf's credentials."""

    def __init__(
        self, store: Store, kube: KubeClient, clock: Clock, load: Callable[[], Awaitable[Credentials]]
    ) -> None:
        self._store = store
        self._kube = kube
        self._clock = clock
        self._load = load
        self._login_not_before = clock.monotonic()
        self._relisted = asyncio.Event()
        self._listing = asyncio.Lock()
        self.runs: Informer[Unread] = Informer("runs", kube, clock, RUNS, parse_unread, RunSink(store))
        self.run_sets: Informer[Unread] = Informer("arrays", kube, clock, RUN_SETS, parse_unread, RunSetSink(store))
        self.serves_run_sets = True
        """An API server without their kind, as after an upgrade without its CRD, is no trouble to runs."""
        self.last_heard = clock.monotonic()

    @property
    def informers(self) -> tuple[Informer[Unread], ...]:
        """Those that have something to say."""
        return (self.runs, self.run_sets) if self.serves_run_sets else (self.runs,)

    async def watch(self, take_signals: Callable[[], None]) -> None:
        """Run kopf until cancelled. Raises what ended it, as without it we are blind.

        Not by ``kopf.operator``: that keeps SIGTERM and SIGINT for itself, which ``take_signals`` is called
        to take back, and in the end it would wait for every task of the process, ours too.
        """
        tasks = await kopf.spawn_tasks(
            registry=self._registry(), settings=_settings(), standalone=True, clusterwide=True
        )
        take_signals()
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()
        raise RuntimeError("kopf has ended by itself")

    async def compare(self) -> None:
        """List our kinds each minute, and soon after kopf's watch has begun anew."""
        while True:
            await self._clock.wait(self._relisted, _LIST_EVERY)
            self._relisted.clear()
            try:
                await self.list_now()
            except KubeError as error:
                log.warning("cannot list our own kinds: %s", error)
                await self._clock.sleep(_RETRY_AFTER)
                self._relisted.set()

    async def list_now(self) -> None:
        """Make the store equal to a quorum list. Raises KubeError."""
        async with self._listing:  # one that is taken in after a newer one would pass for a restored backup
            await self._list_run_sets()  # before the runs: what a set has on record of a run is then never news
            begun = self._clock.monotonic()
            runs, version = await self.runs.read_list()
            queues, queue_version = await self._kube.list_all(QUEUES)
            self._store.compare_runs(runs, version, begun)
            self._store.queues.replace(queues, queue_version)
            self.last_heard = self._clock.monotonic()

    async def _list_run_sets(self) -> None:
        """Where their kind is not served, runs go on as before."""
        try:
            run_sets, version = await self.run_sets.read_list()
        except ApiError as error:
            if error.status != 404:
                raise
            self.serves_run_sets = False
            log.warning("arrays are not served: apply %s_%s.yaml from crds/", names.GROUP, names.RUN_SETS)
            self._store.run_sets.cache.synced = True
            return
        self.serves_run_sets = True
        self._store.run_sets.compare(run_sets, version)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=_RETRY_AFTER)
        async def _(**_: Any) -> kopf.AiohttpSession:
            return await self._log_in()

        @kopf.on.event(names.GROUP, names.VERSION, names.QUEUES, registry=registry)
        async def _(type: str | None, event: Any, **_: Any) -> None:  # noqa: A002 - kopf's name
            self._heard(type)
            if type == "DELETED":
                self._store.queues.remove(event["object"])
            else:
                self._store.queues.apply(event["object"])

        return registry

    async def _log_in(self) -> kopf.AiohttpSession:
        """What kopf is to send with, read anew whenever the API server has answered 401: tokens rotate.

        As KubeClient has it, and not by kopf's own means: these look for the API server by a name in DNS, refuse CAs
        that many clusters have, know neither token files nor exec plugins, and end kopf where a token that was refused
        is not another one yet.
        """
        wait = self._login_not_before - self._clock.monotonic()
        if wait > 0:
            await self._clock.sleep(wait)
        self._login_not_before = self._clock.monotonic() + _RETRY_AFTER
        credentials = await self._load()
        authorization = await credentials.authorization()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=credentials.ssl),
            headers={"Authorization": authorization} if authorization else None,
        )
        return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)

    def _heard(self, kind: str | None) -> None:
        self.last_heard = self._clock.monotonic()
        if kind is None:  # part of a list: the watch has just begun, or begun again
            self._relisted.set()


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    settings.watching.inactivity_timeout = 70
    settings.queueing.error_delays = (1, 2, 5, 10)
    settings.networking.enforce_retry_after = True
    return settings
