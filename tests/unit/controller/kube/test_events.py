"""Events as they are posted, against a client that only remembers."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.kube.election import LostLeadershipError
from lockstep.controller.kube.errors import ApiError, UnreachableError
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.runtime.resources import EVENTS, Resource
from lockstep.core.model.plan import Event
from lockstep.core.model.snapshot import RunView
from support.manual_clock import ManualClock

RUN = RunView(
    namespace="team",
    name="llama",
    uid="u1",
    generation=1,
    resource_version="1",
    created_at=0.0,
    spec=None,
    status=TrainingRunStatus(),
)
LOST = Event("Warning", "NodeLost", "ReplaceNode", "gpu-3 is silent and NotReady")


class FakeKube:
    """Remembers what is posted; fails when told to."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, str, dict[str, Any]]] = []
        self.failures: list[Exception] = []

    async def create(self, resource: Resource, body: dict[str, Any], namespace: str = "") -> bytes:
        assert resource is EVENTS
        assert body["metadata"]["namespace"] == namespace
        if self.failures:
            raise self.failures.pop(0)
        self.created.append(body)
        return b"{}"

    async def patch(self, resource: Resource, name: str, body: Mapping[str, Any], namespace: str = "") -> bytes:
        if self.failures:
            raise self.failures.pop(0)
        self.patched.append((name, namespace, dict(body)))
        return b"{}"


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.kube = FakeKube()
        self.recorder = EventRecorder(self.kube, self.clock, "operator-0")  # type: ignore[arg-type]

    async def post(self) -> None:
        """Let the recorder post everything that waits."""
        posting = asyncio.ensure_future(self.recorder.post_all())
        while not self.recorder._queue.empty():  # noqa: ASYNC110 - a turn of the loop is all it takes
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        posting.cancel()


@pytest.fixture
def world() -> World:
    return World()


async def test_an_event_names_the_run_the_action_and_who_says_it(world: World) -> None:
    world.recorder.run_event(RUN, LOST)
    await world.post()
    (event,) = world.kube.created
    assert event["regarding"] == {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingRun",
        "name": "llama",
        "namespace": "team",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "NodeLost", "ReplaceNode")
    assert (event["reportingController"], event["reportingInstance"]) == ("lockstep.dev/operator", "operator-0")
    assert event["eventTime"] == "1970-01-12T13:46:40.000000Z"


async def test_an_event_that_a_late_renewal_forbids_ends_nothing(world: World) -> None:
    world.kube.failures = [LostLeadershipError("the lease has run out")]
    world.recorder.run_event(RUN, Event("Normal", "Admitted", "Admit", "on two nodes"))
    world.recorder.run_event(RUN, LOST)
    await world.post()
    assert [body["reason"] for body in world.kube.created] == ["Admitted"]  # the warning went first


async def test_an_event_about_a_node_is_said_on_the_node_too(world: World) -> None:
    world.recorder.run_event(RUN, Event("Warning", "NodeLost", "ReplaceNode", "silent", node="gpu-3"))
    await world.post()
    of_run, of_node = world.kube.created
    assert of_run["related"]["name"] == "gpu-3"
    assert of_node["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "gpu-3", "uid": "gpu-3"}
    assert of_node["metadata"]["namespace"] == "default"
    assert of_node["related"]["name"] == "llama"


async def test_a_repeat_within_minutes_counts_up_the_event_there_is(world: World) -> None:
    for _ in range(3):
        world.recorder.warn(RUN, "PodRefused", "CreatePod", "exceeded quota")
        await world.post()
        await world.clock.advance(60)
    assert len(world.kube.created) == 1
    name = world.kube.created[0]["metadata"]["name"]
    assert [(n, ns, body["series"]["count"]) for n, ns, body in world.kube.patched] == [
        (name, "team", 2),
        (name, "team", 3),
    ]


async def test_a_repeat_much_later_is_a_new_event(world: World) -> None:
    world.recorder.run_event(RUN, LOST)
    await world.post()
    await world.clock.advance(301)
    world.recorder.run_event(RUN, LOST)
    await world.post()
    assert len({event["metadata"]["name"] for event in world.kube.created}) == 2


async def test_a_series_whose_event_expired_begins_anew(world: World) -> None:
    world.recorder.run_event(RUN, LOST)
    await world.post()
    world.kube.failures = [ApiError(404, "NotFound", "expired")]
    world.recorder.run_event(RUN, LOST)
    await world.post()
    assert len(world.kube.created) == 2


async def test_a_long_note_is_cut_to_what_the_api_takes(world: World) -> None:
    world.recorder.warn(RUN, "PodRefused", "CreatePod", "x" * 5000)
    await world.post()
    assert len(world.kube.created[0]["note"]) == 1024


async def test_a_failure_to_post_stops_nothing(world: World) -> None:
    world.kube.failures = [UnreachableError("down")]
    world.recorder.run_event(RUN, LOST)
    world.recorder.warn(RUN, "PodRefused", "CreatePod", "quota")
    await world.post()
    assert [event["reason"] for event in world.kube.created] == ["PodRefused"]


@pytest.mark.slow
async def test_a_flood_is_bounded_and_counted(world: World) -> None:
    for number in range(10_100):
        world.recorder.warn(RUN, "PodRefused", "CreatePod", f"pod {number}")
    assert world.recorder.dropped == 100
    await world.post()
    assert len(world.kube.created) == 10_000


async def test_while_more_urgent_writes_are_under_way_events_are_posted_slowly(world: World) -> None:
    world.recorder.busy = lambda: True
    world.recorder.run_event(RUN, Event("Normal", "Admitted", "Admit", "on gpu-1"))
    posting = asyncio.ensure_future(world.recorder.post_all())
    await world.clock.advance(0.4)
    assert world.kube.created == []
    await world.clock.advance(0.2)
    assert [event["reason"] for event in world.kube.created] == ["Admitted"]
    posting.cancel()


async def test_no_warning_waits_for_more_urgent_writes_nor_for_a_burst_of_admissions(world: World) -> None:
    world.recorder.busy = lambda: True
    for number in range(1, 4):
        world.recorder.run_event(RUN, Event("Normal", "Admitted", "Admit", f"on gpu-{number}"))
    posting = asyncio.ensure_future(world.recorder.post_all())
    await world.clock.advance(0.1)
    world.recorder.run_event(RUN, LOST)
    await world.clock.advance(0.1)
    assert [event["reason"] for event in world.kube.created] == ["Admitted", "NodeLost"]
    await world.clock.advance(1.2)
    posting.cancel()
    later = world.kube.created[2:]
    assert [event["note"] for event in later] == ["on gpu-2", "on gpu-3"]
    assert len({event["eventTime"] for event in later}) == 1  # when they were meant, not when they were posted


@pytest.mark.parametrize(("overloaded", "waited", "said"), [(True, 61.0, 1), (True, 59.0, 2), (False, 61.0, 2)])
async def test_while_all_is_overloaded_old_events_are_dropped_and_warnings_are_not(
    world: World, overloaded: bool, waited: float, said: int
) -> None:
    world.recorder.overloaded = lambda: overloaded
    world.recorder.run_event(RUN, Event("Normal", "Admitted", "Admit", "on gpu-1"))
    world.recorder.run_event(RUN, LOST)
    await world.clock.advance(waited)
    await world.post()
    assert len(world.kube.created) == said
    assert world.kube.created[0]["reason"] == "NodeLost"
    assert world.recorder.dropped == 2 - said
