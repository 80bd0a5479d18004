"""Pods and nodes kept for a look inside, after a failure that ended the run."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.run.debug_hold import hold_for_debugging
from lockstep.core.run.undecidable import without_deciding
from support.kueue_world import kueue_world
from support.values import not_none
from support.world import World, spec, world, world_with_gang


def failed(nodes: int = 2, **recovery: object) -> World:
    """A run whose program failed for good; without checkpoints the first failure is the last."""
    w = world(nodes)
    w.roll_out("one", spec(2, checkpoint=None, recovery=recovery))
    w.end_child("one", 1, 1)
    w.pass_time(60, step=10)
    assert phase_of(w.status("one"), False) is Phase.FINISHED
    return w


def test_a_failed_runs_pods_stay_and_nobody_gets_its_nodes_until_the_hold_is_over() -> None:
    w = failed(debugHold="30m")
    w.apply("next", spec(2))
    w.pass_time(1500, step=100)
    assert len([pod for pod in w.pods.values() if pod.run == "one"]) == 2
    assert w.status("next").assignment.nodes == ()
    w.pass_time(900, step=50)
    assert not [pod for pod in w.pods.values() if pod.run == "one" and not pod.is_terminal]
    assert set(w.status("next").assignment.nodes) == {"n0", "n1"}


@pytest.mark.parametrize(
    ("setting", "limit", "held", "words"),
    [
        (28_800, {}, 28_800, "are kept for 8h, by the operator's maxDebugHold: "),
        (28_800, {"timeLimit": "30d"}, 28_800, "are kept for 8h, by the operator's maxDebugHold: "),
        (28_800, {"timeLimit": "1h"}, 3000, "are kept for 50m, by its time limit: "),
        (600, {"timeLimit": "1h"}, 600, "are kept for 10m, by the operator's maxDebugHold: "),
        (99_999_999, {}, 365 * 86_400, "are kept for 365d, by recovery.debugHold: "),
        (28_800, {"timeLimit": "10m"}, None, "no time is left by its time limit"),
        (0, {}, None, "not kept for debugging: no time is left by the operator's maxDebugHold"),
    ],
)
def test_a_hold_is_no_longer_than_the_operator_and_the_time_limit_allow(
    setting: int, limit: dict[str, str], held: int | None, words: str
) -> None:
    w = world_with_gang(1, recovery={"debugHold": "365d"}, **limit)
    w.tunables = replace(w.tunables, max_debug_hold=setting)
    w.amend("one", last_admitted=float(int(w.now)) - 600)
    plan = w.plan("one")
    hold_for_debugging(plan)
    assert plan.status.recovery.debug_until == (None if held is None else plan.stamp + held)
    assert words in plan.events[0].note


def test_what_may_be_held_for_less_long_meanwhile_is_given_back_then() -> None:
    w = failed(debugHold="4h")
    w.pass_time(600, step=100)
    assert [pod for pod in w.pods.values() if not pod.is_terminal]
    w.tunables = replace(w.tunables, max_debug_hold=60)
    w.pass_time(180, step=10)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]


def test_nodes_that_are_kept_are_paid_for_until_they_are_given_back() -> None:
    w = failed(debugHold="1h")
    before = float(w.status("one").goodput.gpu_hours)
    w.pass_time(4200, step=100)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]
    gpus = 2 * w.status("one").resolved.gpus_per_node
    assert float(w.status("one").goodput.gpu_hours) - before == pytest.approx(gpus, rel=0.1)
    usage = w.status("one").goodput
    w.pass_time(600, step=100)
    assert w.status("one").goodput == usage


def test_a_run_whose_budget_is_used_up_holds_its_nodes_no_longer() -> None:
    w = world(2)
    w.roll_out(
        "one",
        spec(2, gpusPerNode=8, checkpoint=None, recovery={"debugHold": "4h"}, budget={"gpuHours": 8, "action": "Stop"}),
    )
    w.end_child("one", 1, 1)
    w.pass_time(1200, step=100)
    assert [pod for pod in w.pods.values() if not pod.is_terminal]
    w.pass_time(1200, step=100)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]
    assert 8 <= float(w.status("one").goodput.gpu_hours) < 10


def test_a_hold_counts_among_the_runs_of_its_queue() -> None:
    w = failed(4, debugHold="30m")
    w.queue(limits={"maxRunningRuns": 1})
    w.apply("next", spec(2))
    w.pass_time(300, step=50)
    assert w.status("next").assignment.nodes == ()
    w.annotate("one", debug_release="now")
    w.pass_time(180, step=10)
    assert len(w.status("next").assignment.nodes) == 2


def test_a_queue_that_is_drained_keeps_nothing_for_debugging() -> None:
    w = failed(debugHold="30m")
    w.queue(stopPolicy="Hold")
    w.pass_time(180, step=10)
    assert [pod for pod in w.pods.values() if not pod.is_terminal]
    w.queue(stopPolicy="HoldAndDrain")
    w.pass_time(180, step=10)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]


@pytest.mark.parametrize("how", ["evicted", "deactivated", "drained"])
def test_kueue_gets_its_nodes_back_from_a_failed_run_that_keeps_them(how: str) -> None:
    w = kueue_world(2, pods=2)
    w.queue_up(recovery={"debugHold": "8h"}, checkpoint=None)
    w.end_child("run", 1, 1)
    w.pass_time(300, 50)
    assert [pod for pod in w.pods.values() if not pod.is_terminal]
    assert (w.told("QuotaReserved")[0], w.told("Finished")[0]) == ("True", "")
    if how == "evicted":
        w.evict("Preempted")
    elif how == "deactivated":
        w.activate(False)
    else:
        w.pool.stopped = "HoldAndDrain"
    w.pass_time(60, 10)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]
    assert w.told("Finished") == ("True", "Failed")


def test_a_workload_that_is_not_seen_ends_no_hold() -> None:
    w = kueue_world(2)
    w.queue_up(recovery={"debugHold": "8h"}, checkpoint=None)
    w.end_child("run", 1, 1)
    w.pass_time(60, 10)
    w.strip_labels()
    w.pass_time(600, 50)
    assert [pod for pod in w.pods.values() if not pod.is_terminal]


def test_one_that_nothing_can_be_decided_for_is_held_no_longer_either() -> None:
    w = failed(debugHold="4h")
    w.now += 600
    assert not without_deciding(w.snapshot("one"), w.tunables, w.now, "X").deletes
    shorter = replace(w.tunables, max_debug_hold=60)
    assert without_deciding(w.snapshot("one"), shorter, w.now, "X").deletes
    w.annotate("one", debug_release="now")
    assert without_deciding(w.snapshot("one"), w.tunables, w.now, "X").deletes
    w.pods.clear()
    after = not_none(without_deciding(w.snapshot("one"), w.tunables, w.now, "X").status)
    assert after.leaving is None
    assert float(after.goodput.gpu_hours) > float(w.status("one").goodput.gpu_hours)


@pytest.mark.parametrize("cancels", [False, True])
def test_an_annotation_or_a_cancel_ends_the_hold(cancels: bool) -> None:
    w = failed(debugHold="30m")
    if cancels:
        w.apply("one", changed(w.runs["one"].spec, cancel=True))
    else:
        w.annotate("one", debug_release="now")
    w.pass_time(180, step=10)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]


def test_without_the_setting_nothing_is_held() -> None:
    w = failed()
    assert w.status("one").recovery.debug_until is None
    w.pass_time(180, step=10)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]


def test_a_run_whose_time_is_up_holds_its_nodes_no_longer() -> None:
    w = world(1)
    w.apply("one", spec(1, timeLimit="1m", recovery={"debugHold": "30m"}))
    w.pass_time(120, step=10)
    assert phase_of(w.status("one"), False) is Phase.FINISHED
    assert w.status("one").recovery.debug_until is None


@pytest.mark.parametrize("change", [{"cancel": True}])
def test_a_cancelled_run_is_not_held(change: dict[str, bool]) -> None:
    w = world(1)
    run_spec = spec(1, recovery={"debugHold": "30m"})
    w.roll_out("one", run_spec)
    w.apply("one", changed(run_spec, **change))
    w.pass_time(600, step=10)
    assert w.status("one").recovery.debug_until is None
