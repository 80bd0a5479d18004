"""What a scrape says."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lockstep.api.base import names
from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.api.run_set import TrainingRunSetStatus
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.metrics import exporter
from lockstep.controller.metrics.catalogue import CATALOGUE, LABELS, PAGE, POPULATIONS, Definition, reference
from lockstep.controller.metrics.exporter import GOOD_SECONDS, PIECE, Metrics, MetricSources
from lockstep.controller.runtime.lag import Slowness
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.workers.reports import RunSummary
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.snapshot import NodeView, QueueView, RunView
from lockstep.core.model.tunables import Mode

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
FULL = RUNNING | {
    "attempts": [{"number": 2, "startedAt": 500}],
    "progress": RUNNING["progress"] | {"time": 900, "loss": "1.5", "longestInterval": 3},
    "checkpoint": {
        "latest": [{"tier": tier, "step": 80, "time": 800} for tier in ("local", "shared")],
        "cadence": {"interval": 264, "mttf": 25962},
    },
    "goodput": {"time": 100, "mfu": "0.4", "tokensPerSecond": "120", "gpuHours": "1", "buckets": {"queue": 10}}
    | {"ettr": "0.9", "goodput": "0.8"},
    "conditions": [{"type": "Diverging", "status": "True", "reason": "LossSpike", "lastTransitionTime": 1}],
}
FIGURES = ("ettr", "goodput", "gpu_hours", "mfu", "tokens_per_second")
FINISHED = {"conditions": [{"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": 0}]}


def status(**fields: Any) -> TrainingRunStatus:
    return TrainingRunStatus.model_validate(fields)


def run(name: str, fields: dict[str, Any], queue: str | None = None, **spec: Any) -> RunView:
    return RunView(
        namespace="team",
        name=name,
        uid=f"uid-{name}",
        generation=1,
        resource_version="1",
        created_at=0.0,
        spec=TrainingRunSpec.model_validate(GOOD | {"queue": queue} | spec) if queue is not None else None,
        status=status(**fields),
    )


class World:
    """Sources to be changed between scrapes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.leads = True
        self.runs: list[RunView] = []
        self.nodes: list[NodeView] = []
        self.flaps: dict[str, int] = {}
        self.disruption = ""
        self.queues: list[QueueView] = []
        self.summary = RunSummary(workers=2, highest_step=None, lowest_step=None, oldest_report_age=0.0)
        self.tallies = Tallies()
        self.left_out = LeftOut()
        self.left_out.counts["pods"] = 3
        self.sources = MetricSources(
            now=lambda: self.now,
            runs=lambda: self.runs,
            queues=lambda: self.queues,
            summary=lambda uid: self.summary,
            workers=lambda: 2,
            leading=lambda: self.leads,
            queue_depth=lambda: 3,
            queue_failing=lambda: 1,
            oldest_due_age=lambda: 0.5,
            informer_ages=lambda: {"pods": 12.0},
            left_out=self.left_out,
            api_requests={("create", "pods", 201): 512},
            worker_requests={("/v1/report", 200): 9},
            token_reviews={"Authenticated": 4},
            nodes=lambda: self.nodes,
            node_flaps=lambda: self.flaps,
            node_losses=lambda: 7,
            disruption=lambda: self.disruption,
            slowness=lambda: Slowness(loop=0.1, write=2.5, placing=7.0, allowance=25.0),
            events_dropped=lambda: 6,
            mode=lambda: Mode.NO_NEW_ADMISSIONS,
        )
        self.metrics = Metrics(self.sources, self.tallies)

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
    assert [value("lockstep_lag_seconds", part=part) for part in ("loop", "api-server", "scheduler")] == [0.1, 2.5, 7.0]
    assert value("lockstep_lag_allowance_seconds") == 25
    assert value("lockstep_events_dropped_total") == 6
    assert value("lockstep_api_requests_total", verb="create", resource="pods", code="201") == 512
    assert value("lockstep_worker_api_requests_total", endpoint="/v1/report", code="200") == 9
    assert value("lockstep_token_reviews_total", outcome="Authenticated") == 4
    assert value("process_resident_memory_bytes")


async def test_a_large_scrape_is_made_off_the_loop_and_is_whole(world: World) -> None:
    world.runs = [run(f"run-{n}", RUNNING) for n in range(300)]
    text = await world.metrics.render()
    assert text.count(b"lockstep_run_step{") == 300


async def test_every_metric_is_documented_and_no_other() -> None:
    assert PAGE.read_text() == reference(), "run: make generate"
    collected = list(World().metrics.collect())
    assert {family.name.removesuffix("_total") for family in collected} == {
        metric.name.removesuffix("_total") for metric in CATALOGUE
    }


