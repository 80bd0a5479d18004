"""A clock to move by hand; the worker as a process, and an operator for it to speak to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from harness.fake_operator import FakeOperator
from harness.running_worker import LaunchWorker, RunningWorker
from support.manual_clock import ManualClock


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """Those of `lockstep`: for each line that a test types, making them takes longer than most of what they do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_command", cache(get_command))
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[FakeOperator]:
    fake = FakeOperator(tmp_path)
    yield fake
    fake.close()


@pytest.fixture
def launch(tmp_path: Path, operator: FakeOperator) -> Iterator[LaunchWorker]:
    """Starts a worker; the next one is in the same pod."""
    workers: list[RunningWorker] = []

    def start(*command: str, wrapper: Sequence[str] = (), **environ: str) -> RunningWorker:
        workers.append(RunningWorker(tmp_path, operator, list(command), wrapper, **environ))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()
