"""Requests to the API server in the name of whoever asks us for them: with their token, and nothing of our own.

No rights are lent: no token, client certificate or cookie of the operator goes with such a request, and nobody is
impersonated. What the caller may not do, the API server refuses them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from lockstep.api.base import nesting
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.errors import UnknownOutcome, UnreachableError, refusal_of
from lockstep.controller.kube.pages import METADATA, body_of
from lockstep.controller.runtime.clock import Clock

Json = dict[str, Any]
JSON = "application/json"
FIELD_MANAGER = "lockstep-web"
ANSWER_SECONDS = 15.0
CONNECT_SECONDS = 10.0
READ_ANEW_SECONDS = 300.0
"""After which it is looked again where the API server is, and whom it is to be trusted by."""
MOST_BODY = 1 << 20
CONNECTIONS = 256


class CallerApi:
    """The API server for others. ``load`` tells where it is; of what else that tells nothing is used."""

    def __init__(self, load: Callable[[], Awaitable[Credentials]], clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._where: tuple[float, Credentials] | None = None
        self._loading = asyncio.Lock()

    async def close(self) -> None:
        """Ends what is open."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def read(self, path: str, token: str, *, most: int = MOST_BODY, accept: str = JSON) -> Json:
        """An object, of ``most`` bytes. Raises ApiError, and UnreachableError without an answer that can be read."""
        try:
            said = await self._said("GET", path, {}, token, {"Accept": accept}, most=most)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"no answer of the API server: {error}") from error
        try:
            found = nesting.read_object(said)
            if "metadata" not in found:
                raise ValueError("it is no object")
            return found
        except ValueError as error:
            raise UnreachableError(f"the answer of the API server cannot be read: {error}") from error

    async def create(self, path: str, body: Mapping[str, Any], token: str) -> Json:
        """A new object, as it is then; empty: it was made, and nothing can be read of it. Raises as ``patch`` does."""
        said = await self._written("POST", path, token, body, {"Content-Type": JSON, "Accept": METADATA})
        try:
            return nesting.read_object(said)
        except ValueError:
            return {}

    async def patch(self, path: str, body: Mapping[str, Any], token: str) -> None:
        """Merge ``body`` into an object. Raises any KubeError; nothing is tried twice."""
        headers = {"Content-Type": "application/merge-patch+json", "Accept": METADATA}
        await self._written("PATCH", path, token, body, headers)

    async def _written(
        self, method: str, path: str, token: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> bytes:
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        try:
            return await self._said(method, path, query, token, headers, orjson.dumps(body))
        except aiohttp.ClientConnectorError as error:
            raise UnreachableError(f"the API server cannot be reached: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnknownOutcome(f"no answer of the API server: {error}", self._clock.now()) from error

    async def _said(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        token: str,
        headers: Mapping[str, str],
        content: bytes | None = None,
        most: int = MOST_BODY,
    ) -> bytes:
        limits = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._sent(method, path, query, token, limits, headers, content) as response:
            said = await body_of(response, most)
            if response.status >= 300:
                raise refusal_of(response, said)
            return said

    @asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], token: str) -> AsyncIterator[aiohttp.StreamReader]:
        """What comes of a GET, as it comes. Raises ApiError when it is refused, UnreachableError without an answer."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        try:
            async with self._sent("GET", path, query, token, limits) as response:
                if response.status != 200:
                    raise refusal_of(response, await body_of(response, MOST_BODY))
                yield response.content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"no answer of the API server: {error}") from error

    @asynccontextmanager
    async def _sent(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        token: str,
        limits: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if not token:
            raise ValueError("without a token it would be nobody's request")
        where = await self._credentials()
        if self._session is None:
            # Apart from ours: a connection that our certificate opened is ours, whatever token comes on it.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity", "User-Agent": FIELD_MANAGER},
            )
        async with self._session.request(
            method,
            where.server + path,
            params=query,
            data=content,
            headers={**(headers or {}), "Authorization": f"Bearer {token}"},
            timeout=limits,
            ssl=where.trust,
            server_hostname=where.server_hostname,
            allow_redirects=False,
        ) as response:
            yield response

    async def _credentials(self) -> Credentials:
        async with self._loading:
            now = self._clock.monotonic()
            if self._where is None or now - self._where[0] > READ_ANEW_SECONDS:
                try:
                    self._where = now, await self._load()
                except Exception as error:  # files and parsers: whatever it is, nothing was sent
                    raise UnreachableError(f"the operator cannot read where the API server is: {error}") from error
            return self._where[1]
