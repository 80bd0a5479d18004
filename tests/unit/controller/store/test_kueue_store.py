"""Kueue's objects in the controller: whether they are there, who looks when they change, how they are written."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import orjson
import pytest

from lockstep.config import OperatorConfig
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError
from lockstep.controller.kube.pages import Page
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key
from lockstep.controller.metrics.catalogue import CATALOGUE
from lockstep.controller.operator import Operator
from lockstep.controller.reconcile import reconcile
from lockstep.controller.reconcile.workload_writer import WorkloadWriter
from lockstep.controller.runtime.resources import Resource
from lockstep.controller.store.kueue import KueueApi, KueueStore
from lockstep.core.kueue.choice import workload_name
from lockstep.core.model.kueue.installation import Presence
from lockstep.core.model.kueue.writes import WorkloadVerb, WorkloadWrite
from lockstep.core.model.plan import Plan
from lockstep.core.model.snapshot import RunView
from support.admission import run
from support.manual_clock import ManualClock
from support.stored_runs import stored
from unit.controller.reconcile.test_execute import World

KEY = ("team", "trainingrun-llama-uid-l")
OWNED = [{"kind": "TrainingRun", "name": "llama", "uid": "uid-llama", "controller": True}]
LABELS = {"lockstep.dev/run": "llama", "lockstep.dev/run-uid": "uid-llama"}


def workload(version: int = 5, uid: str = "w-1", **status: Any) -> Mapping[str, Any]:
    return {
        "metadata": {
            "namespace": KEY[0],
            "name": KEY[1],
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"lockstep.dev/run": "llama"},
        },
        "spec": {"queueName": "team"},
        "status": status,
    }


@dataclass
class Kube:
    """Answers as told, and keeps what was asked."""

    answer: bytes | ApiError | None = None
    read: bytes | ApiError = b""
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def _answered(self, verb: str, what: Any) -> Any:
        self.asked.append((verb, what))
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer

    async def create(self, _: Any, body: Any, *__: Any) -> Any:
        return self._answered("create", body)

    async def patch(self, _: Any, name: str, body: Any, *__: Any) -> Any:
        return self._answered("patch", body)

    async def patch_status(self, *_: Any, **what: Any) -> Any:
        return self._answered("patch_status", what)

    async def delete(self, *_: Any, **what: Any) -> Any:
        return self._answered("delete", what)

    async def get(self, *_: Any) -> bytes:
        if isinstance(self.read, ApiError):
            raise self.read
        return self.read


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = WorkQueue(self.clock)
        self.touched = 0
        self.store = KueueStore(self.queue, self._touch)
        self.kube = Kube()
        self.writer = WorkloadWriter(cast(KubeClient, self.kube), self.store, self.queue, self.clock)
        self.run: RunView = run("llama")

    def _touch(self) -> None:
        self.touched += 1

    def known(self, version: int = 5, uid: str = "w-1") -> None:
        self.store.workloads.cache.upsert(self.store.workloads.parse(orjson.dumps(workload(version, uid))))

    def due(self) -> set[str]:
        found = {key for key in (run_key("team", "llama"), CLUSTER_KEY) if key in self.queue._due}
        self.queue.clear()
        return found

    async def write(self, verb: WorkloadVerb, **body: Any) -> None:
        await self.writer.carry_out(self.run, WorkloadWrite(verb, *KEY, "why", "w-1", "5", body))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_kueue_is_there_only_once_everything_of_it_was_listed(desk: Desk) -> None:
    assert desk.store.presence is Presence.UNKNOWN
    desk.store.found(Presence.PRESENT)
    assert desk.store.presence is Presence.UNKNOWN
    for table in desk.store.tables:
        assert desk.store.presence is Presence.UNKNOWN
        table.cache.replace([], 1)
    assert desk.store.presence is Presence.PRESENT
    before = desk.touched
    desk.store.listed()
    assert desk.touched == before + 1, "nobody else would tell those who wait"


def test_what_kueue_had_is_forgotten_when_it_goes(desk: Desk) -> None:
    desk.store.found(Presence.PRESENT)
    desk.known()
    desk.store.found(Presence.ABSENT)
    assert desk.store.presence is Presence.ABSENT
    assert not desk.store.view({}).workloads
    desk.store.found(Presence.PRESENT)
    assert desk.store.presence is Presence.UNKNOWN
    touched = desk.touched
    desk.store.found(Presence.PRESENT)
    assert desk.touched == touched, "nothing is looked at for what is known"


def local_queue(version: int, uid: str = "q-1", pending: int = 0) -> bytes:
    meta = {"namespace": "team", "name": "main", "uid": uid, "resourceVersion": str(version)}
    return orjson.dumps({"metadata": meta, "spec": {"clusterQueue": "cq"}, "status": {"pendingWorkloads": pending}})


def test_a_queue_whose_status_kueue_has_written_is_gone_once_it_is_deleted(desk: Desk) -> None:
    queues = desk.store.local_queues
    queues.cache.upsert(queues.parse(local_queue(5)))
    queues.cache.upsert(queues.parse(local_queue(6, pending=3)))
    assert dict(queues.by_key) == {("team", "main"): "cq"}
    queues.cache.remove("q-1", 7)
    assert not queues.by_key


def test_a_queue_that_was_made_anew_meanwhile_stays(desk: Desk) -> None:
    queues = desk.store.local_queues
    queues.cache.upsert(queues.parse(local_queue(5)))
    queues.cache.upsert(queues.parse(local_queue(8, uid="q-2")))
    queues.cache.remove("q-1", 7)
    assert dict(queues.by_key) == {("team", "main"): "cq"}


def test_a_workload_that_changes_has_its_run_and_the_nodes_looked_at(desk: Desk) -> None:
    desk.known()
    assert desk.due() == {run_key("team", "llama"), CLUSTER_KEY}
    desk.known()
    assert desk.due() == set()
    desk.store.workloads.cache.remove("w-1", 9)
    assert desk.due() == {run_key("team", "llama"), CLUSTER_KEY}
    assert not desk.store.view({}).workloads


def test_one_that_was_made_again_outlives_the_news_of_the_first(desk: Desk) -> None:
    desk.known(5)
    desk.known(8, "w-2")
    desk.store.workloads.cache.remove("w-1", 7)
    assert desk.store.view({}).workloads[KEY].uid == "w-2"


async def test_writes_are_guarded_by_the_version_that_was_seen_and_their_answers_taken_in(desk: Desk) -> None:
    desk.known()
    desk.kube.answer = orjson.dumps(workload(6))
    await desk.write(WorkloadVerb.TELL, conditions=[])
    assert desk.kube.asked == [("patch_status", {"resource_version": "5", "patch": {"conditions": []}})]
    assert desk.store.view({}).workloads[KEY].resource_version == "6"
    await desk.write(WorkloadVerb.AMEND, spec={}, metadata={"annotations": {}})
    assert desk.kube.asked[-1][1]["metadata"] == {"annotations": {}, "resourceVersion": "5"}


async def test_what_changed_meanwhile_is_read_and_looked_at_again(desk: Desk) -> None:
    desk.known()
    desk.due()
    desk.kube.answer, desk.kube.read = ApiError(409, "Conflict", "changed"), orjson.dumps(workload(7))
    await desk.write(WorkloadVerb.TELL)
    assert desk.store.view({}).workloads[KEY].resource_version == "7"
    assert run_key("team", "llama") in desk.due()


async def test_one_that_is_gone_is_forgotten(desk: Desk) -> None:
    desk.known()
    gone = ApiError(404, "NotFound", f'workloads.kueue.x-k8s.io "{KEY[1]}" not found')
    desk.kube.answer = desk.kube.read = gone
    await desk.write(WorkloadVerb.TELL)
    assert not desk.store.view({}).workloads
    desk.known(9, "w-2")
    desk.kube.answer = None
    await desk.write(WorkloadVerb.DELETE)
    assert desk.kube.asked[-1] == ("delete", {"uid": "w-1", "resource_version": "5"})
    assert desk.store.view({}).workloads[KEY].uid == "w-2", "that is another one"


async def test_one_that_lost_the_labels_by_which_it_is_watched_gets_them_back(desk: Desk) -> None:
    stripped = workload(9) | {"metadata": workload(9)["metadata"] | {"labels": {}, "ownerReferences": OWNED}}
    mended = workload(10) | {"metadata": stripped["metadata"] | {"labels": LABELS, "resourceVersion": "10"}}
    desk.known()
    desk.store.workloads.cache.remove("w-1", 9)  # what the watch says of it
    desk.due()
    desk.kube.read, desk.kube.answer = orjson.dumps(stripped), orjson.dumps(mended)
    await desk.write(WorkloadVerb.FIND)
    verb, body = desk.kube.asked.pop()
    assert (verb, body["metadata"]["resourceVersion"]) == ("patch", "9")
    assert body["metadata"]["labels"].items() >= LABELS.items()
    assert desk.store.view({}).workloads[KEY].run_uid == desk.run.uid
    assert run_key("team", "llama") in desk.due()


async def test_one_that_is_made_although_it_is_there_without_labels_is_found(desk: Desk) -> None:
    stripped = workload(9) | {"metadata": workload(9)["metadata"] | {"labels": {}, "ownerReferences": OWNED}}

    async def create(*_: Any) -> bytes:
        raise ApiError(409, "AlreadyExists", "already exists")

    desk.kube.create = create  # type: ignore[method-assign]
    desk.kube.read = orjson.dumps(stripped)
    desk.kube.answer = orjson.dumps(workload(10) | {"metadata": stripped["metadata"] | {"labels": LABELS}})
    await desk.write(WorkloadVerb.CREATE)
    assert [verb for verb, _ in desk.kube.asked] == ["patch"]


@pytest.mark.parametrize("verb", [WorkloadVerb.FIND, WorkloadVerb.CREATE])
async def test_who_takes_the_labels_off_in_a_loop_is_followed_less_and_less_often(
    desk: Desk, verb: WorkloadVerb
) -> None:
    """As a controller does that knows no labels but its own: a run that has nodes looks for its Workload, and one that
    waits tries to make it again."""
    version, labelled = 9, list[float]()

    async def create(*_: Any) -> bytes:
        raise ApiError(409, "AlreadyExists", "already exists")

    async def read(*_: Any) -> bytes:
        bare = {"labels": {}, "ownerReferences": OWNED, "resourceVersion": str(version)}
        return orjson.dumps(workload() | {"metadata": workload()["metadata"] | bare})

    async def patch(*_: Any) -> bytes:
        nonlocal version
        version += 2  # they are back, and taken off once more, which deletes the Workload for the watch
        labelled.append(desk.clock.now())
        mended = {"labels": LABELS, "ownerReferences": OWNED, "resourceVersion": str(version - 1)}
        return orjson.dumps(workload() | {"metadata": workload()["metadata"] | mended})

    for method in (create, patch):
        setattr(desk.kube, method.__name__, method)
    desk.kube.get = read  # type: ignore[method-assign]
    begun, looks = desk.clock.now(), 0
    while desk.clock.now() < begun + 600 and looks < 1000:
        await desk.write(verb)
        looks += 1
        desk.store.workloads.cache.remove("w-1", version)
        if run_key("team", "llama") not in desk.due():
            await desk.clock.advance(1)
    times = [at - begun for at in labelled]
    assert times[:5] == [0, 1, 3, 7, 15]
    assert (len(times) < 40, looks < 700) == (True, True), "and not at the pace of who takes them off"
    await desk.clock.advance(100)
    await desk.write(verb)
    assert labelled[-1] == desk.clock.now(), "long after, at once"


async def test_nobody_elses_workload_is_labelled(desk: Desk) -> None:
    desk.kube.read = orjson.dumps(workload(9) | {"metadata": workload(9)["metadata"] | {"labels": {}}})
    await desk.write(WorkloadVerb.FIND)
    assert desk.kube.asked == []


def test_what_was_said_of_a_refused_workload_goes_with_its_run() -> None:
    world = World()
    view = stored(world.store)
    world.store.kueue.answered("team", workload_name(view), "pods is a reserved key")
    world.store.runs.remove("team", "llama", "u1")
    world.store.kueue.found(Presence.PRESENT)
    assert world.store.kueue.view({}).refused == {}


DOWN = 'failed calling webhook "mworkload.kb.io": connection refused'
"""What the API server says while Kueue's manager is down."""


