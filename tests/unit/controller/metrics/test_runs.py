"""What a scrape says of runs."""

import math
from dataclasses import replace
from typing import Any

import pytest

from lockstep.controller.workers.reports import RunSummary
from support.scrapes import FINISHED, HELD, RUNNING, World, run


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


TRAINS = RUNNING | {
    "start": RUNNING["start"] | {"members": [{"slots": "0-1", "incarnation": 1}]},
    "attempts": [{"number": 2, "startedAt": 500}],
}


@pytest.mark.parametrize(
    ("fields", "heard", "age"),
    [
        ({}, {}, 300),
        ({}, {0: 1}, 300),
        ({}, {0: 1, 1: 1}, 2),
        ({"attempts": [{"number": 2, "startedAt": 900}]}, {0: 1}, 100),
        ({"start": TRAINS["start"] | {"joinedAt": 950}}, {0: 1}, 50),
        ({"exits": {"attempt": 2, "succeeded": "1"}}, {0: 1}, 2),
        ({"exits": {"attempt": 1, "succeeded": "1"}}, {0: 1}, 300),
        ({"assignment": {"nodes": ["a", "b"], "incarnations": [1, 2]}}, {0: 1}, 2),
        ({"assignment": {"nodes": ["a", "b", "c"], "incarnations": [1, 1, 1], "rankToSlot": [0, 1]}}, {0: 1, 1: 1}, 2),
        ({"assignment": {"nodes": ["a", "b"]}}, {}, 2),
        ({"start": RUNNING["start"]}, {}, 2),
        ({"attempt": 3}, {}, 2),
        ({"start": TRAINS["start"] | {"members": [{"slots": "x", "incarnation": 1}]}}, {}, 2),
    ],
    ids=[
        "nobody has come",
        "one has not come",
        "all have come",
        "START was later",
        "it joined later",
        "it has ended well",
        "it ended well in an earlier attempt",
        "it is yet to join",
        "a spare",
        "a damaged assignment",
        "who took part is not known",
        "before START",
        "an edited status",
    ],
)
async def test_a_rank_that_a_new_leader_has_not_heard_is_silent_since_that_leads(
    world: World, fields: dict[str, Any], heard: dict[int, int], age: float
) -> None:
    world.leads_since = 700.0
    world.runs = [run("llama", TRAINS | fields, "default")]
    world.summary = RunSummary(
        workers=len(heard), highest_step=None, lowest_step=None, oldest_report_age=2.0, heard=heard
    )
    assert (await world.scrape())("lockstep_run_report_age_seconds", namespace="team", run="llama") == age


async def test_a_gang_without_workers_is_never_silent(world: World) -> None:
    world.runs = [run("llama", TRAINS, "default", worker="Disabled", recovery={"hangTimeout": "Disabled"})]
    assert (await world.scrape())("lockstep_run_report_age_seconds", namespace="team", run="llama") == 0


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
