"""A Secret that is not there, and handshakes that are."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

from lockstep.controller.workers.tls import SecretStore


class FakeSecret:
    """One Secret with the API server's rules for create and replace."""

    def __init__(self) -> None:
        self.object: dict[str, Any] | None = None
        self.version = 0
        self.writes = 0

    async def read(self) -> Mapping[str, Any] | None:
        return self.object

    async def create(self, body: Mapping[str, Any]) -> bool:
        if self.object is not None:
            return False
        self._store(body)
        return True

    async def replace(self, body: Mapping[str, Any]) -> bool:
        assert self.object is not None
        if body["metadata"]["resourceVersion"] != self.object["metadata"]["resourceVersion"]:
            return False
        self._store(body)
        return True

    def _store(self, body: Mapping[str, Any]) -> None:
        self.version += 1
        self.writes += 1
        self.object = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}

    @property
    def store(self) -> SecretStore:
        return SecretStore(self.read, self.create, self.replace)


async def handshake(server: ssl.SSLContext, client: ssl.SSLContext, hostname: str) -> str | None:
    """The version of TLS that they agree on. Raises SSLCertVerificationError unless the client trusts the server."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=server)
    port = listener.sockets[0].getsockname()[1]
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=hostname)
        version: str | None = writer.get_extra_info("ssl_object").version()
        writer.close()
        return version
    finally:
        listener.close()
        await listener.wait_closed()


def client_of(bundle: str) -> ssl.SSLContext:
    """A worker that trusts the bundle. As strict as Python has become: it runs on whatever the user's image brings."""
    context = ssl.create_default_context(cadata=bundle)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
