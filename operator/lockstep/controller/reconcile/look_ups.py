"""Whether the objects that runs name are there: one read of metadata each, remembered for some seconds.

Of a ConfigMap that is to have an entry, the names of its entries are read as well; Secrets are not read. It answers
always, and holds nothing against a run that it could not see: where a right is lacking, or the API server does not
answer soon, what is asked for is unknown.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.kube.pages import read_as
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import (
    CLAIMS,
    CONFIG_MAPS,
    SECRETS,
    STORAGE_CLASSES,
    Resource,
)
from lockstep.core.model.named_objects import LookedUp, MissingObject, NamedObject, ObjectKind
from lockstep.core.model.near_names import MOST_COMPARED, nearest
from lockstep.core.model.snapshot import RunView
from lockstep.core.pods.named_objects import named_objects

T = TypeVar("T")
Place = tuple[ObjectKind, str, str]  # and the namespace, and the name

THERE_SECONDS = 10.0
"""For so long one that was there is taken to be there: many runs name the same."""
MISSING_SECONDS = 2.0
"""And one that was not, to be missing: less than until the first of those who wait for it asks again."""
NAMES_SECONDS = 30.0
"""For so long the names of a namespace stand that may have been meant."""
FORBIDDEN_SECONDS = 300.0
"""Until a kind is asked for again that we may not read in a namespace."""
_WITHIN = 5.0
_AGAIN_WITHIN = 2.0
"""Nodes wait no longer to hear whether what their run names is there still."""
_AT_ONCE = 16
_MOST_WITH_KEYS, _LONGEST_KEYS = 500, 20_000
"""ConfigMaps whose entries are remembered, and of how many characters together at most."""
_MOST_REMEMBERED = 20_000
_RESOURCES: Mapping[ObjectKind, Resource] = {
    ObjectKind.CLAIM: CLAIMS,
    ObjectKind.CONFIG_MAP: CONFIG_MAPS,
    ObjectKind.SECRET: SECRETS,
    ObjectKind.STORAGE_CLASS: STORAGE_CLASSES,
}
_LISTED = (ObjectKind.CLAIM, ObjectKind.STORAGE_CLASS)
"""Whose names say nothing but that they are there. Of the others we have no right to a list, and need none."""
log = logging.getLogger("lockstep.look_ups")


class _ConfigMap(msgspec.Struct, rename="camel"):
    data: dict[str, msgspec.Raw] | None = None
    binary_data: dict[str, msgspec.Raw] | None = None


_config_map = msgspec.json.Decoder(_ConfigMap)


class LookUps:
    """Asks for what runs name. ``secrets``: whether those may be asked for."""

    def __init__(self, kube: KubeClient, clock: Clock, *, secrets: bool) -> None:
        self._kube = kube
        self._clock = clock
        self._secrets = secrets
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._known: dict[Place, tuple[bool, float]] = {}  # and until when that stands
        self._names: dict[tuple[ObjectKind, str], tuple[list[str], float]] = {}
        self._forbidden: dict[tuple[str, ObjectKind, str], float] = {}  # by verb, and until when
        self._asked: dict[Place, asyncio.Task[bool | None]] = {}
        self._keys: dict[Place, tuple[frozenset[str], float]] = {}
        self._read: dict[Place, asyncio.Task[frozenset[str] | None]] = {}

    async def look_up(self, namespace: str, wanted: Iterable[NamedObject]) -> LookedUp:
        """What of it is missing, and what cannot be seen. Raises nothing."""
        named = tuple(wanted)
        found = await asyncio.gather(*(self._is_there(namespace, each) for each in named))
        missing = [each for each, there in zip(named, found, strict=True) if there is False]
        near = await asyncio.gather(*(self._near(namespace, each) for each in missing))
        return LookedUp(
            tuple(map(MissingObject, missing, near)),
            tuple(each for each, there in zip(named, found, strict=True) if there is None),
        )

    async def gone(self, run: RunView) -> LookedUp:
        """What is missing by now of what an accepted run names. What is not known soon holds up nobody."""
        named = named_objects(run.spec) if run.spec is not None else ()
        if not any(each.kind in _RESOURCES for each in named):
            return LookedUp()
        try:
            async with asyncio.timeout(_AGAIN_WITHIN):
                return await self.look_up(run.namespace, named)
        except TimeoutError:
            return LookedUp()

    async def _is_there(self, namespace: str, named: NamedObject) -> bool | None:
        if named.kind not in _RESOURCES:
            return True  # the dry run tells
        if named.key:
            return await self._has_entry(namespace, named)
        place = named.kind, namespace if named.kind.is_namespaced else "", named.name
        there, until = self._known.get(place, (False, 0.0))
        if self._clock.monotonic() < until:
            return there
        if named.kind is ObjectKind.SECRET and not self._secrets:
            return None
        task = self._asked.get(place)
        if task is None:
            task = self._asked[place] = asyncio.create_task(self._ask(place))
            task.add_done_callback(lambda _: self._asked.pop(place, None))
        return await asyncio.shield(task)  # others wait for it as well

    async def _has_entry(self, namespace: str, named: NamedObject) -> bool | None:
        """Whether it is there is told of the object itself."""
        if (
            named.kind is not ObjectKind.CONFIG_MAP
            or await self._is_there(namespace, replace(named, key="")) is not True
        ):
            return True
        keys = await self._keys_of((named.kind, namespace, named.name))
        return None if keys is None else named.key in keys

    async def _keys_of(self, place: Place) -> frozenset[str] | None:
        keys, until = self._keys.get(place, (frozenset[str](), 0.0))
        if self._clock.monotonic() < until:
            return keys
        task = self._read.get(place)
        if task is None:
            task = self._read[place] = asyncio.create_task(self._read_keys(place))
            task.add_done_callback(lambda _: self._read.pop(place, None))
        return await asyncio.shield(task)

    async def _read_keys(self, place: Place) -> frozenset[str] | None:
        kind, namespace, name = place

        async def read() -> frozenset[str]:
            text = await self._kube.get(_RESOURCES[kind], name, namespace, within=_WITHIN)
            found = read_as(_config_map, text, f"get {kind} {name}")
            return frozenset((*(found.data or ()), *(found.binary_data or ())))

        keys, now = await self._allowed("get", kind, namespace, read), self._clock.monotonic()
        if keys is not None and sum(map(len, keys)) <= _LONGEST_KEYS:
            if len(self._keys) >= _MOST_WITH_KEYS:
                self._keys = {each: told for each, told in self._keys.items() if now < told[1]}
            if len(self._keys) < _MOST_WITH_KEYS:
                self._keys[place] = keys, now + MISSING_SECONDS
        return keys

    async def _ask(self, place: Place) -> bool | None:
        kind, namespace, name = place
        ask = lambda: self._kube.exists(_RESOURCES[kind], name, namespace, within=_WITHIN)  # noqa: E731
        there = await self._allowed("get", kind, namespace, ask)
        if there is not None:
            self._remember(place, there)
        return there

    def _remember(self, place: Place, there: bool) -> None:
        now = self._clock.monotonic()
        if len(self._known) >= _MOST_REMEMBERED:
            self._known = {each: told for each, told in self._known.items() if now < told[1]}
        if len(self._known) < _MOST_REMEMBERED:
            self._known[place] = there, now + (THERE_SECONDS if there else MISSING_SECONDS)

    async def _near(self, namespace: str, named: NamedObject) -> tuple[str, ...]:
        """Names of the same namespace, of which its own run may hear, and of entries that it may mount."""
        if named.key:
            return nearest(named.key, sorted(await self._keys_of((named.kind, namespace, named.name)) or ()))
        if named.kind not in _LISTED:
            return ()
        where, now = namespace if named.kind.is_namespaced else "", self._clock.monotonic()
        names, until = self._names.get((named.kind, where), ([], 0.0))
        if now >= until:
            ask = lambda: self._kube.names_of(_RESOURCES[named.kind], where, MOST_COMPARED, within=_WITHIN)  # noqa: E731
            names = await self._allowed("list", named.kind, where, ask) or []
            self._names = {each: told for each, told in self._names.items() if now < told[1]}
            self._names[named.kind, where] = names, now + NAMES_SECONDS
        return nearest(named.name, names)

    async def _allowed(self, verb: str, kind: ObjectKind, namespace: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """None: it is not known, and where we may not ask, not asked for again for a while."""
        barred = verb, kind, namespace
        if self._clock.monotonic() < self._forbidden.get(barred, 0.0):
            return None
        try:
            async with self._gate:
                return await ask()
        except ApiError as error:
            if error.lacks_right:
                self._forbidden[barred] = self._clock.monotonic() + FORBIDDEN_SECONDS
                log.warning("what runs name cannot be looked up: %s", error.words, extra={"namespace": namespace})
            return None
        except KubeError:
            return None
