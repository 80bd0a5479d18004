"""Steps as tests ask for them: in this process, with all that comes of them kept."""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.step_gang import StepGang
from lockstep.worker.steps.client import RunningStep, StepSink, TaskOutcome
from lockstep.worker.steps.credentials import read_gang
from lockstep.worker.steps.request import AskedOfNode, TaskAsked

PATIENCE = 60.0


class Kept(StepSink):
    """Everything that a step said."""

    def __init__(self) -> None:
        self.said: dict[tuple[int, int], bytearray] = defaultdict(bytearray)
        self.pids: dict[int, int] = {}

    def output(self, task: int, stream: int, data: bytes) -> None:
        self.said[task, stream] += data

    def started(self, task: int, rank: int, pid: int) -> None:
        self.pids[task] = pid


class Asking:
    """A step that runs in a thread."""

    def __init__(
        self, directory: Path, requests: Sequence[AskedOfNode], *, kept: Kept | None = None, **options: Any
    ) -> None:
        self.kept = kept or Kept()
        self.outcomes: dict[int, TaskOutcome] = {}
        self.step = RunningStep(read_gang(str(directory)), str(directory), requests, self.kept, **options)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.outcomes = self.step.run()

    def wait(self) -> dict[int, TaskOutcome]:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.outcomes

    def out(self, task: int = 0, stream: int = 1) -> bytes:
        return bytes(self.kept.said[task, stream])


def asked(rank: int, *argv: str, tasks: Sequence[int] = (), **more: Any) -> AskedOfNode:
    """A program on one node; its tasks have the rank's number where none are said."""
    numbers = tasks or [rank]
    return AskedOfNode("step", rank, [TaskAsked(number, {"TASK": str(number)}) for number in numbers], argv, **more)


def shell(rank: int, text: str, **more: Any) -> AskedOfNode:
    """Shell text on one node."""
    return asked(rank, **more)._replace(argv=None, shell=text)


def run(gang: StepGang, *requests: AskedOfNode, **options: Any) -> Asking:
    """A step of rank 0's node, at its end."""
    asking = Asking(gang.nodes[0].directory, requests, **options)
    asking.wait()
    return asking


def until(condition: Callable[[], Any]) -> Any:
    """The condition's value once it is true."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("the condition did not come true in time")


@contextlib.contextmanager
def gang_of_steps(directory: Path, nodes: int, **options: Any) -> Iterator[StepGang]:
    gang = StepGang(directory, nodes, **options)
    try:
        yield gang
    finally:
        gang.close()
