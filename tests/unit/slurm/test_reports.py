"""What srun says of its tasks, and its code."""

import pytest

from lockstep.slurm.reports import (
    TaskEnd,
    aborting,
    exit_code,
    exit_lines,
    first_exit,
    is_bad,
    label,
    not_started,
    ranks,
    step_cancelled,
    terminating,
)


@pytest.mark.parametrize(
    ("task", "tasks", "text"), [(0, 1, "0: "), (3, 10, "3: "), (3, 11, " 3: "), (10, 11, "10: "), (7, 1001, "   7: ")]
)
def test_a_label_is_as_wide_as_the_highest_rank(task: int, tasks: int, text: str) -> None:
    assert label(task, tasks) == text


@pytest.mark.parametrize(
    ("ends", "lines"),
    [
        ([TaskEnd(0, "n1")], []),
        ([TaskEnd(3, "n1", 7)], ["srun: error: n1: task 3: Exited with exit code 7"]),
        ([TaskEnd(t, "n1", signal=9) for t in range(8)], ["srun: error: n1: tasks 0-7: Killed"]),
        ([TaskEnd(t, "n1", 1) for t in (0, 1, 3)], ["srun: error: n1: tasks 0-1,3: Exited with exit code 1"]),
        ([TaskEnd(0, "n1", signal=11, core=True)], ["srun: error: n1: task 0: Segmentation fault (core dumped)"]),
        ([TaskEnd(0, "n1", signal=9, out_of_memory=True)], ["srun: error: n1: task 0: Out Of Memory"]),
        (
            [TaskEnd(0, "n1", 1), TaskEnd(1, "n2", signal=15), TaskEnd(2, "n2", 0)],
            ["srun: error: n1: task 0: Exited with exit code 1", "srun: error: n2: task 1: Terminated"],
        ),
    ],
)
def test_bad_ends_are_told_by_node(ends: list[TaskEnd], lines: list[str]) -> None:
    assert exit_lines(ends) == lines


def test_signals_that_were_asked_for_are_not_told_and_codes_are() -> None:
    assert exit_lines([TaskEnd(0, "n1", signal=15), TaskEnd(1, "n1", 3)], cancelled=True) == [
        "srun: error: n1: task 1: Exited with exit code 3"
    ]


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ([], 0),
        ([TaskEnd(0, "n"), TaskEnd(1, "n")], 0),
        ([TaskEnd(0, "n", 3), TaskEnd(1, "n", 7), TaskEnd(2, "n", 1)], 7),
        ([TaskEnd(0, "n", 255), TaskEnd(1, "n", signal=9)], 137),
        ([TaskEnd(0, "n", signal=9), TaskEnd(1, "n", signal=15)], 143),
        ([TaskEnd(0, "n", signal=15), TaskEnd(1, "n", signal=9, out_of_memory=True)], 1),
    ],
)
def test_the_highest_code_counts_any_signal_beats_it_and_memory_both(ends: list[TaskEnd], code: int) -> None:
    assert exit_code(ends) == code
    assert any(map(is_bad, ends)) is bool(code)


def test_what_is_said_of_a_step_that_is_ended() -> None:
    assert terminating(123, 0) == "srun: Terminating StepId=123.0"
    assert step_cancelled(123, 0, "n1", "2026-12-01T08:00:00") == (
        "slurmstepd: error: *** STEP 123.0 ON n1 CANCELLED AT 2026-12-01T08:00:00 ***"
    )
    assert first_exit(60, 123, 0, [1, 2], [TaskEnd(0, "n", 1), TaskEnd(3, "n")]) == [
        "srun: First task exited 60s ago",
        "srun: StepId=123.0 tasks 1-2: running",
        "srun: StepId=123.0 task 0: exited abnormally",
        "srun: StepId=123.0 task 3: exited",
        "srun: Terminating StepId=123.0",
    ]


def test_a_command_that_is_not_there_is_told_as_slurm_tells_it() -> None:
    assert not_started("nosuch", "No such file or directory") == (
        "slurmstepd: error: execve(): nosuch: No such file or directory"
    )
    assert aborting(32) == "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."


def test_ranks_are_written_as_ranges() -> None:
    assert ranks([3, 0, 1, 2, 7]) == "0-3,7"
    assert ranks([5]) == "5"