def test_every_label_is_explained_and_no_other() -> None:
    explained = "say in LABELS of metrics/catalogue.py what values it has"
    assert {label for metric in CATALOGUE for label in metric.labels} == set(LABELS), explained
    assert {name for metric in CATALOGUE for name in metric.per} == set(POPULATIONS), "POPULATIONS explains each"


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_a_metric_is_named_for_its_kind_and_unit(metric: Definition) -> None:
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    if metric.unit == "seconds":
        assert metric.name.endswith("_seconds")
    assert metric.help.endswith(".")


async def test_every_metric_is_told_and_has_no_more_series_than_its_reference_says(world: World) -> None:
    """With everything there is to tell of two runs, two queues and one array."""
    saves = {"checkpoint": {"shared": {"claimName": "lustre"}}}
    world.runs = [run(name, FULL, "default", **saves) for name in ("a", "b")]
    world.runs.append(run("c", {"queue": {"reason": "Quota"}}, "x"))
    world.summary = replace(world.summary, highest_step=90, lowest_step=90)
    world.nodes = [NodeView(f"n{n}", f"u{n}", {}, {}, ready=bool(n % 2)) for n in range(9)]
    spec = TrainingQueueSpec.model_validate({"quotas": [{"gpuType": "H100", "nominalNodes": 4}]})
    usage = TrainingQueueStatus.model_validate({"usage": [{"gpuType": "H100", "nodes": 6, "borrowed": 2}]})
    world.queues = [QueueView("research", spec, status=usage)]
    world.flaps = {"n1": 3}
    array = RunSetView("team", "sweep", "uid-sweep", 1, "1", 0.0, None, TrainingRunSetStatus())
    world.metrics = Metrics(replace(world.sources, run_sets=lambda: [array]), world.tallies)
    world.tallies.looks["run"].observe(0.1)
    sizes = {"run": 2, "queue": 3, "set": 1, "gpu_type": 1, "word": 40}
    for family, metric in zip(world.metrics.collect(), CATALOGUE, strict=True):
        found = {tuple(value for name, value in sample.labels.items() if name != "le") for sample in family.samples}
        bound = metric.times * math.prod(sizes[name] for name in metric.per)
        assert len(found) <= bound, f"{metric.name} has {len(found)} series: more than its per and times say"
        assert found, f"{metric.name} is never told: exporter.py or run_metrics.py has to, of what this world has"


@pytest.mark.parametrize("field", ["ettr", "goodput", "gpuHours", "mfu", "tokensPerSecond"])
async def test_a_figure_that_somebody_has_spoilt_costs_its_own_series_and_nothing_else(
    world: World, field: str
) -> None:
    spoilt = FULL | {"goodput": FULL["goodput"] | {field: "a lot"}}
    world.runs = [run("spoilt", spoilt), run("llama", FULL)]
    value = await world.scrape()
    assert value("lockstep_run_attempt", namespace="team", run="spoilt") == 2
    assert value("lockstep_run_mfu", namespace="team", run="llama") == 0.4
    told = [value(f"lockstep_run_{name}", namespace="team", run="spoilt") for name in FIGURES]
    assert told.count(None) == 1


async def test_a_run_whose_figures_raise_costs_only_itself_and_is_counted_and_logged_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.runs = [run("odd", RUNNING, "default"), run("even", RUNNING, "default")]
    real = exporter.run_samples

    def some_raise(seen: RunView, *args: Any) -> Any:
        for number, sample in enumerate(real(seen, *args)):
            if number and seen.name == "odd":
                raise ZeroDivisionError("a defect")
            yield sample

    monkeypatch.setattr(exporter, "run_samples", some_raise)
    for count in (1, 2):
        sample = await world.scrape()
        assert sample("lockstep_run_step", namespace="team", run="even") == 90
        assert sample("lockstep_run_step", namespace="team", run="odd") is None
        assert sample("lockstep_leader") == 1
        assert sample("lockstep_runs", phase="Running") == 2
        world.now += GOOD_SECONDS
        assert world.left_out.counts["trainingruns"] == count
    assert [record.message for record in caplog.records] == [
        "trainingruns: figures of team/odd cannot be read and is left out: a defect"
    ]


async def test_what_has_not_happened_yet_is_told_as_none_so_that_the_first_one_counts(world: World) -> None:
    """An increase over a series that begins with what happened is nothing."""
    world.queues = [QueueView("research", TrainingQueueSpec())]
    value = await world.scrape()
    assert value("lockstep_attempts_ended_total", cause="Storage", action="RestartInPlace") == 0
    assert value("lockstep_recovery_seconds_count", action="ReplaceNodes", phase="total") == 0
    for queue in ("research", "default"):
        assert value("lockstep_preemptions_total", queue=queue, reason="Reclaim") == 0
        assert value("lockstep_preempted_node_seconds_total", queue=queue, reason="WithinQueue") == 0


