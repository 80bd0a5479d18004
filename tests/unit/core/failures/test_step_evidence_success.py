"""When a command that said 0 is believed."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.failures.evidence import LossKind, losses
from lockstep.core.failures.ranks import succeeded_ranks
from lockstep.core.failures.step_evidence import has_succeeded, success_in_words
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import AttemptCause, ConditionType
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.model.worker_report import ExitReport, WorkerPhase
from support.step_gang import MPI, NOBODY, STEPS, ended, found, gang, is_success
from support.values import not_none
from support.world import phase, running


def test_a_node_that_stands_by_has_succeeded_at_nothing() -> None:
    w = gang(**MPI)
    w.exit_child("one", 2, 0)
    w.work_reports_only()
    assert succeeded_ranks(w.plan("one")) == frozenset()


def test_rank_0_alone_decides_and_the_others_only_stood_by() -> None:
    w = gang(**MPI)
    w.exit_child("one", 0, 0)
    w.pass_time(10.0)
    assert phase(w) is Phase.FINISHED
    succeeded = not_none(find(w.status("one"), ConditionType.SUCCEEDED))
    assert (succeeded.status, succeeded.message) == ("True", "rank 0 ended with code 0")


@pytest.mark.parametrize(
    ("fields", "words"), [(MPI, "rank 0 ended with code 0"), ({}, "all 3 ranks ended with code 0")]
)
def test_success_is_told_by_who_decides(fields: dict[str, Any], words: str) -> None:
    assert success_in_words(gang(**fields).plan("one")) == words


@pytest.mark.parametrize(
    ("step", "believed"),
    [
        ({"signal": 9}, False),
        ({"signal": 9, "ago": 1000.0}, False),
        ({"signal": 15, "asked": True}, True),
        ({"code": 1}, True),
    ],
    ids=["killed", "killed long ago", "asked to end", "let fail"],
)
def test_a_command_whose_process_was_killed_by_nobodys_wish_has_not_succeeded(
    step: dict[str, Any], believed: bool
) -> None:
    w = gang(**MPI)
    w.end_step("one", 2, **step)
    ended(w)
    assert is_success(w) is believed
    w.settle()
    assert is_true(w.status("one"), ConditionType.SUCCEEDED) is believed
    if not believed:
        entry = w.status("one").attempts[0]
        assert (entry.rank, entry.node, entry.exit_code) == (2, "n2", 128 + step["signal"])
        assert "the command ended with code 0 all the same" in entry.message
        assert w.status("one").attempt == 2


def test_other_launchers_commands_are_taken_at_their_word() -> None:
    w = gang(**STEPS)
    w.end_step("one", 2, signal=9)
    for rank in range(3):
        w.exit_child("one", rank, 0)
    w.settle()
    assert is_true(w.status("one"), ConditionType.SUCCEEDED)


def test_a_command_is_not_believed_before_every_node_was_heard_after_its_end() -> None:
    w = gang(**MPI)
    w.silent_nodes.add("n2")
    ended(w)
    plan = w.plan("one")
    assert not has_succeeded(plan, frozenset({0}))
    assert not_none(plan.build().wake_at) <= w.now + plan.heartbeat, "it is asked again"
    w.silent_nodes.clear()
    w.work_reports_only()
    assert is_success(w)


@pytest.mark.slow
def test_a_node_lost_before_the_end_is_found_out_after_it_and_the_attempt_has_failed() -> None:
    w = gang(**MPI)
    w.lose_node("n2")
    w.exit_child("one", 0, 0)
    w.pass_time(120.0)
    entry = w.status("one").attempts[0]
    assert (entry.cause, entry.rank, entry.node) == (AttemptCause.NODE_LOST, 2, "n2")
    assert w.status("one").attempt == 2


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 5])
def test_a_worker_that_stays_silent_on_a_ready_node_does_not_hold_up_the_end_for_ever(steps: int) -> None:
    w = running(3, spare=1, **MPI)
    w.train("one", steps)
    w.now += 100.0
    w.work()
    w.silent_nodes.add("n2")
    w.exit_child("one", 0, 0)
    w.pass_time(120.0)
    assert w.status("one").attempts[0].cause == AttemptCause.NODE_LOST


@pytest.mark.parametrize(
    ("ends_as", "believed"),
    [({"deleting": True}, True), ({"phase": PodPhase.FAILED, "exit_code": 137}, False)],
    ids=["about to leave", "gone"],
)
def test_a_pod_counts_as_lost_once_its_processes_are(ends_as: dict[str, Any], believed: bool) -> None:
    w = gang(**MPI)
    ended(w)
    name = next(name for name, pod in w.pods.items() if pod.slot == 2)
    w.pods[name] = replace(w.pods[name], **ends_as)
    assert is_success(w) is believed
    assert [loss.kind for loss in losses(w.plan("one"), NOBODY)] == [LossKind.POD]


def test_a_new_leader_that_finds_only_the_pod_of_rank_0_ended_asks_the_others() -> None:
    w = gang(**MPI)
    w.exit_child("one", 0, 0)
    w.end_pod("one", 0, 0, reason="Completed")
    w.crash()
    w.end_step("one", 1, signal=9)
    w.pass_time(10.0)
    assert not is_true(w.status("one"), ConditionType.SUCCEEDED)
    assert w.status("one").attempt == 2


def test_a_worker_of_an_attempt_that_it_has_not_begun_is_no_witness_of_success() -> None:
    w = gang(**MPI)
    worker = not_none(w.worker("one", 0))
    worker.phase, worker.exit = WorkerPhase.EXITED, ExitReport(0, at=w.now, reason="StoppedOnRequest")
    w.work_reports_only()
    assert found(w) == [(0, "")], "it was made to end"
