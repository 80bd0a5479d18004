"""Steps of which some tasks have ended with code 0 while others go on: mostly those wait for what will not come.

A step's client knows all of its tasks, and tells the worker of its node. Of the ranks of ``mpirun`` each node knows its
own, which the worker counts: the operator adds them up.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from lockstep.worker.steps.told import MPI, open_told, partly_row, tell

if TYPE_CHECKING:  # what starts these programs wants them to start quickly
    from lockstep.worker.settings import JSON

MAX_PARTLY = 4  # steps that a worker tells of
SETTLED_SECONDS = 1.0  # within which tasks may well end one after the other
RANKS_SECONDS = 10.0  # for which ranks of mpirun have run before anything is said of them


class TasksOfStep:
    """Those of one step, as its client hears of their ends. ``descriptor``: see ``open_told``."""

    def __init__(
        self, directory: str, step: str, tasks: int, *, monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._directory, self._step, self._left, self._monotonic = directory, step, tasks, monotonic
        self._done, self._first = 0, (0, 0, 0.0)  # its task, rank and time
        self._told: Optional[int] = None  # of what was told last, how many are left
        self._due = 0.0  # monotonic

    def ended(self, task: int, rank: int, code: int) -> None:
        """One of them; ``code`` as a shell has it."""
        self._left -= 1
        if not code:
            self._done += 1
            if self._done == 1:
                self._first = (task, rank, time.time())
        if not self._due:
            self._due = self._monotonic() + SETTLED_SECONDS

    def follow_time(self) -> float:
        """Seconds until something is to be told; what is, is told."""
        if not self._due:
            return 60.0
        left = self._due - self._monotonic()
        if left > 0:
            return left
        self._due = 0.0
        if self._done and self._left:
            self._tell(self._left)
        return 60.0

    def over(self) -> None:
        """Nothing is left of the step."""
        if self._told:
            self._tell(0)

    def _tell(self, left: int) -> None:
        if left == self._told:
            return
        self._told = left
        task, rank, at = self._first
        with contextlib.suppress(OSError):
            told = open_told(self._directory)
            try:
                tell(told, partly_row(self._step, task, rank, at, self._done, left))
            finally:
                os.close(told)


class PartlyEnded:
    """What a worker has heard of such steps, and of the ranks of mpirun on its node."""

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, lives: Optional[Callable[[int], bool]] = None
    ) -> None:  # fmt: skip
        self._monotonic, self._lives = monotonic, lives or _lives
        self._steps: Dict[str, JSON] = {}  # by name, oldest first
        self._running: Dict[int, int] = {}  # PIDs by rank of mpirun
        self._since = 0.0  # of the first of them, Unix seconds
        self._first: JSON = {}  # of them to end well
        self._told_from = self._looked_at = 0.0  # monotonic
        self._said: List[JSON] = []

    def take(self, row: JSON) -> bool:
        """Whether it is a row about this alone."""
        if "left" in row:
            self._steps.pop(row["step"], None)
            if row["left"]:
                self._steps[row["step"]] = row
            for step in list(self._steps)[:-MAX_PARTLY]:
                del self._steps[step]
            return True
        if "pid" in row:
            self._begin(row)
            return True
        well = row["code"] == 0 and not row["signal"]
        if row["step"] == MPI:
            self._running.pop(row["task"], None)
            if well and not self._first:
                self._first = {"task": row["task"], "at": row["at"], "done": 0}
            if well:
                self._first["done"] += 1
        return well

    def _begin(self, row: JSON) -> None:
        self._running = {task: pid for task, pid in self._running.items() if self._lives(pid)}
        if not self._running:  # another mpirun, mostly; else one is missed that ended before the next had begun
            self._since, self._first = row["at"], {}
            self._told_from = self._monotonic() + RANKS_SECONDS
        self._running[row["task"]] = row["pid"]

    def report(self) -> JSON:
        """What the protocol carries of it; it does not change with every end."""
        now = self._monotonic()
        if now >= self._looked_at + SETTLED_SECONDS and (self._said or self._steps or self._running or self._first):
            self._looked_at = now
            self._running = {task: pid for task, pid in self._running.items() if self._lives(pid)}
            self._steps = {step: row for step, row in self._steps.items() if self._lives(row["of"])}
            self._said = [{key: row[key] for key in row if key != "of"} for row in self._steps.values()]
            if now >= self._told_from and (self._running or self._first):
                first = self._first or {"task": 0, "at": 0.0, "done": 0}
                ranks = {"step": MPI, "since": self._since, "left": len(self._running), **first}
                self._said = [ranks, *self._said][:MAX_PARTLY]
        return {"partlyEnded": self._said} if self._said else {}


def _lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
