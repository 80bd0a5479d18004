"""Steps that ended in part: what their clients and the ranks of mpirun tell, and what the worker makes of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker.steps.partly import MAX_PARTLY, RANKS_SECONDS, SETTLED_SECONDS, PartlyEnded, TasksOfStep
from lockstep.worker.steps.told import MPI, ProcessEnd, WorkerFifo, begun_row, partly_row


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Step:
    """One of four tasks, and the worker that hears its client."""

    def __init__(self, directory: Path) -> None:
        self.clock, self.alive = Clock(), True
        self.told = WorkerFifo(str(directory))
        self.tasks = TasksOfStep(str(directory), "ab", 4, monotonic=self.clock)
        self.heard = PartlyEnded(monotonic=self.clock, lives=lambda pid: self.alive)

    def tell(self, row: bytes) -> None:
        os.write(self.told.writes, row)

    def said(self, seconds: float = 2 * SETTLED_SECONDS) -> list[dict[str, Any]]:
        """After so long."""
        self.clock.now += seconds
        self.tasks.follow_time()
        for row in self.told.rows():
            self.heard.take(row)
        rows: list[dict[str, Any]] = self.heard.report().get("partlyEnded", [])
        assert all(row["at"] > 0 for row in rows if row["done"])
        assert all(row["since"] > 0 for row in rows if row["step"] == MPI)
        return [{name: row[name] for name in row if name not in ("at", "since")} for row in rows]


@pytest.fixture
def step(tmp_path: Path) -> Iterator[Step]:
    made = Step(tmp_path)
    yield made
    made.told.close()


def test_who_was_first_and_how_many_are_left_is_told_until_the_step_is_over(step: Step) -> None:
    assert step.said() == []
    step.tasks.ended(2, 1, 0)
    row = {"step": "ab", "task": 2, "nodeRank": 1, "done": 1, "left": 3}
    assert step.said() == [row]
    step.tasks.ended(0, 0, 0)
    step.tasks.ended(1, 0, 9)
    assert step.said() == [{**row, "done": 2, "left": 1}]
    step.tasks.ended(3, 1, 0)
    step.tasks.over()
    assert step.said() == []


@pytest.mark.parametrize("codes", [(0, 0, 0, 0), (1,), (1, 137, 2)], ids=["all at once", "badly", "all badly"])
def test_what_ends_together_or_badly_is_no_news(step: Step, codes: tuple[int, ...]) -> None:
    for task, code in enumerate(codes):
        step.tasks.ended(task, 0, code)
    step.said()
    step.tasks.over()
    assert step.said() == []


def test_of_a_client_that_was_killed_nothing_is_left(step: Step) -> None:
    step.tasks.ended(2, 1, 0)
    assert step.said()
    step.alive = False
    assert step.said() == []


def test_a_worker_tells_of_few_steps(step: Step) -> None:
    for number in range(9):
        step.tell(partly_row(str(number), 0, 0, 1.0, 1, 1))
    assert [row["step"] for row in step.said()] == [str(number) for number in range(9 - MAX_PARTLY, 9)]


def test_of_mpirun_each_node_counts_its_own_ranks_once_they_have_run_for_a_while(step: Step) -> None:
    for rank in (4, 5, 6):
        step.tell(begun_row(rank, 1000 + rank))
    assert step.said() == []
    assert step.said(RANKS_SECONDS) == [{"step": MPI, "task": 0, "done": 0, "left": 3}]
    step.tell(ProcessEnd("python", 0, 0, b"", asked=False).row(MPI, 5))
    step.tell(ProcessEnd("python", 3, 0, b"", asked=False).row(MPI, 6))
    assert step.said() == [{"step": MPI, "task": 5, "done": 1, "left": 1}]
    step.alive = False  # its holder was killed, and told nothing
    assert step.said() == [{"step": MPI, "task": 5, "done": 1, "left": 0}]


def test_a_rank_that_ends_well_at_once_is_told_though_none_is_left(step: Step) -> None:
    step.tell(begun_row(4, 1004))
    step.said()
    step.tell(ProcessEnd("python", 0, 0, b"", asked=False).row(MPI, 4))
    assert step.said() == []
    assert step.said(RANKS_SECONDS) == [{"step": MPI, "task": 4, "done": 1, "left": 0}]


@pytest.mark.parametrize("ranks", [(4, 5), (8, 9)], ids=["the same ranks", "others"])
def test_the_next_mpirun_begins_anew(step: Step, ranks: tuple[int, int]) -> None:
    for rank in (4, 5):
        step.tell(begun_row(rank, 1000 + rank))
    step.tell(ProcessEnd("python", 0, 0, b"", asked=False).row(MPI, 4))
    step.tell(ProcessEnd("python", 0, 0, b"", asked=False).row(MPI, 5))
    step.said(RANKS_SECONDS)
    for rank in ranks:
        step.tell(begun_row(rank, 2000 + rank))
    assert step.said() == []
    assert step.said(RANKS_SECONDS) == [{"step": MPI, "task": 0, "done": 0, "left": 2}]


def test_a_bad_end_is_still_told_as_one_and_a_good_one_is_not(step: Step) -> None:
    assert step.heard.take({"step": MPI, "task": 1, "code": 0, "signal": None, "at": 1.0})
    assert not step.heard.take({"step": MPI, "task": 2, "code": 1, "signal": None, "at": 1.0})
    assert not step.heard.take({"step": "ab", "task": 2, "code": None, "signal": 9, "at": 1.0})


@pytest.mark.parametrize(
    "line", [b'{"at": 1, "step": "x", "left": -1}', b'{"at": 1, "pid": "x", "task": 0}', b'{"at": 1, "left": 1}']
)
def test_a_row_that_is_none_is_no_news(step: Step, line: bytes) -> None:
    step.tell(line + b"\n")
    assert step.said() == []
