"""That a scrape is whole and holds nobody up, whatever it finds."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from lockstep.controller.metrics import exporter
from lockstep.controller.metrics.exporter import GOOD_SECONDS, PIECE, Metrics
from lockstep.core.model.snapshot import RunView
from support.scrapes import FULL, RUNNING, World, run

FIGURES = ("ettr", "goodput", "gpu_hours", "mfu", "tokens_per_second")


@pytest.fixture
def world() -> World:
    return World()


async def test_a_large_scrape_is_made_off_the_loop_and_is_whole(world: World) -> None:
    world.runs = [run(f"run-{n}", RUNNING) for n in range(300)]
    text = await world.metrics.render()
    assert text.count(b"lockstep_run_step{") == 300


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


@pytest.mark.slow
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


@pytest.mark.slow
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


async def test_a_count_that_somebody_made_no_number_ends_no_scrape(world: World) -> None:
    world.runs = [run("llama", RUNNING | {"nodesReady": "²/2"})]
    value = await world.scrape()
    assert value("lockstep_run_nodes_ready", namespace="team", run="llama") == 0
