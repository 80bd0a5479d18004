"""Carrying out plans when the API server says something else than expected."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from lockstep.controller.clock import ManualClock
from lockstep.controller.events import EventRecorder
from lockstep.controller.execute import Executor, StaleError
from lockstep.controller.kube import ApiError, KubeClient
from lockstep.controller.orders import Orders
from lockstep.controller.reconcile import Reconciler
from lockstep.controller.reports import ReportBook
from lockstep.controller.store import Store
from lockstep.controller.tallies import Tallies
from lockstep.controller.workqueue import WorkQueue, run_key
from lockstep.core.plan import DesiredPhase, Directive, Plan
from lockstep.core.tunables import Tunables

GONE = ApiError(404, "NotFound", 'trainingruns.lockstep.dev "llama" not found')
NO_KIND = ApiError(404, "NotFound", "the server could not find the requested resource")


def run(version: int, **changes: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "team",
            "name": "llama",
            "uid": "u1",
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodes": 2, "image": "i", "command": ["train"]},
        **changes,
    }


class Kube:
    """Answers writes and reads of the one run as told."""

    def __init__(self) -> None:
        self.write: ApiError | None = None
        self.read: ApiError | Mapping[str, Any] = run(11)
        self.writes = 0

    async def patch_status(self, *_: Any, **__: Any) -> bytes:
        self.writes += 1
        if self.write is not None:
            raise self.write
        return orjson.dumps(run(12))

    async def get(self, *_: Any) -> bytes:
        if isinstance(self.read, ApiError):
            raise self.read
        return orjson.dumps(self.read)

    async def create(self, *_: Any, **__: Any) -> bytes:
        return b"{}"


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = WorkQueue(self.clock)
        self.store = Store(self.queue, self.clock)
        self.book = ReportBook(self.clock, lambda uid: None)
        self.kube = Kube()
        kube = cast(KubeClient, self.kube)
        events = cast(EventRecorder, SimpleNamespace(run_event=lambda *_: None, warn=lambda *_: None))
        self.executor = Executor(kube, self.store, self.book, events, Tallies(), self.clock)
        self.reconciler = Reconciler(
            kube=kube,
            store=self.store,
            book=self.book,
            queue=self.queue,
            executor=self.executor,
            clock=self.clock,
            tunables=Tunables,
        )
        self.store.apply_run(run(10))

    async def write(self) -> None:
        view = self.store.run("team", "llama")
        assert view is not None
        await self.executor.run_plan(view, Plan(status=view.status.model_copy(update={"state": "Pending"})))


@pytest.fixture
def world() -> World:
    return World()


async def test_a_run_that_was_changed_by_others_is_decided_again_on_what_is_there(world: World) -> None:
    world.kube.write = ApiError(409, "Conflict", "the object has been modified")
    with pytest.raises(StaleError):
        await world.write()
    view = world.store.run("team", "llama")
    assert view is not None
    assert view.resource_version == "11"


async def test_a_run_that_turns_out_to_be_gone_is_not_written_over_and_over(world: World) -> None:
    world.kube.write = world.kube.read = GONE
    await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.store.run("team", "llama") is None
    await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.kube.writes == 1


async def test_a_kind_that_is_not_served_for_a_moment_proves_nothing_of_its_objects(world: World) -> None:
    world.kube.write = world.kube.read = NO_KIND
    with pytest.raises(ApiError):
        await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.store.run("team", "llama") is not None


async def test_a_run_without_pods_that_holds_nothing_keeps_no_words_of_workers(world: World) -> None:
    directive = Directive(1, DesiredPhase.COMPLETE, (1,), (0,))
    world.book.set_directive("u1", directive)
    assert isinstance(world.book.orders("u1"), Orders)
    await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.book.orders("u1") is None
