"""The page and its JSON, on a port of their own. The operator writes nothing for it: what a viewer does to a run, and
the logs that they read, are requests to the API server with their own token.

A request passes the cheapest gates first: whether this replica sees the cluster, whose token it brings, how often they
come. Then what they may see is asked of the API server, and only that is made into an answer. Answers are made
beside the event loop, one at a time with a rest after each, and are shared for two seconds: however many look, the
operator works on.
"""

import asyncio
import gzip
import hashlib
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from lockstep.api.base import names
from lockstep.controller.kube.caller import CallerApi
from lockstep.controller.runtime.clock import Clock, SystemClock
from lockstep.controller.runtime.ratelimit import RateLimit, block
from lockstep.controller.web import array, assets, compare, deeds, fleet, logs, queue, refusal, retry, stacks
from lockstep.controller.web import run as one_run
from lockstep.controller.web.access import Door, Sight, Viewer
from lockstep.controller.web.deeds import MOST_BODY, Deeds
from lockstep.controller.web.logs import Logs
from lockstep.controller.web.losses import Losses
from lockstep.controller.web.memo import Memo
from lockstep.controller.web.refusal import RefusalError
from lockstep.controller.web.sources import PageSources
from lockstep.controller.web.threads import WorkerThreads
from lockstep.controller.workers.connections import Connections
from lockstep.controller.workers.trust import Post
from lockstep.core.model import assignment as slots
from lockstep.core.model.snapshot import RunView
from lockstep.present.going_on import NEWEST

log = logging.getLogger("lockstep.controller.web")

