"""A gang of whose spec a part cannot be read, or nothing: it goes on, obeys, and gives its nodes back."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.run.regression import LONGEST_HOLD
from support.stop_orders import (
    DOUBTS,
    ORDERS,
    cancel,
    drain,
    let_forged_pods_end,
    phase,
    preempt,
    stopped,
    suspend,
    training,
)
from support.world import World, node, spec


def unreadable(w: World) -> World:
    """Its user has put something into the template that nobody can read."""
    view = w.runs["one"]
    w.runs["one"] = replace(view, spec_error="spec.podTemplate: is nested too deeply", generation=view.generation + 1)
    w.settle()
    told = find(w.status("one"), "Accepted")
    assert told is not None
    assert (told.status, told.message) == ("False", "spec.podTemplate: is nested too deeply")
    assert phase(w) is Phase.RUNNING
    return w


@pytest.mark.parametrize("order", ORDERS)
def test_a_gang_of_whose_spec_a_part_cannot_be_read_obeys(order: Callable[[World], None]) -> None:
    w = unreadable(training())
    order(w)
    assert stopped(w, 450)
    w.pass_time(60, step=10)
    assert not w.status("one").assignment.nodes or phase(w) is Phase.FINISHED, "it is admitted no more"
    if order is preempt:
        assert w.status("urgent").start is not None


@pytest.mark.parametrize(("order", "doubt"), [(suspend, DOUBTS[0]), (drain, DOUBTS[1]), (cancel, DOUBTS[2])])
def test_so_it_does_on_hold(order: Callable[[World], None], doubt: Callable[[World], None]) -> None:
    w = unreadable(training())
    doubt(w)
    w.reconcile("one")
    order(w)
    assert stopped(w, 450)


def test_a_gang_goes_on_while_its_spec_cannot_be_read_and_is_mended_once_it_can() -> None:
    w = unreadable(training())
    names, before = set(w.pods), w.status("one").assignment
    w.pass_time(1_800, step=30)
    assert (set(w.pods), w.status("one").assignment) == (names, before)
    w.exit_child("one", 0, 1)
    w.pass_time(60, step=5)
    assert w.status("one").attempt == 1
    w.runs["one"] = replace(w.runs["one"], spec_error="")
    w.pass_time(60, step=5)
    assert (w.status("one").attempt, phase(w)) == (2, Phase.RUNNING)


def test_a_launch_that_cannot_go_on_as_its_spec_cannot_be_read_gives_its_nodes_back_after_a_while() -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(2)}, silent_nodes={"n1"})
    w.apply("one", spec(2))
    w.settle()
    assert phase(w) is Phase.LAUNCHING
    view = w.runs["one"]
    w.runs["one"] = replace(view, spec_error="spec.podTemplate: is nested too deeply", generation=view.generation + 1)
    w.pass_time(LONGEST_HOLD - 30, step=30)
    assert w.status("one").assignment.nodes
    w.silent_nodes.clear()
    w.pass_time(120, step=10)
    assert not w.status("one").assignment.nodes
    assert not w.pods
    version = w.version
    w.pass_time(600, step=60)
    assert w.version == version, "it waits for its spec"
    w.runs["one"] = replace(w.runs["one"], spec_error="", generation=view.generation + 2)
    w.pass_time(120, step=10)
    assert phase(w) is Phase.RUNNING


@pytest.mark.parametrize("doubt", [None, *DOUBTS])
def test_a_gang_of_whose_spec_nothing_can_be_read_gives_its_nodes_back_after_a_while(
    doubt: Callable[[World], None] | None,
) -> None:
    w = training()
    w.runs["one"] = replace(w.runs["one"], spec=None, spec_error="spec: is no text")
    if doubt is not None:
        doubt(w)
    w.settle()
    names = set(w.pods)
    w.pass_time(LONGEST_HOLD - 30, step=10)
    assert set(w.pods) == names
    assert stopped(w, 450)
    w.pass_time(20, step=10)
    let_forged_pods_end(w)
    w.pass_time(20, step=10)
    assert not w.status("one").assignment.nodes


def test_a_paused_gang_has_its_time_again_once_its_spec_could_be_read() -> None:
    w = training()
    w.annotate("one", paused="true")
    readable = w.runs["one"]
    w.runs["one"] = replace(readable, spec=None, spec_error="spec: is no text", generation=2)
    w.pass_time(LONGEST_HOLD - 60, step=30)
    w.runs["one"] = replace(w.runs["one"], spec=readable.spec, spec_error="", generation=3)
    w.pass_time(120, step=30)
    w.runs["one"] = replace(w.runs["one"], spec=None, spec_error="spec: is no text", generation=4)
    w.pass_time(LONGEST_HOLD - 60, step=30)
    assert w.status("one").assignment.nodes
    assert stopped(w, 450)


def test_one_that_is_told_to_make_room_does_so_at_once() -> None:
    w = training()
    w.apply("urgent", spec(2, priorityClassName="high"))
    for _ in range(3):
        w.reconcile("urgent")
        w.admit()
    assert w.status("one").preemption is not None
    w.runs["one"] = replace(w.runs["one"], spec=None, spec_error="spec: is no text")
    assert stopped(w, 450)
