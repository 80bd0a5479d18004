"""A paused gang obeys whoever may stop it, and nothing is done for it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lockstep.core.model import assignment as slots
from lockstep.core.model.lifecycle import Phase
from support.stop_orders import CLASS, ORDERS, phase, preempt, stopped, training
from support.world import World, node, spec
from support.world import training as gang_that_saves


def paused() -> World:
    w = training()
    w.annotate("one", paused="true")
    w.settle()
    assert w.status("one").reason == "Paused"
    return w


@pytest.mark.parametrize("order", ORDERS)
def test_a_paused_gang_obeys(order: Callable[[World], None]) -> None:
    w = paused()
    order(w)
    assert stopped(w, 450)
    w.pass_time(60, step=10)
    if order is preempt:
        assert w.status("urgent").start is not None
    if phase(w) is not Phase.FINISHED:
        assert not w.pods or order is preempt, "it gets no nodes again while it is paused"
        assert not w.status("one").assignment.nodes


def test_a_paused_gang_saves_before_it_stops() -> None:
    w = gang_that_saves(2, 1)
    w.annotate("one", paused="true")
    w.settle()
    w.apply("one", spec(2, suspend=True))
    w.pass_time(30)
    save = w.status("one").checkpoint.save
    assert save is not None
    assert save.outcome == "Saved"
    assert phase(w) is Phase.SUSPENDED


def test_a_paused_run_that_is_deleted_gives_its_nodes_back() -> None:
    w = paused()
    w.runs["one"] = replace(w.runs["one"], deleting=True)
    assert stopped(w, 60)


def test_nothing_is_done_for_a_paused_gang_until_the_pause_is_over() -> None:
    w = paused()
    w.nodes["n2"] = node("n2")
    names, before = set(w.pods), w.status("one")
    w.exit_child("one", 0, 1)
    w.lose_node("n1")
    del w.nodes["n1"]
    w.pass_time(300, step=10)
    after = w.status("one")
    assert set(w.pods) == names
    assert (after.attempt, after.assignment, after.start) == (before.attempt, before.assignment, before.start)
    assert not w.reconcile("one").events
    w.annotate("one", paused="false")
    w.pass_time(120, step=5)
    assert phase(w) is Phase.RUNNING
    assert w.status("one").attempt > before.attempt
    assert w.status("one").assignment.nodes == ("n0", "n2")


def test_a_paused_gang_is_charged_for_its_nodes() -> None:
    w = paused()
    w.pass_time(3_600, step=60)
    assert float(w.status("one").goodput.gpu_hours) > 14


def test_a_paused_gang_that_comes_to_its_end_has_succeeded_and_is_kept() -> None:
    w = paused()
    w.apply("one", spec(2, ttlAfterFinished="10s", **CLASS))
    for rank in (0, 1):
        w.exit_child("one", rank, 0)
    w.pass_time(600, step=10)
    assert w.status("one").state == "Succeeded"
    assert all(pod.is_terminal for pod in w.pods.values())
    assert "one" in w.runs
    w.annotate("one", paused="false")
    w.pass_time(10)
    assert "one" not in w.runs


def test_a_paused_run_that_waits_gets_no_nodes_and_can_be_cancelled() -> None:
    w = World({"n0": node("n0")})
    w.apply("one", spec(1))
    w.annotate("one", paused="true")
    w.pass_time(60, step=10)
    assert not w.pods
    w.apply("one", spec(1, cancel=True))
    w.pass_time(10)
    assert phase(w) is Phase.FINISHED


def test_a_vacant_slot_of_a_paused_gang_is_not_filled() -> None:
    w = training()
    w.lose_node("n1")
    del w.nodes["n1"]
    w.pass_time(60, step=5)
    assert slots.lacking(w.status("one").assignment)
    w.annotate("one", paused="true")
    w.nodes["n2"] = node("n2")
    w.pass_time(60, step=5)
    assert slots.lacking(w.status("one").assignment)
    w.annotate("one", paused="false")
    w.pass_time(60, step=5)
    assert not slots.lacking(w.status("one").assignment)
