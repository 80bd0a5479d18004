"""Keeps one cache equal to one kind of object in the cluster: list, then watch, for ever."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterable
from contextlib import aclosing
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec

from lockstep.api.base import nesting
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, ErrorStatus, KubeError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.left_out import CUT, LeftOut, name_in, uid_in
from lockstep.controller.runtime.resources import Resource
from lockstep.core.model import wire
from lockstep.core.model.cluster_objects import Versioned

T = TypeVar("T")
C = TypeVar("C", contravariant=True)
IDLE_TIMEOUT = 70.0  # the server sends a bookmark about once a minute: longer silence is a dead stream
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BACKOFF_MAX = 10.0

_log = logging.getLogger(__name__)


class Sink(Protocol[C]):
    """What an informer feeds."""

    def upsert(self, item: Versioned[C]) -> None:
        """An object appeared or changed."""

    def remove(self, uid: str, version: int) -> None:
        """An object went, at ``version``."""

    def replace(
        self, items: Iterable[Versioned[C]], version: int, *, reset: bool = False, unread: Collection[str] = ()
    ) -> None:
        """These are all there are; with ``reset`` even where older versions say otherwise. ``unread``: UIDs of others
        that are there and cannot be read."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_events = msgspec.json.Decoder(_Event)
_marks = msgspec.json.Decoder(wire.AnyObject)
_identities = msgspec.json.Decoder(wire.Identified)
_errors = msgspec.json.Decoder(ErrorStatus)


