"""The informer against a fake client whose streams are written out in each test."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import orjson
import pytest

from lockstep.controller.kube.cache import ObjectCache
from lockstep.controller.kube.errors import ApiError, KubeError, UnreachableError
from lockstep.controller.kube.informer import Informer
from lockstep.controller.kube.pages import Page
from lockstep.controller.runtime.resources import NAMESPACES, Resource
from lockstep.core.model.cluster_objects import Unread, Versioned, parse_namespace, parse_unread
from support.manual_clock import ManualClock

Named = tuple[str, dict[str, str]]


def event(kind: str, name: str, version: int) -> bytes:
    return orjson.dumps({"type": kind, "object": thing(name, version)})


def thing(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version), "labels": {"v": str(version)}}}


def bookmark(version: int, *, end: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if end else {}
    meta = {"resourceVersion": str(version), "annotations": annotations}
    return orjson.dumps({"type": "BOOKMARK", "object": {"metadata": meta}})


def error(code: int, message: str = "too old") -> bytes:
    return orjson.dumps({"type": "ERROR", "object": {"code": code, "reason": "Expired", "message": message}})


class FakeKube:
    """Plays one script per watch; a watch without a script hangs."""

    def __init__(self) -> None:
        self.watches: list[list[bytes] | KubeError] = []
        self.lists: list[tuple[int, list[dict[str, Any]]]] = []
        self.asked: list[Mapping[str, str]] = []

    async def watch(
        self, resource: Resource, params: Mapping[str, str], *, idle_timeout: float
    ) -> AsyncGenerator[list[bytes], None]:
        self.asked.append(params)
        if not self.watches:
            await asyncio.Event().wait()
        script = self.watches.pop(0)
        if isinstance(script, KubeError):
            raise script
        for line in script:
            yield [line, b""]

    async def list_pages(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Page, None]:
        version, items = self.lists.pop(0)
        for item in items:
            page = {"metadata": {"resourceVersion": str(version)}, "items": [item]}
            yield msgspec.json.decode(orjson.dumps(page), type=Page)


class World:
    """An informer between a fake client and a real cache."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.kube = FakeKube()
        self.cache: ObjectCache[Named] = ObjectCache(lambda old, new: None)
        self.informer: Informer[Named] = Informer(
            "namespaces",
            self.kube,  # type: ignore[arg-type]
            self.clock,
            NAMESPACES,
            parse_namespace,
            self.cache,
            labels="a=b",
        )

    @property
    def lists_asked_for(self) -> int:
        return sum("sendInitialEvents" in asked for asked in self.kube.asked)

    async def play(self, *watches: list[bytes] | KubeError) -> dict[str, str]:
        """Run until the scripts are used up; return what the cache then holds: name -> version."""
        self.kube.watches += watches
        running = asyncio.ensure_future(self.informer.run())
        for _ in range(60):
            await self.clock.advance(1)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert not self.kube.watches
        return {name: labels["v"] for name, labels in self.cache}


@pytest.fixture
def world() -> World:
    return World()


async def test_a_list_that_comes_as_events_is_complete_at_its_bookmark(world: World) -> None:
    held = await world.play(
        [
            event("ADDED", "a", 3),
            event("ADDED", "b", 4),
            bookmark(10, end=True),
            event("MODIFIED", "a", 11),
            event("DELETED", "b", 12),
            event("ADDED", "c", 13),
        ]
    )
    assert held == {"a": "11", "c": "13"}
    assert world.informer.synced.is_set()
    assert world.cache.synced
    assert world.kube.asked[0]["sendInitialEvents"] == "true"
    assert world.kube.asked[0]["labelSelector"] == "a=b"
    assert "resourceVersion" not in world.kube.asked[0]
    assert world.kube.asked[1]["resourceVersion"] == "13"


@pytest.mark.parametrize("labels", [{"v": "10"}, 7])
async def test_what_is_deleted_while_a_list_comes_as_events_is_not_of_the_list(world: World, labels: object) -> None:
    listed = {"metadata": thing("x", 10)["metadata"] | {"labels": labels}}
    held = await world.play(
        [event("ADDED", "x", 3), event("ADDED", "y", 4), bookmark(5, end=True)],
        [error(410)],
        [
            event("ADDED", "y", 4),
            orjson.dumps({"type": "ADDED", "object": listed}),
            event("DELETED", "x", 12),
            bookmark(13, end=True),
        ],
    )
    assert held == {"y": "4"}


async def test_half_a_list_is_no_list(world: World) -> None:
    await world.play([event("ADDED", "a", 3), bookmark(5)])
    assert not world.informer.synced.is_set()
    assert len(world.cache) == 0


async def test_a_server_that_does_not_stream_lists_is_asked_for_pages(world: World) -> None:
    world.kube.lists = [(10, [thing("a", 3), thing("b", 4)])]
    held = await world.play(ApiError(422, "Invalid", "sendInitialEvents is forbidden"), [event("ADDED", "c", 11)])
    assert held == {"a": "3", "b": "4", "c": "11"}
    assert world.kube.asked[1]["resourceVersion"] == "10"


