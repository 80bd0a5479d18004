"""Nodes that join an attempt that goes on: a gang of Ray bears the loss of any node but rank 0's."""

from typing import Any

import pytest

from lockstep.core.failures.causes import NOT_GATHERED
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import DesiredPhase
from lockstep.core.model.ranges import parse_ranges
from lockstep.core.model.reasons import AttemptCause
from lockstep.worker.child.ray_node import NOT_ALL
from support.world import World, node, spec, world

RAY: dict[str, Any] = {"launcher": {"type": "Ray"}}
RESTART: dict[str, Any] = {"launcher": {"type": "Ray", "ray": {"onNodeLoss": "Restart"}}}


def running(w: World, *, nodes: int = 4, **fields: object) -> World:
    w.roll_out("llama", spec(nodes, **{**RAY, **fields}))
    w.pass_time(4)
    assert sorted(w.children("llama")) == list(range(nodes)), w.status("llama")
    w.train("llama", 10)
    w.settle()
    return w


def members(w: World) -> dict[int, int]:
    start = w.status("llama").start
    assert start is not None
    return {slot: each.incarnation for each in start.members for slot in parse_ranges(each.slots)}


def whole(w: World) -> bool:
    """Every rank takes part in the attempt."""
    assignment = w.status("llama").assignment
    seats = assignment.rank_to_slot or range(len(assignment.nodes))
    return members(w) == {slot: assignment.incarnations[slot] for slot in seats}


def test_a_spare_joins_in_the_very_write_that_replaces_the_lost_node() -> None:
    w = running(world(5), spareNodes=1)
    w.lose_ranks("llama", 2)
    plan = w.reconcile("llama")
    assert plan.status is not None
    assert plan.status.start is not None
    assert (plan.status.attempt, plan.status.start.attempt, plan.status.start.joins) == (1, 1, 1)
    assert plan.status.start.order == "0-1,4,3"
    assert plan.directive is not None
    assert (plan.directive.phase, plan.directive.slot_ranks[4], plan.directive.joining) == (DesiredPhase.RUN, 2, set())
    w.settle()
    assert w.children("llama") == {0: 1, 1: 1, 4: 1, 3: 1}
    assert w.status("llama").totals.nodes_replaced == 1


def test_without_a_spare_another_node_is_found_and_joins_the_attempt() -> None:
    w = running(world(5))
    [lost] = w.lose_ranks("llama", 2)
    w.settle()
    w.pass_time(3)
    status = w.status("llama")
    assert (status.attempt, status.totals.attempts, status.totals.restarts) == (1, 1, 0)
    assert w.children("llama") == {0: 1, 1: 1, 2: 1, 3: 1}
    assert whole(w)
    assert lost not in status.assignment.nodes
    assert members(w) == {0: 1, 1: 1, 2: 2, 3: 1}


def test_who_has_yet_to_join_stands_at_the_barrier_and_the_others_go_on() -> None:
    w = running(world(5))
    w.lose_ranks("llama", 2)
    w.reconcile("llama")
    w.admit()
    w.reconcile("llama")
    w.kubelets()
    plan = w.reconcile("llama")
    orders = plan.directive or w.directives["uid-llama"]
    assert (orders.phase, orders.joining) == (DesiredPhase.RUN, {2})
    assert orders.slot_ranks == (0, 1, 2, 3), "it is told its rank while it prepares"
    assert w.children("llama") == {0: 1, 1: 1, 3: 1}
    assert w.status("llama").nodes_ready == "3/4"
    gang = next(c for c in w.status("llama").conditions if c.type == "GangReady")
    assert (gang.status, gang.message) == (
        "True",
        "attempt 1 goes on without rank 2, until another node has joined it",
    )


@pytest.mark.slow
def test_an_attempt_goes_on_for_as_long_as_no_node_is_found() -> None:
    w = running(world(4))
    w.lose_ranks("llama", 2)
    w.pass_time(2000, step=50)
    assert w.status("llama").attempt == 1
    assert w.status("llama").state == Phase.RUNNING
    assert w.children("llama") == {0: 1, 1: 1, 3: 1}
    w.nodes["n9"] = node("n9")
    w.pass_time(4)
    assert whole(w)
    assert w.children("llama") == {0: 1, 1: 1, 2: 1, 3: 1}
    for _ in range(10):
        w.train("llama", 1)
        w.pass_time(50, step=10)
    assert w.status("llama").attempt == 1, w.status("llama").attempts[0]


def test_of_two_that_are_lost_at_once_one_is_the_spare_and_the_other_a_free_node() -> None:
    w = running(world(6), spareNodes=1)
    w.lose_ranks("llama", 1, 2)
    w.settle()
    w.pass_time(4)
    assert w.status("llama").attempt == 1
    assert whole(w)
    assert set(w.children("llama").values()) == {1}
    assert len(w.children("llama")) == 4


