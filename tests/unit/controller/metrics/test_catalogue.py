"""What metrics there are: documented, named by rule, of bounded number and told."""

import math
from dataclasses import replace

import pytest

from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.api.run_set import TrainingRunSetStatus
from lockstep.controller.metrics.catalogue import CATALOGUE, LABELS, PAGE, POPULATIONS, Definition, reference
from lockstep.controller.metrics.exporter import Metrics
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.snapshot import NodeView, QueueView
from support.scrapes import FULL, World, run


@pytest.fixture
def world() -> World:
    return World()


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


async def test_what_has_not_happened_yet_is_told_as_none_so_that_the_first_one_counts(world: World) -> None:
    """An increase over a series that begins with what happened is nothing."""
    world.queues = [QueueView("research", TrainingQueueSpec())]
    value = await world.scrape()
    assert value("lockstep_attempts_ended_total", cause="Storage", action="RestartInPlace") == 0
    assert value("lockstep_recovery_seconds_count", action="ReplaceNodes", phase="total") == 0
    for queue in ("research", "default"):
        assert value("lockstep_preemptions_total", queue=queue, reason="Reclaim") == 0
        assert value("lockstep_preempted_node_seconds_total", queue=queue, reason="WithinQueue") == 0
