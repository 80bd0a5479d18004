"""Programs of other names (``ssh``, ``pdsh``): what they ask for is a step, and what comes of it is said as they do."""

from __future__ import annotations

import os
import signal
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from lockstep.worker.shims import targets
from lockstep.worker.shims.request import EVERYBODY, NOBODY, ShimAnswer, ShimRequest, ShimTask
from lockstep.worker.steps.client import RunningStep, StepSink, TaskOutcome, forwarded_signals, new_step
from lockstep.worker.steps.credentials import AttemptGang, CredentialError, read_gang
from lockstep.worker.steps.place import VARIABLE
from lockstep.worker.steps.request import AskedOfNode, TaskAsked
from lockstep.worker.steps.streams import Labels, Writer


class Here(NamedTuple):
    """The gang, as this process's node knows it."""

    directory: str
    gang: AttemptGang

    @property
    def targets(self) -> targets.Gang:
        """By which words the shims know its nodes."""
        addresses = [peer.address for peer in self.gang.peers]
        return targets.Gang(addresses, self.gang.rank, self.gang.names, os.uname().nodename)


def here(environ: Mapping[str, str]) -> Here:
    """Raises CredentialError."""
    directory = environ.get(VARIABLE)
    if not directory:
        raise CredentialError(f"this is no process of a gang that has steps: {VARIABLE} is not set")
    return Here(directory, read_gang(directory))


class _Passing(StepSink):
    """Output goes where this process's goes."""

    def __init__(self, asked: ShimRequest) -> None:
        self._out = {stream: Writer(stream, in_thread=not asked.detached) for stream in (1, 2)}
        self._labels = Labels(asked.labels) if asked.labels is not None else None
        self._to_start = sum(len(part.tasks) for part in asked.parts)
        self._detached = asked.detached
        self.step: Optional[RunningStep] = None

    def writer(self, task: int, stream: int) -> Optional[Writer]:
        if self._out[1].broken and self.step is not None:
            self.step.end(0.0)  # whoever read this has gone
        return None if self._labels else self._out[stream]

    def output(self, task: int, stream: int, data: bytes) -> None:
        if self._labels is not None:
            self._out[stream].write(self._labels.whole_lines(task, stream, data))

    def started(self, task: int, rank: int, pid: int) -> None:
        self._to_start -= 1
        if self._detached and not self._to_start and os.fork():
            os._exit(0)  # the other one stays with the step

    def ended(self, task: int, rank: int, outcome: TaskOutcome) -> None:
        if self._labels is not None:
            for stream, writer in self._out.items():
                writer.write(self._labels.rest(task, stream))

    def lost(self, writer: Writer, why: str) -> None:
        says = self._out[1 if writer is self._out[2] else 2]
        says.write(f"{writer.name}: {why}; what else goes there is lost\n".encode("utf-8", "replace"))

    def writers(self) -> Sequence[Writer]:
        return list(self._out.values())


def run(asked: ShimRequest, at: Here, seconds: int = 0) -> Dict[int, TaskOutcome]:
    """How each task ended. ``seconds``: until all of them are told to end; 0: never.

    Raises CredentialError, OSError.
    """
    sink = _Passing(asked)
    requests = requests_of(asked)
    step = sink.step = RunningStep(at.gang, at.directory, requests, sink, stdin=-1 if asked.stdin == NOBODY else 0)
    for number in forwarded_signals():
        signal.signal(number, lambda caught, frame: step.signal(caught))
    if seconds:
        signal.signal(signal.SIGALRM, lambda caught, frame: step.end(1.0))
        signal.alarm(seconds)
    return step.run()


def requests_of(asked: ShimRequest, *, sweep: bool = False, pid_in: str = "") -> List[AskedOfNode]:
    """One for each part. ``sweep``, ``pid_in``: as AskedOfNode and TaskAsked have them."""
    step = new_step()
    return [
        AskedOfNode(
            step, part.rank, [_task(task, asked.stdin, pid_in) for task in part.tasks], list(part.argv) or None,
            None if part.argv else part.shell, None if part.env is None else dict(part.env), directory=asked.cwd,
            stdin=asked.stdin != NOBODY, sweep=sweep,
        )
        for part in asked.parts
    ]  # fmt: skip


def _task(task: ShimTask, stdin: str, pid_in: str) -> TaskAsked:
    return TaskAsked(
        task.id, dict(task.env), stdin in (EVERYBODY, str(task.id)), task.stdin, task.stdout, task.stderr, task.append,
        pid_in,
    )  # fmt: skip


def print_answer(answer: ShimAnswer) -> int:
    """Say what a shim has to say by itself; its exit code."""
    os.write(1, answer.out.encode("utf-8", "replace"))
    os.write(2, answer.err.encode("utf-8", "replace"))
    return answer.code


def say(lines: Union[str, List[str]]) -> None:
    """On stderr."""
    text = lines if isinstance(lines, str) else "".join(f"{line}\n" for line in lines)
    os.write(2, text.encode("utf-8", "replace"))
