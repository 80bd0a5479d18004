"""A step from the side that asks for it: processes on one or many nodes, driven by one thread that never waits.

step = RunningStep(read_gang(directory), directory, [AskedOfNode(new_step(), rank, tasks, argv), …], sink)
outcomes = step.run()
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import signal
from typing import Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Set

from lockstep.worker.steps import frames
from lockstep.worker.steps.asked_node import AskedNode, Greeting
from lockstep.worker.steps.credentials import AttemptGang, knock_of, tls_context
from lockstep.worker.steps.frames import Frame, ProtocolError
from lockstep.worker.steps.partly import TasksOfStep
from lockstep.worker.steps.request import AskedOfNode
from lockstep.worker.steps.streams import Writer
from lockstep.worker.steps.told import NODE_UNREACHABLE, open_told, tell, unreached_row

REACH_SECONDS = 20.0  # for a node to answer what it is asked
AT_ONCE = 128  # nodes with which handshakes are under way
_MANY_NODES = 500
_MOST_TOLD = 4  # nodes of a step that could not be reached: what is the matter shows in as many


class TaskOutcome(NamedTuple):
    """How a task ended. ``words``: why it could not be started, or is not known to have ended."""

    code: int
    signal: int = 0
    reason: str = ""
    words: str = ""

    @property
    def exit_code(self) -> int:
        """As a shell has it."""
        return 128 + self.signal if self.signal else self.code


class StepSink:
    """What becomes of a step: to be overridden. Nothing in it may wait."""

    def writer(self, task: int, stream: int) -> Optional[Writer]:
        """Where a task's stdout (1) or stderr (2) goes; None: see ``output``."""
        return None

    def output(self, task: int, stream: int, data: bytes) -> None:
        """Of streams that have no writer."""

    def started(self, task: int, rank: int, pid: int) -> None:
        """It runs, under that PID of its node."""

    def ended(self, task: int, rank: int, outcome: TaskOutcome) -> None:
        """Nothing more comes of it."""

    def follow_time(self) -> float:
        """Seconds until something is due here; what is, is done."""
        return 60.0

    def lost(self, writer: Writer, why: str) -> None:
        """What goes there is lost from now on."""

    def writers(self) -> Sequence[Writer]:
        """All that are to be flushed. While one of them is full nothing more is asked of nodes."""
        return ()