class Ticks:
    """Turns that others had on the event loop meanwhile; in each of them a run goes and another one comes."""

    def __init__(self, world: World) -> None:
        self.count = 0
        self.runs = {each.name: each for each in world.runs}
        world.metrics = Metrics(replace(world.sources, runs=lambda: self.runs.values()), world.tallies)

    async def go_on(self) -> None:
        while True:
            self.count += 1
            name, view = next(iter(self.runs.items()))
            del self.runs[name]
            self.runs[f"next-{self.count}"] = view
            await asyncio.sleep(0)


async def test_a_scrape_of_thousands_of_runs_lets_others_have_their_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "LARGE", 10**9)  # not those that they have while a thread makes the text
    world.runs = [run(f"r{n}", FULL, "default") for n in range(600)]
    others = Ticks(world)
    going = asyncio.create_task(others.go_on())
    text = (await world.metrics.render()).decode()
    going.cancel()
    assert others.count >= 600 * 30 // PIECE
    assert text.count("lockstep_run_attempt{") == 600


async def test_everybody_who_scrapes_a_large_cluster_at_once_is_given_the_same(world: World) -> None:
    world.runs = [run(f"r{n}", FULL, "default") for n in range(200)]
    asked: list[float] = []
    world.metrics = Metrics(replace(world.sources, workers=lambda: asked.append(world.now) or 2), world.tallies)
    for now in (1000.0, 1001.0, 1000.0 + GOOD_SECONDS):
        world.now = now
        await asyncio.gather(*(world.metrics.render() for _ in range(20)))
    assert asked == [1000.0, 1000.0 + GOOD_SECONDS]


async def test_a_standby_leaves_it_to_the_leader_to_tell_of_the_cluster(world: World) -> None:
    world.runs, world.leads, world.flaps = [run("llama", RUNNING)], False, {"n1": 2}
    text = (await world.metrics.render()).decode()
    told = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    shared = {"lockstep_runs", "lockstep_nodes", "lockstep_node_losses_total", "lockstep_pending_runs"}
    shared |= {"lockstep_breaker_open"}
    assert not [name for name in told if name.startswith("lockstep_run_") or name in shared]
    assert {"lockstep_leader", "lockstep_workqueue_depth"} <= told


async def test_how_long_a_gang_waits_to_be_complete_counts_from_when_it_has_nodes(world: World) -> None:
    own = {"namespace": "team", "run": "llama"}
    gathering = {"type": "GangReady", "status": "False", "reason": "Gathering", "lastTransitionTime": 100}
    launching = HELD | {"attempt": 1, "lastAdmitted": 700, "conditions": [gathering]}
    world.runs = [run("llama", launching)]
    assert (await world.scrape())("lockstep_run_barrier_wait_seconds", **own) == 300
    recovering = RUNNING | {"attempt": 3, "lastAdmitted": 100, "conditions": [gathering | {"lastTransitionTime": 950}]}
    world.runs = [run("llama", recovering)]
    value = await world.scrape()
    assert value("lockstep_run_barrier_wait_seconds", **own) == 50
    assert value("lockstep_run_phase", **own, phase="Recovering") == 1
    world.runs = [run("llama", RUNNING | {"conditions": [gathering | {"status": "True"}]})]
    assert (await world.scrape())("lockstep_run_barrier_wait_seconds", **own) == 0


async def test_the_age_of_a_step_counts_once_the_attempt_has_one(world: World) -> None:
    own = {"namespace": "team", "run": "llama"}
    started = RUNNING | {"attempts": [{"number": 2, "startedAt": 900}]}
    world.runs = [run("llama", started | {"progress": {"step": 90, "time": 880}})]
    value = await world.scrape()
    assert value("lockstep_run_init_seconds", **own) == 100
    assert value("lockstep_run_step_age_seconds", **own) is None
    world.summary = replace(world.summary, newest_step_at=970.0)
    value = await world.scrape()
    assert value("lockstep_run_init_seconds", **own) == 0
    assert value("lockstep_run_step_age_seconds", **own) == 30


@pytest.mark.parametrize(
    ("fields", "unsaved"),
    [
        ({}, 60),
        ({"checkpoint": {"latest": [{"tier": "shared", "step": 9, "time": 980}]}}, 20),
        ({"checkpoint": {"latest": [{"tier": "shared", "step": 9, "time": 300}]}}, 60),
    ],
    ids=["nothing was saved", "saved since the first step", "saved before the attempt"],
)
async def test_unsaved_training_counts_from_the_first_step_of_the_attempt(
    world: World, fields: dict[str, Any], unsaved: float
) -> None:
    started = RUNNING | {"checkpoint": {}, "attempts": [{"number": 2, "startedAt": 900}]} | fields
    trains = started | {"progress": {"step": 90, "time": 990, "longestInit": 40}}
    world.runs = [run("llama", trains, "default", checkpoint={"shared": {"claimName": "lustre"}})]
    value = await world.scrape()
    assert value("lockstep_run_unsaved_seconds", namespace="team", run="llama") == unsaved


