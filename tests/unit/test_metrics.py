"""What a scrape says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lockstep.api import names
from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.metrics import CATALOGUE, Metrics, Sources, reference
from lockstep.controller.reports import RunSummary
from lockstep.controller.tallies import Tallies
from lockstep.core.snapshot import QueueView, RunView

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
HELD = {"assignment": {"nodes": ["gpu-1", "gpu-2"], "incarnations": [1, 1]}}
RUNNING: dict[str, Any] = {
    **HELD,
    "attempt": 2,
    "start": {"attempt": 2, "assignmentHash": "h", "masterAddress": "10.0.0.1", "masterPort": 1},
    "resolved": {"nodes": 2},
    "nodesReady": "1/2",
    "progress": {"step": 90, "totalSteps": 1000},
    "checkpoint": {"latest": [{"tier": "shared", "step": 80}]},
}
GOOD = {"nodes": 2, "image": "i", "command": ["train"]}
FINISHED = {"conditions": [{"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": 0}]}


def status(**fields: Any) -> TrainingRunStatus:
    return TrainingRunStatus.model_validate(fields)


def run(name: str, fields: dict[str, Any], queue: str | None = None) -> RunView:
    return RunView(
        namespace="team",
        name=name,
        uid=f"uid-{name}",
        generation=1,
        resource_version="1",
        created_at=0.0,
        spec=TrainingRunSpec.model_validate(GOOD | {"queue": queue}) if queue is not None else None,
        status=status(**fields),
    )


class World:
    """Sources to be changed between scrapes."""

    def __init__(self) -> None:
        self.runs: list[RunView] = []
        self.queues: list[QueueView] = []
        self.summary = RunSummary(workers=2, highest_step=None, lowest_step=None, oldest_report_age=0.0)
        self.tallies = Tallies()
        self.metrics = Metrics(
            Sources(
                runs=lambda: self.runs,
                queues=lambda: self.queues,
                summary=lambda uid: self.summary,
                workers=lambda: 2,
                leading=lambda: True,
                queue_depth=lambda: 3,
                queue_failing=lambda: 1,
                oldest_due_age=lambda: 0.5,
                informer_ages=lambda: {"pods": 12.0},
                api_requests={("create", "pods", 201): 512},
                worker_requests={("/v1/report", 200): 9},
                token_reviews={"Authenticated": 4},
            ),
            self.tallies,
        )

    async def scrape(self) -> Callable[..., float | None]:
        text = (await self.metrics.render()).decode()
        samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        return lambda name, **labels: samples.get((name, frozenset(labels.items())))


@pytest.fixture
def world() -> World:
    return World()


async def test_a_running_run_has_figures_of_its_own(world: World) -> None:
    world.runs = [run("llama", RUNNING)]
    world.summary = RunSummary(workers=2, highest_step=101, lowest_step=99, oldest_report_age=1.5)
    value = await world.scrape()
    own = {"namespace": "team", "run": "llama"}
    assert value("lockstep_run_attempt", **own) == 2
    assert value("lockstep_run_nodes", **own) == 2
    assert value("lockstep_run_nodes_ready", **own) == 1
    assert value("lockstep_run_step", **own) == 101
    assert value("lockstep_run_lowest_step", **own) == 99
    assert value("lockstep_run_total_steps", **own) == 1000
    assert value("lockstep_run_checkpoint_step", **own, tier="shared") == 80
    assert value("lockstep_run_report_age_seconds", **own) == 1.5


async def test_the_account_and_the_cadence_of_a_run_are_told(world: World) -> None:
    goodput = {"time": 100.0, "buckets": {"queue": 10, "productive": 90}, "ettr": "0.900", "goodput": "1.000"}
    counts = {"gpuHours": "0.40", "mfu": "0.412", "failures": 2, "stepsLost": 7}
    latest = [{"tier": "shared", "step": 80}]
    checkpoint = {"latest": latest, "cadence": {"interval": 264, "mttf": 25962}}
    world.runs = [run("llama", {**RUNNING, "goodput": {**goodput, **counts}, "checkpoint": checkpoint})]
    value = await world.scrape()
    own = {"namespace": "team", "run": "llama"}
    assert value("lockstep_run_ettr", **own) == 0.9
    assert value("lockstep_run_goodput", **own) == 1.0
    assert value("lockstep_run_seconds", **own, bucket="productive") == 90
    assert value("lockstep_run_seconds", **own, bucket="detect") == 0
    assert value("lockstep_run_gpu_hours", **own) == 0.4
    assert value("lockstep_run_mfu", **own) == 0.412
    assert value("lockstep_run_failures", **own) == 2
    assert value("lockstep_run_steps_lost", **own) == 7
    assert value("lockstep_run_checkpoint_interval_seconds", **own) == 264
    assert value("lockstep_run_mttf_seconds", **own) == 25962


async def test_a_run_without_an_account_has_no_figures_of_it(world: World) -> None:
    world.runs = [run("llama", RUNNING)]
    text = (await world.metrics.render()).decode()
    assert "lockstep_run_ettr{" not in text
    assert "lockstep_run_mfu{" not in text
    assert "lockstep_run_mttf_seconds{" not in text


async def test_after_a_restart_the_step_of_the_status_is_shown(world: World) -> None:
    world.runs = [run("llama", RUNNING)]
    value = await world.scrape()
    assert value("lockstep_run_step", namespace="team", run="llama") == 90
    assert value("lockstep_run_lowest_step", namespace="team", run="llama") is None


async def test_the_figures_of_a_run_end_with_it(world: World) -> None:
    world.runs = [run("llama", RUNNING)]
    assert b'run="llama"' in await world.metrics.render()
    world.runs = [run("llama", RUNNING | FINISHED)]
    assert b'run="llama"' not in await world.metrics.render()
    world.runs = []
    assert b'run="llama"' not in await world.metrics.render()


async def test_runs_are_counted_by_phase(world: World) -> None:
    world.runs = [run("a", RUNNING), run("b", {}), run("c", {}), run("d", FINISHED)]
    value = await world.scrape()
    assert value("lockstep_runs", phase="Running") == 1
    assert value("lockstep_runs", phase="Pending") == 2
    assert value("lockstep_runs", phase="Finished") == 1
    assert value("lockstep_runs", phase="Recovering") == 0


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


async def test_the_operators_own_figures_are_there(world: World) -> None:
    value = await world.scrape()
    assert value("lockstep_leader") == 1
    assert value("lockstep_workqueue_depth") == 3
    assert value("lockstep_workqueue_oldest_due_seconds") == 0.5
    assert value("lockstep_informer_last_heard_seconds", informer="pods") == 12
    assert value("lockstep_api_requests_total", verb="create", resource="pods", code="201") == 512
    assert value("lockstep_worker_api_requests_total", endpoint="/v1/report", code="200") == 9
    assert value("lockstep_token_reviews_total", outcome="Authenticated") == 4
    assert value("process_resident_memory_bytes")


async def test_a_large_scrape_is_made_off_the_loop_and_is_whole(world: World) -> None:
    world.runs = [run(f"run-{n}", RUNNING) for n in range(300)]
    text = await world.metrics.render()
    assert text.count(b"lockstep_run_step{") == 300


async def test_every_metric_is_documented_and_no_other() -> None:
    assert DOCS.read_text() == reference(), "run: python -m lockstep.controller.metrics > docs/metrics.md"
    collected = list(World().metrics.collect())
    assert {family.name.removesuffix("_total") for family in collected} == {
        metric.name.removesuffix("_total") for metric in CATALOGUE
    }


def test_what_a_status_write_changed_is_counted_once() -> None:
    tallies = Tallies()
    pending, admitted = status(), status(**HELD)
    lost = {"number": 1, "endedAt": 10, "cause": "NodeLost", "action": "RestartInPlace"}
    recovered = status(**HELD, attempts=[lost], totals={"nodesReplaced": 1, "podsReplaced": 2})
    for before, after in ((pending, admitted), (admitted, admitted), (admitted, recovered)):
        tallies.status_written(before, after)
    tallies.status_written(recovered, recovered)
    assert tallies.admissions == 1
    assert (tallies.nodes_replaced, tallies.pods_replaced) == (1, 2)
    assert tallies.attempts_ended == {("NodeLost", "RestartInPlace"): 1}
    tallies.status_written(recovered, admitted)  # rebuilt after its loss
    assert tallies.nodes_replaced == 1


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