ROOT = "/ui/"
TOKEN_HEADER = "X-Lockstep-Token"
"""For where Authorization does not arrive: the API server's proxy takes it away."""
SHARED_SECONDS = 2.0
"""For which an answer is good for everybody with the same sight."""
MOST_ANSWERS = 64
MOST_VIEWERS = 1024
MOST_CONNECTIONS = 1024
"""Of one address: that of a proxy stands for many people. Of IPv6 a /64 is one: a machine has as many as it likes."""
ALL_CONNECTIONS = 4096
PER_SECOND, BURST = 5.0, 40.0
"""Requests of one viewer."""
SEND_SECONDS = 10.0
"""For an answer to be taken: until then it is in memory for whoever asked."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Server": "lockstep",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    packed: bytes  # by gzip
    tag: str


class WebPage:
    """Serves what ``sources`` know to who may see it. ``post`` asks the API server for reviews, ``api`` passes on what
    viewers ask of it by their own tokens.

    ``losses`` have to be followed for as long as it is served.
    """

    def __init__(self, sources: PageSources, post: Post, api: CallerApi, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._door = Door(post, clock)
        self._api = api
        self._deeds = Deeds(api, clock, sources.run)
        self.logs = Logs(api, clock)
        self._pace = RateLimit(clock, per_second=PER_SECOND, burst=BURST)
        self.losses = Losses(sources.runs, sources.reports, clock)
        self._assets = assets.load()
        self.connections = Connections(clock, per_sender=MOST_CONNECTIONS, proven=ALL_CONNECTIONS, peers=block)
        """Of whoever serves the application: any request proves whose one is."""
        self._sights: Memo[Sight] = Memo(clock, most=MOST_VIEWERS, seconds=lambda _: SHARED_SECONDS)
        self._fleet: Memo[fleet.Fleet] = Memo(clock, most=1, seconds=lambda _: SHARED_SECONDS)
        self._answers: Memo[_Answer] = Memo(clock, most=MOST_ANSWERS, seconds=lambda _: SHARED_SECONDS)
        self._aside = WorkerThreads(SystemClock())  # what it rests from is time that really went by

    def application(self) -> web.Application:
        """To be served over TLS, or on the loopback address alone: requests carry tokens of the cluster."""
        app = web.Application(middlewares=[self._guard], client_max_size=MOST_BODY)
        app.on_cleanup.append(self._hang_up)
        app.router.add_get("/", self._to_page)
        app.router.add_get("/ui", self._to_page)
        app.router.add_get(ROOT, self._asset)
        app.router.add_get(ROOT + "{name}", self._asset)
        app.router.add_get(ROOT + "api/me", self._me)
        app.router.add_get(ROOT + "api/fleet", self._get_fleet)
        app.router.add_get(ROOT + "api/queues", self._get_queues)
        app.router.add_get(ROOT + "api/runs/{namespace}/{name}", self._get_run)
        app.router.add_get(ROOT + "api/arrays/{namespace}/{name}", self._get_array)
        app.router.add_get(ROOT + "api/compare", self._get_compare)
        one = ROOT + "api/runs/{namespace}/{name}"
        app.router.add_get(one + "/actions", self._get_actions)
        app.router.add_post(one + "/actions/{action}", self._act)
        app.router.add_get(one + "/ranks/{rank}", self._get_rank)
        app.router.add_get(one + "/ranks/{rank}/log", self._get_log)
        app.router.add_get(one + "/stacks/{attempt}", self._get_stacks)
        return app

    # -- the page's files -----------------------------------------------------------------------

    async def _to_page(self, _: web.Request) -> web.Response:
        # Relative: it may be served from below another path.
        return web.Response(status=302, headers={"Location": "ui/"})

    async def _asset(self, request: web.Request) -> web.Response:
        asset = self._assets.get(request.match_info.get("name", "index.html"))
        if asset is None:
            raise RefusalError(404, "there is no such file")
        headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == asset.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=asset.body, content_type=asset.content_type, charset="utf-8", headers=headers)

    # -- what is known --------------------------------------------------------------------------

    async def _me(self, request: web.Request) -> web.Response:
        viewer = await self._admit(request)
        sight = await self._sight(viewer)
        body = {
            "name": viewer.name,
            "everywhere": sight.everywhere,
            "namespaces": sorted(sight.namespaces),
            "nodes": sight.nodes,
            "queues": sight.queues,
        }
        return self._reply(request, _encoded(body))

    async def _get_fleet(self, request: web.Request) -> web.Response:
        sight = await self._sight(await self._admit(request))
        known = await self._fleet.answer("", self._known_fleet)
        return self._reply(request, await self._shared(("fleet", sight), lambda: fleet.seen(known, sight)))

    async def _get_queues(self, request: web.Request) -> web.Response:
        sight = await self._sight(await self._admit(request))
        sources = self._sources
        facts = queue.QueueFacts((*sources.runs(),), (*sources.queues(),), (*sources.run_sets(),))
        return self._reply(request, await self._shared(("queues", sight), lambda: queue.queues(facts, sight)))

    async def _get_run(self, request: web.Request) -> web.Response:
        _, found = await self._admit_to_run(request)
        facts = one_run.RunFacts(
            run=found,
            reports=self._sources.reports(found.uid),
            losses=self.losses.points(found.uid),
            events=self._sources.events(found.uid),
            now=self._clock.now(),
        )
        return self._reply(request, await self._shared(("run", found.uid), lambda: one_run.run(facts)))

    async def _get_array(self, request: web.Request) -> web.Response:
        viewer, namespace, name = await self._admit_to(request, names.RUN_SETS)
        sees_runs = await self._door.sees(viewer, namespace)
        found = self._sources.run_set(namespace, name)
        if found is None:
            raise RefusalError(404, f"there is no array {name[:63]} in namespace {namespace}")
        own = tuple(run for run in self._sources.runs() if run.set_uid == found.uid and run.namespace == namespace)
        facts = array.ArrayFacts(found, own if sees_runs else None, self._sources.events(found.uid))
        return self._reply(request, await self._shared(("array", found.uid, sees_runs), lambda: array.array(facts)))

    async def _get_compare(self, request: web.Request) -> web.Response:
        viewer = await self._admit(request)
        keys = list(dict.fromkeys(request.query.getall("run", [])))
        if not 1 <= len(keys) <= compare.MOST_RUNS:
            raise RefusalError(400, f"name up to {compare.MOST_RUNS} runs as run=NAMESPACE/NAME")
        found, missing, refused = list[RunView](), list[Mapping[str, Any]](), list[RefusalError]()
        for key in keys:
            namespace, _, name = key.partition("/")
            try:
                await self._admit_into(viewer, namespace, names.RUNS)
                found.append(self._found(namespace, name))
            except RefusalError as error:  # the others can be compared all the same
                refused.append(error)
                missing.append({"run": key, "status": error.status, "message": str(error)})
        if not found:
            raise refused[0]
        # Each by itself, so that in whatever company it is one answer; what is left is to put them together.
        sides = [orjson.Fragment(side.body) for side in await asyncio.gather(*map(self._side, found))]
        return self._reply(request, await asyncio.to_thread(_encoded, {"runs": sides, "missing": missing}))

    async def _side(self, run: RunView) -> _Answer:
        facts, now = compare.Facts(run, self._sources.reports(run.uid), self.losses.points(run.uid)), self._clock.now()
        return await self._shared(("side", run.uid), lambda: compare.side(facts, now))

    # -- by the viewer's own token --------------------------------------------------------------

    async def _get_actions(self, request: web.Request) -> web.Response:
        viewer, found = await self._admit_to_run(request)
        sight = await self._sight(viewer)
        may = await self._door.may(viewer, deeds.verb_of(found), names.RUNS, found.namespace)
        reads = await self._may_read(viewer, found.namespace)
        runs, reports = (*self._sources.runs(),), self._sources.reports(found.uid)
        next_name, now = retry.free_name(found, self._sources.run), self._clock.now()
        begin = retry.asked_about(request.query)
        if not next_name:  # of what has not ended it tells nothing, and would make one question many
            begin = NEWEST

        def offer() -> dict[str, Any]:
            seen = (each for each in runs if sight.sees(each.namespace))
            all_of_it = deeds.offered(found, reports, seen, may=may, next_name=next_name, begin=begin, now=now)
            return {"uid": found.uid, "actions": all_of_it, "logs": reads}

        return self._reply(
            request, await self._shared(("actions", found.uid, sight, may, reads, next_name, begin), offer)
        )

    async def _act(self, request: web.Request) -> web.Response:
        deeds.hold_to_own_page(request)
        viewer, found = await self._admit_to_run(request)
        done = await self._deeds.carry_out(request, viewer, found, _token(request))
        return self._reply(request, _encoded(done))

    async def _get_rank(self, request: web.Request) -> web.Response:
        viewer, found = await self._admit_to_run(request)
        rank, may_read = logs.rank_of(request, found), await self._may_read(viewer, found.namespace)
        told = logs.rank(found, rank, self._sources.reports(found.uid), may_read=may_read)
        return self._reply(request, _encoded(told))

    async def _get_log(self, request: web.Request) -> web.StreamResponse:
        viewer, found = await self._admit_to_run(request)
        return await self.logs.follow(request, viewer, found, _token(request), HEADERS)

    async def _get_stacks(self, request: web.Request) -> web.Response:
        _, found = await self._admit_to_run(request)
        kept = await stacks.of_attempt(self._api, found, request.match_info["attempt"], _token(request))
        return self._reply(request, _encoded(kept))

    async def _may_read(self, viewer: Viewer, namespace: str) -> bool:
        return await self._door.may(viewer, "get", "pods", namespace, group="", subresource="log")

    async def _hang_up(self, _: web.Application) -> None:
        await self._api.close()

    # -- gates ----------------------------------------------------------------------------------

    async def _admit(self, request: web.Request) -> Viewer:
        """Who asks. Raises whatever turns them away."""
        if not self._sources.synced():
            raise RefusalError(503, "this operator has not seen the whole cluster yet", retry_after=2)
        viewer = await self._door.viewer(_token(request), request.remote or "")
        wait = self._pace.acquire(viewer.key)
        if wait:
            raise RefusalError(429, "too many requests; the page asks again by itself", retry_after=wait)
        return viewer

    async def _admit_to(self, request: web.Request, resource: str) -> tuple[Viewer, str, str]:
        """Who asks for one object, its namespace and its name."""
        viewer = await self._admit(request)
        namespace = request.match_info["namespace"]
        await self._admit_into(viewer, namespace, resource)
        return viewer, namespace, request.match_info["name"]

    async def _admit_into(self, viewer: Viewer, namespace: str, resource: str) -> None:
        # Asked first, for any namespace whatever: nobody learns by the answer what there is.
        if not 0 < len(namespace) <= 63 or not await self._door.sees(viewer, namespace, resource):
            raise RefusalError(403, f"you may not get {resource} in namespace {namespace[:63]}; ask for the role view")

    async def _admit_to_run(self, request: web.Request) -> tuple[Viewer, RunView]:
        """Who asks for one run, and the run."""
        viewer, namespace, name = await self._admit_to(request, names.RUNS)
        return viewer, self._found(namespace, name)

    def _found(self, namespace: str, name: str) -> RunView:
        found = self._sources.run(namespace, name)
        if found is None:
            raise RefusalError(404, f"there is no run {name[:63]} in namespace {namespace}")
        return found

    async def _sight(self, viewer: Viewer) -> Sight:
        async def find_out() -> Sight:
            of_runs = {run.namespace for run in self._sources.runs()}
            return await self._door.sight(viewer, of_runs, {each.namespace for each in self._sources.run_sets()})

        return await self._sights.answer(viewer.key, find_out)

    # -- answers --------------------------------------------------------------------------------

    async def _known_fleet(self) -> fleet.Fleet:
        sources = self._sources
        runs = (*sources.runs(),)
        facts = fleet.FleetFacts(
            nodes=(*sources.nodes(),),
            runs=runs,
            pods={run.uid: pods for run in runs if _by_its_pods(run) and (pods := sources.pods_of(run.uid))},
            foreign=dict(sources.foreign_requests()),
            levels=sources.levels,
            gpu_types=sources.gpu_types,
            accelerators=sources.accelerators,
            now=self._clock.now(),
        )
        return await self._aside.make(lambda: fleet.fleet(facts))

    async def _shared(self, question: Hashable, make: Callable[[], Mapping[str, Any]]) -> _Answer:
        return await self._answers.answer(question, lambda: self._aside.make(lambda: _encoded(make())))

    def _reply(self, request: web.Request, answer: _Answer) -> web.Response:
        headers = {
            "ETag": answer.tag,
            "Cache-Control": "no-store",  # the page itself keeps the last answer, in memory
            "X-Lockstep-Time": f"{self._clock.now():.0f}",
            "X-Lockstep-Role": "Leader" if self._sources.leading() else "Standby",
        }
        if request.headers.get("If-None-Match") == answer.tag:
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            return web.Response(body=answer.packed, content_type="application/json", headers=headers)
        return web.Response(body=answer.body, content_type="application/json", headers=headers)

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        address = request.remote or ""
        if self.connections.prove(address, request.protocol, block(address)):
            try:
                response = await handler(request)
            except Exception as error:
                response = refusal.answer(request, error)
        else:
            response = refusal.answer(
                request, RefusalError(429, "too many connections from your address, or from all", retry_after=5)
            )
            response.force_close()
        if response.prepared:  # a stream, which has seen to itself
            return response
        response.headers.update(HEADERS)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return response


def _by_its_pods(run: RunView) -> bool:
    """It has nodes, and which ones is in a ConfigMap that this process has not read; or it has ended, and its pods
    alone tell which it still holds."""
    return run.status.leaving is not None or (slots.is_held(run.status.assignment) and not run.status.assignment.nodes)


def _token(request: web.Request) -> str:
    if token := request.headers.get(TOKEN_HEADER, ""):
        return token.strip()
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _encoded(content: Mapping[str, Any]) -> _Answer:
    body = orjson.dumps(content)
    return _Answer(body, gzip.compress(body, 1), f'"{hashlib.sha256(body).hexdigest()[:20]}"')
