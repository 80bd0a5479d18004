"""What kopf watches our own kinds by: each line of a watch is read here before kopf decodes it.

kopf takes a millisecond of CPU for an event, ends on what Python's own JSON cannot decode, and on most errors of an
API server. So of what is known already, most of it echoes of our own writes, only the version goes on; what nobody can
decode goes on as what can be said of it (``nesting.plain_json``); and a request that failed is asked again from here.
A list that kopf asks for is compared with the store, deletions included: nothing of it is left to tell kopf then.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec

from lockstep.api.base import nesting
from lockstep.controller.kube.errors import ApiError, ErrorStatus, KubeError, refusal_of
from lockstep.controller.kube.watch_lines import TOO_LONG, WatchLines
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.left_out import CUT, LeftOut, name_in
from lockstep.controller.runtime.resources import Resource
from lockstep.core.model.cluster_objects import Unread, Versioned, parse_unread

_BACKOFF_MAX = 10.0
_EXPIRED = 410

_log = logging.getLogger("lockstep.own_kinds")


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str


class _Mark(msgspec.Struct):
    metadata: _Meta


_events = msgspec.json.Decoder(_Event)
_marks = msgspec.json.Decoder(_Mark)
_errors = msgspec.json.Decoder(ErrorStatus)


@dataclass
class WatchedKind:
    """One of our own kinds. ``is_news`` tells events from echoes; ``list`` makes the store equal to a quorum list."""

    name: str
    resource: Resource
    is_news: Callable[[Versioned[Unread]], bool]
    list: Callable[[], Awaitable[None]]
    last_heard: float
    """When the last event, bookmark or list came in (monotonic seconds)."""
    version: int = 0
    """Up to which everything was seen."""
    failures: int = 0
    """Of requests for its watch, in a row."""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """It was listed for a watch to go on from there."""


class WatchFilter:
    """The lines of one watch: in as the API server sends them, in whatever pieces; out as kopf is to have them."""

    def __init__(self, kind: WatchedKind, left_out: LeftOut | None = None) -> None:
        self._kind = kind
        self._left_out = left_out or LeftOut()
        self._lines = WatchLines(partial(self._left_out.note, kind.resource.plural, "an event", "", TOO_LONG))
        self._version = 0  # of the last event
        self.failure: ApiError | None = None
        """What ended the watch, unless it has merely expired."""

    def feed(self, chunk: bytes) -> bytes:
        """What of ``chunk``, and of what came before it, is to go on. A line that has not ended yet is kept."""
        passed: list[bytes] = []
        dropped = False
        for line in self._lines.feed(chunk):
            found = self._read(line)
            dropped = not found
            if found:
                passed.append(found)
        if dropped and self._version:
            passed.append(_bookmark(self._version))
        return b"".join(line + b"\n" for line in passed)

    def _read(self, line: bytes) -> bytes:
        """The line as it may go on; nothing where it says nothing new."""
        kind = self._kind.resource.plural
        try:
            cut: list[bool] = []
            event = nesting.decode(_events, line, partial(cut.append, True))
            if event.type == "ERROR":
                return self._failed(line, event.object)
            if event.type == "BOOKMARK":
                self._kind.version = int(nesting.decode(_marks, event.object).metadata.resource_version)
                return line
            if cut:
                self._left_out.note(kind, name_in(event.object), hash(line), CUT)
            item = parse_unread(event.object)
            self._version = self._kind.version = item.version
            if event.type != "DELETED" and not self._kind.is_news(item):
                return b""
            return b'{"type":"%b","object":%b}' % (event.type.encode(), nesting.plain_json(item.view.text))
        except Exception as error:  # whatever it is, it is one object's, of which the next list has the last word
            self._left_out.note(kind, "an event", hash(line), error)
            return b""

    def _failed(self, line: bytes, status: msgspec.Raw) -> bytes:
        """kopf lists anew where a watch has expired, and ends of any other error."""
        error = nesting.decode(_errors, status)
        if error.code == _EXPIRED:
            _log.info("%s: the watch fell too far behind and is listed anew", self._kind.name)
            return line
        self.failure = ApiError(error.code, error.reason, error.message)
        return _expired(error.message)


def _bookmark(version: int) -> bytes:
    """Where a watch is to go on that breaks now."""
    return b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}' % version


def _expired(message: str) -> bytes:
    """The line that has kopf list a kind anew."""
    status = {"kind": "Status", "code": _EXPIRED, "reason": "Expired", "message": message}
    return msgspec.json.encode({"type": "ERROR", "object": status})


class Answer:
    """As much of a response of aiohttp as kopf looks at: JSON, or the lines of a watch."""

    status = 200

    def __init__(
        self, body: object = None, lines: AsyncIterator[bytes] | None = None, close: Callable[[], None] = lambda: None
    ) -> None:
        self._body = body
        self._lines = lines
        self.close = close
        self.content = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def json(self) -> object:
        """Of a list."""
        return self._body

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Of a watch, as it comes."""
        if self._lines is not None:
            async for lines in self._lines:
                yield lines


