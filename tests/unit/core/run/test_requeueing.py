"""Which runs queue again by themselves, and which end where others would."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import StopReason
from lockstep.core.model.worker_report import JobAsk
from lockstep.core.run.asks import obey_asks
from lockstep.core.run.regression import LONGEST_HOLD
from lockstep.core.run.requeueing import may_be_requeued, or_end
from lockstep.core.run.stopping import REQUEUES, begin_stop, stop_after_save
from support import elastic_gangs
from support.values import not_none
from support.world import World, node, running, spec, world, world_with_gang


def batch(**options: str) -> dict[str, Any]:
    made = {
        "script": "#!/bin/sh\nsrun x\n",
        "options": {name.replace("_", "-"): text for name, text in options.items()},
    }
    return {"launcher": {"type": "Slurm", "batch": made}, "command": []}


ONCE = batch(no_requeue="")
AGAIN = batch()
BY_ITSELF = [reason for reason in REQUEUES if reason is not StopReason.REQUEUED]


@pytest.mark.parametrize(
    ("fields", "may"),
    [({}, True), (AGAIN, True), (batch(requeue=""), True), (batch(signal="USR1@60"), True), (ONCE, False)],
)
def test_a_run_queues_again_unless_its_batch_script_says_that_it_must_not(fields: dict[str, Any], may: bool) -> None:
    w = world(1)
    w.apply("one", spec(1, **fields))
    assert may_be_requeued(w.runs["one"]) is may


@pytest.mark.parametrize("reason", REQUEUES)
@pytest.mark.parametrize("saves", [False, True])
def test_a_script_that_runs_once_ends_where_others_queue_again(reason: StopReason, saves: bool) -> None:
    plan = world_with_gang(**ONCE).plan("one")
    (stop_after_save if saves else begin_stop)(plan, reason, "makes room; it queues again")
    stop = not_none(plan.status.stop)
    if reason is StopReason.REQUEUED:  # a person asked for it from outside
        assert stop.reason == reason
        assert stop.message.startswith("makes room; it queues again")
    else:
        assert stop.reason == StopReason.NOT_REQUEUED
        assert stop.message.startswith("makes room; by --no-requeue its script does not run twice")


@pytest.mark.parametrize("reason", BY_ITSELF)
def test_others_and_scripts_that_were_not_started_yet_queue_again(reason: StopReason) -> None:
    assert or_end(world_with_gang(**AGAIN).plan("one"), reason, "why") == (reason, "why")
    w = world_with_gang(**ONCE)
    w.amend("one", start=None)
    assert or_end(w.plan("one"), reason, "why") == (reason, "why")


def test_where_status_cannot_tell_whether_the_script_was_started_it_is_not_run_again() -> None:
    w = world_with_gang(**ONCE)
    w.amend("one", start=None)
    assert or_end(w.plan("one"), StopReason.REQUEUED, "why", unasked=True)[0] is StopReason.NOT_REQUEUED


def ended(w: World) -> str:
    w.pass_time(300, 5)
    assert w.status("one").attempt == 1
    assert w.status("one").state == "Failed"
    return not_none(find(w.status("one"), "Finished")).reason


def test_a_drained_node_ends_it_and_it_is_not_moved() -> None:
    w = running(2, spare=1, **ONCE)
    w.drain("n1")
    w.settle()
    assert ended(w) == StopReason.NOT_REQUEUED


def test_a_node_that_is_drained_before_its_script_starts_is_left() -> None:
    w = world(3)
    w.apply("one", spec(2, **ONCE))
    for _ in range(5):
        w.reconcile("one")
        w.admit()
    drained = w.status("one").assignment.nodes[1]
    w.drain(drained)
    w.settle()
    assert w.status("one").state == "Running"
    assert drained not in w.status("one").assignment.nodes


def test_a_drained_queue_ends_it() -> None:
    w = running(2, **ONCE)
    w.queue("default", stopPolicy="HoldAndDrain")
    w.settle()
    assert ended(w) == StopReason.NOT_REQUEUED


def test_who_needs_its_nodes_more_gets_them_and_it_does_not_come_back() -> None:
    w = world(2)
    w.classes = {"low": 10, "high": 1000}
    w.queue(preemption={"withinQueue": "LowerPriority", "minRuntime": "0s"})
    w.roll_out("one", spec(2, priorityClassName="low", **ONCE))
    w.pass_time(40, 20)
    w.apply("urgent", spec(2, priorityClassName="high"))
    w.pass_time(60, 5)
    assert w.status("urgent").state == "Running"
    assert ended(w) == StopReason.NOT_REQUEUED


@pytest.mark.parametrize(
    ("fields", "phase", "words"),
    [
        (AGAIN, Phase.STOPPING, ""),
        (ONCE, Phase.RUNNING, "Requested operation is presently disabled"),
    ],
)
def test_scontrol_requeue_is_refused_in_slurms_words(fields: dict[str, Any], phase: Phase, words: str) -> None:
    w = world_with_gang(**fields)
    told = w.reports["uid-one"]
    told[0] = replace(told[0], asks=(JobAsk("a", "requeue"),))
    plan: PlanBuilder = w.plan("one")
    obey_asks(plan)
    assert (plan.phase, plan.status.asks[0].ok, plan.status.asks[0].words) == (phase, not words, words)


@pytest.mark.parametrize(("fields", "attempt"), [(AGAIN, 2), (ONCE, 1)])
def test_a_gang_that_is_smaller_than_it_may_be_grows_only_if_its_script_may_run_again(
    fields: dict[str, Any], attempt: int
) -> None:
    checkpoint = {"shared": {"claimName": "lustre"}}
    w = elastic_gangs.running(
        elastic_gangs.world(2), 3, elastic={"min": 2, "growAfter": "1m"}, checkpoint=checkpoint, **fields
    )
    elastic_gangs.save(w)
    w.nodes["n9"] = node("n9", rack="rack-0")
    for _ in range(8):
        w.train("llama", 5)
        w.pass_time(30, step=10)
    assert w.status("llama").attempt == attempt


def test_a_lost_node_ends_it_whatever_else_its_spec_says_of_restarts() -> None:
    w = running(2, spare=1, **ONCE)
    w.fail_node(w.status("one").assignment.nodes[1])
    w.settle()
    assert ended(w) == StopReason.NOT_REQUEUED


@pytest.mark.parametrize("why", ["its action is to queue again", "its spec cannot be read"])
def test_its_time_limit_ends_it(why: str) -> None:
    w = running(2, timeLimit="2m", **({"onTimeLimit": {"action": "Requeue"}} if "action" in why else {}), **ONCE)
    if "read" in why:
        w.runs["one"] = replace(w.runs["one"], spec_error="spec.podTemplate: is nested too deeply", generation=2)
    w.pass_time(300, 10)
    w.runs["one"] = replace(w.runs["one"], spec_error="", generation=3)
    assert ended(w) == StopReason.TIME_LIMIT


@pytest.mark.parametrize("left", [None, {}], ids=["nothing", "the rest"])
def test_it_ends_too_when_its_spec_cannot_be_read_any_more(left: dict[str, Any] | None) -> None:
    w = running(2, **ONCE)
    readable = w.runs["one"]
    legible = None if left is None else spec(2, command=[], **left)
    w.runs["one"] = replace(readable, spec=legible, spec_error="spec.launcher: is not understood", generation=2)
    w.settle()
    if left is not None:
        w.queue("default", stopPolicy="HoldAndDrain")
    w.pass_time(LONGEST_HOLD + 450, 30)
    w.queue("default")
    w.runs["one"] = replace(w.runs["one"], spec=readable.spec, spec_error="", generation=3)
    assert ended(w) == StopReason.NOT_REQUEUED


def test_one_whose_spec_cannot_be_read_before_its_script_starts_queues_again() -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(2)}, silent_nodes={"n1"})
    w.apply("one", spec(2, **ONCE))
    w.settle()
    readable = w.runs["one"]
    w.runs["one"] = replace(readable, spec_error="spec.podTemplate: is nested too deeply", generation=2)
    w.pass_time(LONGEST_HOLD + 60, 30)
    w.silent_nodes.clear()
    w.runs["one"] = replace(w.runs["one"], spec_error="", generation=3)
    w.pass_time(120, 10)
    assert w.status("one").state == "Running"


def test_one_whose_status_is_gone_and_of_which_failed_pods_are_left_ends() -> None:
    w = running(2, **ONCE)
    for rank in (0, 1):
        w.fail_pod("one", rank)
    w.reports.clear()
    w.workers.clear()
    w.wipe_status("one")
    w.pass_time(2 * LONGEST_HOLD, 30)
    assert all(pod.incarnation == 1 for pod in w.pods.values())
    assert w.status("one").state == "Failed"
    assert not_none(find(w.status("one"), "Finished")).reason == StopReason.NOT_REQUEUED
