"""Which nodes a run leaves after a failure, for how long it is kept off them, and which stay."""

from dataclasses import replace

import pytest

from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.settings import Deadlines
from lockstep.core.model.tunables import Tunables
from support.recovering import RUN, fail, status, train, training
from support.values import not_none
from support.world import World, spec, world


def test_a_node_that_fails_first_twice_in_a_day_is_left_for_a_day() -> None:
    w = training()
    fail(w, 1, stderr="RuntimeError: a")
    assert "n1" in status(w).assignment.nodes
    train(w, 100)
    fail(w, 1, stderr="RuntimeError: b")
    assert "n1" not in status(w).assignment.nodes
    (excluded,) = status(w).recovery.excluded_nodes
    assert excluded.until is not None
    assert excluded.until - w.now > 80_000
    assert status(w).totals.nodes_replaced == 1


def test_a_node_that_fails_first_again_after_a_day_stays() -> None:
    w = training()
    fail(w, 1, stderr="RuntimeError: a")
    w.now += 90_000
    train(w, 100)
    fail(w, 1, stderr="RuntimeError: b")
    assert "n1" in status(w).assignment.nodes


def test_a_fault_of_the_machine_replaces_the_node_although_another_rank_complained_first() -> None:
    w = training()
    w.show(RUN, 2, "Xid:79")
    w.now += 20.0
    w.exit_child(RUN, 0, 1, signs=("NCCL:Timeout",))
    w.pass_time(20, step=2)
    first = status(w).attempts[0]
    assert (first.cause, first.rank, first.node, first.charged, first.action) == ("Hardware", 2, "n2", False, "Replace")
    assert "n2" not in status(w).assignment.nodes
    assert set(w.children(RUN).values()) == {2}


def test_a_condition_of_a_node_explains_a_failure_and_keeps_everybody_off_until_it_is_gone() -> None:
    w = training(3, 1)
    w.now += 5.0
    sick = {"conditions": {"XidCriticalError": "GPU 3"}, "conditions_changed_at": w.now}
    w.nodes["n1"] = replace(w.nodes["n1"], **sick)
    w.settle()
    assert status(w).attempt == 1, "training goes on as long as it does"
    fail(w, 0, signs=("NCCL:Timeout",))
    assert status(w).attempts[0].cause == "Hardware"
    assert set(status(w).assignment.nodes) == {"n0", "n2", "n3"}
    (excluded,) = status(w).recovery.excluded_nodes
    assert excluded.condition == "XidCriticalError"
    w.nodes["n1"] = replace(w.nodes["n1"], conditions={})
    w.settle()
    assert status(w).recovery.excluded_nodes == ()


def test_a_gpu_that_its_device_plugin_gave_up_explains_a_failure_and_keeps_everybody_off_until_it_is_back() -> None:
    w = training(3, 1)
    whole = w.nodes["n1"].allocatable
    w.nodes["n1"] = replace(w.nodes["n1"], allocatable={**whole, "nvidia.com/gpu": 7})
    w.settle()
    assert status(w).attempt == 1, "training goes on as long as it does"
    fail(w, 0, signs=("NCCL:Timeout",))
    first = status(w).attempts[0]
    assert (first.cause, first.node, first.charged) == ("Hardware", "n1", False)
    assert "7 healthy GPUs left of 8" in first.message
    assert set(status(w).assignment.nodes) == {"n0", "n2", "n3"}
    (excluded,) = status(w).recovery.excluded_nodes
    assert excluded.condition == "UnhealthyDevice"
    w.nodes["n1"] = replace(w.nodes["n1"], allocatable=whole)
    w.settle()
    assert status(w).recovery.excluded_nodes == ()


def test_a_device_plugin_that_starts_again_offers_no_gpu_for_a_while_and_is_no_evidence() -> None:
    w = training(3, 1)
    w.nodes["n1"] = replace(w.nodes["n1"], allocatable={**w.nodes["n1"].allocatable, "nvidia.com/gpu": 0})
    fail(w, 0)
    assert status(w).attempts[0].cause == "Application"


def test_a_machine_that_fails_again_within_a_day_is_not_taken_back_by_the_run() -> None:
    w = training(2, 1, recovery={"noProgressLimit": 100})
    w.nodes["n2"] = replace(w.nodes["n2"], ready=False)
    for lasts in (True, False):
        train(w, 100)
        sick = {"conditions": {"XidCriticalError": "GPU 3"}, "conditions_changed_at": w.now + 1.0}
        w.nodes["n1"] = replace(w.nodes["n1"], **sick)
        w.now += 1.0
        fail(w, status(w).assignment.nodes.index("n1"))
        (excluded,) = status(w).recovery.excluded_nodes
        assert (excluded.node, bool(excluded.condition), excluded.until is None) == ("n1", lasts, not lasts)
        w.nodes["n1"] = replace(w.nodes["n1"], conditions={})
        w.settle()
        assert ("n1" in status(w).assignment.nodes) is lasts


