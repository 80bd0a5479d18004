"""Requests on their way to the API server: connections to it, and the credentials that it asks for."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

from lockstep.api.base import names
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.errors import UnreachableError
from lockstep.controller.runtime.guarded_body import GuardedBody
from lockstep.controller.runtime.resources import LEASES, Resource

JSON = "application/json"
_CONNECTIONS = 256
_LEASE_CONNECTIONS = 2  # one that hangs does not hold up the next try


@dataclass(frozen=True, slots=True)
class Request:
    verb: str
    """Of Kubernetes, as it is counted."""
    method: str
    resource: Resource
    path: str
    params: Mapping[str, str]
    limits: aiohttp.ClientTimeout
    content: bytes | None = None
    content_type: str = JSON
    may_go: Callable[[], None] | None = None
    """Asked once there is a connection, and raises to forbid it."""
    accept: str = ""


class Transport:
    """Keep-alive sessions to the API server, with credentials that renew themselves.

    Leases have a session to themselves: while everything else waits for answers, and for a place in the other one, a
    renewal finds a connection that is free.
    """

    def __init__(self, load: Callable[[], Awaitable[Credentials]]) -> None:
        self._load = load
        self._credentials: Credentials | None = None
        self._loading = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._lease_session: aiohttp.ClientSession | None = None
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """Requests sent, by verb, resource and status code (0: no answer)."""

    async def __aenter__(self) -> Self:
        self._session, self._lease_session = _session(_CONNECTIONS), _session(_LEASE_CONNECTIONS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in (self._session, self._lease_session):
            if session is not None:
                await session.close()

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send once, or twice when the first answer is 401 and the credentials can be read anew."""
        session = self._lease_session if request.resource is LEASES else self._session
        if session is None:
            raise RuntimeError("use the client as an async context manager")
        credentials, authorization = await self._credentials_now(stale=None)
        for renewed in (False, True):
            headers = {"Content-Type": request.content_type} if request.content is not None else {}
            if request.accept:
                headers["Accept"] = request.accept
            if authorization:
                headers["Authorization"] = authorization
            content: bytes | GuardedBody | None = request.content
            if request.may_go is not None:
                content = GuardedBody(request.content or b"", request.content_type, request.may_go)
            counted = request.verb, request.resource.plural
            try:
                response = await session.request(
                    request.method,
                    credentials.server + request.path,
                    params=request.params,
                    data=content,
                    headers=headers,
                    timeout=request.limits,
                    ssl=credentials.ssl,
                    server_hostname=credentials.server_hostname,
                    allow_redirects=False,
                )
            except (aiohttp.ClientError, TimeoutError, OSError):
                if isinstance(content, GuardedBody) and content.forbidden is not None:
                    raise content.forbidden from None
                self.requests[*counted, 0] += 1
                raise
            self.requests[*counted, response.status] += 1
            async with response:
                if response.status != 401 or renewed:
                    yield response
                    return
            credentials, authorization = await self._credentials_now(stale=credentials)

    async def _credentials_now(self, stale: Credentials | None) -> tuple[Credentials, str | None]:
        """The credentials and their header, read anew when there are none or they are still ``stale``."""
        try:
            async with self._loading:
                if self._credentials is None or self._credentials is stale:
                    self._credentials = await self._load()
                credentials = self._credentials
            return credentials, await credentials.authorization()
        except Exception as error:  # files, exec plugins and parsers: whatever it is, nothing was sent
            raise UnreachableError(f"cannot read the credentials: {words_of(error)}") from error


def words_of(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _session(connections: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=60),
        # Watches of busy clusters: with the default 64 KiB the server cuts slow readers off.
        read_bufsize=2**20,
        headers={"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": names.CONTROLLER},
    )