async def test_a_broken_stream_goes_on_where_it_broke(world: World) -> None:
    held = await world.play(
        [event("ADDED", "a", 3), bookmark(10, end=True), event("MODIFIED", "a", 12), bookmark(20)],
        UnreachableError("reset"),
        [event("MODIFIED", "a", 21)],
    )
    assert held == {"a": "21"}
    assert [asked.get("resourceVersion") for asked in world.kube.asked[1:3]] == ["20", "20"]
    assert world.lists_asked_for == 1


@pytest.mark.parametrize("gone", [ApiError(410, "Gone", "too old"), [error(410)]])
async def test_a_watch_that_fell_behind_is_listed_anew_and_deletions_are_found(
    world: World, gone: list[bytes] | KubeError
) -> None:
    held = await world.play(
        [event("ADDED", "a", 3), event("ADDED", "ghost", 4), bookmark(10, end=True)],
        gone,
        [event("ADDED", "a", 30), bookmark(40, end=True)],
    )
    assert held == {"a": "30"}
    assert world.lists_asked_for == 2


@pytest.mark.parametrize(
    "refusal", [ApiError(504, "Timeout", "Too large resource version: 1000, current: 60"), [error(410)]]
)
async def test_a_cluster_restored_from_a_backup_is_believed(world: World, refusal: list[bytes] | KubeError) -> None:
    held = await world.play(
        [event("ADDED", "a", 3), bookmark(10, end=True), event("MODIFIED", "a", 900), event("ADDED", "b", 1000)],
        refusal,
        [event("ADDED", "a", 50), bookmark(60, end=True)],
    )
    assert held == {"a": "50"}


async def test_an_object_that_does_not_parse_stops_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    broken = orjson.dumps({"type": "ADDED", "object": {"metadata": {"name": 7}}})
    held = await world.play([bookmark(10, end=True), broken, event("ADDED", "a", 12)])
    assert held == {"a": "12"}
    assert "cannot be read and is left out" in caplog.text


async def test_one_that_can_no_longer_be_read_stays_as_it_was_and_all_others_are_followed(world: World) -> None:
    broken = {"metadata": {"uid": "a", "name": "a", "labels": 7, "resourceVersion": "20"}}
    world.kube.lists = [(20, [broken, thing("b", 19)])]
    held = await world.play(
        [event("ADDED", "a", 3), event("ADDED", "b", 4), event("ADDED", "c", 5), bookmark(10, end=True)],
        [error(410)],
        ApiError(400, "BadRequest", "no streamed lists"),
    )
    assert held == {"a": "3", "b": "19"}
    assert world.informer._left_out.counts["namespaces"] == 1


async def test_one_that_can_no_longer_be_read_is_gone_when_it_is_deleted(world: World) -> None:
    broken = {"metadata": {"uid": "a", "name": "a", "labels": 7, "resourceVersion": "20"}}
    deleted = orjson.dumps({"type": "DELETED", "object": broken})
    assert await world.play([event("ADDED", "a", 3), bookmark(10, end=True), deleted]) == {}


async def test_a_line_that_is_nothing_and_a_look_that_raises_end_nothing(world: World) -> None:
    held = await world.play(
        [b"<html>", bookmark(10, end=True), b'{"type":1}', b'{"type":"BOOKMARK","object":{}}', event("ADDED", "a", 12)]
    )
    assert held == {"a": "12"}


async def test_an_object_is_told_once_for_each_of_its_versions(world: World, caplog: pytest.LogCaptureFixture) -> None:
    deep = event("ADDED", "a", 11).replace(b'"labels"', b'"x":' + b"[" * 1_500 + b"]" * 1_500 + b',"labels"')
    held = await world.play([bookmark(10, end=True), deep, deep, event("ADDED", "b", 12)])
    assert held == {"a": "11", "b": "12"}
    assert caplog.text.count("deeper than 200 levels") == 1
    assert world.informer._left_out.counts == {"namespaces": 2}


async def test_an_object_nested_deeper_than_python_counts_stops_nothing() -> None:
    """The API server takes 10,000 levels, and a pod template is anybody's to write."""
    seen: list[str] = []

    class Sink(ObjectCache[Unread]):
        def upsert(self, item: Versioned[Unread]) -> None:
            seen.append(item.uid)

    deep = event("ADDED", "deep", 11).replace(
        b'"labels"', b'"x":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_000 + b',"labels"'
    )
    kube, clock = FakeKube(), ManualClock()
    kube.watches = [[bookmark(10, end=True), deep, event("ADDED", "plain", 12)]]
    sink = Sink(lambda old, new: None)
    informer: Informer[Unread] = Informer("runs", kube, clock, NAMESPACES, parse_unread, sink)  # type: ignore[arg-type]
    running = asyncio.ensure_future(informer.run())
    await clock.advance(1)
    running.cancel()
    assert seen == ["deep", "plain"]


