"""A listening socket with an aiohttp application behind it."""

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from lockstep.config import EVERYWHERE
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.workers.connections import Connections

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
BACKLOG = 2048
"""A whole gang connects within a second of its START."""
PER_ADDRESS = 512
"""Connections of one address where requests say nothing of their sender: a proxy has those of many people."""
EXHAUSTED_SECONDS = 0.5
"""Between two tries to accept when descriptors have run out."""
HEAD_BYTES = 16 * 1024
"""Of the head of a request: a worker sends nine headers, and a token of 1.2 KB, a browser up to thirty."""
MAX_HEADERS = 32
REFUSED_SECONDS = 1.0
"""For the answer to arrive; what comes meanwhile is dropped."""
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class HeadLimit(asyncio.Protocol):
    """Between a connection and aiohttp, which holds heads until they end, at several times their size: one of more
    than ``HEAD_BYTES`` is not received, and what comes before the sender is known is counted."""

    def __init__(self, handler: web.RequestHandler, peer: str, connections: Connections) -> None:
        self._handler = handler
        self._peer = peer
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._is_refused = False
        self.begin_head()

    def begin_head(self) -> None:
        """What comes next is the head of a request."""
        self._head = 0
        self._end = b""  # of what has come of it
        self._in_head = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As aiohttp has it."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not derived from it
        self._handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """As aiohttp has it."""
        self._connections.close(self._peer, self._handler)
        self._handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """As aiohttp has it, within the limits."""
        assert self._transport is not None
        if self._is_refused:
            return
        if self._in_head and not self._fits(data):
            self._is_refused = True
            self._transport.write(_HEAD_TOO_LARGE)
            # A connection that is cut while more comes takes the answer with it.
            asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._transport.abort)
        elif self._connections.receive(self._peer, self._handler, len(data)):
            self._handler.data_received(data)

    def eof_received(self) -> None:
        """As aiohttp has it."""
        self._handler.eof_received()

    def pause_writing(self) -> None:
        """As aiohttp has it."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """As aiohttp has it."""
        self._handler.resume_writing()

    def _fits(self, data: bytes) -> bool:
        come = data if self._head else data.lstrip(b"\r\n")  # empty lines before a request are passed over
        seen = self._end + come
        end = seen.find(b"\r\n\r\n")
        self._in_head = end < 0
        self._head += len(come) if end < 0 else end - len(self._end)
        self._end = seen[-3:]
        return self._head <= HEAD_BYTES


class Listener:
    """An application being served. Open with ``Listener.open``, close with ``close``."""

    def __init__(
        self,
        runner: web.AppRunner,
        listening: socket.socket,
        ssl_context: ssl.SSLContext | None,
        connections: Connections,
    ) -> None:
        assert runner.server is not None
        self._runner = runner
        self._server = runner.server
        self._socket = listening
        self._ssl_context = ssl_context
        self._connections = connections
        self._handshakes: set[asyncio.Task[None]] = set()
        self._tasks = [asyncio.create_task(self._accept()), asyncio.create_task(connections.watch())]

    @classmethod
    async def open(
        cls,
        app: web.Application,
        host: str,
        port: int,
        ssl_context: ssl.SSLContext | None = None,
        connections: Connections | None = None,
    ) -> "Listener":
        """Serve ``app``; port 0 takes a free one. A handler is cancelled when its client hangs up.

        The application proves to ``connections`` whose they are. Without, any request does, for its address.
        """
        if connections is None:
            connections = Connections(SystemClock(), per_sender=PER_ADDRESS)
            app.middlewares.append(_any_request_proves(connections))
        app.middlewares.insert(0, _limit_next_head)
        runner = web.AppRunner(
            app,
            max_headers=MAX_HEADERS,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            keepalive_timeout=75.0,
            lingering_time=2.0,
            shutdown_timeout=1.0,
        )
        await runner.setup()
        try:
            listening = await _listening_at(host, port)
        except BaseException:
            await runner.cleanup()
            raise
        return cls(runner, listening, ssl_context, connections)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Stop listening and cut off what is still open."""
        ends = [*self._tasks, *self._handshakes]
        for task in ends:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        self._socket.close()
        await self._runner.cleanup()

    async def _accept(self) -> None:
        # By hand, where asyncio's own server would give every connection its TLS state before it can be counted.
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._socket)
            except ConnectionError:
                continue  # gone before it was accepted
            except OSError:
                log.exception("no connection can be accepted")
                await asyncio.sleep(EXHAUSTED_SECONDS)
                continue
            handler = self._server()
            limited = HeadLimit(handler, address[0], self._connections)
            task = asyncio.create_task(self._shake_hands(connection, limited))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)
            self._connections.open(address[0], handler, task)

    async def _shake_hands(self, connection: socket.socket, handler: asyncio.Protocol) -> None:
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError, TimeoutError):  # whoever it is has hung up or speaks no TLS
                await loop.connect_accepted_socket(
                    lambda: handler,
                    connection,
                    ssl=self._ssl_context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS if self._ssl_context else None,
                )
        except BaseException:
            connection.close()
            raise


async def _listening_at(host: str, port: int) -> socket.socket:
    if host == EVERYWHERE and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == EVERYWHERE:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


@web.middleware
async def _limit_next_head(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Where the body has not come to its end with the answer, nobody could tell where the next head begins."""
    answer: web.StreamResponse | None = None
    try:
        answer = await handler(request)
        return answer
    except web.HTTPException as refusal:
        answer = refusal
        raise
    finally:
        limited = request.transport.get_protocol() if request.transport is not None else None
        if request.content.is_eof() and isinstance(limited, HeadLimit):
            limited.begin_head()
        elif answer is not None:
            answer.force_close()


def _any_request_proves(connections: Connections) -> Middleware:
    @web.middleware
    async def proves(request: web.Request, handler: Handler) -> web.StreamResponse:
        if connections.prove(request.remote or "", request.protocol, request.remote or ""):
            return await handler(request)
        refusal = web.Response(status=429, text="too many connections from one address\n")
        refusal.force_close()
        return refusal

    return proves
