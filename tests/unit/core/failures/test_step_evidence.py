"""Whose failure a step's is, and when a command that said 0 is believed."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.failures import step_evidence
from lockstep.core.failures.causes import collected, first_cause
from lockstep.core.failures.evidence import LossKind, losses
from lockstep.core.failures.late_evidence import exits_of
from lockstep.core.failures.node_memory import suspicion, to_remember
from lockstep.core.failures.ranks import succeeded_ranks
from lockstep.core.failures.step_evidence import ends, failures, has_succeeded, success_in_words
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import AttemptCause, ConditionType
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.model.worker_report import ExitReport, WorkerPhase
from support.values import not_none
from support.world import World, phase, running

NOBODY: frozenset[int] = frozenset()
MPI: dict[str, Any] = {"launcher": {"type": "MPI"}, "command": ["mpirun", "python", "train.py"]}
SLURM: dict[str, Any] = {"launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun x\n"}}, "command": []}
STEPS: dict[str, Any] = {"launcher": {"steps": True}}
SEGFAULT = "Fatal Python error: Segmentation fault"
TRACEBACK = "Traceback (most recent call last):\nRuntimeError: the sum is wrong"


def gang(**fields: Any) -> World:
    w = running(3, spare=1, **fields)
    w.train("one", 5)
    w.now += 100.0
    w.work()
    return w


def found(w: World) -> list[tuple[int, str]]:
    """Slots of what has ended badly, earliest first, and what stands between rank and end."""
    w.work_reports_only()
    return [(end.slot, end.what) for end in ends(w.plan("one"), NOBODY)]


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


def test_a_node_that_stands_by_has_succeeded_at_nothing() -> None:
    w = gang(**MPI)
    w.exit_child("one", 2, 0)
    w.work_reports_only()
    assert succeeded_ranks(w.plan("one")) == frozenset()


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


# A command that ended with code 0.


def ended(w: World) -> None:
    """The command says 0, and everybody has been heard since."""
    w.exit_child("one", 0, 0)
    w.work_reports_only()
    w.now += 1.0
    w.work_reports_only()


def is_success(w: World) -> bool:
    return has_succeeded(w.plan("one"), frozenset({0}))


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


# A node that a step could not be started on.

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