def test_a_run_that_spoils_node_after_node_is_not_believed_for_ever() -> None:
    w = training(3, 6, recovery={"noProgressLimit": 100})
    for _ in range(3):
        train(w, 100)
        fail(w, 1, signs=("Xid:79",))
    assert len(status(w).recovery.excluded_nodes) == 2
    assert is_true(status(w), "ClusterDisruption")
    shown = not_none(find(status(w), "ClusterDisruption"))
    assert shown.reason == "ExclusionLimit"
    w.now += 3700
    w.settle()
    assert find(status(w), "ClusterDisruption") is None


def test_a_node_that_is_refused_once_is_kept_off_for_minutes_and_the_second_time_for_a_day() -> None:
    patient = Tunables(deadlines=Deadlines(vacant=5000.0))
    w = world(1, tunables=patient)
    w.apply(RUN, spec(1))
    for expected in (900.0, 86_400.0):
        for _ in range(2):
            w.reconcile(RUN)
            w.admit()
        w.reconcile(RUN)
        (pod,) = w.pods.values()
        w.pods[pod.name] = replace(pod, reason="Unschedulable", message="taint")
        w.now += 70
        w.reconcile(RUN)
        w.reconcile(RUN)
        (excluded,) = status(w).recovery.excluded_nodes
        assert excluded.until is not None
        assert excluded.until - w.now == pytest.approx(expected, abs=1.0)
        w.now += 1000


def test_pods_lost_a_day_apart_do_not_add_up() -> None:
    w = training()
    for _ in range(5):
        train(w, 10)
        w.fail_pod(RUN, 1)
        w.pass_time(4)
        w.now += 90_000
    assert "n1" in status(w).assignment.nodes


def test_peers_of_lost_nodes_cost_nothing_while_the_breaker_is_open() -> None:
    w = training(4, 4)
    for name in ("n1", "n2", "n3"):
        w.fail_node(name)
    w.breaker = True
    w.now += 15.0
    w.exit_child(RUN, 0, 1, stderr="RuntimeError: a")
    w.pass_time(10)
    first = status(w).attempts[0]
    assert (first.cause, first.charged) == ("NodeLost", False)
    assert status(w).assignment.vacant == ()
    assert status(w).recovery.consecutive_no_progress == 0
    w.pass_time(600, step=30)
    assert is_true(status(w), "ClusterDisruption"), "its cause lasts"
    for name in ("n1", "n2", "n3"):
        w.return_node(name)
    w.pass_time(60, step=5)
    assert set(w.children(RUN).values()) == {status(w).attempt}


def test_what_lasts_after_an_hour_is_taken_for_lost() -> None:
    w = training(4, 4)
    for name in ("n1", "n2", "n3"):
        w.fail_node(name)
    w.breaker = True
    w.pass_time(60, step=5)
    assert status(w).assignment.vacant == ()
    w.now += 3600
    w.pass_time(60, step=5)
    assert set(status(w).assignment.nodes) == {"n0", "n4", "n5", "n6"}
    assert phase_of(status(w), False) is Phase.RUNNING


def test_a_node_lost_twice_in_a_day_is_kept_off() -> None:
    w = training(3, 1)
    lose(w, "n1")
    assert status(w).recovery.excluded_nodes == ()
    w.return_node("n1")
    lose(w, "n3")
    assert "n1" in status(w).assignment.nodes
    w.return_node("n3")
    lose(w, "n1")
    assert [entry.node for entry in status(w).recovery.excluded_nodes] == ["n1"]


def lose(w: World, name: str) -> None:
    """A node dies under the gang, which goes on with another."""
    train(w, 10)
    w.fail_node(name)
    w.pass_time(40, step=2)
    assert name not in status(w).assignment.nodes


def test_a_pod_that_died_of_its_machine_does_not_come_back_there() -> None:
    w = training()
    w.show(RUN, 1, "Xid:79")
    w.work()
    w.fail_pod(RUN, 1)
    w.pass_time(20, step=2)
    assert status(w).attempts[0].cause == "Hardware"
    assert "n1" not in status(w).assignment.nodes
