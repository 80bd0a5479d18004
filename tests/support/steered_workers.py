"""Workers with a directory each, and what passes between them, the operator and their programs."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.fake_operator import FakeOperator
from harness.running_worker import LaunchWorker, RunningWorker


@contextmanager
def each_in_its_own_directory(tmp_path: Path, operator: FakeOperator) -> Iterator[LaunchWorker]:
    """Starts workers, each in a directory of its own."""
    workers: list[RunningWorker] = []

    def start(*command: str, wrapper: tuple[str, ...] = (), **environ: str) -> RunningWorker:
        directory = tmp_path / f"worker-{len(workers)}"
        directory.mkdir()
        environ = {"LOCKSTEP_SLOT": str(len(workers)), **environ}
        workers.append(RunningWorker(directory, operator, list(command), wrapper, **environ))
        return workers[-1]

    try:
        yield start
    finally:
        for worker in workers:
            worker.kill()


def python(script: str, *arguments: Path) -> list[str]:
    return [sys.executable, "-c", script, *map(str, arguments)]


def control_of(worker: RunningWorker, attempt: int = 1) -> dict[str, Any]:
    path = worker.scratch / f"a{attempt}" / "control.json"
    control: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"save": None, "stop": None}
    return control


def everyone_ready(operator: FakeOperator, attempt: int, slots: int) -> list[dict[str, Any]]:
    def is_ready(slot: int) -> Callable[[dict[str, Any]], bool]:
        return lambda state: bool(state["slot"] == slot and state["readyFor"] == attempt)

    operator.desire("Prepare", attempt, world=slots)
    return [operator.wait_for(is_ready(slot)) for slot in range(slots)]
