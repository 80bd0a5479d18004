"""A step from the side that asks for it: processes on one or many nodes, driven by one thread that never waits.

step = RunningStep(read_gang(directory), directory, [Asked(rank, request), …], sink)
outcomes = step.run()
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import select
import signal
import socket
import ssl
import time
from typing import Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

from lockstep.worker.steps import frames
from lockstep.worker.steps.credentials import AttemptGang, knock_of, said_identity, tls_context
from lockstep.worker.steps.frames import ALL, Channel, Frame, ProtocolError
from lockstep.worker.steps.request import UNREACHABLE, NodeRequest
from lockstep.worker.steps.streams import Writer

REACH_SECONDS = 20.0  # for a node to answer what it is asked
AT_ONCE = 128  # nodes with which handshakes are under way
RETRY_SECONDS = 0.2
_MANY_NODES = 500
_UNDERWAY = (errno.EINPROGRESS, errno.EWOULDBLOCK, 0)
_PASSING = (
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EPIPE,
    errno.ECONNABORTED,
)


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
        """Where a task's stdout (1) or stderr (2) goes, by default to this process's own; None: see ``output``."""
        return None

    def output(self, task: int, stream: int, data: bytes) -> None:
        """Of streams that have no writer."""

    def started(self, task: int, rank: int, pid: int) -> None:
        """It runs, under that PID of its node."""

    def ended(self, task: int, rank: int, outcome: TaskOutcome) -> None:
        """Nothing more comes of it."""

    def writers(self) -> Sequence[Writer]:
        """All that are to be flushed. While one of them is full nothing more is asked of nodes."""
        return ()


class _Greeting(NamedTuple):
    """How a connection begins."""

    context: ssl.SSLContext
    knock: str


class RunningStep:
    """Processes on the nodes of the requests, whose tasks have different numbers.

    ``stdin``: a descriptor to read for all tasks that want input, or -1. ``reach``: seconds for a node to answer.
    Raises CredentialError.
    """

    def __init__(
        self, gang: AttemptGang, directory: str, requests: Sequence[NodeRequest], sink: StepSink, *, stdin: int = -1,
        reach: float = REACH_SECONDS,
    ) -> None:  # fmt: skip
        self.outcomes: Dict[int, TaskOutcome] = {}
        self._gang, self._sink, self._stdin = gang, sink, stdin
        greeting = _Greeting(tls_context(directory, server=False), knock_of(directory))
        self._waiting: Deque[_Node] = collections.deque(
            _Node(gang, request, greeting, reach, self._take) for request in requests
        )
        if len(requests) > _MANY_NODES:
            _allow_descriptors()
        self._nodes: List[_Node] = []
        self._calls: Deque[Callable[[_Node], None]] = collections.deque()  # for nodes that are yet to be asked
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

    def _call(self, call: Callable[[_Node], None]) -> None:
        self._calls.append(call)
        with contextlib.suppress(OSError):
            os.write(self._waker, b"\0")

    def run(self) -> Dict[int, TaskOutcome]:
        """Until all is known of every task."""
        try:
            while self._waiting or self._nodes or any(writer.unwritten for writer in self._sink.writers()):
                self._turn()
        finally:
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
            said = frame.object()
            outcome = TaskOutcome(
                int(said.get("code") or 0), int(said.get("signal") or 0), str(said.get("reason", "")),
                str(said.get("words", "")),
            )  # fmt: skip
            self.outcomes[task] = outcome
            self._sink.ended(task, rank, outcome)

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
            poll.register(writer.descriptor, select.POLLOUT)
        by_descriptor: Dict[int, _Node] = {}
        due = [60.0]
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


class _Node:
    """One node that is asked: reached, asked, listened to. It fails by itself."""

    def __init__(
        self, gang: AttemptGang, request: NodeRequest, greeting: _Greeting, reach: float,
        take: Callable[[int, int, Frame], None],
    ) -> None:  # fmt: skip
        self.request = request
        self.answered = False  # it has said something
        self.over = False
        self.credit = frames.FIRST_CREDIT
        self._gang, self._greeting, self._reach, self._take = gang, greeting, reach, take
        self._open = {task.identity for task in request.tasks}
        self._socket: Optional[socket.socket] = None
        self._tls: Optional[ssl.SSLSocket] = None
        self._channel: Optional[Channel] = None
        self._wants = select.POLLOUT  # while connecting
        self._until = self._retry_at = 0.0  # monotonic
        self._heard = self._spoke = 0.0  # monotonic
        self._said: List[Frame] = []  # before there was somebody to hear it
        self._why = ""

    def begin(self) -> None:
        """Try to reach it from now on."""
        self._until = time.monotonic() + self._reach
        self._connect()

    def _connect(self) -> None:
        peer = self._gang.peers[self.request.rank]
        self._retry_at = 0.0
        self._wants = select.POLLOUT
        try:
            family = socket.AF_INET6 if ":" in peer.address else socket.AF_INET
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            frames.tune(self._socket)
            error = self._socket.connect_ex((peer.address, peer.port))
            if error not in _UNDERWAY:
                raise OSError(error, os.strerror(error))
        except OSError as error:
            self._try_again(error)

    def _try_again(self, error: OSError) -> None:
        """It may be about to listen, or to be started anew; until its deadline."""
        self._close_socket()
        self._why = error.strerror or str(error)
        if error.errno == errno.ECONNRESET:
            self._why = "it hangs up, as on whoever is not of its gang"
        if error.errno in _PASSING and time.monotonic() + RETRY_SECONDS < self._until:
            self._retry_at = time.monotonic() + RETRY_SECONDS
        else:
            self._fail(f"{self._gang.named(self.request.rank)} cannot be reached: {self._why}")

    def events(self, listens: bool) -> Tuple[int, int]:
        """(descriptor, what to poll it for); -1: there is nothing to poll."""
        if self.over or self._retry_at or self._socket is None:
            return -1, 0
        if self._channel is not None:
            return self._channel.fileno(), self._channel.events(read=listens)
        return self._socket.fileno(), self._wants

    def has_more(self, listens: bool) -> bool:
        """Something has come that no poll tells of."""
        return listens and self._channel is not None and not self.over and self._channel.has_more()

    def follow_time(self, listens: bool) -> float:
        """Seconds until something is due here."""
        if self.over:
            return 60.0
        now = time.monotonic()
        if not self.answered:
            if now >= self._until:
                why = f": {self._why}" if self._why else ""
                self._fail(f"{self._gang.named(self.request.rank)} did not answer within {self._reach:g} s{why}")
                return 0.0
            if self._retry_at and now >= self._retry_at:
                self._connect()
            return min(self._until, self._retry_at or self._until) - now
        if not listens:
            self._heard = now  # what it says is waiting here
        if now >= self._spoke + frames.PING_SECONDS:
            self._spoke = now
            self.say(frames.PING)
        if now >= self._heard + frames.SILENT_SECONDS:
            self._fail(f"{self._gang.named(self.request.rank)} has said nothing for {frames.SILENT_SECONDS:g} s")
            return 0.0
        if self.has_more(listens):
            return 0.0
        return min(self._spoke + frames.PING_SECONDS, self._heard + frames.SILENT_SECONDS) - now

    def go_on(self, listens: bool) -> None:
        """Something is ready."""
        if self.over or self._socket is None:
            return
        try:
            if self._channel is None:
                self._shake_hands()
            if self._channel is not None:
                self._talk(self._channel, listens)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except ssl.SSLCertVerificationError as error:
            self._fail(f"{self._gang.named(self.request.rank)} is none of this attempt: {error.verify_message}")
        except OSError as error:
            self._broke(error)

    def _talk(self, channel: Channel, listens: bool) -> None:
        """Raises OSError: the peer's own words, if it has any, before what they have led to."""
        broke: Optional[OSError] = None
        try:
            channel.flush()
        except OSError as error:
            broke = error
        if listens or broke is not None:
            self._listen(channel)
        if broke is not None and not self.over:
            raise broke
        if not self.over:
            channel.flush()

    def _broke(self, error: OSError) -> None:
        named = self._gang.named(self.request.rank)
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            self._fail(f"{named} does not take this node for one of its gang: {error.reason}")
        elif self._channel is None and not isinstance(error, ProtocolError):  # else it may have started them
            self._try_again(
                error if error.errno in _PASSING else OSError(errno.ECONNRESET, error.strerror or str(error))
            )
        else:
            self._fail(f"the connection to {named} broke: {error.strerror or error}")

    def _shake_hands(self) -> None:
        assert self._socket is not None
        if self._tls is None:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            context, knock = self._greeting
            self._tls = context.wrap_socket(self._socket, do_handshake_on_connect=False, server_hostname=knock)
            self._socket = self._tls  # the plain one holds no descriptor any more
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._wants = select.POLLIN
            raise
        except ssl.SSLWantWriteError:
            self._wants = select.POLLOUT
            raise
        if said_identity(self._tls) != self._gang.identity(self.request.rank):
            said = said_identity(self._tls) or "nobody"
            raise ProtocolError(f"its certificate is of {said}, not of {self._gang.identity(self.request.rank)}")
        self._channel = Channel(self._tls)
        self._channel.send_object(frames.HEADER, ALL, self.request.header())
        for frame in self._said:
            self._channel.send(*frame)
        self._heard = self._spoke = time.monotonic()

    def _listen(self, channel: Channel) -> None:
        for frame in channel.receive():
            self._heard = time.monotonic()
            self.answered = True
            if frame.kind == frames.DONE:
                self._fail("") if self._open else self.close()
                return
            if frame.kind == frames.CREDIT:
                self.credit += int(frame.number(0, 1 << 40))
            elif frame.kind == frames.ERROR and frame.task == ALL:
                for task in sorted(self._open):
                    self._take(task, self.request.rank, frame)
                self._open.clear()
                self.close()
                return
            elif frame.kind in (frames.STDOUT, frames.STDERR, frames.STARTED, frames.EXIT, frames.ERROR):
                if frame.task not in self._open:
                    raise ProtocolError("it speaks of a task that it has none of")
                self._take(frame.task, self.request.rank, frame)
                if frame.kind in (frames.EXIT, frames.ERROR):
                    self._open.discard(frame.task)
            elif frame.kind != frames.PING:
                raise ProtocolError(f"a frame of kind {frame.kind} is not expected")
        if channel.over:
            raise OSError(errno.ECONNRESET, "it hung up")

    def say(self, kind: int, data: bytes = b"") -> None:
        """To all of its tasks, as soon as it is there."""
        if self._channel is not None and not self.over:
            self._channel.send(kind, ALL, data)
            with contextlib.suppress(OSError):  # it is noticed when it is listened to
                self._channel.flush()
        elif not self.over:
            self._said.append(Frame(kind, ALL, data))

    def _fail(self, words: str) -> None:
        """What is not known of its tasks never will be."""
        self.close()
        words = words or f"{self._gang.named(self.request.rank)} ended the step too early"
        said = {"code": UNREACHABLE, "reason": "NodeUnreachable", "words": words}
        frame = Frame(frames.ERROR, ALL, frames.packed(said))
        for task in sorted(self._open):
            self._take(task, self.request.rank, frame)
        self._open.clear()

    def close(self) -> None:
        """Hang up; nothing more comes of it."""
        self.over = True
        self._close_socket()

    def _close_socket(self) -> None:
        for each in (self._tls, self._socket):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.close()
        self._tls = self._socket = self._channel = None


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