class RunningStep:
    """Processes on the nodes of the requests, whose tasks have different numbers.

    ``stdin``: a descriptor to read for all tasks that want input, or -1. ``reach``: seconds for a node to answer.
    Raises CredentialError.
    """

    def __init__(
        self, gang: AttemptGang, directory: str, requests: Sequence[AskedOfNode], sink: StepSink, *, stdin: int = -1,
        reach: float = REACH_SECONDS,
    ) -> None:  # fmt: skip
        self.outcomes: Dict[int, TaskOutcome] = {}
        self._gang, self._directory, self._sink, self._stdin = gang, directory, sink, stdin
        self._step = requests[0].step if requests else ""
        self._tasks = TasksOfStep(directory, self._step, sum(len(request.tasks) for request in requests))
        self._unreached: Set[int] = set()  # ranks of which the worker was told
        greeting = Greeting(tls_context(directory, server=False), knock_of(directory))
        self._waiting: Deque[AskedNode] = collections.deque(
            AskedNode(gang, request, greeting, reach, self._take) for request in requests
        )
        if len(requests) > _MANY_NODES:
            _allow_descriptors()
        self._nodes: List[AskedNode] = []
        self._calls: Deque[Callable[[AskedNode], None]] = collections.deque()  # for nodes that are yet to be asked
        self._wake, self._waker = os.pipe()
        for descriptor in (self._wake, self._waker):
            os.set_blocking(descriptor, False)
        self._input_over = stdin < 0
        for node in self._waiting:
            if self._input_over and node.request.stdin:
                node.say(frames.STDIN_END)

    # From signal handlers and from the sink

    def signal(self, number: int) -> None:
        """To every task."""
        self._call(lambda node: node.say(frames.SIGNAL, b"%d" % number))

    def end(self, grace: float) -> None:
        """SIGTERM to everything that the step started, and SIGKILL after so many seconds."""
        self._call(lambda node: node.say(frames.END, b"%g" % grace))

    def wake(self) -> None:
        """Something is due."""
        with contextlib.suppress(OSError):
            os.write(self._waker, b"\0")

    def _call(self, call: Callable[[AskedNode], None]) -> None:
        self._calls.append(call)
        self.wake()

    def run(self) -> Dict[int, TaskOutcome]:
        """Until all is known of every task."""
        try:
            while self._waiting or self._nodes or any(writer.unwritten for writer in self._sink.writers()):
                self._turn()
        finally:
            self._tasks.over()
            for node in self._nodes:
                node.close()
            os.close(self._wake)
            os.close(self._waker)
        return self.outcomes

    def _take(self, task: int, rank: int, frame: Frame) -> None:
        """What a node says of a task."""
        if frame.kind in (frames.STDOUT, frames.STDERR):
            stream = 1 if frame.kind == frames.STDOUT else 2
            writer = self._sink.writer(task, stream)
            if writer is None:
                self._sink.output(task, stream, frame.data)
            else:
                writer.write(frame.data)
        elif frame.kind == frames.STARTED:
            self._sink.started(task, rank, int(frame.number(1, 1 << 30)))
        elif task not in self.outcomes:
            outcome = _outcome_of(frame)
            self.outcomes[task] = outcome
            if outcome.reason == NODE_UNREACHABLE and rank not in self._unreached:
                self._tell_unreached(task, rank, outcome.words)
            self._tasks.ended(task, rank, outcome.exit_code)
            self._sink.ended(task, rank, outcome)

    def _tell_unreached(self, task: int, rank: int, words: str) -> None:
        """The worker of this node, as it may be why the attempt ends."""
        if rank == self._gang.rank or len(self._unreached) >= _MOST_TOLD:
            return
        self._unreached.add(rank)
        with contextlib.suppress(OSError):
            told = open_told(self._directory)
            try:
                tell(told, unreached_row(self._step, task, rank, words))
            finally:
                os.close(told)

    def _turn(self) -> None:
        while self._waiting and sum(not node.answered for node in self._nodes) < AT_ONCE:
            node = self._waiting.popleft()
            node.begin()
            self._nodes.append(node)
        while self._calls:
            call = self._calls.popleft()
            for node in (*self._nodes, *self._waiting):
                call(node)
        writers = [writer for writer in self._sink.writers() if writer.unwritten]
        listens = not any(writer.is_full for writer in writers)
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for writer in writers:
            poll.register(*writer.awaited)
        by_descriptor: Dict[int, AskedNode] = {}
        due = [60.0, self._sink.follow_time(), self._tasks.follow_time()]
        for node in self._nodes:
            due.append(node.follow_time(listens))
            descriptor, events = node.events(listens)
            if descriptor >= 0:
                by_descriptor[descriptor] = node
                poll.register(descriptor, events)
        reads_input = not self._input_over and self._has_room()
        if reads_input:
            poll.register(self._stdin, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, min(due)) * 1000.0 + 1.0 if min(due) > 0 else 0)}
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        for writer in writers:
            writer.flush()
        for descriptor, node in by_descriptor.items():
            if descriptor in ready or node.has_more(listens):
                node.go_on(listens)
        if reads_input and self._stdin in ready:
            self._read_input()
        for writer in self._sink.writers():
            failure = writer.take_failure()
            if failure:
                self._sink.lost(writer, failure)
        self._nodes = [node for node in self._nodes if not node.over]

    def _has_room(self) -> bool:
        """All nodes that read input take some more, and all of them are there to do so."""
        takers = [node for node in self._nodes if node.request.stdin]
        if self._waiting or not all(node.answered or node.over for node in takers):
            return False
        return all(node.credit > 0 for node in takers if not node.over)

    def _read_input(self) -> None:
        takers = [node for node in self._nodes if node.request.stdin and not node.over]
        room = min((node.credit for node in takers), default=frames.CHUNK)
        try:
            data = os.read(self._stdin, min(frames.CHUNK, room))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._input_over = not data
        for node in takers:
            if data:
                node.credit -= len(data)
                node.say(frames.STDIN, data)
            else:
                node.say(frames.STDIN_END)


def _outcome_of(frame: Frame) -> TaskOutcome:
    """Raises ProtocolError."""
    said = frame.object()
    try:
        code, number = int(said.get("code") or 0), int(said.get("signal") or 0)
    except (ValueError, TypeError, OverflowError):
        code = number = -1
    if not (0 <= code < 256 and 0 <= number < 128):
        raise ProtocolError(f"frame {frame.kind} does not say how a task has ended")
    return TaskOutcome(code, number, str(said.get("reason", "")), str(said.get("words", "")))


def _allow_descriptors() -> None:
    """As many as this process may have."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def new_step() -> str:
    """A name that no other step of the attempt has."""
    return os.urandom(6).hex()


def forwarded_signals() -> Sequence[int]:
    """Those that are for the step's processes when this one gets them."""
    names = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM")
    return [int(getattr(signal, name)) for name in names]
