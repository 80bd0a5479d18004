"""A clock to move by hand; the worker as a process, and an operator for it to speak to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.fake_operator import FakeOperator
from harness.running_worker import LaunchWorker, RunningWorker
from support.manual_clock import ManualClock


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