def test_of_two_that_join_one_after_the_other_the_second_is_named_as_it_was_until_then() -> None:
    w = running(world(4))
    w.lose_ranks("llama", 1, 2)
    w.settle()
    w.nodes["n8"] = node("n8")
    w.pass_time(4)
    first = members(w)
    assert sorted(first.values()) == [1, 1, 1, 2]
    assert w.status("llama").start is not None
    w.nodes["n9"] = node("n9")
    w.pass_time(4)
    assert whole(w)
    start = w.status("llama").start
    assert start is not None
    assert start.joins == 2
    assert w.status("llama").attempt == 1


def test_a_node_that_joined_and_is_lost_again_is_replaced_again() -> None:
    w = running(world(6))
    for joins in (1, 2):
        w.lose_ranks("llama", 2)
        w.settle()
        w.pass_time(3)
        start = w.status("llama").start
        assert start is not None
        assert (w.status("llama").attempt, start.joins) == (1, joins)
        assert whole(w)


@pytest.mark.parametrize("ranks", [(0,), (0, 2)])
def test_the_loss_of_the_head_ends_the_attempt_whatever_else_is_lost(ranks: tuple[int, ...]) -> None:
    w = running(world(7))
    w.lose_ranks("llama", *ranks)
    w.settle()
    w.pass_time(4)
    assert w.status("llama").attempt == 2
    assert whole(w)
    assert set(w.children("llama").values()) == {2}


@pytest.mark.slow
def test_a_head_that_is_lost_while_another_node_is_absent_begins_a_new_attempt_with_all() -> None:
    w = running(world(4))
    w.lose_ranks("llama", 2)
    w.pass_time(2000, step=50)
    w.lose_ranks("llama", 0)
    w.settle()
    assert w.status("llama").attempt == 2
    assert w.status("llama").assignment.vacant_since is not None
    w.pass_time(60, step=5)
    assert w.status("llama").state == Phase.RECOVERING, "what was absent is waited for anew, with its own deadline"
    w.nodes["n8"], w.nodes["n9"] = node("n8"), node("n9")
    w.pass_time(6)
    assert whole(w)
    assert set(w.children("llama").values()) == {2}
    start = w.status("llama").start
    assert start is not None
    assert start.joins == 0


@pytest.mark.slow
@pytest.mark.parametrize("ends_by", ["a request", "a drain of the head", "fewer nodes"])
def test_whatever_ends_an_attempt_who_was_absent_is_waited_for_anew(ends_by: str) -> None:
    w = running(World({f"n{i}": node(f"n{i}") for i in range(5)}, format="TorchDCP"), nodes=5)
    w.tell_of_save("llama", 10)
    w.lose_ranks("llama", 2)
    w.pass_time(2000, step=50)
    if ends_by == "a request":
        w.annotate("llama", restart_request="now")
    elif ends_by == "a drain of the head":
        w.drain(w.status("llama").assignment.nodes[0])
    else:
        w.apply("llama", spec(4, **RAY))
    w.pass_time(60, step=5)
    status = w.status("llama")
    assert (status.attempt, status.stop, status.state == Phase.PENDING) == (2, None, False)
    w.nodes |= {name: node(name) for name in ("n8", "n9")}
    w.pass_time(10)
    assert whole(w)
    assert set(w.children("llama").values()) == {2}


def test_with_restart_a_lost_node_ends_the_attempt() -> None:
    w = running(world(5), **RESTART)
    w.lose_ranks("llama", 2)
    w.settle()
    w.pass_time(4)
    assert w.status("llama").attempt == 2
    assert w.status("llama").attempts[0].cause == AttemptCause.NODE_LOST


def test_a_driver_that_fails_while_a_node_is_absent_starts_again_with_all() -> None:
    w = running(world(4))
    w.lose_ranks("llama", 2)
    w.settle()
    w.end_child("llama", 0, 1)
    w.pass_time(4)
    assert w.status("llama").attempt == 2
    assert w.status("llama").attempts[0].rank == 0
    w.nodes["n9"] = node("n9")
    w.pass_time(60, step=5)
    assert set(w.children("llama").values()) == {2}


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_ray_that_does_not_gather_is_charged_only_where_no_node_was_lost(lost: bool, replaced: bool) -> None:
    w = running(world(4))
    if lost:
        w.lose_ranks("llama", 2)
        w.settle()
    if replaced:
        w.nodes["n9"] = node("n9")
        w.pass_time(3)
    assert whole(w) is (replaced or not lost)
    w.end_child("llama", 0, 1, stderr=f"3 of 4 nodes have joined Ray in time\n{NOT_GATHERED}\n")
    w.pass_time(4)
    [ended] = [each for each in w.status("llama").attempts if each.ended_at]
    assert (ended.charged, ended.cause) == ((False, "Disruption") if lost else (True, "Application"))
    assert ("a node was lost before Ray had all" in ended.message) is lost
    assert ended.message.count(NOT_GATHERED) == 1


