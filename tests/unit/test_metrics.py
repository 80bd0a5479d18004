"""What a scrape says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.metrics import CATALOGUE, Metrics, Sources, reference
from lockstep.controller.reports import RunSummary
from lockstep.controller.tallies import Tallies
from lockstep.core.snapshot import RunView

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
FINISHED = {"conditions": [{"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": 0}]}


def status(**fields: Any) -> TrainingRunStatus:
    return TrainingRunStatus.model_validate(fields)


def run(name: str, fields: dict[str, Any]) -> RunView:
    return RunView(
        namespace="team",
        name=name,
        uid=f"uid-{name}",
        generation=1,
        resource_version="1",
        created_at=0.0,
        spec=None,
        status=status(**fields),
    )


class World:
    """Sources to be changed between scrapes."""

    def __init__(self) -> None:
        self.runs: list[RunView] = []
        self.summary = RunSummary(workers=2, highest_step=None, lowest_step=None, oldest_report_age=0.0)
        self.tallies = Tallies()
        self.metrics = Metrics(
            Sources(
                runs=lambda: self.runs,
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
