"""What status says to people: step counts, words that change, and when progress is worth a write."""

from dataclasses import replace
from typing import Literal

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import Condition
from lockstep.core.model.conditions import find
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import Lag
from lockstep.core.model.worker_report import WorkerPhase
from lockstep.core.run.report import (
    HINT_AFTER,
    NO_STEP_HINT,
    SETTLED_AFTER,
    conclude,
    rank_or_stage_differs,
    record_progress,
)
from support.world import World, node, spec, world, world_with_gang


@pytest.mark.parametrize(
    ("before", "now", "differ"),
    [
        ("a: b: c: 10 s", "a: b: c: 20 s", False),
        ("a: b: c", "a: b: d", True),
        ("", "a", True),
        ("", "", False),
    ],
)
def test_only_another_rank_or_stage_is_worth_telling(before: str, now: str, differ: bool) -> None:
    assert rank_or_stage_differs(before, now) is differ


@pytest.mark.parametrize(
    ("since_written", "at_once", "written"), [(0.0, False, False), (0.0, True, True), (1e4, False, True)]
)
def test_steps_are_written_once_per_interval(since_written: float, at_once: bool, written: bool) -> None:
    w = world_with_gang(2)
    w.now += 1e5
    w.train("one", 7)
    w.work_reports_only()
    w.amend("one", progress=changed(w.status("one").progress, step=3, time=w.now - since_written))
    plan = w.plan("one")
    record_progress(plan, at_once=at_once)
    assert plan.status.progress.step == (7 if written else 3)


@pytest.mark.parametrize(("lag", "step"), [(Lag(), 7), (Lag(loop=2.0), 3)])
def test_where_everything_is_slow_steps_are_written_less_often(lag: Lag, step: int) -> None:
    w = world_with_gang(2)
    w.now += 1e5
    w.train("one", 7)
    w.work_reports_only()
    since = w.now - 2 * w.tunables.progress_write_interval
    w.amend("one", progress=changed(w.status("one").progress, step=3, time=since))
    w.lag = lag
    plan = w.plan("one")
    record_progress(plan, at_once=False)
    assert plan.status.progress.step == step


def test_slowness_is_told_once_and_its_figures_change_with_the_count_of_those_that_are_there() -> None:
    w = world_with_gang(2)

    def told(words: str, ready: str) -> tuple[str, int]:
        plan = w.plan("one")
        plan.status = changed(plan.status, nodes_ready=ready)
        conclude(plan, "", words)
        w.amend("one", conditions=plan.status.conditions, nodes_ready="0/2", reason=plan.status.reason)
        shown = find(plan.status, "ClusterDisruption")
        return shown.message if shown is not None else "", len(plan.events)

    w.amend("one", start=None)  # it gathers again
    assert told("2 of 2 are late", "0/2") == ("2 of 2 are late", 1)
    assert w.status("one").reason == "ClusterSlow"
    assert told("2 of 2 are later", "0/2") == ("2 of 2 are late", 0)
    assert told("", "0/2") == ("", 0)


@pytest.mark.parametrize(
    ("since", "ready"), [(SETTLED_AFTER - 0.1, "0/16"), (SETTLED_AFTER, "15/16")], ids=["at once", "a while later"]
)
def test_a_gang_that_is_soon_back_writes_no_count_that_its_start_would_wait_for(since: float, ready: str) -> None:
    w = world_with_gang(16)
    w.exit_child("one", 0, 1)
    w.work_reports_only()
    w.reconcile("one")
    assert (w.status("one").attempt, w.status("one").nodes_ready) == (2, "0/16")
    w.now += since
    for worker in w.workers.values():
        if worker.slot:
            worker.phase, worker.ready_for, worker.since = WorkerPhase.READY, 2, w.now
    w.work_reports_only()
    plan = w.plan("one")
    conclude(plan, "", "")
    assert plan.status.nodes_ready == ready


def test_a_time_that_has_yet_to_come_keeps_no_count_back() -> None:
    w = world_with_gang(16)
    w.exit_child("one", 0, 1)
    w.work_reports_only()
    w.reconcile("one")
    w.amend("one", last_admitted=w.now + 1e6)
    w.now += SETTLED_AFTER
    for worker in w.workers.values():
        if worker.slot:
            worker.phase, worker.ready_for, worker.since = WorkerPhase.READY, 2, w.now
    w.work_reports_only()
    plan = w.plan("one")
    conclude(plan, "", "")
    assert plan.status.nodes_ready == "15/16"


@pytest.mark.slow
@pytest.mark.parametrize(("lag", "apart"), [(Lag(), 1.5), (Lag(loop=2.0), 4.0)])
def test_those_that_come_one_by_one_without_end_are_counted_though_never_settled(lag: Lag, apart: float) -> None:
    w = world(24)
    w.lag = lag
    w.delays = lambda slot: (1.0, 1.0, apart * slot, 1.0)
    w.roll_out("one", spec(24))
    told = []
    while w.now < w.pods[min(w.pods)].created_at + 22 * apart:
        w.pass_time(apart)
        there = sum(bool(worker.ready_for) for worker in w.workers.values())
        told.append(int(w.status("one").nodes_ready.partition("/")[0]))
        assert there - told[-1] <= 9, "nobody would see that it gets on"
    assert told[-1] >= 8
    assert len(set(told)) <= 4, "they are few writes all the same"


