"""Whose failure a step's is."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.failures import step_evidence
from lockstep.core.failures.causes import collected, first_cause
from lockstep.core.failures.late_evidence import exits_of
from lockstep.core.failures.step_evidence import ends
from lockstep.core.model.conditions import is_true
from lockstep.core.model.reasons import AttemptCause, ConditionType
from support.step_gang import MPI, NOBODY, SLURM, STEPS, found, gang
from support.values import not_none

SEGFAULT = "Fatal Python error: Segmentation fault"
TRACEBACK = "Traceback (most recent call last):\nRuntimeError: the sum is wrong"


@pytest.mark.parametrize("fields", [MPI, STEPS])
def test_while_nothing_else_ends_a_step_may_fail(fields: dict[str, Any]) -> None:
    w = gang(**fields)
    w.end_step("one", 1, code=1)
    w.end_step("one", 2, signal=9)
    assert found(w) == []
    w.settle()
    assert w.status("one").attempt == 1


@pytest.mark.parametrize(
    ("fields", "step", "counts"),
    [
        (MPI, {"signal": 9, "program": "hydra_pmi_proxy"}, True),
        (MPI, {"signal": 9, "program": "hydra_pmi_proxy", "asked": True}, False),
        (MPI, {"code": 137, "program": "hydra_pmi_proxy"}, True),
        (MPI, {"code": 7, "program": "hydra_pmi_proxy"}, False),
        (MPI, {"signal": 9, "program": "python"}, False),
        (STEPS, {"signal": 9, "program": "orted"}, False),
    ],
    ids=["killed", "asked for", "below a shell", "a code", "a process", "no mpirun"],
)
def test_a_daemon_of_mpirun_that_nobody_wanted_to_end_ends_the_attempt(
    fields: dict[str, Any], step: dict[str, Any], counts: bool
) -> None:
    w = gang(**fields)
    w.end_step("one", 1, **step)
    assert found(w) == ([(1, ": hydra_pmi_proxy of step 1")] if counts else [])


@pytest.mark.parametrize(
    ("step", "counts"),
    [
        ({"code": 3, "ago": 0.5}, True),
        ({"signal": 11, "ago": 0.5}, True),
        ({"code": 3, "ago": 0.5, "asked": True}, False),
        ({"code": 0, "ago": 0.5}, False),
        ({"ago": 0.5}, False),
        ({"code": 3, "ago": 29.0}, True),
        ({"code": 3, "ago": 800.0}, True),  # nothing nearer says why
        ({"code": 3, "ago": 1000.0}, False),
    ],
    ids=["a code", "a signal", "asked for", "no failure", "a lie", "long before", "a quarter of an hour", "ages ago"],
)
def test_once_a_rank_ends_badly_its_steps_are_evidence_beside_it(step: dict[str, Any], counts: bool) -> None:
    w = gang(**STEPS)
    w.end_step("one", 2, **step)
    w.exit_child("one", 0, 1)
    assert found(w) == [*([(2, ": python of step 1")] if counts else []), (0, "")]


@pytest.mark.parametrize(
    ("fields", "code", "signal", "kept"),
    [(SLURM, 3, 0, 3), (SLURM, 137, 0, 137), (SLURM, 0, 9, None), (STEPS, 3, 0, None)],
    ids=["a code", "the code of a step that was killed", "a signal", "no script"],
)
def test_what_a_script_ended_with_is_kept_beside_the_step_that_failed(
    fields: dict[str, Any], code: int, signal: int, kept: int | None
) -> None:
    w = gang(**fields)
    w.end_step("one", 2, code=7, ago=0.5)
    w.exit_child("one", 0, 1)
    worker = not_none(w.worker("one", 0))
    worker.exit = replace(not_none(worker.exit), code=code, signal=signal)
    w.settle()
    ended = w.status("one").attempts[0]
    assert (ended.rank, ended.exit_code, ended.script_exit_code) == (2, 7, kept)


def test_a_script_that_a_lost_node_ended_with_its_attempt_has_no_code() -> None:
    w = gang(**SLURM)
    w.lose_ranks("one", 2)
    w.settle()
    ended = w.status("one").attempts[0]
    assert (ended.cause, ended.script_exit_code) == (AttemptCause.NODE_LOST, None)


@pytest.mark.parametrize(
    ("stderr", "near", "counts"),
    [("", "", True), (TRACEBACK, "", False), ("", TRACEBACK, False), ("ConnectionResetError: gone", "", True)],
    ids=["nothing is said", "the rank says why", "a later step says why", "the rank complains of a peer"],
)
def test_a_command_that_was_let_fail_long_before_is_no_reason_where_something_nearer_is(
    stderr: str, near: str, counts: bool
) -> None:
    w = gang(**STEPS)
    w.end_step("one", 2, code=1, ago=60.0)
    w.end_step("one", 1, code=1, ago=1.0, stderr=near)
    w.exit_child("one", 0, 1, stderr=stderr)
    assert ((2, ": python of step 1") in found(w)) is counts


def test_a_rank_of_mpirun_is_named_by_its_number_and_its_own_node() -> None:
    w = gang(**MPI)
    w.end_step("one", 2, code=7, ago=0.5, step="MPI", task=5, stderr=TRACEBACK)
    w.exit_child("one", 0, 7)
    w.now += 1.0
    w.settle()
    entry = w.status("one").attempts[0]
    assert (entry.rank, entry.node, entry.exit_code, entry.stderr) == (2, "n2", 7, TRACEBACK)
    assert entry.message.startswith("rank 2 on n2: python, rank 5 of MPI, ended with exit code 7")


def test_ranks_that_open_mpi_ends_after_another_are_its_victims() -> None:
    w = gang(**MPI)
    w.end_step("one", 1, code=14, ago=0.6, step="MPI", task=2)  # clocks are apart
    w.end_step("one", 2, code=3, ago=0.5, step="MPI", task=5)
    w.exit_child("one", 0, 3)
    w.now += 1.0
    w.settle()
    entry = w.status("one").attempts[0]
    assert (entry.cause, entry.rank, entry.exit_code) == (AttemptCause.APPLICATION, 2, 3)


def test_daemons_of_mpirun_that_break_off_after_a_rank_was_killed_are_its_victims() -> None:
    w = gang(**MPI)
    w.end_step("one", 0, code=7, ago=0.6, program="hydra_pmi_proxy", stderr="demux engine error")  # clocks are apart
    w.end_step("one", 0, signal=9, ago=0.5, program="", step="mpirun", node_rank=2)
    w.exit_child("one", 0, 255)
    w.now += 1.0
    w.settle()
    entry = w.status("one").attempts[0]
    assert (entry.cause, entry.rank, entry.exit_code) == (AttemptCause.APPLICATION, 2, 137)


@pytest.mark.parametrize(
    ("node_rank", "where"), [(2, [2, 0]), (0, [0, 0]), (3, [0])], ids=["another node", "its own", "none of the gang"]
)
def test_what_mpirun_prints_of_another_node_is_of_that_node(node_rank: int, where: list[int]) -> None:
    w = gang(**MPI)
    w.end_step("one", 0, signal=9, ago=0.5, program="", step="mpirun", node_rank=node_rank)
    w.exit_child("one", 0, 9)
    assert [slot for slot, _ in found(w)] == where


@pytest.mark.parametrize(("fields", "rank"), [(MPI, 2), (STEPS, 0)], ids=["rank 0 prints for all", "each for itself"])
def test_a_fault_that_rank_0_only_repeats_is_of_the_node_that_has_it(fields: dict[str, Any], rank: int) -> None:
    w = gang(**fields)
    w.show("one", 0, "Xid:79")  # a clock that is behind by less than is known
    w.now += 0.2
    w.show("one", 2, "Xid:79")
    w.exit_child("one", 0, 1)
    w.now += 1.0
    w.settle()
    entry = w.status("one").attempts[0]
    assert (entry.cause, entry.rank, entry.node) == (AttemptCause.HARDWARE, rank, f"n{rank}")


def test_a_fault_that_rank_0_alone_shows_is_its_own() -> None:
    w = gang(**MPI)
    w.show("one", 0, "Xid:79")
    w.exit_child("one", 0, 1)
    w.now += 1.0
    w.settle()
    assert w.status("one").attempts[0].rank == 0


def test_the_earliest_step_is_the_cause_with_node_rank_code_and_words() -> None:
    w = gang(**MPI)
    w.end_step("one", 1, signal=15, ago=0.4)
    w.end_step("one", 2, signal=11, ago=0.5, stderr=SEGFAULT)
    w.exit_child("one", 0, 139, stderr="mpirun noticed that process rank 2 exited on signal 11")
    w.now += 1.0
    w.settle()
    entry = w.status("one").attempts[0]
    assert (entry.cause, entry.rank, entry.node, entry.exit_code) == (AttemptCause.APPLICATION, 2, "n2", 139)
    assert entry.stderr == SEGFAULT
    assert entry.message.startswith("rank 2 on n2: python of step 1 ended with signal 11")
    assert SEGFAULT in entry.message
    assert entry.victims == "0-1"
    assert w.status("one").attempt == 2


@pytest.mark.parametrize(("fields", "tied"), [(MPI, ()), (STEPS, (0,))])
def test_what_mpirun_ends_with_follows_from_its_processes(fields: dict[str, Any], tied: tuple[int, ...]) -> None:
    w = gang(**fields)
    w.end_step("one", 2, code=3, ago=0.05)
    w.exit_child("one", 0, 3)
    w.work_reports_only()
    plan = w.plan("one")
    first = first_cause(collected(plan, (), ends(plan, NOBODY), ()))
    assert (first.slot, first.evidence.tied) == (2, tied)


def test_mpirun_itself_is_named_where_none_of_its_processes_failed() -> None:
    w = gang(**MPI)
    w.exit_child("one", 0, 1, stderr="mpirun was unable to find the program")
    w.now += 1.0
    w.settle()
    assert w.status("one").attempts[0].rank == 0


def test_of_thousands_of_processes_that_end_together_the_first_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_evidence, "MOST", 2)
    w = gang(**STEPS)
    for rank, ago in ((0, 1.0), (1, 3.0), (2, 2.0), (1, 0.5)):
        w.end_step("one", rank, code=1, ago=ago)
    w.exit_child("one", 0, 1)
    assert found(w) == [(1, ": python of step 1"), (2, ": python of step 1"), (0, "")]


def test_steps_of_an_earlier_attempt_say_nothing_of_this_one() -> None:
    w = gang(**STEPS)
    w.end_step("one", 2, code=1)
    not_none(w.worker("one", 2)).attempt = 0
    w.exit_child("one", 0, 1)
    assert found(w) == [(0, "")]


def test_what_fails_on_a_node_that_is_left_is_no_word_on_the_program() -> None:
    w = gang(**STEPS)
    w.end_step("one", 2, signal=9)
    w.tell_to_end("one", 2)
    w.exit_child("one", 0, 1)
    assert found(w) == [(0, "")]


def test_until_the_next_start_an_earlier_step_is_heard_of() -> None:
    w = gang(**MPI)
    w.end_step("one", 2, code=3, ago=0.5)
    w.exit_child("one", 0, 3)
    w.work_reports_only()
    assert [(end.slot, end.what) for end in exits_of(w.plan("one"), 1)] == [(2, ": python of step 1"), (0, "")]


@pytest.mark.parametrize("code", [0, 1])
def test_a_node_that_stands_by_and_ends_by_itself_has_failed(code: int) -> None:
    w = gang(**MPI)
    w.exit_child("one", 2, code)
    assert found(w) == [(2, ", which stood by for steps,")]
    w.now += 1.0
    w.settle()
    entry = w.status("one").attempts[0]
    assert (entry.rank, entry.exit_code) == (2, code)
    assert "rank 2 on n2, which stood by for steps, ended" in entry.message
    assert not is_true(w.status("one"), ConditionType.SUCCEEDED)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [("OOMKilled", AttemptCause.OUT_OF_MEMORY), ("", AttemptCause.APPLICATION), ("Fenced", AttemptCause.APPLICATION)],
)
def test_a_process_that_the_kernel_killed_for_memory_was_out_of_it(reason: str, cause: AttemptCause) -> None:
    w = gang(**STEPS)
    w.end_step("one", 2, signal=9, ago=0.5, reason=reason)
    w.exit_child("one", 0, 1)
    w.pass_time(3.0)
    assert w.status("one").attempts[0].cause == cause
