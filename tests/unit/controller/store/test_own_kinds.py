"""Lists of our own kinds, taken in whatever else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import orjson
import pytest

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError
from lockstep.controller.kube.pages import Page
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue
from lockstep.controller.runtime.resources import RUN_SETS, RUNS
from lockstep.controller.store.own_kinds import OwnKinds
from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import parse_unread
from support.manual_clock import ManualClock
from support.own_events import hear, no_credentials


def listed(name: str, version: int) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"nodes": 1, "image": "trainer", "command": ["train"]}
    return {"metadata": metadata | {"resourceVersion": str(version)}, "spec": spec}


def page(version: int, *items: dict[str, Any]) -> Page:
    body = {"metadata": {"resourceVersion": str(version)}, "items": items}
    return msgspec.json.decode(orjson.dumps(body), type=Page)


class Server:
    """Its first answer about runs is long on its way."""

    def __init__(self) -> None:
        self.asked = 0
        self.arrives = asyncio.Event()

    async def list_all(self, resource: Any) -> tuple[list[dict[str, Any]], str]:
        return [], "1"

    async def list_pages(self, resource: Any, **_: str) -> AsyncGenerator[Page, None]:
        if resource is not RUNS:
            yield page(1)
            return
        self.asked += 1
        if self.asked == 1:
            await self.arrives.wait()
            yield page(10, listed("one", 5))
        else:
            yield page(20, listed("one", 5), listed("two", 15))


async def test_a_list_that_was_long_on_its_way_is_no_restored_backup() -> None:
    """A new leader lists while the regular comparison may do so, too."""
    clock, server = ManualClock(), Server()
    store = Store(WorkQueue(clock), clock)
    own_kinds = OwnKinds(store, cast(KubeClient, server), clock, no_credentials)
    slow = asyncio.create_task(own_kinds.list_now())
    await asyncio.sleep(0)
    quick = asyncio.create_task(own_kinds.list_now())
    for _ in range(20):
        await asyncio.sleep(0)
    server.arrives.set()
    await asyncio.wait_for(asyncio.gather(slow, quick), 20)
    assert store.runs.named("team", "two") is not None


async def test_a_run_whose_deletion_is_seen_is_gone_and_its_key_is_looked_at() -> None:
    clock = ManualClock()
    queue = WorkQueue(clock)
    store = Store(queue, clock)
    one, two = listed("one", 5), listed("two", 5)
    store.runs.compare([parse_unread(msgspec.Raw(orjson.dumps(one)))], 10, begun_at=0.0)
    hear(store, two)
    assert {run.name for run in store.runs.cache} == {"one", "two"}
    queue.clear()
    hear(store, listed("one", 11), "DELETED")
    hear(store, listed("never-known", 12), "DELETED")
    hear(store, one)  # late news revives nobody
    assert [run.name for run in store.runs.cache] == ["two"]
    assert {await queue.get() for _ in range(2)} == {CLUSTER_KEY, "run/team/one"}
    assert len(queue) == 0


async def test_a_run_that_a_list_has_and_nobody_can_read_stays_as_it_was_known() -> None:
    clock = ManualClock()
    store = Store(WorkQueue(clock), clock)
    hear(store, listed("one", 5))

    class Unreadable(Server):
        async def list_pages(self, resource: Any, **_: str) -> AsyncGenerator[Page, None]:
            found = page(20)
            found.unread = ["uid-one"] if resource is RUNS else []
            yield found

    await OwnKinds(store, cast(KubeClient, Unreadable()), clock, no_credentials).list_now()
    assert [run.name for run in store.runs.cache] == ["one"]


async def test_arrays_that_cannot_be_listed_keep_no_run_that_is_gone() -> None:
    clock = ManualClock()
    store = Store(WorkQueue(clock), clock)
    hear(store, listed("one", 5))

    class NoRightToArrays(Server):
        async def list_pages(self, resource: Any, **_: str) -> AsyncGenerator[Page, None]:
            if resource is RUN_SETS:
                raise ApiError(403, "Forbidden", "may not list")
            yield page(20)

    with pytest.raises(ApiError, match="may not list"):
        await OwnKinds(store, cast(KubeClient, NoRightToArrays()), clock, no_credentials).list_now()
    assert [*store.runs.cache] == []
    assert store.queues.cache.synced
