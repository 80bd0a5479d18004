"""A listening socket with an aiohttp application behind it."""

import asyncio
import contextlib
import logging
import socket
import ssl

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

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
        runner = web.AppRunner(
            app,
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
            task = asyncio.create_task(self._shake_hands(connection, handler))
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
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _any_request_proves(connections: Connections) -> Middleware:
    @web.middleware
    async def proves(request: web.Request, handler: Handler) -> web.StreamResponse:
        if connections.prove(request.remote or "", request.protocol, request.remote or ""):
            return await handler(request)
        refusal = web.Response(status=429, text="too many connections from one address\n")
        refusal.force_close()
        return refusal

    return proves
