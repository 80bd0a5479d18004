"""The account that a run's status keeps, over whole histories in the simulated world."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.goodput_status import BucketsStatus, GoodputStatus
from lockstep.core.accounting.book import read
from lockstep.core.accounting.goodput import Bucket
from lockstep.core.accounting.usage import (
    BudgetUse,
)
from lockstep.core.decide import decide
from lockstep.core.model.settings import GpuRates
from lockstep.core.model.tunables import Tunables
from lockstep.core.run.report import HINT_AFTER
from support.world import World, node, spec

RATES = {"H100": GpuRates(price=2.5, watts=1000.0, peak_flops=1e15)}


def world(**tunables: object) -> World:
    return World({f"n{i}": node(f"n{i}") for i in range(3)}, tunables=Tunables(**tunables))  # type: ignore[arg-type]


def goodput(w: World) -> GoodputStatus:
    return w.status("llama").goodput


def parts(w: World) -> dict[str, int]:
    return {name: value for name, value in goodput(w).buckets if value}


def train(w: World, seconds: int, step_seconds: int = 5) -> None:
    """Steps of ``step_seconds``, each saved."""
    for _ in range(seconds // step_seconds):
        w.pass_time(step_seconds, step=step_seconds)
        w.train("llama", 1)
        w.settle()


def life(w: World) -> None:
    """Waits 20 s for nodes, trains 100 s, loses a process, trains 50 s, ends."""
    for name in w.nodes:
        w.nodes[name] = replace(w.nodes[name], unschedulable=True)
    w.apply("llama", spec(2))
    w.pass_time(20)
    for name in w.nodes:
        w.nodes[name] = replace(w.nodes[name], unschedulable=False)
    w.settle()
    train(w, 100)
    w.end_child("llama", 1, 1)
    train(w, 50)
    for rank in (0, 1):
        w.exit_child("llama", rank, 0)
    w.settle()


@pytest.mark.slow
def test_the_time_of_a_whole_life_is_told() -> None:
    w = world()
    life(w)
    told = parts(w)
    assert sum(told.values()) == int(goodput(w).time or 0) - 1_000_000
    assert told["queue"] == pytest.approx(20, abs=2)
    # The first step of an attempt ends its start-up when the worker does not say how long steps take.
    assert told["init"] == pytest.approx(5, abs=2)
    assert told["loading"] == pytest.approx(5, abs=2)
    assert told["productive"] == pytest.approx(140, abs=3)
    assert goodput(w).failures == 1
    assert goodput(w).steps_lost == 0
    assert goodput(w).recoveries == (pytest.approx(5, abs=2),)
    assert float(goodput(w).ettr) == pytest.approx(told["productive"] / sum(told.values()), abs=1e-3)
    assert float(goodput(w).goodput) > float(goodput(w).ettr)


def test_a_run_that_reports_no_steps_is_not_said_to_train_none_of_the_time() -> None:
    w = world()
    w.apply("llama", spec(2))
    w.pass_time(3 * 3600, step=600)
    assert parts(w)["init"] > 3600
    assert (goodput(w).ettr, goodput(w).goodput) == ("", "")
    train(w, 90)
    assert 0.0 < float(goodput(w).ettr) <= float(goodput(w).goodput) < 0.1


@pytest.mark.slow
def test_the_account_is_closed_with_the_run() -> None:
    w = world()
    life(w)
    ended = goodput(w)
    w.pass_time(100)
    assert goodput(w) == ended


@pytest.mark.slow
def test_steps_that_were_not_saved_are_lost_with_their_time() -> None:
    w = world()
    w.roll_out("llama", spec(2))
    train(w, 50)
    saved = list(w.saved["uid-llama"])
    train(w, 50)
    w.saved["uid-llama"] = saved
    w.end_child("llama", 1, 1)
    train(w, 50)
    assert goodput(w).steps_lost == 10
    w.pass_time(40)
    assert parts(w)["lost_work"] == pytest.approx(50, abs=3)


def test_each_attempt_says_when_it_had_its_nodes_and_began_its_first_step() -> None:
    w = world()
    life(w)
    first, second = w.status("llama").attempts
    assert first.started_at is not None
    assert first.ended_at is not None
    assert first.first_step_at == pytest.approx(first.started_at + 5, abs=2)
    assert second.first_step_at == pytest.approx(first.ended_at + 5, abs=2)
    assert first.admitted_at == second.admitted_at == pytest.approx(first.started_at, abs=2)


def test_a_restart_that_was_asked_for_says_how_far_training_had_come_and_what_it_cost() -> None:
    w = world()
    w.roll_out("llama", spec(2))
    train(w, 50)
    saved = list(w.saved["uid-llama"])
    train(w, 50)
    w.saved["uid-llama"] = saved
    w.request("llama", restart_request="now")
    first = w.status("llama").attempts[0]
    assert (first.cause, first.last_step, first.steps_lost) == ("Requested", 20, 10)
    assert goodput(w).steps_lost == 0  # of failures alone


def test_a_first_step_is_dated_in_its_own_attempt_if_it_is_heard_of_with_the_end() -> None:
    w = world()
    w.roll_out("llama", spec(2))
    w.now += 5.0
    w.train("llama", 1)
    w.end_child("llama", 1, 1)
    first, second = w.status("llama").attempts
    assert first.started_at is not None
    assert first.first_step_at == pytest.approx(first.started_at + 5, abs=2)
    assert second.first_step_at is None


def test_an_attempt_that_ends_before_a_step_is_heard_of_says_of_none() -> None:
    w = world()
    w.roll_out("llama", spec(2))
    w.end_child("llama", 1, 1)
    assert w.status("llama").attempts[0].first_step_at is None


@pytest.mark.slow
def test_a_suspended_run_is_neither_waiting_nor_wasting() -> None:
    w = world()
    w.roll_out("llama", spec(2))
    train(w, 50)
    w.roll_out("llama", spec(2, suspend=True))
    w.pass_time(100)
    w.roll_out("llama", spec(2))
    train(w, 50)
    assert parts(w)["suspended"] == pytest.approx(100, abs=3)
    assert float(goodput(w).ettr) > 0.8
    assert goodput(w).failures == 0
    assert goodput(w).recoveries == ()


def test_a_pass_that_is_lost_or_done_twice_changes_nothing() -> None:
    w = world()
    w.roll_out("llama", spec(2))
    train(w, 50)
    w.exit_child("llama", 1, 1)
    w.work_reports_only()
    snapshot = w.snapshot("llama")
    plan, again = (decide(snapshot, w.tunables, w.now) for _ in range(2))
    assert plan == again
    assert plan.status is not None
    following = replace(snapshot, run=replace(snapshot.run, status=plan.status))
    assert decide(following, w.tunables, w.now).status is None


def test_a_status_without_an_account_begins_one_that_still_adds_up() -> None:
    w = world()
    w.roll_out("llama", spec(2))
    train(w, 50)
    run = w.runs["llama"]
    w.runs["llama"] = replace(run, status=changed(run.status, goodput=GoodputStatus()))
    train(w, 70)
    told = parts(w)
    assert sum(told.values()) == int(goodput(w).time or 0) - 1_000_000
    assert told["productive"] >= 60


@pytest.mark.slow
def test_a_waiting_run_costs_no_writes() -> None:
    w = world()
    w.apply("llama", spec(9))
    w.pass_time(50)
    version = w.runs["llama"].resource_version
    w.pass_time(200)
    assert w.runs["llama"].resource_version == version
    assert goodput(w).time is None


@pytest.mark.slow
def test_what_is_held_is_counted_and_priced() -> None:
    w = world(gpu_rates=RATES, gpu_types={"H100": {}})
    w.apply("llama", spec(2, gpusPerNode=8, placement={"gpuTypes": ["H100"]}))
    w.settle()
    train(w, 3600, step_seconds=60)
    assert float(goodput(w).gpu_hours) == pytest.approx(16, abs=0.3)
    assert float(goodput(w).energy_kwh) == pytest.approx(16, abs=0.3)
    assert float(goodput(w).cost) == pytest.approx(40, abs=1)
    w.roll_out("llama", spec(2, gpusPerNode=8, placement={"gpuTypes": ["H100"]}, suspend=True))
    held = goodput(w).gpu_hours
    w.pass_time(3600, step=600)
    assert goodput(w).gpu_hours == held


def test_throughput_is_that_of_the_newest_steps() -> None:
    w = world(gpu_rates=RATES, gpu_types={"H100": {}})
    progress = {"tokensPerStep": 4_000_000, "flopsPerToken": 4_000_000_000}
    w.roll_out("llama", spec(2, gpusPerNode=8, placement={"gpuTypes": ["H100"]}, progress=progress))
    train(w, 120)
    assert float(goodput(w).tokens_per_second) == pytest.approx(800_000, rel=0.05)
    assert float(goodput(w).mfu) == pytest.approx(0.2, rel=0.05)


@pytest.mark.slow
def test_a_budget_of_gpu_hours_warns_once_at_each_mark() -> None:
    w = world()
    w.roll_out("llama", spec(2, gpusPerNode=8, budget={"gpuHours": 16}))
    warnings = []
    for _ in range(70):
        w.pass_time(60, step=20)
        plan = decide(w.snapshot("llama"), w.tunables, w.now)
        warnings += [event.note for event in plan.events if event.reason == "GpuHoursUsed"]
        w.reconcile("llama")
    assert read(goodput(w).state).warned is BudgetUse.ALL  # type: ignore[union-attr]
    assert len(warnings) <= 2


def test_a_new_leader_answers_the_workers_before_it_brings_the_account_up_to_date() -> None:
    w = world()
    w.roll_out("llama", spec(2))
    w.now += HINT_AFTER  # what is due then is written
    w.reconcile("llama")
    w.now += 3600.0
    w.crash()
    assert decide(w.snapshot("llama"), w.tunables, w.now).status is None
    assert decide(w.snapshot("llama"), w.tunables, w.now + 30.0).status is not None


def test_the_buckets_of_status_are_those_of_the_account() -> None:
    assert set(BucketsStatus.model_fields) == {bucket.value for bucket in Bucket}
