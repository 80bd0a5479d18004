"""A node that a step could not be started on: whose fault that is, and what follows."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.failures.late_evidence import exits_of
from lockstep.core.failures.node_memory import suspicion, to_remember
from lockstep.core.failures.step_evidence import failures, has_succeeded
from lockstep.core.model.conditions import is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import AttemptCause, ConditionType
from lockstep.core.model.snapshot import PodPhase
from support.step_gang import MPI, SLURM, STEPS, ended, found, gang, is_success
from support.values import not_none
from support.world import World, phase

LOST: dict[str, Any] = {
    "code": 255,
    "program": "",
    "reason": "NodeUnreachable",
    "stderr": "rank 2 did not answer within 20 s",
}


@pytest.mark.parametrize("fields", [MPI, STEPS])
def test_a_node_that_cannot_be_reached_is_the_cause_and_not_the_command_that_wanted_it(fields: dict[str, Any]) -> None:
    w = gang(**fields)
    w.end_step("one", 0, **LOST, node_rank=2, ago=0.05)
    w.exit_child("one", 0, 255, stderr="mpirun could not start its daemons")
    w.pass_time(5.0)
    entry = w.status("one").attempts[0]
    assert (entry.cause, entry.rank, entry.node, entry.exit_code) == (AttemptCause.UNKNOWN, 2, "n2", None)
    assert entry.message.startswith(
        "rank 0 on n0 could not reach rank 2 on n2 for a step: rank 2 did not answer within 20 s; "
        "which of the two nodes is at fault, or the network between them, is not known"
    )
    assert (entry.charged, entry.victims) == (False, "0")
    assert w.status("one").attempt == 2
    assert sorted(one.node for one in w.status("one").recovery.first_failures) == ["n0", "n2"]


def test_a_run_without_checkpoints_is_started_again_after_a_node_could_not_be_reached() -> None:
    w = gang(**MPI, checkpoint=None)
    w.end_step("one", 0, **LOST, node_rank=2, ago=0.5)
    w.exit_child("one", 0, 255)
    w.pass_time(5.0)
    assert w.status("one").stop is None
    assert w.status("one").attempt == 2


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ({"node_rank": 2}, [2, 0]),
        ({"node_rank": 2, "asked": True}, [0]),
        ({"node_rank": 0}, [0]),
        ({"node_rank": 3}, [0]),
        ({"node_rank": None}, [0]),
    ],
    ids=["a peer", "it was to end", "its own node", "none of the gang", "nobody"],
)
def test_only_another_node_of_the_gang_is_one_that_could_not_be_reached(row: dict[str, Any], where: list[int]) -> None:
    w = gang(**STEPS)
    w.end_step("one", 0, **LOST, **row, ago=0.5)
    w.exit_child("one", 0, 255)
    assert [slot for slot, _ in found(w)] == where


def test_of_many_nodes_that_cannot_be_reached_at_once_the_first_is_named_alone() -> None:
    w = gang(**STEPS)
    for rank in (1, 2):
        w.end_step("one", 0, **LOST, node_rank=rank, ago=0.5)
    w.exit_child("one", 0, 255)
    assert [slot for slot, _ in found(w)] == [1, 0]


def test_what_a_node_that_cannot_be_reached_says_of_itself_is_believed_before_what_is_said_of_it() -> None:
    w = gang(**MPI)
    w.end_step("one", 0, **LOST, node_rank=2, ago=0.5)
    w.exit_child("one", 2, 1)
    w.exit_child("one", 0, 255)
    assert found(w) == [(0, ""), (2, ", which stood by for steps,")]


@pytest.mark.slow
@pytest.mark.parametrize(("missed", "lost", "attempt"), [(True, True, 2), (True, False, 1), (False, False, 1)])
def test_a_script_that_ends_with_0_although_a_node_died_under_its_mpirun_has_not_succeeded(
    missed: bool, lost: bool, attempt: int
) -> None:
    w = gang(**SLURM)
    if lost:
        w.lose_node("n2")
    if missed:
        w.end_step("one", 0, **LOST, node_rank=2)
    w.exit_child("one", 0, 0)
    w.pass_time(120.0)
    assert w.status("one").attempt == attempt
    assert is_true(w.status("one"), ConditionType.SUCCEEDED) is (attempt == 1)
    if lost:
        entry = w.status("one").attempts[0]
        assert (entry.cause, entry.node) == (AttemptCause.NODE_LOST, "n2")


@pytest.mark.slow
@pytest.mark.parametrize("lost", [True, False])
def test_a_new_leader_asks_whether_a_node_was_missed_before_it_believes_a_script(lost: bool) -> None:
    w = gang(**SLURM)
    if lost:
        w.lose_node("n2")
        w.end_step("one", 0, **LOST, node_rank=2)
        w.exit_child("one", 0, 0)
        w.work_reports_only()
        w.reconcile("one")
        assert w.status("one").exits.succeeded == "0"
    else:
        w.exit_child("one", 0, 0)
    w.crash()
    assert not has_succeeded(w.plan("one"), frozenset({0}))
    w.pass_time(120.0)
    assert is_true(w.status("one"), ConditionType.SUCCEEDED) is not lost


@pytest.mark.parametrize("fields", [MPI, SLURM])
def test_a_node_that_could_not_be_reached_alone_ends_nothing_and_makes_no_success_doubtful(
    fields: dict[str, Any],
) -> None:
    w = gang(**fields)
    w.end_step("one", 0, **LOST, node_rank=2)
    assert found(w) == []
    ended(w)
    assert is_success(w)


def test_connections_that_break_once_the_attempt_is_over_are_not_its_end() -> None:
    w = gang(**STEPS)
    w.exit_child("one", 1, 1, stderr="ConnectionResetError: gone")
    w.pass_time(3.0)
    assert w.status("one").attempt == 2
    w.end_step("one", 0, **LOST, node_rank=2)
    not_none(w.worker("one", 0)).attempt = 1
    w.exit_child("one", 0, 255)
    w.work_reports_only()
    assert all(end.told_by is None for end in exits_of(w.plan("one"), 1))


def lose(w: World, rank: int, *, by: int = 0) -> None:
    """An attempt ends as rank ``by`` does not reach another one, and the next one trains."""
    w.end_step("one", by, **LOST, node_rank=rank, ago=0.5)
    w.exit_child("one", by, 255)
    attempt = w.status("one").attempt
    w.pass_time(100.0)
    assert (w.status("one").attempt, phase(w)) == (attempt + 1, Phase.RUNNING)
    not_none(w.worker("one", by)).step_ends = ()
    w.train("one", 5)
    w.work()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pairs", "left"),
    [([(0, 2)], []), ([(0, 2), (0, 2)], ["n2"]), ([(0, 1), (0, 2)], ["n0"]), ([(0, 2), (1, 2)], ["n2"])],
    ids=["once", "the same two", "what is common is the teller", "what is common is the other"],
)
def test_of_two_nodes_that_do_not_reach_each_other_the_one_that_failed_more_often_is_left(
    pairs: list[tuple[int, int]], left: list[str]
) -> None:
    w = gang(**STEPS)
    for by, rank in pairs:
        lose(w, rank, by=by)
    assert [one.node for one in w.status("one").recovery.excluded_nodes] == left
    assert not any(entry.charged for entry in w.status("one").attempts)


@pytest.mark.slow
def test_no_word_of_one_run_makes_another_node_suspect() -> None:
    w = gang(**STEPS)
    for _ in range(2):
        lose(w, 2)
    told = tuple(each.failure for each in to_remember(w.plan("one")) if each.node == "n2")
    assert len(told) == 2
    assert suspicion(replace(w.nodes["n2"], suspect="two runs", failures=told), w.now) == ""


def test_a_lost_pod_that_is_heard_of_later_takes_all_suspicion_back() -> None:
    w = gang(**STEPS)
    w.end_step("one", 0, **LOST, node_rank=2, ago=0.5)
    w.exit_child("one", 0, 255)
    w.pass_time(2.5)
    assert w.status("one").attempts[0].cause == AttemptCause.UNKNOWN
    name = next(name for name, pod in w.pods.items() if pod.slot == 2)
    w.pods[name] = replace(w.pods[name], phase=PodPhase.FAILED, exit_code=137, reason="Evicted", ended_at=w.now - 5.0)
    w.settle()
    entry = w.status("one").attempts[0]
    assert (entry.cause, entry.rank) == (AttemptCause.DISRUPTION, 2)
    assert w.status("one").recovery.first_failures == ()


def test_of_a_node_that_could_not_be_reached_it_is_said_who_says_so() -> None:
    w = gang(**STEPS)
    w.end_step("one", 0, **LOST, node_rank=2)
    w.work_reports_only()
    said = failures(w.plan("one").snapshot.reports, (0, 1, 2), 1)
    assert said == {2: "rank 0 could not reach it for a step: rank 2 did not answer within 20 s"}