@pytest.mark.parametrize("refusal", [(422, "Invalid", "pods is a reserved key"), (500, "InternalError", DOWN)])
async def test_why_a_workload_is_not_taken_is_kept_until_it_is(desk: Desk, refusal: tuple[int, str, str]) -> None:
    desk.store.found(Presence.PRESENT)
    desk.due()
    desk.kube.answer = ApiError(*refusal)
    for due in ({CLUSTER_KEY}, set[str]()):
        with pytest.raises(ApiError):
            await desk.write(WorkloadVerb.CREATE)
        assert desk.store.view({}).refused == {KEY: refusal[2]}
        assert desk.due() == due, "news is told, and no news is none"
    desk.kube.answer = ApiError(429, "TooManyRequests", "later")
    with pytest.raises(ApiError):
        await desk.write(WorkloadVerb.CREATE)
    assert desk.store.view({}).refused, "that says nothing of the Workload"
    desk.kube.answer = orjson.dumps(workload(6))
    await desk.write(WorkloadVerb.CREATE)
    assert not desk.store.view({}).refused


@pytest.mark.parametrize("beside", [True, False])
async def test_a_reservation_is_not_let_go_of_while_an_admission_on_it_has_no_answer(
    beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, sent = World(), list[str]()
    write = WorkloadWrite(WorkloadVerb.DELETE, *KEY, "asks for something else now", "w-1", "5")
    monkeypatch.setattr(reconcile, "decide", lambda *_: Plan(workload=write))

    async def carry_out(_: RunView, write: WorkloadWrite) -> None:
        sent.append(write.name)

    monkeypatch.setattr(world.executor._workloads, "carry_out", carry_out)
    view = stored(world.store)
    if beside:
        world.store.writes.assume("u1", view.status)
    else:
        world.store.writes.book("u1", {"n1"})
    world.queue.clear()
    await world.reconciler.reconcile(run_key("team", "llama"))
    assert not sent, "the gang may have its nodes by now"
    await world.clock.advance(1.5)
    assert await asyncio.wait_for(world.queue.get(), 20.0) == run_key("team", "llama")
    world.store.writes.drop_assumption("u1")
    world.store.writes.release("u1")
    await world.reconciler.reconcile(run_key("team", "llama"))
    assert sent == [KEY[1]]


async def test_a_missing_kind_is_no_missing_workload(desk: Desk) -> None:
    desk.known()
    desk.kube.answer = desk.kube.read = ApiError(404, "NotFound", "the server could not find the requested resource")
    with pytest.raises(ApiError):
        await desk.write(WorkloadVerb.TELL)
    assert desk.store.view({}).workloads


def test_what_is_no_object_of_its_kind_is_left_out_and_stops_nothing(desk: Desk) -> None:
    for raw in (b"{}", b'{"metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}, "spec": 3}'):
        with pytest.raises(ValueError, match="workloads"):
            desk.store.workloads.parse(raw)


class Served:
    """An API server that serves Kueue, or does not."""

    def __init__(self) -> None:
        self.kinds = frozenset[str]()
        self.failing = set[str]()

    async def served(self, group_version: str) -> frozenset[str]:
        assert group_version == "kueue.x-k8s.io/v1beta2"
        return self.kinds

    async def list_pages(self, resource: Resource, **_: Any) -> AsyncGenerator[Page, None]:
        self._answer(resource)
        yield msgspec.json.decode(b'{"metadata": {"resourceVersion": "1"}, "items": []}', type=Page)

    async def watch(self, resource: Resource, *_: Any, **__: Any) -> AsyncGenerator[list[bytes], None]:
        self._answer(resource)
        mark = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
        yield [orjson.dumps({"type": "BOOKMARK", "object": {"metadata": mark}})]
        await asyncio.Event().wait()

    def _answer(self, resource: Resource) -> None:
        if resource.plural in self.failing:
            raise ApiError(500, "InternalError", DOWN)


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not what():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


async def test_an_operator_that_is_not_to_use_kueue_does_not_even_look_for_it(desk: Desk) -> None:
    server = Kube()
    await KueueApi(cast(KubeClient, server), desk.store, ManualClock(), enabled=False).refresh()
    assert desk.store.presence is Presence.DISABLED
    assert server.asked == []


async def test_kueue_is_followed_while_it_is_served_in_full_and_found_again(desk: Desk) -> None:
    server, clock = Served(), ManualClock()
    api = KueueApi(cast(KubeClient, server), desk.store, clock, enabled=True)
    await api.refresh()
    assert desk.store.presence is Presence.ABSENT
    server.kinds = frozenset({"workloads", "localqueues"})
    await api.refresh()
    assert desk.store.presence is Presence.ABSENT, "a Kueue without topologies is not one that we know"
    server.kinds = frozenset(table.resource.plural for table in desk.store.tables)
    await api.refresh()
    touched = desk.touched
    await until(lambda: desk.store.presence is Presence.PRESENT)
    await until(lambda: desk.touched > touched)
    following = api._following
    assert following is not None
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await api.refresh()
    await until(lambda: desk.store.presence is Presence.PRESENT)
    server.kinds = frozenset()
    await api.refresh()
    assert desk.store.presence is Presence.ABSENT


async def test_a_kind_of_kueue_of_which_nothing_is_heard_is_told_by_its_age_and_keeps_nobody_from_being_ready(
    desk: Desk,
) -> None:
    server, clock = Served(), ManualClock()
    operator = Operator(OperatorConfig(), None)
    operator.clock = clock  # type: ignore[assignment]
    api = operator.kueue = KueueApi(cast(KubeClient, server), desk.store, clock, enabled=True)
    nothing: Any = SimpleNamespace(answered={}, outcomes={})
    ages = operator._sources(nothing, nothing).informer_ages
    await api.refresh()
    assert "workloads" not in ages(), "it is not followed"
    server.kinds, server.failing = frozenset(table.resource.plural for table in desk.store.tables), {"workloads"}
    await api.refresh()
    await until(lambda: ages()["localqueues"] == 0)
    assert ages()["workloads"] == inf
    server.failing.clear()
    await clock.advance(60)
    await until(lambda: ages()["workloads"] < inf)
    heard = ages()["workloads"]
    await clock.advance(200)
    assert ages()["workloads"] == heard + 200
    assert "workloads" not in operator._informer_ages()
    assert len(ages()) <= next(each.times for each in CATALOGUE if each.name == "lockstep_informer_last_heard_seconds")
