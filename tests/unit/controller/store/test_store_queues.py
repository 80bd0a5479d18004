"""Queues in the store."""

from typing import Any

import pytest

from lockstep.api.base.nesting import TOO_DEEP, UNREADABLE
from lockstep.controller.kube.workqueue import CLUSTER_KEY
from lockstep.core.model.snapshot import CLOSED_QUEUE
from support.stored_runs import run
from support.stored_world import KEY, LEADER, World


@pytest.fixture
def world() -> World:
    return World()


def training_queue(version: int, generation: int = 1, **changes: Any) -> dict[str, Any]:
    metadata = {"name": "research", "uid": "q", "resourceVersion": str(version), "generation": generation}
    created = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata | created, "spec": {"stopPolicy": "Hold"}, **changes}


async def test_what_a_queue_says_of_itself_wakes_nobody_and_leaves_its_rules_the_very_same(world: World) -> None:
    world.store.runs.apply(run(spec={**run()["spec"], "queue": "research"}))
    world.store.queues.apply(training_queue(5))
    assert await world.due() == {KEY, CLUSTER_KEY}
    before = world.store.snapshot_cluster(LEADER).queues["research"]
    world.store.queues.apply(training_queue(6, status={"pending": 3}))
    assert await world.due() == set()
    after = world.store.snapshot_cluster(LEADER).queues["research"]
    assert (after.status.pending, after.resource_version) == (3, "6")
    assert after.spec is before.spec
    world.store.queues.apply(training_queue(7, generation=2, status={"pending": 3}))
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_status_of_a_queue_that_does_not_parse_reads_as_none(world: World) -> None:
    world.store.queues.apply(training_queue(5, status={"pending": "many"}))
    assert world.store.snapshot_cluster(LEADER).queues["research"].status.pending == 0


async def test_a_queue_lives_as_long_as_it_is_listed(world: World) -> None:
    raw = {
        "metadata": {
            "name": "research",
            "uid": "q",
            "resourceVersion": "3",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {},
    }
    world.store.queues.replace([raw], "5")
    assert set(world.store.snapshot_cluster(LEADER).queues) == {"research"}
    world.store.queues.replace([], "6")
    assert set(world.store.snapshot_cluster(LEADER).queues) == set()


@pytest.mark.parametrize("restored_at", [8, 1000])
async def test_a_queue_that_a_restored_backup_made_older_is_as_it_was_then(world: World, restored_at: int) -> None:
    world.store.queues.replace([training_queue(9, generation=2, spec={})], "10")
    world.store.queues.replace([training_queue(5)], str(restored_at))
    queue = world.store.snapshot_cluster(LEADER).queues["research"]
    assert (queue.resource_version, queue.generation) == ("5", 1)


DEEP = {"batch": {"volumes": [{"name": "a", "mountPath": "/a", "projected": {"sources": TOO_DEEP}}]}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"stopPolicy": "Perhaps"}, "spec.stopPolicy: Input should be"),
        (DEEP, f"spec.batch.volumes.0.projected: {TOO_DEEP}"),
        (UNREADABLE, f"spec: {UNREADABLE}"),
    ],
)
async def test_a_queue_that_cannot_be_read_says_why_and_keeps_the_rules_that_could(
    world: World, spec: Any, words: str
) -> None:
    world.store.queues.replace([training_queue(5, spec={"heldRuns": ["team/llama"]})], "6")
    world.store.queues.apply(training_queue(7, generation=2, spec=spec))
    queue = world.store.snapshot_cluster(LEADER).queues["research"]
    assert (queue.resource_version, queue.generation, queue.spec.held_runs) == ("7", 2, ("team/llama",))
    assert queue.spec_error.startswith(words)
    world.store.queues.replace([training_queue(9, generation=3)], "10")
    assert world.store.snapshot_cluster(LEADER).queues["research"].spec_error == ""


async def test_a_queue_that_never_could_be_read_is_there_and_admits_nobody(world: World) -> None:
    world.store.queues.replace([training_queue(5, spec=UNREADABLE)], "6")
    queue = world.store.snapshot_cluster(LEADER).queues["research"]
    assert (queue.spec, queue.spec_error) == (CLOSED_QUEUE, f"spec: {UNREADABLE}")
    assert queue.spec.visibility == "OwnNamespace", "it may have been, and names once told are not taken back"