async def test_without_checkpoints_nothing_can_be_unsaved(world: World) -> None:
    trains = RUNNING | {"attempts": [{"number": 2, "startedAt": 900}], "progress": {"step": 90, "time": 990}}
    world.runs = [run("llama", trains, "default")]
    assert (await world.scrape())("lockstep_run_unsaved_seconds", namespace="team", run="llama") is None


async def test_a_loss_that_is_no_number_is_told_and_words_are_not(world: World) -> None:
    own = {"namespace": "team", "run": "llama"}
    for text, told in (("2.5", 2.5), ("", None), ("n/a", None)):
        world.runs = [run("llama", RUNNING | {"progress": {"step": 1, "loss": text}})]
        assert (await world.scrape())("lockstep_run_loss", **own) == told
    world.runs = [run("llama", RUNNING | {"progress": {"step": 1, "loss": "nan"}})]
    loss = (await world.scrape())("lockstep_run_loss", **own)
    assert loss is not None
    assert math.isnan(loss)


async def test_conditions_that_are_always_there_have_no_series(world: World) -> None:
    diverging = {"type": "Diverging", "status": "True", "reason": "LossSpike", "lastTransitionTime": 1}
    usual = diverging | {"type": "Admitted", "reason": "Admitted"}
    world.runs = [run("llama", RUNNING | {"conditions": [usual, diverging]})]
    value = await world.scrape()
    own = {"namespace": "team", "run": "llama"}
    assert value("lockstep_run_condition", **own, type="Diverging", reason="LossSpike") == 1
    assert value("lockstep_run_condition", **own, type="Admitted", reason="Admitted") is None


async def test_runs_that_nothing_can_be_decided_for_are_counted_whether_they_hold_nodes_or_not(world: World) -> None:
    value = await world.scrape()
    assert value("lockstep_undecidable", kind="run") == value("lockstep_undecidable", kind="set") == 0
    told = {"type": "Undecidable", "status": "True", "reason": "DecisionFails", "lastTransitionTime": 1}
    world.runs = [run("llama", RUNNING | {"conditions": [told]}), run("b", {"conditions": [told]}), run("c", RUNNING)]
    world.runs.append(run("of-cycles", RUNNING | {"queue": {"reason": "Undecidable"}}))
    value = await world.scrape()
    assert value("lockstep_undecidable", kind="run") == 3
    own = {"namespace": "team", "run": "llama"}
    assert value("lockstep_run_condition", **own, type="Undecidable", reason="DecisionFails") == 1


async def test_a_count_that_somebody_made_no_number_ends_no_scrape(world: World) -> None:
    world.runs = [run("llama", RUNNING | {"nodesReady": "²/2"})]
    value = await world.scrape()
    assert value("lockstep_run_nodes_ready", namespace="team", run="llama") == 0


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


async def test_nodes_are_counted_by_state_and_by_whether_a_run_holds_them(world: World) -> None:
    gpus = {names.GPU_RESOURCE: 8}
    world.runs = [run("llama", RUNNING)]
    world.nodes = [
        NodeView("gpu-1", "u1", {}, gpus),
        NodeView("gpu-2", "u2", {}, gpus, ready=False),
        NodeView("gpu-3", "u3", {}, gpus),
        NodeView("gpu-4", "u4", {}, gpus, unschedulable=True),
        NodeView("gpu-5", "u5", {}, {"amd.com/gpu": 4}, unschedulable=True),
        NodeView("cpu-1", "u6", {}, {"cpu": 4}, unschedulable=True),
    ]
    world.disruption = "3 of 4 nodes turned NotReady"
    world.flaps = {"gpu-2": 4}
    value = await world.scrape()
    assert value("lockstep_nodes", state="Ready", held="true") == 1
    assert value("lockstep_nodes", state="NotReady", held="true") == 1
    assert value("lockstep_nodes", state="Ready", held="false") == 1
    assert value("lockstep_nodes", state="Cordoned", held="false") == 3
    assert value("lockstep_node_gpus", state="Cordoned", held="false") == 12
    assert value("lockstep_node_gpus", state="Ready", held="true") == 8
    assert value("lockstep_node_flaps", node="gpu-2") == 4
    assert value("lockstep_node_losses_total") == 7
    assert value("lockstep_breaker_open") == 1
    assert value("lockstep_mode", mode="NoNewAdmissions") == 1
    assert value("lockstep_mode", mode="Active") == 0


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
