"""Our own kinds, TrainingRun, TrainingRunSet and TrainingQueue: watched by kopf, and listed.

A list is what there is: whenever kopf begins a watch, or begins it anew, and each minute beside it, ours are listed and
compared with the store. Only so is it known what was deleted while a watch was down. What happens from then on is
events, which ``handlers`` take in; ``kopf_session`` stands between kopf and the API server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, Self

import aiohttp
import kopf

from lockstep.api.base import names
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.kube.kopf_session import KopfSession, WatchedKind
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.left_out import name_in, uid_in
from lockstep.controller.runtime.resources import QUEUES, RUN_SETS, RUNS, Resource
from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import Unread, Versioned, parse_unread

log = logging.getLogger("lockstep.own_kinds")
RETRY_AFTER = 2.0
_LIST_EVERY = 60.0
_ASK_EVERY = 10.0


class OwnKinds:
    """Keeps the store's runs, sets of runs and queues equal to the cluster's. ``load`` reads kopf's credentials."""

    def __init__(
        self, store: Store, kube: KubeClient, clock: Clock, load: Callable[[], Awaitable[Credentials]]
    ) -> None:
        self.store = store
        self._kube = kube
        self._clock = clock
        self._load = load
        self._login_not_before = now = clock.monotonic()
        self._listing = asyncio.Lock()
        self.runs = WatchedKind("runs", RUNS, store.runs.is_news, self._list_runs, now)
        self.run_sets = WatchedKind("arrays", RUN_SETS, store.run_sets.is_news, self._list_run_sets, now)
        self.queues = WatchedKind("own-kinds", QUEUES, store.queues.is_news, self._list_queues, now)
        self._kinds = (self.runs, self.run_sets, self.queues)
        self.serves_run_sets = True

    def __copy__(self) -> Self:
        """kopf gives each object a copy of what it passes to handlers."""
        return self

    # -- what kopf is given ---------------------------------------------------------------------

    async def watch(self, registry: kopf.OperatorRegistry, take_signals: Callable[[], None]) -> None:
        """Run kopf until cancelled. Raises what ended it, as without it we are blind.

        kopf finds out once what there is to watch, so it is begun anew when arrays come to be served.
        """
        while True:
            served = await self._served(RUNS, QUEUES)
            wanted = self._served(RUN_SETS) if RUN_SETS.plural not in served else asyncio.Event().wait()
            more: asyncio.Task[Any] = asyncio.create_task(wanted)
            try:
                await self._watch_until(more, registry, take_signals)
            finally:
                more.cancel()

    async def _watch_until(
        self, more: asyncio.Task[Any], registry: kopf.OperatorRegistry, take_signals: Callable[[], None]
    ) -> None:
        """Not by ``kopf.operator``: that keeps SIGTERM and SIGINT for itself, which ``take_signals`` is called to take
        back, and in the end it would wait for every task of the process, ours too."""
        tasks = await kopf.spawn_tasks(registry=registry, memo=self, standalone=True, clusterwide=True)
        take_signals()
        try:
            ended, _ = await asyncio.wait([*tasks, more], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()
        if more not in ended:
            raise RuntimeError("kopf has ended by itself")

    async def _served(self, *wanted: Resource) -> frozenset[str]:
        """Plurals of our kinds that the API server has, once the ``wanted`` ones are among them."""
        while True:
            try:
                served = await self._kube.served(names.API_VERSION)
            except KubeError as error:
                log.warning("cannot ask what is served: %s", error)
                await self._clock.sleep(RETRY_AFTER)
                continue
            missing = {resource.plural for resource in wanted} - served
            if not missing:
                return served
            log.warning("not served: %s; apply the files of crds/", ", ".join(sorted(missing)))
            await self._clock.sleep(_ASK_EVERY)

    async def log_in(self) -> kopf.AiohttpSession:
        """What kopf is to send with, read anew whenever the API server has answered 401: tokens rotate.

        As KubeClient has it, and not by kopf's own means: these look for the API server by a name in DNS, refuse CAs
        that many clusters have, know neither token files nor exec plugins, and end kopf where a token that was refused
        is not another one yet.
        """
        wait = self._login_not_before - self._clock.monotonic()
        if wait > 0:
            await self._clock.sleep(wait)
        self._login_not_before = self._clock.monotonic() + RETRY_AFTER
        credentials = await self._load()
        authorization = await credentials.authorization()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=credentials.ssl),
            read_bufsize=2**20,  # with the default 64 KiB the server cuts slow readers off
            headers={"Accept-Encoding": "identity"} | ({"Authorization": authorization} if authorization else {}),
        )
        kinds = {kind.resource.path(): kind for kind in self._kinds}
        ours = KopfSession(
            session,
            kinds,
            self._list_of,
            self._clock,
            self._kube.requests,
            credentials.server_hostname,
            self.store.left_out,
        )
        return kopf.AiohttpSession(server=credentials.server, aiohttp_session=ours)  # type: ignore[arg-type]

    # -- lists ----------------------------------------------------------------------------------

    async def compare(self) -> None:
        """List our kinds each minute."""
        while True:
            try:
                await self.list_now()
            except Exception as error:  # each minute anew: what goes wrong with one list must not be the last of them
                log.warning("cannot list our own kinds: %s", error, exc_info=not isinstance(error, KubeError))
                await self._clock.sleep(RETRY_AFTER)
            else:
                await self._clock.sleep(_LIST_EVERY)

    async def list_now(self) -> None:
        """Make the store equal to a quorum list, of each kind that can be listed. Raises KubeError of one that cannot,
        once the others are."""
        failed: list[KubeError] = []
        async with self._listing:  # one that is taken in after a newer one would pass for a restored backup
            # Arrays before the runs: what a set has on record of a run is then never news.
            for list_kind in (self._list_run_sets_if_served, self._list_runs, self._list_queues):
                try:
                    await list_kind()
                except KubeError as error:
                    failed.append(error)
        if failed:
            raise failed[0]

    async def _list_run_sets_if_served(self) -> None:
        """An API server without their kind, as after an upgrade without its CRD, is no trouble to runs."""
        try:
            await self._list_run_sets()
        except ApiError as error:
            if error.status != 404:
                raise
            self.serves_run_sets = False
            log.warning("arrays are not served: apply %s_%s.yaml from crds/", names.GROUP, names.RUN_SETS)
            self.store.run_sets.cache.synced = True

    async def _list_of(self, kind: WatchedKind) -> int:
        """For kopf, which is about to watch from there."""
        async with self._listing:
            await kind.list()
        kind.synced.set()
        return kind.version

    async def _list_runs(self) -> None:
        begun, seen = self._clock.monotonic(), self.runs.version
        runs, version, unread = await self._read(RUNS)
        self.store.runs.compare(runs, version, begun, seen=seen, unread=unread)
        self._listed(self.runs, version)

    async def _list_run_sets(self) -> None:
        begun, seen = self._clock.monotonic(), self.run_sets.version
        run_sets, version, unread = await self._read(RUN_SETS)
        self.serves_run_sets = True
        self.store.run_sets.compare(run_sets, version, begun, seen=seen, unread=unread)
        self._listed(self.run_sets, version)

    async def _list_queues(self) -> None:
        queues, version = await self._kube.list_all(QUEUES)
        self.store.queues.replace(queues, version)
        self._listed(self.queues, int(version))

    async def _read(self, resource: Resource) -> tuple[list[Versioned[Unread]], int, set[str]]:
        """What a quorum says there is, as of which version, and UIDs of what is there and cannot be read."""
        items, unread = list[Versioned[Unread]](), set[str]()
        version = 0
        async for page in self._kube.list_pages(resource):
            unread.update(page.unread)
            for item in page.items:
                try:
                    items.append(parse_unread(item))
                except Exception as error:  # whatever it is, it is one object's
                    self.store.left_out.note(resource.plural, name_in(item), hash(bytes(item)), error)
                    unread.add(uid_in(item))
            version = int(page.resource_version)
        return items, version, unread

    def _listed(self, kind: WatchedKind, version: int) -> None:
        kind.version = version
        kind.last_heard = self._clock.monotonic()

    def ages(self) -> Mapping[str, float]:
        """By kind that is served: seconds since something was heard of it; infinite before it was watched."""
        now = self._clock.monotonic()
        served = [kind for kind in self._kinds if kind is not self.run_sets or self.serves_run_sets]
        return {kind.name: now - kind.last_heard if kind.synced.is_set() else inf for kind in served}
