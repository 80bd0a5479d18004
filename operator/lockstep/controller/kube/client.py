"""The few verbs of the Kubernetes API that the controller needs.

Objects come back as the JSON text the server sent; ``parse`` makes views of it. No call retries what
may have been carried out, so that whoever calls decides with the facts at hand.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp
import msgspec
import orjson

from lockstep.api.base import names, nesting
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.errors import ApiError, UnknownOutcome, UnreachableError, refusal_of, says_absent
from lockstep.controller.kube.pages import (
    LONGEST_BODY,
    METADATA,
    METADATA_LIST,
    LongBodyError,
    Page,
    TooLongError,
    body_of,
    pages_of,
    read_as,
)
from lockstep.controller.kube.transport import JSON, Request, Transport, words_of
from lockstep.controller.kube.watch_lines import TOO_LONG, WatchLines
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.in_flight_limit import AdaptiveWindow, NoPlaceError
from lockstep.controller.runtime.left_out import LeftOut, name_in
from lockstep.controller.runtime.resources import LEASES, PODS, Resource

_READ_TIMEOUT = 60.0
_WRITE_TIMEOUT = 15.0
_SERVER_TIMEOUT = 10  # the server gives up on a write after this many seconds, before we do
_SETTLE_MARGIN = 5.0
_TRY = "try"
"""The verb of a dry run, as it is counted."""
_TOO_MANY_REQUESTS_TRIES = 4
_MERGE_PATCH = "application/merge-patch+json"


class _Served(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: list[_Served] = []


class _NamedItem(msgspec.Struct):
    metadata: _Served


class _NamedItems(msgspec.Struct):
    items: list[_NamedItem] = []


_resources = msgspec.json.Decoder(_ResourceList)
_names = msgspec.json.Decoder(_NamedItems)


class KubeClient:
    """What is asked of the API server, for how long, how often, and whether it may be.

    ``write_guard`` is called before a guarded write, again once its connection is there, and raises to forbid it:
    that is how a leader that may have lost its lease stops writing. ``write_seconds`` is for how long a guarded write
    may still take effect: the server is told to give it up after that. Writes of pods share one adaptive window, and
    are not sent (UnreachableError) where those before them in their namespace end without an answer. A server that
    asks for patience is asked again, unless the caller has less of it than it wants (``within``).
    """

    def __init__(
        self, load: Callable[[], Awaitable[Credentials]], clock: Clock, left_out: LeftOut | None = None
    ) -> None:
        self._left_out = left_out or LeftOut()
        self._clock = clock
        self._transport = Transport(load)
        self.window = AdaptiveWindow(clock)
        self.write_guard: Callable[[], None] = lambda: None
        self.write_seconds: Callable[[], float] = lambda: inf
        self.wrote: Callable[[str, float], None] = lambda namespace, seconds: None
        """Told how long each write took, but for those of leases."""
        self.requests = self._transport.requests
        """Those sent, by verb, resource and status code (0: no answer)."""

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def get(self, resource: Resource, name: str, namespace: str = "", *, within: float = _READ_TIMEOUT) -> bytes:
        """Read one object from a quorum. Raises ApiError (404 when there is none) or UnreachableError."""
        return await self._read("get", resource, resource.path(namespace, name), within=within)

    async def exists(self, resource: Resource, name: str, namespace: str = "", *, within: float) -> bool:
        """Whether there is such an object, of which only the metadata is read. Raises ApiError or UnreachableError."""
        try:
            await self._read("get", resource, resource.path(namespace, name), within=within, accept=METADATA)
        except ApiError as error:
            if says_absent(error, name):
                return False
            raise
        return True

    async def names_of(self, resource: Resource, namespace: str, most: int, *, within: float) -> list[str]:
        """Names of the first ``most`` objects that are not Lockstep's own. Raises ApiError or UnreachableError."""
        query = {"limit": str(most), "labelSelector": f"{names.MANAGED_BY_LABEL}!={names.MANAGED_BY}"}
        path = resource.path(namespace)
        reply = await self._read("list", resource, path, query, within=within, accept=METADATA_LIST)
        return [item.metadata.name for item in read_as(_names, reply, f"list of {resource.plural}").items]

    async def served(self, group_version: str) -> frozenset[str]:
        """Plurals of what the server serves in ``group/version``; empty where it does not know that.

        Raises ApiError or UnreachableError.
        """
        group, _, version = group_version.partition("/")
        try:
            reply = await self._read("discover", Resource(group, version, "*"), f"/apis/{group_version}")
        except ApiError as error:
            if error.status == 404:
                return frozenset()
            raise
        return frozenset(resource.name for resource in read_as(_resources, reply, "discover").resources)

    def list_pages(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Page, None]:
        """Read a whole collection, consistently, in pages.

        Raises ApiError, with status 410 when the list grew too old between two pages.
        """
        read = partial(self._read, "list", resource, resource.path(namespace))
        return pages_of(read, resource.plural, _selectors(labels, fields), self._left_out)

    async def list_all(
        self, resource: Resource, namespace: str = "", *, labels: str = ""
    ) -> tuple[list[dict[str, Any]], str]:
        """Read a whole collection as dicts, and its resourceVersion. Raises any KubeError."""
        items: list[dict[str, Any]] = []
        version = ""
        async for page in self.list_pages(resource, namespace, labels=labels):
            if page.unread:
                raise TooLongError(f"list of {resource.plural}: an object of it is too large to be read")
            for item in page.items:
                with self._left_out.if_it_fails(resource.plural, name_in(item), hash(bytes(item))):
                    items.append(nesting.read_object(item))
            version = page.resource_version
        return items, version

    async def create(
        self,
        resource: Resource,
        body: Mapping[str, Any] | bytes,
        namespace: str = "",
        *,
        dry_run: bool = False,
        guarded: bool = True,
        within: float = _WRITE_TIMEOUT,
    ) -> bytes:
        """Create an object, or with ``dry_run`` have the server judge it strictly. Raises any KubeError."""
        path = resource.path(namespace)
        if not dry_run:
            return await self._write("create", "POST", resource, path, body, guarded=guarded, within=within)
        params = {"dryRun": "All", "fieldValidation": "Strict"}
        try:
            return await self._write(_TRY, "POST", resource, path, body, params=params, guarded=False, within=within)
        except ApiError as error:
            if error.lacks_right:  # which is not about this object
                self.requests["create", resource.plural, error.status] += 1
            raise

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str = "",
        *,
        guarded: bool = True,
        within: float = _WRITE_TIMEOUT,
    ) -> bytes:
        """Put an object in place of the version that ``body`` names. Raises any KubeError."""
        path = resource.path(namespace, name)
        return await self._write("update", "PUT", resource, path, body, guarded=guarded, within=within)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str = "",
        subresource: str = "",
    ) -> bytes:
        """Merge ``body`` into an object. Raises any KubeError."""
        path = resource.path(namespace, name, subresource)
        # The warnings of unknown fields, which the server would look for, nobody reads.
        params = {"fieldValidation": "Ignore"}
        return await self._write("patch", "PATCH", resource, path, body, params=params, content_type=_MERGE_PATCH)

    async def patch_status(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        *,
        resource_version: str,
        patch: Mapping[str, Any],
    ) -> bytes:
        """Merge ``patch`` into ``status`` of exactly this version of the object.

        No two objects ever have the same version, so this can't hit a namesake either. Raises ApiError
        with status 409 when the object has changed or is another one, and any other KubeError.
        """
        body = {"metadata": {"resourceVersion": resource_version}, "status": patch}
        return await self.patch(resource, name, body, namespace, "status")

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        grace: int | None = None,
        resource_version: str | None = None,
        propagation: Literal["Background", "Foreground"] = "Background",
        guarded: bool = True,
        within: float = _WRITE_TIMEOUT,
    ) -> bytes | None:
        """Delete the object with this UID; ``grace`` in seconds, None for the object's own. With a
        ``resource_version`` only as it was then. ``propagation``: what it owns goes after it, or before.

        Returns the server's last word on it, or None when it was gone already. Raises any KubeError.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        options: dict[str, Any] = {"preconditions": preconditions, "propagationPolicy": propagation}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            path = resource.path(namespace, name)
            return await self._write("delete", "DELETE", resource, path, options, guarded=guarded, within=within)
        except ApiError as error:
            # A conflict here can only be the precondition: another object has the name now, or this one changed.
            if error.status in (404, 409):
                return None
            raise

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask a question by POST (TokenReview and the like): nothing is stored, so nothing is guarded."""
        group, _, plural = path.strip("/").rpartition("/")
        resource = Resource(group, "", plural)
        reply = await self._write("create", "POST", resource, path, body, guarded=False)
        return dict(nesting.loads(reply))

    async def watch(
        self, resource: Resource, params: Mapping[str, str], *, idle_timeout: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a watch as they come, in batches, until the server ends it; an empty batch says that it
        has begun.

        Raises ApiError when it is refused, UnreachableError when it breaks or is silent for ``idle_timeout``.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", **params}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle_timeout)
        request = Request("watch", "GET", resource, resource.path(), query, limits)
        try:
            async with self._transport.send(request) as response:
                if response.status != 200:
                    raise refusal_of(response, await body_of(response))
                yield []
                lines = WatchLines(partial(self._left_out.note, resource.plural, "an event", "", TOO_LONG))
                async for chunk in response.content.iter_any():
                    if found := list(lines.feed(chunk)):
                        yield found
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"watch of {resource.plural}: {words_of(error)}") from error

    async def _read(
        self,
        verb: str,
        resource: Resource,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        within: float = _READ_TIMEOUT,
        most: int = LONGEST_BODY,
        accept: str = "",
    ) -> bytes:
        limits = aiohttp.ClientTimeout(total=within, sock_connect=min(10.0, within))
        request = Request(verb, "GET", resource, path, params or {}, limits, accept=accept)
        for tries_left in reversed(range(_TOO_MANY_REQUESTS_TRIES)):
            try:
                async with self._transport.send(request) as response:
                    body = await body_of(response, most)
            except LongBodyError as error:
                raise TooLongError(f"{verb} {path}: {error}") from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise UnreachableError(f"{verb} {path}: {words_of(error)}") from error
            if response.status < 300:
                return body
            failure = refusal_of(response, body)
            if response.status != 429 or not tries_left or failure.retry_after >= within:
                raise failure
            await self._clock.sleep(failure.retry_after)
        raise AssertionError("the last try returns or raises")

    async def _write(
        self,
        verb: str,
        method: str,
        resource: Resource,
        path: str,
        body: Mapping[str, Any] | bytes,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        guarded: bool = True,
        within: float = _WRITE_TIMEOUT,
    ) -> bytes:
        try:
            content = body if isinstance(body, bytes) else orjson.dumps(body)
        except TypeError as error:  # the server would judge it the same, each time
            raise ApiError(422, "Invalid", f"cannot be written as JSON: {error}") from error
        limits = aiohttp.ClientTimeout(total=within, sock_connect=min(5.0, within))
        words = f"{verb} {path}"
        lane, since = pods_lane(_namespace_in(path), deletes=verb == "delete"), self._clock.monotonic()
        for tries_left in reversed(range(_TOO_MANY_REQUESTS_TRIES)):
            async with self._place(words, lane, since) if resource is PODS else nullcontext():
                allowed = min(within, self.write_seconds()) if guarded else within
                server_timeout = int(max(1, min(_SERVER_TIMEOUT, allowed)))
                query = {"timeout": f"{server_timeout}s", "fieldManager": names.FIELD_MANAGER, **(params or {})}
                may_go = partial(self._forbid_what_may_outlive_the_lease, words, server_timeout) if guarded else None
                request = Request(verb, method, resource, path, query, limits, content, content_type, may_go)
                settles_at = self._clock.now() + server_timeout + _SETTLE_MARGIN
                begun = self._clock.monotonic()
                if guarded:
                    self.write_guard()
                try:
                    async with self._transport.send(request) as response:
                        reply = await body_of(response)
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                    raise UnreachableError(f"{words}: {words_of(error)}") from error
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    self._took(request, self._clock.monotonic() - begun)
                    if resource is PODS:
                        self.window.pushed_back(lane)
                    raise UnknownOutcome(f"{words}: {words_of(error)}", settles_at) from error
                failure = None if response.status < 300 else refusal_of(response, reply)
                took = self._clock.monotonic() - begun
                self._took(request, took)
                if resource is PODS:
                    self._adapt_window(lane, failure, took)
            if failure is None:
                return reply
            if failure.status >= 500:
                # The request may have reached the store before whoever answered lost sight of it.
                raise UnknownOutcome(f"{words}: {failure}", settles_at)
            if failure.status != 429 or not tries_left or failure.retry_after >= within:
                raise failure
            if resource is not PODS:  # for pods the window itself holds everybody back
                await self._clock.sleep(failure.retry_after)
        raise AssertionError("the last try returns or raises")

    def _took(self, request: Request, seconds: float) -> None:
        if request.resource is not LEASES:
            self.wrote(_namespace_in(request.path), seconds)

    @asynccontextmanager
    async def _place(self, words: str, lane: str, since: float) -> AsyncIterator[None]:
        try:
            async with self.window.slot(lane, since):
                yield
        except NoPlaceError:
            raise UnreachableError(f"{words}: not sent, as other writes of the namespace take too long") from None

    def _adapt_window(self, lane: str, failure: ApiError | None, latency: float) -> None:
        if failure is not None and (failure.status == 429 or failure.status >= 500):
            self.window.pushed_back(lane, failure.retry_after)
        else:
            self.window.answered(lane, latency)

    def _forbid_what_may_outlive_the_lease(self, words: str, server_timeout: int) -> None:
        self.write_guard()
        if self.write_seconds() < server_timeout - 1:  # its connection took that long
            raise UnreachableError(f"{words}: not sent, as little of the lease is left")


def pods_lane(namespace: str, *, deletes: bool = False) -> str:
    """Behind whom a write of pods waits: whoever is to leave their nodes does so also where none can be made."""
    return f"{namespace}/delete" if deletes else namespace


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {key: text for key, text in (("labelSelector", labels), ("fieldSelector", fields)) if text}


def _namespace_in(path: str) -> str:
    return path.partition("/namespaces/")[2].partition("/")[0]
