"""Lists of our own kinds, taken in whatever else goes on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from lockstep.controller.clock import ManualClock
from lockstep.controller.handlers import OwnKinds
from lockstep.controller.kube import KubeClient
from lockstep.controller.resources import RUNS
from lockstep.controller.store import Store
from lockstep.controller.workqueue import WorkQueue


def listed(name: str, version: int) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"nodes": 1, "image": "trainer", "command": ["train"]}
    return {"metadata": metadata | {"resourceVersion": str(version)}, "spec": spec}


class Server:
    """Its first answer about runs is long on its way."""

    def __init__(self) -> None:
        self.asked = 0
        self.arrives = asyncio.Event()

    async def list_all(self, resource: Any) -> tuple[list[dict[str, Any]], str]:
        if resource != RUNS:
            return [], "1"
        self.asked += 1
        if self.asked == 1:
            await self.arrives.wait()
            return [listed("one", 5)], "10"
        return [listed("one", 5), listed("two", 15)], "20"


async def test_a_list_that_was_long_on_its_way_is_no_restored_backup() -> None:
    """A new leader lists while the regular comparison may do so, too."""
    clock, server = ManualClock(), Server()
    store = Store(WorkQueue(clock), clock)
    own_kinds = OwnKinds(store, cast(KubeClient, server), clock)
    slow = asyncio.create_task(own_kinds.list_now())
    await asyncio.sleep(0)
    quick = asyncio.create_task(own_kinds.list_now())
    for _ in range(20):
        await asyncio.sleep(0)
    server.arrives.set()
    await asyncio.wait_for(asyncio.gather(slow, quick), 20)
    assert store.run("team", "two") is not None
