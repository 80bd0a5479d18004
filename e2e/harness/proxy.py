"""Between one operator and its API server: counts what the operator writes, and breaks what a test wants broken.

The operator under test needs no hook: to it this is the API server. Plain http on this side, with the
operator's own bearer token passed through; TLS towards the API server.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import yaml
from aiohttp import web

Json = dict[str, Any]
T = TypeVar("T")
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
# Neither decides anything: kept by election, asked or told beside the decisions.
_NOT_COUNTED = ("leases", "tokenreviews", "events")
_HOP_BY_HOP = ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length")
_PATIENCE = 30.0
_TLS_GOODBYE = 0.5  # aiohttp does not wait for the end of the TLS connections it closes


@dataclass(frozen=True)
class Write:
    """One write that was carried out. ``object`` is what the API server answered."""

    method: str
    path: str
    body: Json
    object: Json

    @property
    def words(self) -> str:
        """For messages."""
        return f"{self.method} {self.path}"


@dataclass
class _Crash:
    """Kill when this many more writes were carried out; ``answered`` says whether the last answer still arrives."""

    after: int
    answered: bool
    kill: Callable[[], None]
    under_way: asyncio.Task[None] | None = None


@dataclass
class _Faults:
    """What is broken now. ``generation`` tells requests of a killed process from those of its successor."""

    crash: _Crash | None = None
    generation: int = 0
    is_down: bool = False
    watches_stall: bool = False
    answers_get_lost: bool = False
    takes: float = 0.0  # seconds that each request waits, watches aside
    expired_watches: set[str] = field(default_factory=set)  # paths whose next watch is answered 410


class ApiProxy:
    """Serves from ``start`` to ``stop`` on a thread of its own; every method may be called from any thread.

    ``writes`` holds every write carried out so far, in order: Leases, TokenReviews, Events and dry runs left out. These
    are in ``beside``, by method and path. ``watches`` are the paths of those that the API server has granted.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.writes: list[Write] = []
        self.beside: list[tuple[str, str]] = []
        self.watches: list[str] = []
        self.crashes = 0
        self._kubeconfig = yaml.safe_load(kubeconfig.read_text())
        self._faults = _Faults()
        self._streams: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-proxy", daemon=True)
        self._server = ""
        self._port = 0

    def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._thread.start()
        self._on_loop(self._open())

    def stop(self) -> None:
        """Cut everybody off and end."""
        self._on_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig given at first, with this in place of the API server."""
        content = json.loads(json.dumps(self._kubeconfig))
        for entry in content["clusters"]:
            entry["cluster"] = {"server": f"http://127.0.0.1:{self._port}"}
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content))
        return path

    # What to break

    def crash_after(self, writes: int, kill: Callable[[], None], *, answered: bool) -> None:
        """Call ``kill`` once that many more writes were carried out, and let no other through before.

        With ``answered`` the operator hears of the last one and acts on it up to its next write;
        without, it dies with that answer on its way. ``kill`` returns when the process is gone.
        """
        self._set(crash=_Crash(writes, answered, kill))

    @property
    def crash_is_due(self) -> bool:
        """The crash last asked for has not happened yet."""
        return self._faults.crash is not None

    def take_down(self) -> None:
        """Hang up on everybody, as an API server does that is not there."""
        self._set(is_down=True)
        self._on_loop(self._hang_up())

    def bring_up(self) -> None:
        """Answer again."""
        self._set(is_down=False)

    def stall_watches(self) -> None:
        """Let every watch, also new ones, hear nothing: what the operator sees grows stale."""
        self._set(watches_stall=True)

    def resume_watches(self, *, expired: bool) -> None:
        """End all watches. With ``expired`` whoever comes back is told 410: what happened meanwhile is never reported.

        Without, the API server reports it from where the watch broke.
        """
        paths = {str(task.get_name()) for task in self._streams}
        self._set(watches_stall=False, expired_watches=paths if expired else set())
        self._on_loop(self._hang_up())

    def lose_answers(self, lose: bool) -> None:
        """Carry out every write and answer none: the operator cannot know what became of them."""
        self._set(answers_get_lost=lose)

    def slow_down(self, seconds: float) -> None:
        """Let every request but watches wait for so long, each beside the others: an API server that is overloaded."""
        self._set(takes=seconds)

    def mend(self) -> None:
        """Break nothing any more."""
        self._set(
            crash=None, is_down=False, watches_stall=False, answers_get_lost=False, takes=0.0, expired_watches=set()
        )
        self._on_loop(self._hang_up())  # streams that stalled stay behind for ever

    # Inside

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def _set(self, **faults: Any) -> None:
        async def apply() -> None:
            for name, value in faults.items():
                setattr(self._faults, name, value)

        self._on_loop(apply())

    async def _open(self) -> None:
        entry = self._kubeconfig["clusters"][0]["cluster"]
        self._server = entry["server"].rstrip("/")
        tls = ssl.create_default_context(cadata=_ca(entry))
        self._writing = asyncio.Lock()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls), auto_decompress=False, read_bufsize=2**20
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = int(self._runner.addresses[0][1])

    async def _close(self) -> None:
        await self._hang_up()
        await self._runner.cleanup()
        await self._session.close()
        await asyncio.sleep(_TLS_GOODBYE)

    async def _hang_up(self) -> None:
        streams = list(self._streams)
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        generation = self._faults.generation
        body = await request.read()
        if self._faults.is_down:
            return _abandon(request)
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request)
        if self._faults.takes:
            await asyncio.sleep(self._faults.takes)
        if not _is_counted(request):
            response = await self._pass_on(request, body)
            if request.method in _WRITES and response.status < 300:
                self.beside.append((request.method, request.path))
            return response
        # One write at a time: so that "after the n-th" means the same on every day.
        async with self._writing:
            crash = self._faults.crash
            is_dying = crash is not None and crash.under_way is not None
            if is_dying or generation != self._faults.generation or self._faults.is_down:
                return _abandon(request)
            return await self._write(request, body)

    async def _write(self, request: web.Request, body: bytes) -> web.StreamResponse:
        crash = self._faults.crash
        if crash is not None and crash.after <= 0:  # it heard of its last write, and this would be the next
            await self._kill(crash)
            return _abandon(request)
        response = await self._pass_on(request, body)
        if response.status >= 300:
            return response
        assert isinstance(response.body, bytes)
        write = Write(request.method, request.path, json.loads(body or b"{}"), json.loads(response.body))
        self.writes.append(write)
        if self._faults.answers_get_lost:
            return _abandon(request)
        if crash is not None:
            crash.after -= 1
            if crash.after <= 0 and not crash.answered:
                await self._kill(crash)
                return _abandon(request)
        return response

    async def _kill(self, crash: _Crash) -> None:
        async def carry_out() -> None:
            await asyncio.to_thread(crash.kill)
            self._faults.generation += 1
            self.crashes += 1
            self._faults.crash = None

        crash.under_way = asyncio.create_task(carry_out())
        # The process hangs up as it dies, which cancels whoever answers it.
        await asyncio.shield(crash.under_way)

    async def _pass_on(self, request: web.Request, body: bytes) -> web.Response:
        try:
            async with self._session.request(
                request.method,
                self._server + request.path_qs,
                data=io.BytesIO(body) if body else None,
                headers=_headers(request.headers),
                allow_redirects=False,
            ) as reply:
                content = await reply.read()
                return web.Response(status=reply.status, body=content, headers=_headers(reply.headers))
        except (aiohttp.ClientError, OSError):
            return _abandon(request)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        task = asyncio.create_task(self._stream(request, response), name=request.path)
        self._streams.add(task)
        try:
            await task
        except (aiohttp.ClientError, OSError):
            return _abandon(request)
        except asyncio.CancelledError:
            if not task.done():  # the operator hung up, not we on it
                task.cancel()
                raise
            return _abandon(request)
        finally:
            self._streams.discard(task)
        return response

    async def _stream(self, request: web.Request, response: web.StreamResponse) -> None:
        if request.path in self._faults.expired_watches and "sendInitialEvents" not in request.query:
            self._faults.expired_watches.discard(request.path)
            await response.prepare(request)
            gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired"}
            event = {"type": "ERROR", "object": gone | {"message": "too old resource version"}}
            await response.write(json.dumps(event).encode() + b"\n")
            await response.write_eof()
            return
        limits = aiohttp.ClientTimeout(total=None)
        async with self._session.get(
            self._server + request.path_qs, headers=_headers(request.headers), timeout=limits
        ) as reply:
            response.set_status(reply.status)
            if reply.status == 200:
                self.watches.append(request.path)
            await response.prepare(request)
            async for chunk in reply.content.iter_any():
                if self._faults.watches_stall:
                    await asyncio.Event().wait()  # until it is cut
                await response.write(chunk)
        await response.write_eof()


def _is_counted(request: web.Request) -> bool:
    resource = request.path.rstrip("/").split("/")
    told = any(name in resource for name in _NOT_COUNTED)
    return request.method in _WRITES and not told and "dryRun" not in request.query


def _abandon(request: web.Request) -> web.Response:
    """Hang up without a word."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=503)


def _headers(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _ca(cluster: Json) -> str:
    return base64.b64decode(cluster["certificate-authority-data"]).decode()
