"""An API server of our own kinds alone, on 127.0.0.1: what a test has it say, and in which pieces."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web

from lockstep.api.base import names
from lockstep.controller.handlers import registry
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.store.own_kinds import OwnKinds
from lockstep.controller.store.store import Store
from support.answering_server import answering_here
from support.hasty_clock import HastyClock

_KINDS = {
    names.RUNS: (names.RUN_KIND, True),
    names.RUN_SETS: (names.RUN_SET_KIND, True),
    names.QUEUES: ("Queue", False),
}


class OwnApi:
    """``objects`` are JSON, by plural; ``refusals`` what the next requests for a list or watch of a plural are answered
    with instead."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[str, bytes]] = defaultdict(dict)
        self.served = set(_KINDS)
        self.refusals: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.asked: list[tuple[str, str, str]] = []
        """Lists and watches: verb, plural, resourceVersion."""
        self.other: list[tuple[str, str]] = []
        """Requests that change something."""
        self._watches: dict[str, list[web.StreamResponse]] = defaultdict(list)
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[OwnApi]:
        async with answering_here(self._answer) as self.url:
            yield self

    async def say(self, plural: str, *pieces: bytes) -> None:
        """Send bytes on every watch of ``plural``, each piece by itself."""
        for piece in pieces:
            for watch in self._watches[plural]:
                await watch.write(piece)
            await asyncio.sleep(0.01)

    def watched(self, plural: str) -> bool:
        return bool(self._watches[plural])

    def break_watches(self, plural: str) -> None:
        """Hang up without a word."""
        for watch in self._watches.pop(plural, ()):
            transport = watch._req.transport if watch._req is not None else None
            if transport is not None:
                transport.abort()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.strip("/").split("/")
        if request.method != "GET":
            self.other.append((request.method, request.path))
        if path == ["api"]:
            return web.json_response({"versions": ["v1"]})
        if path == ["api", "v1"]:
            return web.json_response({"resources": [_resource("namespaces", "Namespace", namespaced=False)]})
        if path == ["apis"]:
            version = {"version": names.VERSION}
            return web.json_response(
                {"groups": [{"name": names.GROUP, "versions": [version], "preferredVersion": version}]}
            )
        if path == ["apis", names.GROUP, names.VERSION]:
            kinds = [_resource(plural, kind, namespaced=ns) for plural, (kind, ns) in _KINDS.items()]
            return web.json_response({"resources": [kind for kind in kinds if kind["name"] in self.served]})
        plural = path[-1]
        if plural not in self.served:
            return web.json_response({"kind": "Status", "code": 404, "message": "no such kind"}, status=404)
        verb = "watch" if "watch" in request.query else "list"
        self.asked.append((verb, plural, request.query.get("resourceVersion", "")))
        if self.refusals[verb, plural]:
            code = self.refusals[verb, plural].pop(0)
            return web.json_response({"kind": "Status", "code": code, "message": "on purpose"}, status=code)
        if verb == "watch":
            return await self._watch(request, plural)
        items = b",".join(self.objects[plural].values())
        body = b'{"metadata":{"resourceVersion":"%d"},"items":[%b]}' % (self.version, items)
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self._watches[plural].append(response)
        try:
            await asyncio.Event().wait()
        finally:
            if response in self._watches[plural]:
                self._watches[plural].remove(response)
        return response


class Watching:
    """A store that is kept equal to an ``OwnApi`` by kopf itself."""

    def __init__(self, api: OwnApi) -> None:
        clock = HastyClock()
        self.api = api
        self.kube = KubeClient(self._load, clock)
        self.store = Store(WorkQueue(clock), clock)
        self.kinds = OwnKinds(self.store, self.kube, clock, self._load)
        self.task: asyncio.Task[None] | None = None

    async def _load(self) -> Credentials:
        async def nobody() -> None:
            return None

        return Credentials(self.api.url, False, None, nobody)

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[Watching]:
        """Ends what it began, and raises what that ended of."""
        async with self.kube:
            self.task = asyncio.create_task(self.kinds.watch(registry, lambda: None))
            try:
                yield self
            finally:
                self.task.cancel()
                with suppress(asyncio.CancelledError):
                    await self.task
                await asyncio.sleep(0.05)

    async def until(self, condition: Any, seconds: float = 20.0) -> None:
        """Raises what kopf ended of, and TimeoutError."""
        assert self.task is not None
        async with asyncio.timeout(seconds):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.01)

    async def until_watching(self) -> None:
        await self.until(lambda: all(self.api.watched(plural) for plural in self.api.served))

    @property
    def runs(self) -> dict[str, str]:
        """By name: what is wrong with its spec."""
        return {run.name: run.spec_error for run in self.store.runs.cache}


def _resource(plural: str, kind: str, *, namespaced: bool) -> dict[str, Any]:
    verbs = ["list", "watch", "patch", "get"]
    return {"name": plural, "kind": kind, "singularName": kind.lower(), "namespaced": namespaced, "verbs": verbs}