async def test_a_refresh_finds_what_the_watch_has_not_told_yet(world: World) -> None:
    await world.play(
        [event("ADDED", "a", 3), event("ADDED", "ghost", 4), bookmark(10, end=True), event("ADDED", "n", 40)]
    )
    world.kube.lists = [(30, [thing("a", 3), thing("b", 25)])]
    await world.informer.refresh()
    assert {name: labels["v"] for name, labels in world.cache} == {"a": "3", "b": "25", "n": "40"}


async def test_bookmarks_count_as_having_heard(world: World) -> None:
    await world.play([bookmark(10, end=True)])
    begun = world.clock.monotonic()
    world.kube.watches = [[bookmark(11)]]
    await world.play()
    assert world.informer.last_heard >= begun


class EndsQuietConnections(FakeKube):
    """A load balancer that ends a connection on which nothing came for so many seconds; the kind is quiet."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds = clock, seconds
        self.begun: list[float] = []

    async def watch(
        self, resource: Resource, params: Mapping[str, str], *, idle_timeout: float
    ) -> AsyncGenerator[list[bytes], None]:
        self.begun.append(self.clock.monotonic())
        yield []
        if "sendInitialEvents" in params:
            yield [bookmark(10, end=True)]
        await self.clock.sleep(self.seconds)
        raise UnreachableError("closed")


async def test_a_load_balancer_that_ends_quiet_watches_makes_nobody_unheard_of_and_nobody_slow(world: World) -> None:
    world.informer._kube = kube = EndsQuietConnections(world.clock, 30)  # type: ignore[assignment]
    running = asyncio.ensure_future(world.informer.run())
    await world.clock.advance(600)
    running.cancel()
    assert world.clock.monotonic() - world.informer.last_heard <= 31
    assert all(later - earlier <= 31 for earlier, later in itertools.pairwise(kube.begun))


async def test_a_server_that_grants_every_watch_and_ends_it_at_once_is_left_its_peace(world: World) -> None:
    world.informer._kube = kube = EndsQuietConnections(world.clock, 0.1)  # type: ignore[assignment]
    running = asyncio.ensure_future(world.informer.run())
    await world.clock.advance(120)
    running.cancel()
    assert all(later - earlier >= 5 for earlier, later in itertools.pairwise(kube.begun[8:]))


async def test_failures_back_off_up_to_ten_seconds(world: World) -> None:
    tries: list[float] = []

    class Failing(FakeKube):
        async def watch(
            self, resource: Resource, params: Mapping[str, str], *, idle_timeout: float
        ) -> AsyncGenerator[list[bytes], None]:
            tries.append(world.clock.monotonic())
            raise UnreachableError("down")
            yield []

    world.informer._kube = Failing()  # type: ignore[assignment]
    running = asyncio.ensure_future(world.informer.run())
    await world.clock.advance(120)
    running.cancel()
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert gaps[0] <= 0.5
    assert all(gap <= 10 for gap in gaps)
    assert all(gap >= 5 for gap in gaps[8:])
    assert not world.informer.synced.is_set()


async def test_an_informer_feeds_any_sink() -> None:
    """The protocol is small: what a sink must do is take in, drop and replace."""

    class Sink:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def upsert(self, item: Versioned[Named]) -> None:
            self.calls.append(f"upsert {item.uid}")

        def remove(self, uid: str, version: int) -> None:
            self.calls.append(f"remove {uid}")

        def replace(self, items: Iterable[Versioned[Named]], version: int, **_: Any) -> None:
            self.calls.append(f"replace {len(list(items))}")

    kube, clock, sink = FakeKube(), ManualClock(), Sink()
    kube.watches = [[event("ADDED", "a", 1), bookmark(2, end=True), event("DELETED", "a", 3), event("ADDED", "b", 4)]]
    informer: Informer[Named] = Informer("x", kube, clock, NAMESPACES, parse_namespace, sink)  # type: ignore[arg-type]
    running = asyncio.ensure_future(informer.run())
    await clock.advance(1)
    running.cancel()
    assert sink.calls == ["replace 1", "remove a", "upsert b"]


async def test_an_object_that_is_too_large_for_a_list_stays_as_it_was_known(world: World) -> None:
    await world.play([event("ADDED", "a", 3), event("ADDED", "b", 4), bookmark(10, end=True)])

    async def pages(*_: object, **__: object) -> AsyncGenerator[Page, None]:
        found = msgspec.json.decode(b'{"metadata":{"resourceVersion":"20"}}', type=Page)
        found.unread = ["a"]
        yield found

    world.kube.list_pages = pages  # type: ignore[assignment,method-assign]
    await world.informer.refresh()
    assert {name for name, _ in world.cache} == {"a"}