class Informer(Generic[T]):
    """One list and watch over all namespaces, narrowed by selectors that the server applies.

    Survives whatever the API server does: every failure ends in a reconnect from where the stream
    broke, or in a new list whose difference to what was known is applied, deletions included.
    """

    def __init__(
        self,
        name: str,
        kube: KubeClient,
        clock: Clock,
        resource: Resource,
        parse: Callable[[msgspec.Raw], Versioned[T]],
        sink: Sink[T],
        *,
        labels: str = "",
        fields: str = "",
        left_out: LeftOut | None = None,
    ) -> None:
        self.name = name
        self._left_out = left_out or LeftOut()
        self._unread: set[str] = set()  # UIDs that a list has, of objects that cannot be read
        self._kube = kube
        self._clock = clock
        self._resource = resource
        self._parse = parse
        self._sink = sink
        self._labels = labels
        self._fields = fields
        self._selectors = {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}
        self._version = 0  # up to which everything was seen
        self._must_list = True
        self._streams_lists = True  # until the server says it cannot
        self._failures = 0
        self.synced = asyncio.Event()
        self.last_heard = clock.monotonic()
        """When the last event, bookmark or list came in, or a watch was granted (monotonic seconds): a load balancer
        may end quiet connections before their first bookmark."""

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        while True:
            begun = self._clock.monotonic()
            try:
                await self._follow()
                delay = random.uniform(0, 0.5)
            except KubeError as error:
                if self._clock.monotonic() - begun > _BACKOFF_MAX:
                    self._failures = 0  # it lasted longer than any wait, and is no reason for a longer one
                delay = self._after(error)
            except Exception as error:  # whatever it is, all others are followed on, and this kind is listed anew
                _log.exception("%s: cannot be followed, and is listed anew", self.name)
                self._must_list = True
                delay = self._after(KubeError(str(error)))
            await self._clock.sleep(delay)

    async def _follow(self) -> None:
        if self._must_list and not self._streams_lists:
            self._take_list(*await self._read_list())
        if not self._must_list:
            await self._watch({"resourceVersion": str(self._version)}, initial=None)
            return
        self._unread = set()
        # Without a resourceVersion the server answers from a state at least as new as this request.
        streamed = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        await self._watch(streamed, initial={})

    async def refresh(self) -> None:
        """Take in a list read from a quorum now, beside the watch: its versions settle what is newer.

        A new leader does this before its first decision. Raises KubeError.
        """
        items, version = await self._read_list()
        self._sink.replace(items, version, unread=self._unread)

    async def read_list(self) -> tuple[list[Versioned[T]], int]:
        """What a quorum says there is, and as of which version; nobody is fed with it. Raises KubeError."""
        return await self._read_list()

    async def _read_list(self) -> tuple[list[Versioned[T]], int]:
        items: list[Versioned[T]] = []
        version = 0
        self._unread = set()
        async for page in self._kube.list_pages(self._resource, labels=self._labels, fields=self._fields):
            items += [item for raw in page.items if (item := self._parsed(raw)) is not None]
            self._unread.update(page.unread)
            version = int(page.resource_version)
            self._heard()
        return items, version

    async def _watch(self, params: dict[str, str], initial: dict[str, Versioned[T]] | None) -> None:
        """Apply events until the stream ends. ``initial`` collects a list that comes as events first."""
        query = {**self._selectors, **params, "timeoutSeconds": str(random.randint(300, 600))}
        batches = self._kube.watch(self._resource, query, idle_timeout=IDLE_TIMEOUT)
        async with aclosing(batches):
            async for lines in batches:
                self.last_heard = self._clock.monotonic()
                if lines:
                    self._failures = 0
                for line in filter(None, lines):
                    initial = self._hear(line, initial)
                await asyncio.sleep(0)  # a flood of events must not starve the rest of the process

    def _hear(self, line: bytes, initial: dict[str, Versioned[T]] | None) -> dict[str, Versioned[T]] | None:
        """One line, by itself: what goes wrong with one object costs that object alone. Raises ApiError."""
        kind = self._resource.plural
        try:
            cut: list[bool] = []
            event = nesting.decode(_events, line, partial(cut.append, True))
            if cut:
                self._left_out.note(kind, name_in(event.object), hash(line), CUT)
            return self._apply(event, initial)
        except ApiError:
            raise
        except Exception as error:
            self._left_out.note(kind, "an event", hash(line), error)
            return initial

    def _apply(self, event: _Event, initial: dict[str, Versioned[T]] | None) -> dict[str, Versioned[T]] | None:
        if event.type == "ERROR":
            error = nesting.decode(_errors, event.object)
            raise ApiError(error.code, error.reason, error.message)
        if event.type == "BOOKMARK":
            meta = nesting.decode(_marks, event.object).metadata
            if initial is not None and meta.annotations.get(_INITIAL_EVENTS_END) == "true":
                self._take_list(initial.values(), int(meta.resource_version))
                return None
            self._version = int(meta.resource_version)
            return initial
        if event.type == "DELETED":  # whatever it had come to be
            gone = nesting.decode(_identities, event.object).metadata
            if initial is not None:  # events pass while the end of the list has not come
                initial.pop(gone.uid, None)
                self._unread.discard(gone.uid)
                return initial
            self._version = int(gone.resource_version)
            self._sink.remove(gone.uid, self._version)
            return None
        item = self._parsed(event.object)
        if item is None:
            return initial
        if initial is not None:
            initial[item.uid] = item
            return initial
        self._version = item.version
        self._sink.upsert(item)
        return None

    def _take_list(self, items: Iterable[Versioned[T]], version: int) -> None:
        # A consistent list older than what was already seen: the cluster was restored from a backup.
        reset = version < self._version
        if reset:
            _log.warning("%s: versions went back from %d to %d", self.name, self._version, version)
        self._sink.replace(items, version, reset=reset, unread=self._unread)
        self._version = version
        self._must_list = False
        self.synced.set()
        self._heard()

    def _after(self, error: KubeError) -> float:
        """Note what failed; return the seconds to wait before the next try."""
        if isinstance(error, ApiError):
            if self._must_list and self._streams_lists and error.status in (400, 403, 422):
                self._streams_lists = False
                return 0.0
            if error.status == 410 and not self._must_list:
                _log.info("%s: the watch fell too far behind and is listed anew", self.name)
                self._must_list = True
                return 0.0
            if "too large resource version" in error.message.lower():
                self._must_list = True  # restored from a backup: the server has not come as far as we have
        self._failures += 1
        # The first few losses are everyday: connections end when an API server restarts.
        _log.log(logging.WARNING if self._failures > 3 else logging.INFO, "%s: %s", self.name, error)
        ceiling: float = min(_BACKOFF_MAX, 0.25 * 2.0 ** min(self._failures, 10))
        return random.uniform(ceiling / 2, ceiling)

    def _parsed(self, text: msgspec.Raw) -> Versioned[T] | None:
        try:
            return self._parse(text)
        except Exception as error:  # of one object, which stays as it was known, if it was
            self._left_out.note(self._resource.plural, name_in(text), hash(bytes(text)), error)
            self._unread.add(uid_in(text))
            return None

    def _heard(self) -> None:
        self._failures = 0
        self.last_heard = self._clock.monotonic()