def test_the_worker_says_that_ray_does_not_gather_in_the_words_that_are_looked_for() -> None:
    assert f"lockstep: {NOT_ALL}" == NOT_GATHERED


def test_a_driver_that_ends_well_while_a_node_is_absent_has_succeeded() -> None:
    w = running(world(4))
    w.lose_ranks("llama", 2)
    w.settle()
    w.end_child("llama", 0, 0)
    assert w.status("llama").state == "Succeeded"


@pytest.mark.parametrize("when", ["lost", "placed", "ready"])
def test_a_new_leader_goes_on_where_the_old_one_was(when: str) -> None:
    w = running(world(5))
    w.lose_ranks("llama", 2)
    w.reconcile("llama")
    if when != "lost":
        w.admit()
        w.reconcile("llama")
        w.kubelets()
    if when == "ready":
        w.work()
    w.crash()
    w.settle()
    w.pass_time(90, step=3)
    assert w.status("llama").attempt == 1
    assert whole(w)
    assert w.children("llama") == {0: 1, 1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("dies_after", range(8))
def test_an_operator_that_dies_between_two_writes_leaves_nothing_undone(dies_after: int) -> None:
    w = running(world(5), spareNodes=1)
    w.lose_ranks("llama", 2)
    w.reconcile("llama", crash_after=dies_after)
    w.settle()
    w.pass_time(90, step=3)
    assert w.status("llama").attempt == 1
    assert whole(w)
    assert set(w.children("llama").values()) == {1}
    assert len(w.children("llama")) == 4


def test_a_node_that_comes_back_finds_its_place_taken() -> None:
    w = running(world(5))
    lost = w.status("llama").assignment.nodes[2]
    w.cut_off_node(lost)
    w.node_not_ready(lost)
    w.pass_time(60, step=2)
    assert w.status("llama").attempt == 1
    assert whole(w)
    w.return_node(lost)
    w.pass_time(10)
    assert w.status("llama").attempt == 1
    assert w.children("llama") == {0: 1, 1: 1, 2: 1, 3: 1}
    assert lost not in w.status("llama").assignment.nodes


def test_a_pod_that_is_gone_comes_back_on_its_node_and_joins() -> None:
    w = running(world(4))
    place = w.status("llama").assignment.nodes[3]
    w.fail_pod("llama", 3)
    w.settle()
    w.pass_time(4)
    status = w.status("llama")
    assert (status.attempt, status.assignment.nodes[3], status.totals.pods_replaced) == (1, place, 1)
    assert whole(w)


def test_a_drained_node_is_left_without_a_save_and_the_attempt_goes_on() -> None:
    w = running(world(5))
    drained = w.status("llama").assignment.nodes[1]
    w.drain(drained)
    w.settle()
    w.pass_time(4)
    status = w.status("llama")
    assert (status.attempt, status.checkpoint.save) == (1, None)
    assert drained not in status.assignment.nodes
    assert whole(w)


def test_a_drained_head_is_left_after_a_save_with_a_new_attempt() -> None:
    w = running(world(5))
    w.drain(w.status("llama").assignment.nodes[0])
    w.settle()
    w.pass_time(8)
    assert w.status("llama").attempt == 2
    assert whole(w)


def test_an_evicted_pod_is_replaced_while_it_leaves_and_nobody_is_asked_to_save() -> None:
    w = running(world(5))
    w.cordon(w.status("llama").assignment.nodes[2])
    w.tell_to_end("llama", 2)
    w.settle()
    w.pass_time(4)
    status = w.status("llama")
    assert (status.attempt, status.checkpoint.save) == (1, None)
    assert whole(w)


def test_a_stop_does_not_wait_for_who_is_absent() -> None:
    w = running(world(4))
    w.lose_ranks("llama", 2)
    w.settle()
    w.apply("llama", spec(4, **RAY, suspend=True))
    w.settle()
    w.pass_time(4)
    assert w.status("llama").state == Phase.SUSPENDED


def test_a_status_from_before_a_node_joined_is_mended_by_what_the_workers_say() -> None:
    w = running(world(5))
    before = w.status("llama")
    w.lose_ranks("llama", 2)
    w.settle()
    w.pass_time(3)
    w.amend("llama", start=before.start, assignment=before.assignment)
    w.settle()
    w.pass_time(10)
    assert w.status("llama").attempt == 1
    assert whole(w)
    assert w.children("llama") == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_node_that_joined_late_has_its_time_to_begin() -> None:
    w = running(world(5), spareNodes=1)
    w.pass_time(600, step=20)
    w.lose_ranks("llama", 2)
    w.reconcile("llama")
    w.directives_reach = 0
    for _ in range(3):
        w.now += 1.0
        w.work()
        w.reconcile("llama")
    assert w.status("llama").assignment.incarnations[4] == 1, "it is not given up for what it was not told yet"
    w.directives_reach = None
    w.settle()
    assert w.children("llama")[4] == 1
