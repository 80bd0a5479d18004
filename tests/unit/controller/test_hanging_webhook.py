"""A webhook of one namespace that never answers holds up its own pods, and nobody else's."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.workqueue import CLUSTER_KEY, run_key, split_run_key
from lockstep.controller.metrics.health import OVERDUE_SECONDS
from lockstep.controller.reconcile.pod_turns import MOST_OF_A_SLOW_ONE
from lockstep.controller.runtime.in_flight_limit import IN_VAIN
from lockstep.controller.runtime.resources import PODS
from lockstep.core.model.plan import CreatePod, DeletePod, DryRunPod, Plan
from support.manual_clock import ManualClock
from support.plans_at_work import World
from support.stored_runs import run

TIME_OUT = 10.0
"""Seconds after which the API server, or the client, gives up."""
ANSWER = 0.02
WORKERS = 16


class Answer:
    status = 201
    reason = ""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.content = self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield b'{"metadata": {"name": "p", "uid": "p1", "resourceVersion": "20"}, "spec": {}}'

    async def __aenter__(self) -> "Answer":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class Session:
    """An API server that answers soon, but where a webhook hangs: for one method in one namespace."""

    def __init__(self, clock: ManualClock, hanging: str, method: str) -> None:
        self.clock, self.hanging, self.method = clock, hanging, method
        self.sent: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def request(self, method: str, url: str, **_: Any) -> Answer:
        namespace = url.partition("/namespaces/")[2].partition("/")[0]
        self.sent[namespace] += 1
        self.in_flight[namespace] += 1
        self.most[namespace] = max(self.most[namespace], self.in_flight[namespace])
        try:
            hangs = namespace == self.hanging and method == self.method
            await self.clock.sleep(TIME_OUT if hangs else ANSWER)
            if hangs:
                raise TimeoutError
        finally:
            self.in_flight[namespace] -= 1
        return Answer()


class Scene(World):
    """Plans of runs, carried out by so many workers; pods go to the session, all else is answered at once."""

    def __init__(self, hanging: str = "", method: str = "POST") -> None:
        super().__init__()
        self.session = Session(self.clock, hanging, method)

        async def load() -> Credentials:
            return Credentials("", False, None, none)

        async def none() -> str | None:
            return None

        self.client = KubeClient(load, self.clock)
        self.client._transport._session = cast(aiohttp.ClientSession, self.session)
        pods = self.kube
        pods.window = self.client.window  # type: ignore[attr-defined]
        pods.create = self.client.create  # type: ignore[method-assign]
        pods.delete = self.client.delete  # type: ignore[attr-defined]
        self.executor.pace.made = lambda *_: None  # type: ignore[method-assign]  # it is not what bounds these
        self.executor.pace.not_taken = lambda *_: None  # type: ignore[method-assign]
        self.plans: dict[str, Plan] = {}
        self.looked_at: dict[str, float] = {}
        self.longest: Counter[str] = Counter()
        self.working: Counter[str] = Counter()

    def add(self, namespace: str, name: str, plan: Plan) -> None:
        made = run(10, uid=f"{namespace}-{name}")
        made["metadata"] |= {"namespace": namespace, "name": name}
        self.store.runs.apply(made)
        self.plans[run_key(namespace, name)] = plan
        self.queue.add(run_key(namespace, name))

    async def work(self, key: str) -> None:
        if key == CLUSTER_KEY:
            return
        namespace, name = split_run_key(key)
        view = self.store.runs.named(namespace, name)
        assert view is not None
        begun = self.looked_at[key] = self.clock.now()
        self.working[namespace] += 1
        try:
            if key in self.plans:
                await self.executor.run_plan(view, self.plans[key])
        finally:
            self.working[namespace] -= 1
            self.longest[namespace] = max(self.longest[namespace], round(self.clock.now() - begun))


def stop(namespace: str, pods: int) -> Plan:
    return Plan(deletes=tuple(DeletePod(namespace, f"p{slot}", f"uid-{slot}", "a test") for slot in range(pods)))


def gang(namespace: str, pods: int) -> Plan:
    return Plan(creates=tuple(CreatePod(namespace, f"p{slot}", slot, 1, "n1", {}) for slot in range(pods)))


DRY_RUN = Plan(dry_run=DryRunPod(1, {"spec": {}}, ()))


@pytest.mark.slow
async def test_a_gang_whose_webhook_hangs_holds_up_nobody_elses_pods() -> None:
    scene = Scene("a")
    working = asyncio.ensure_future(scene.queue.run(scene.work, WORKERS))
    scene.add("a", "large", gang("a", 256))
    await scene.clock.advance(1)
    for _ in range(30):
        creating = asyncio.ensure_future(scene.client.create(PODS, {}, "b"))
        leaving = asyncio.ensure_future(scene.client.delete(PODS, "victim", "a", uid="u"))
        await scene.clock.advance(1)
        assert creating.done()
        assert leaving.done(), "others may wait for its nodes"
        await asyncio.gather(creating, leaving)
        await scene.clock.advance(9)
    assert scene.client.window.limit >= 32
    working.cancel()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "method"), [(gang("a", 256), "POST"), (stop("a", 256), "DELETE")], ids=["made", "deleted"]
)
async def test_a_worker_comes_back_from_a_gang_whose_webhook_hangs(plan: Plan, method: str) -> None:
    scene = Scene("a", method)
    working = asyncio.ensure_future(scene.queue.run(scene.work, WORKERS))
    scene.add("a", "large", plan)
    oldest = 0.0
    for _ in range(600):
        await scene.clock.advance(1)
        oldest = max(oldest, scene.queue.oldest_due_age())
    assert 0 < scene.longest["a"] <= 3 * TIME_OUT
    assert oldest <= 3 * TIME_OUT < OVERDUE_SECONDS
    assert scene.session.sent["a"] > 32 + 5 * IN_VAIN, "it comes again"
    working.cancel()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "method"),
    [(DRY_RUN, "POST"), (gang("a", 3), "POST"), (stop("a", 3), "DELETE")],
    ids=["dry runs", "launches", "stops"],
)
async def test_runs_whose_webhook_hangs_leave_workers_to_everybody_else(plan: Plan, method: str) -> None:
    scene = Scene("a", method)
    working = asyncio.ensure_future(scene.queue.run(scene.work, WORKERS))
    for number in range(100):
        scene.add("a", f"r{number}", plan)
    await scene.clock.advance(3 * TIME_OUT)
    for _ in range(100):
        assert scene.working["a"] <= MOST_OF_A_SLOW_ONE
        scene.add("b", "cancelled", Plan())
        asked = scene.clock.now()
        await scene.clock.advance(1)
        assert scene.looked_at[run_key("b", "cancelled")] >= asked
        await scene.clock.advance(4)
    assert scene.session.sent["a"] >= WORKERS, "they come again"
    working.cancel()


class AsksForPatience(Answer):
    status = 429

    def __init__(self) -> None:
        super().__init__()
        self.headers = {"Retry-After": "2"}


@pytest.mark.slow
async def test_a_worker_comes_back_from_a_webhook_that_asks_for_patience_again_and_again() -> None:
    scene = Scene()

    async def refuse(*_: object, **__: Any) -> Answer:
        scene.session.sent["a"] += 1
        await scene.clock.sleep(ANSWER)
        return AsksForPatience()

    scene.session.request = refuse  # type: ignore[method-assign]
    working = asyncio.ensure_future(scene.queue.run(scene.work, WORKERS))
    scene.add("a", "large", gang("a", 256))
    for _ in range(600):
        await scene.clock.advance(1)
    assert scene.session.sent["a"] > 32
    assert 0 < scene.longest["a"] < OVERDUE_SECONDS / 2
    working.cancel()


async def test_pods_that_were_never_sent_cost_a_run_nothing_of_its_pace() -> None:
    scene, charged = Scene("a"), Counter[str]()
    scene.executor.pace.made = lambda key, pods, _: charged.update({key: pods})  # type: ignore[method-assign]
    scene.executor.pace.not_sent = lambda key, _: charged.subtract({key: 1})  # type: ignore[method-assign]
    working = asyncio.ensure_future(scene.queue.run(scene.work, WORKERS))
    scene.add("a", "large", gang("a", 256))
    for _ in range(60):
        await scene.clock.advance(1)
        if scene.session.sent["a"] and not scene.working["a"]:
            break
    assert charged[run_key("a", "large")] == scene.session.sent["a"] == 32
    working.cancel()


@pytest.mark.slow
async def test_one_namespace_that_is_alone_has_as_many_pods_made_at_once_as_there_may_be() -> None:
    scene = Scene()
    made = [asyncio.ensure_future(scene.client.create(PODS, {}, "a")) for _ in range(2000)]
    for _ in range(200):
        await scene.clock.advance(ANSWER)
    assert all(task.done() and not task.exception() for task in made)
    assert scene.session.most["a"] == 128


async def test_many_runs_of_a_namespace_that_is_not_slow_are_all_looked_at_at_once() -> None:
    scene = Scene()
    working = asyncio.ensure_future(scene.queue.run(scene.work, WORKERS))
    for number in range(100):
        scene.add("a", f"r{number}", DRY_RUN)
    await scene.clock.advance(ANSWER * 8)
    assert scene.session.most["a"] == WORKERS
    assert scene.session.sent["a"] >= 100
    working.cancel()
