"""A listening socket with an aiohttp application behind it."""

import asyncio
import ssl

from aiohttp import web

HANDSHAKE_SECONDS = 10.0
BACKLOG = 2048
"""A whole gang connects within a second of its START."""


class Listener:
    """An application being served. Open with ``Listener.open``, close with ``close``."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server) -> None:
        self._runner = runner
        self._server = server

    @classmethod
    async def open(
        cls, app: web.Application, host: str, port: int, ssl_context: ssl.SSLContext | None = None
    ) -> "Listener":
        """Serve ``app``; port 0 takes a free one. A handler is cancelled when its client hangs up."""
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
        assert runner.server is not None
        try:
            server = await asyncio.get_running_loop().create_server(
                runner.server,
                host,
                port,
                ssl=ssl_context,
                backlog=BACKLOG,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if ssl_context else None,
            )
        except BaseException:
            await runner.cleanup()
            raise
        return cls(runner, server)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and cut off what is still open."""
        self._server.close()
        await self._runner.cleanup()
