"""What a scrape says of queues: what waits, is admitted, lent and preempted."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.core.model.snapshot import QueueView
from support.scrapes import HELD, RUNNING, World, run, status


@pytest.fixture
def world() -> World:
    return World()


async def test_runs_that_wait_are_counted_by_queue_and_by_what_for(world: World) -> None:
    world.queues = [QueueView("research", TrainingQueueSpec())]
    quota, new = {"queue": {"reason": "Quota"}}, {}
    world.runs = [run("a", quota, "research"), run("b", quota, "research"), run("c", new, "default")]
    world.runs += [
        run("d", {"queue": {"reason": "QueueNotFound"}}, "reserch"),
        run("e", new),
        run("f", RUNNING, "default"),
    ]
    world.runs += [replace(run("g", quota, "research"), annotations={names.ANNOTATION_TEST_ONLY: "true"})]
    value = await world.scrape()
    assert value("lockstep_pending_runs", queue="research", reason="Quota") == 2
    assert value("lockstep_pending_runs", queue="default", reason="New") == 1
    assert value("lockstep_pending_runs", queue="", reason="QueueNotFound") == 1
    assert value("lockstep_pending_runs", queue="", reason="New") == 1


async def test_what_queues_use_lend_and_own_is_told_by_gpu_type(world: World) -> None:
    spec = TrainingQueueSpec.model_validate({"quotas": [{"gpuType": "H100", "nominalNodes": 4}]})
    usage = TrainingQueueStatus.model_validate({"usage": [{"gpuType": "H100", "nodes": 6, "borrowed": 2}]})
    world.queues = [QueueView("research", spec, status=usage)]
    value = await world.scrape()
    labels = {"queue": "research", "gpu_type": "H100"}
    assert value("lockstep_queue_quota_nodes", **labels) == 4
    assert value("lockstep_queue_nodes", **labels) == 6
    assert value("lockstep_queue_borrowed_nodes", **labels) == 2


async def test_waits_and_the_errors_of_estimates_to_both_sides_are_counted(world: World) -> None:
    def admitted(since: int, estimate: int | None, at: int, **before: Any) -> None:
        admission = {"since": since, "firstEstimate": estimate, "backfilled": estimate is not None}
        after = status(**HELD, lastAdmitted=at, admission=admission)
        world.tallies.status_written(status(admission=before), after)

    admitted(1000, None, 1005)
    admitted(1000, 5000, 1100)  # an hour and a bit before the estimate
    admitted(1000, 1000, 1500)  # minutes after it
    admitted(0, 0, 10_000_000, requeuedFor="Preempted")  # its age is from before it last ran
    value = await world.scrape()
    assert value("lockstep_admissions_total") == 4
    assert value("lockstep_backfilled_total") == 3
    assert value("lockstep_admission_wait_seconds_bucket", le="10.0") == 1
    assert value("lockstep_admission_wait_seconds_sum") == 605
    assert value("lockstep_admission_wait_seconds_count") == 3
    error = "lockstep_estimate_error_seconds_bucket"
    found = [value(error, le=bound) for bound in ("-14400.0", "-3600.0", "60.0", "300.0", "900.0", "+Inf")]
    assert found == [0, 1, 1, 1, 2, 2]


async def test_the_time_that_passes_take_is_told(world: World) -> None:
    world.tallies.passes.observe(0.02)
    value = await world.scrape()
    assert value("lockstep_admission_pass_seconds_bucket", le="0.01") == 0
    assert value("lockstep_admission_pass_seconds_bucket", le="0.025") == 1


async def test_a_queue_tells_what_waits_how_long_and_how_far_its_estimates_have_slipped(world: World) -> None:
    world.queues = [QueueView("research", TrainingQueueSpec())]
    world.runs = [
        run("a", {"queue": {"estimatedStart": 5000}, "admission": {"since": 400, "firstEstimate": 2000}}, "research"),
        run("b", {"queue": {"estimatedStart": 1500}, "admission": {"since": 900, "firstEstimate": 3000}}, "research"),
    ]
    value = await world.scrape()
    assert value("lockstep_queue_pending_nodes", queue="research") == 4
    assert value("lockstep_queue_longest_wait_seconds", queue="research") == 600
    assert value("lockstep_queue_estimate_drift_seconds", queue="research") == 3000
    assert value("lockstep_queue_estimate_drift_seconds", queue="default") == 0
    assert value("lockstep_queue_longest_wait_seconds", queue="") is None


async def test_who_made_room_is_counted_by_queue_and_reason_with_what_it_lost_and_how_long_it_took(
    world: World,
) -> None:
    def made_room(reason: str, saved_at: int, now: float) -> None:
        notice = {"by": "uid-urgent", "reason": reason, "noticeTime": 1000, "deadline": 1300}
        attempts = [{"number": 2, "startedAt": 500}]
        before = run("old", RUNNING | {"preemption": notice, "attempts": attempts}, queue="research")
        saved = {"latest": [{"tier": "shared", "step": 90, "time": saved_at}]}
        away = RUNNING | {"assignment": {}, "attempts": attempts, "checkpoint": saved}
        after = status(**away, admission={"preemptions": 1, "requeuedFor": "Preempted"})
        world.tallies.made_room(before, before.status, now)
        world.tallies.made_room(before, status(**away), now)  # suspended before it came to that
        world.tallies.made_room(before, after, now)

    made_room("WithinQueue", 1010, 1020.0)
    made_room("WithinQueue", 940, 1040.0)
    made_room("Reclaim", 0, 1002.0)
    value = await world.scrape()
    own, lent = {"queue": "research", "reason": "WithinQueue"}, {"queue": "research", "reason": "Reclaim"}
    assert value("lockstep_preemptions_total", **own) == 2
    assert value("lockstep_preemptions_total", **lent) == 1
    assert value("lockstep_preempted_node_seconds_total", **own) == 2 * (10 + 100)
    assert value("lockstep_preempted_node_seconds_total", **lent) == 2 * 502
    assert value("lockstep_preemption_seconds_count") == 3
    assert value("lockstep_preemption_seconds_sum") == 62
