"""Makes the API server, which listens on this machine's loopback, reachable for pods."""

import asyncio
import contextlib
import socket
from urllib.parse import urlsplit

API_HOST = "kubernetes.default.svc"  # in every node's hosts file, and in the API server's certificate


async def relay(server: str, address: str | socket.socket) -> asyncio.Server:
    """Pass TCP connections to a free port of ``address``, or to a socket that listens, on to the server at a URL."""
    target = urlsplit(server)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(target.hostname, target.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, back), _pump(there, writer))

    if isinstance(address, socket.socket):
        return await asyncio.start_server(connected, sock=address)
    return await asyncio.start_server(connected, address, 0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