class KopfSession:
    """In the place of the ``aiohttp.ClientSession`` that it sends by, as far as kopf knows.

    ``kinds`` are by path; requests for anything else pass as they are. ``list_of`` has a kind listed and the store
    made equal to that, and returns the version of the list.

    To kopf a watch that cannot be had is one that broke: such are the only failures that it never gives up on.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        kinds: Mapping[str, WatchedKind],
        list_of: Callable[[WatchedKind], Awaitable[int]],
        clock: Clock,
        requests: Counter[tuple[str, str, int]],
        server_hostname: str | None = None,
        left_out: LeftOut | None = None,
    ) -> None:
        self._session = session
        self._kinds = kinds
        self._list_of = list_of
        self._clock = clock
        self._requests = requests
        self._server_hostname = server_hostname
        self._left_out = left_out
        self._streams: set[aiohttp.ClientResponse] = set()

    @property
    def headers(self) -> Any:
        """Sent with every request."""
        return self._session.headers

    @property
    def closed(self) -> bool:
        """Nothing can be sent any more."""
        return self._session.closed

    async def close(self) -> None:
        """Break what is under way, which would wait for ever else, and send nothing any more."""
        for response in self._streams:
            response.close()
        await self._session.close()

    async def request(self, method: str, url: str, **options: Any) -> aiohttp.ClientResponse | Answer:
        """As of aiohttp. Raises aiohttp.ClientError, and RuntimeError once it is closed."""
        asked = urlsplit(url)
        kind = next((kind for path, kind in self._kinds.items() if asked.path.endswith(path)), None)
        if kind is None or method.lower() != "get":
            return await self._session.request(method, url, server_hostname=self._server_hostname, **options)
        if "watch=" in asked.query:
            return await self._watch(kind, url, options)
        try:
            version = await self._list_of(kind)
        except Exception as error:  # kopf would end on anything else, and the process with it
            if not isinstance(error, KubeError):
                _log.exception("%s cannot be listed", kind.name)
            await self._wait(kind, error)
            raise aiohttp.ClientPayloadError(str(error)) from error
        return Answer({"metadata": {"resourceVersion": str(version)}, "items": []})

    async def _watch(self, kind: WatchedKind, url: str, options: Mapping[str, Any]) -> aiohttp.ClientResponse | Answer:
        counted = "watch", kind.resource.plural
        await self._clock.sleep(random.uniform(0, 0.5))  # a server that ends every watch at once is left its peace
        try:
            response = await self._session.request("get", url, server_hostname=self._server_hostname, **options)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._requests[*counted, 0] += 1
            await self._wait(kind, error)
            raise aiohttp.ClientPayloadError(str(error)) from error
        self._requests[*counted, response.status] += 1
        if response.status == 200:
            return Answer(lines=self._lines(kind, response), close=response.close)
        if response.status == 401:
            return response  # kopf logs in anew
        async with response:
            refusal = refusal_of(response, await response.read())
        if refusal.status == _EXPIRED or "too large resource version" in refusal.message.lower():
            return Answer(lines=_one(_expired(refusal.message)))  # it is too old, or of before a backup was restored
        await self._wait(kind, refusal)
        raise aiohttp.ClientPayloadError(str(refusal))

    async def _lines(self, kind: WatchedKind, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        lines = WatchFilter(kind, self._left_out)
        self._streams.add(response)
        try:
            async for chunk in response.content.iter_any():
                kind.last_heard = self._clock.monotonic()
                # A flood of events must not starve the rest of the process, and of answers to our own writes that came
                # in the same moment the watch has but the echo.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                passed = lines.feed(chunk)
                if lines.failure is None:
                    kind.failures = 0
                else:
                    await self._wait(kind, lines.failure)
                if passed:
                    yield passed
        finally:
            self._streams.discard(response)

    async def _wait(self, kind: WatchedKind, error: Exception) -> None:
        """Before the next try."""
        kind.failures += 1
        # The first few losses are everyday: connections end when an API server restarts.
        level = logging.WARNING if kind.failures > 3 else logging.INFO
        _log.log(level, "%s: %s", kind.name, str(error) or type(error).__name__)
        ceiling = min(_BACKOFF_MAX, 0.25 * 2.0 ** min(kind.failures, 10))
        patience = error.retry_after if isinstance(error, ApiError) else 0.0
        await self._clock.sleep(max(patience, random.uniform(ceiling / 2, ceiling)))


async def _one(line: bytes) -> AsyncIterator[bytes]:
    yield line + b"\n"
