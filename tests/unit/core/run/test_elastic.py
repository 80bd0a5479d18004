"""Gangs that shrink rather than wait: how long for, to which size, and as a new attempt."""

import pytest

from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find
from lockstep.core.model.snapshot import Lag
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from support.elastic_gangs import ranks, running, save, shrunk, world
from support.values import not_none
from support.world import World, node, spec


def test_a_gang_whose_lost_node_cannot_be_replaced_goes_on_smaller() -> None:
    w = shrunk()
    status = w.status("llama")
    assert ranks(w) == (0, 2, 3)
    assert set(w.children("llama").values()) == {status.attempt}
    assert len(w.children("llama")) == 3
    assert status.start is not None
    assert status.start.resume is not None
    assert (status.start.resume.step, status.start.order) == (10, "0,2-3")
    assert (status.resolved.nodes, status.nodes_ready) == (3, "3/3")
    assert w.directives["uid-llama"].slot_ranks == (0, -1, 1, 2)
    condition = not_none(find(status, "AtFullSize"))
    assert (condition.status, condition.message) == ("False", "3 of 4 nodes train")
    assert status.queue.reason == ""


def test_it_waits_a_while_for_another_node_first() -> None:
    w = running(world(4), 4, elastic={"min": 2})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(40, step=5)
    assert slots.world(w.status("llama").assignment) == 4
    w.nodes["n9"] = node("n9")
    w.settle()
    assert len(w.children("llama")) == 4
    assert w.status("llama").attempt == 2


def for_an_hour(w: World) -> World:
    for _ in range(60):
        w.train("llama", 5)
        w.pass_time(60, step=20)
    save(w)
    return w


@pytest.mark.slow
@pytest.mark.parametrize("waits", [10, 500])
def test_a_gang_that_goes_on_smaller_long_after_its_launch_keeps_the_pods_that_it_has(waits: int) -> None:
    w = for_an_hour(running(world(4), 4, elastic={"min": 2 if waits == 10 else 4}))
    w.lose_ranks("llama", 3)
    w.pass_time(waits, step=10)
    attempt = w.status("llama").attempt
    if waits == 500:  # longer than a worker may take to get ready
        w.apply("llama", spec(3, elastic={"min": 2}))
    w.pass_time(100, step=5)
    status = w.status("llama")
    assert set(w.children("llama").values()) == {attempt + 1}
    assert (len(w.children("llama")), status.totals.pods_replaced, status.recovery.slot_losses) == (3, 0, ())


def test_it_waits_longer_where_everything_is_slow() -> None:
    w = running(world(4), 4, elastic={"min": 2})
    save(w)
    w.lag = Lag(loop=6.0)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    assert slots.world(w.status("llama").assignment) == 4
    w.pass_time(30, step=5)
    assert slots.world(w.status("llama").assignment) == 3


def test_only_multiples_are_trained_with_and_who_is_left_out_waits_as_a_spare() -> None:
    w = shrunk({"min": 2, "multipleOf": 2})
    assert ranks(w) == (0, 2)
    assert w.warm("llama") == {3}
    attempt = w.status("llama").attempt
    w.lose_ranks("llama", 1)
    w.settle()
    assert ranks(w) == (0, 3), "and takes the place of the next one that is lost"
    assert w.status("llama").attempt == attempt + 1


def test_below_the_minimum_it_waits_and_gives_its_nodes_back_in_the_end() -> None:
    w = running(world(4), 4, elastic={"min": 4})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    condition = not_none(find(w.status("llama"), "AtFullSize"))
    assert (condition.reason, condition.message) == ("CannotResize", "3 nodes are left, and elastic.min is 4")
    w.pass_time(600, step=20)
    assert w.status("llama").state == "Pending"


def test_one_node_that_is_left_is_told_as_one() -> None:
    w = running(world(2), 2, elastic={"min": 2})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    assert not_none(find(w.status("llama"), "AtFullSize")).message == "1 node is left, and elastic.min is 2"


def test_a_checkpoint_that_a_single_node_cannot_load_is_told_in_the_singular() -> None:
    w = running(world(2, saved_as="Manifest"), 2, elastic={"min": 1})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    words = not_none(find(w.status("llama"), "AtFullSize")).message
    assert words.startswith("cannot go on with 1 node: ")


@pytest.mark.parametrize("older_is_of", [4, 3])
def test_a_newest_checkpoint_that_the_smaller_gang_cannot_load_keeps_it_waiting(older_is_of: int) -> None:
    w = running(world(4, saved_as="Manifest"), 4, elastic={"min": 2})
    save(w)
    w.saved_with["uid-llama", 10] = older_is_of
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    assert slots.world(w.status("llama").assignment) == 4
    condition = not_none(find(w.status("llama"), "AtFullSize"))
    assert "step 20 was saved by 4 nodes and cannot be loaded by 3" in condition.message
    w.nodes["n9"] = node("n9")
    w.settle()
    assert len(w.children("llama")) == 4


def test_what_was_never_complete_keeps_nobody_waiting() -> None:
    w = running(world(4), 4, elastic={"min": 2})
    w.lose_ranks("llama", 1)
    w.pass_time(50, step=5)
    torn = CheckpointReport("shared", 5, "/shared/5", Verdict.INVALID, "it has no manifest", run_uid="uid-llama")
    for worker in w.workers.values():
        worker.inventory = (torn,)
    w.pass_time(30, step=5)
    assert len(w.children("llama")) == 3
    started = not_none(w.status("llama").start)
    assert started.resume is None