@pytest.mark.parametrize(
    ("suspended", "nodes", "state"), [(False, 2, "Running"), (False, 1, "Pending"), (True, 2, "Suspended")]
)
def test_the_state_is_one_word(suspended: bool, nodes: int, state: str) -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(nodes)})
    w.apply("one", spec(2, suspend=suspended))
    w.settle()
    plan = w.plan("one")
    plan.status = changed(plan.status, state="")
    conclude(plan, "", "")
    assert plan.status.state == state
    finished = find(plan.status, "Finished")
    assert finished is not None
    assert finished.status == "False"
    assert replace(plan.run, status=plan.status).status.observed_generation == plan.run.generation


@pytest.mark.parametrize(
    ("smaller", "fields", "message"),
    [
        ({}, {}, "2 nodes are held, each with 8 nvidia.com/gpu"),
        ({"nvidia.com/gpu": 4}, {}, "2 nodes are held, each with 4 nvidia.com/gpu; 4 nvidia.com/gpu on n0 stay unused"),
        (
            {},
            {"gpusPerNode": 6},
            "2 nodes are held, each with 6 nvidia.com/gpu; 4 nvidia.com/gpu on n0, n1 stay unused",
        ),
    ],
)
def test_a_gang_is_told_which_gpus_it_has_and_which_of_its_nodes_it_leaves(
    smaller: dict[str, int], fields: dict[str, int], message: str
) -> None:
    made = world(2)
    made.nodes["n1"] = replace(made.nodes["n1"], allocatable={**made.nodes["n1"].allocatable, **smaller})
    made.roll_out("one", spec(2, **fields))
    admitted = find(made.status("one"), ConditionType.ADMITTED)
    assert admitted is not None
    assert admitted.message == message


def test_a_program_that_reports_no_step_is_told_how_to_once() -> None:
    w = world_with_gang(2)
    w.work_reports_only()

    def told() -> tuple[str, list[str]]:
        plan = w.plan("one")
        conclude(plan, "", "")
        w.amend("one", conditions=plan.status.conditions)
        shown = find(plan.status, ConditionType.PROGRESSING)
        return shown.message if shown is not None else "", [event.reason for event in plan.events]

    assert told() == ("no step of this attempt was reported yet", [])
    w.now += HINT_AFTER
    assert told() == (NO_STEP_HINT, ["NoStepReported"])
    assert told() == (NO_STEP_HINT, [])
    ended = [changed(each, ended_at=w.now) for each in w.status("one").attempts]
    w.amend("one", attempts=(*ended, changed(ended[-1], number=2, started_at=w.now, ended_at=None)), attempt=2)
    assert told()[1] == []
    w.now += HINT_AFTER
    assert told()[1] == [], "the attempt before was told"


def test_a_new_leader_takes_nobody_for_silent_before_it_could_hear_them_and_keeps_what_was_told() -> None:
    w = world_with_gang(2)
    w.work_reports_only()
    w.now += 2 * HINT_AFTER
    w.crash()

    def told() -> str:
        plan = w.plan("one")
        conclude(plan, "", "")
        w.amend("one", conditions=plan.status.conditions)
        shown = find(plan.status, ConditionType.PROGRESSING)
        return shown.message if shown is not None else ""

    assert told() == "no step of this attempt was reported yet"
    w.now += HINT_AFTER
    assert told() == NO_STEP_HINT
    w.crash()
    assert told() == NO_STEP_HINT


def test_a_run_that_has_reported_steps_before_is_given_the_time_to_load() -> None:
    w = world_with_gang(2)
    w.amend("one", progress=changed(w.status("one").progress, step=3, time=1.0))
    w.now += 2 * HINT_AFTER
    plan = w.plan("one")
    conclude(plan, "", "")
    shown = find(plan.status, ConditionType.PROGRESSING)
    assert shown is not None
    assert shown.message == "no step of this attempt was reported yet"


@pytest.mark.parametrize(
    ("state", "before", "reason", "shown"),
    [
        ("", None, "Held", "Held"),
        ("Pending", "NotSuspended", "Held", "Held"),
        ("Stopping", "NotSuspended", "SuspendRequested", "Suspended"),
        ("Suspended", "Held", "Held", "Held"),
        ("Suspended", "SuspendRequested", "SuspendRequested", "Suspended"),
    ],
)
def test_who_was_held_back_is_told_apart_from_who_was_stopped(
    state: str, before: str | None, reason: str, shown: str
) -> None:
    w = World({"n0": node("n0")})
    w.apply("one", spec(1, suspend=True))
    w.settle()
    conditions = [c for c in w.status("one").conditions if c.type != "Suspended"]
    if before is not None:
        value: Literal["True", "False"] = "False" if before == "NotSuspended" else "True"
        conditions.append(Condition(type="Suspended", status=value, reason=before, last_transition_time=1.0))
    w.amend("one", state=state, conditions=tuple(conditions))
    plan = w.plan("one")
    conclude(plan, "", "")
    told = find(plan.status, ConditionType.SUSPENDED)
    assert told is not None
    assert (told.reason, plan.status.state, plan.status.reason) == (reason, "Suspended", shown)
