"""One connection to the step server, in a process of its own: from the handshake until all that it started has ended.

It is the parent of whatever its tasks leave behind, so that a step is held together by descent: launchers change
sessions and process groups. Only what became a daemon outlives a client that was lost.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import socket
import ssl
import time
from typing import (
    AbstractSet,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
    Union,
)

from lockstep.worker.child.processes import LAUNCHERS, SWEEP_SECONDS, adopt_orphans, descendants, out_of_memory_kills
from lockstep.worker.output import log_line
from lockstep.worker.settings import JSON
from lockstep.worker.steps import frames
from lockstep.worker.steps.credentials import said_identity
from lockstep.worker.steps.frames import ALL, Channel, Frame, ProtocolError
from lockstep.worker.steps.request import NOT_STARTED, AskedOfNode, RefusedError, TaskAsked, request_of
from lockstep.worker.steps.tasks import Descendants, RunningTask, send, terminate
from lockstep.worker.steps.told import ProcessEnd, line_row, tell, was_asked

PROVE_SECONDS = 10.0  # for handshake and header together
LOOK_SECONDS = 0.2
KILL_SECONDS = 0.1
UNSENT_BYTES = 256 << 10  # while more is to be sent, the tasks' output is not read
PIPE_BUF = 4096  # so much is written to a pipe as a whole
_WAKES = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
OUT_OF_MEMORY = "OOMKilled"
_T = TypeVar("_T")
REFUSED = 3  # exit code of a session that answered nobody


class ServedNode(NamedTuple):
    """What the server knows. ``own``: what this node lays over a client's environment."""

    rank: int
    members: AbstractSet[str]  # what the certificates of the gang say
    context: ssl.SSLContext
    environment: Mapping[str, str]
    own: Mapping[str, str]
    ends: int  # a pipe to the worker, for rows of stepEnds


def serve(connection: socket.socket, node: ServedNode, proven: Callable[[], None]) -> int:
    """The life of a session; returns its exit code. In a process of its own.

    ``proven`` is called once the peer is one of the gang, and what it asks has arrived.
    """
    try:
        channel = _handshake(connection, node)
    except (OSError, ValueError):
        return REFUSED
    if channel is None:
        return REFUSED
    adopt_orphans()
    try:
        header, *more = _first_frames(channel)
        request = request_of(header.object())
        if request.rank != node.rank:
            raise RefusedError(NOT_STARTED, "Protocol", f"this is rank {node.rank}, not {request.rank}")
        proven()
    except RefusedError as error:
        _refuse(channel, error)
        return REFUSED
    except OSError:
        return REFUSED
    signal.setitimer(signal.ITIMER_REAL, 0)
    channel.longest = frames.MAX_FRAME
    session = Session(channel, request, node)
    session.run(more)
    session.close()
    return 0


def _handshake(connection: socket.socket, node: ServedNode) -> Optional[Channel]:
    """Bounded by the alarm, which ends this process. Raises OSError, ValueError."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, PROVE_SECONDS)
    frames.tune(connection)
    tls = node.context.wrap_socket(connection, server_side=True)
    if said_identity(tls) not in node.members:
        return None
    return Channel(tls, frames.MAX_HEADER)


def _first_frames(channel: Channel) -> List[Frame]:
    """The header, and what came with it. Raises OSError, ProtocolError."""
    while True:
        if not channel.has_more():
            select.select([channel], [], [])
        found = channel.receive()
        if found:
            if found[0].kind != frames.HEADER:
                raise ProtocolError("it does not begin with a header")
            return found
        if channel.over:
            raise ProtocolError("the peer hung up")


def _refuse(channel: Channel, error: RefusedError) -> None:
    """Say why, as long as the alarm lets it."""
    code, reason, words = error.args
    with contextlib.suppress(OSError):
        channel.send_object(frames.ERROR, ALL, {"code": code, "reason": reason, "words": words})
        while not channel.flush():
            select.select([], [channel], [])
        while not channel.over:
            select.select([channel], [], [])
            channel.receive()


class Session:
    """Tasks and their client. Nothing here waits for anything but in ``_turn``, and for files in ``_aside``."""

    def __init__(self, channel: Channel, request: AskedOfNode, node: ServedNode) -> None:
        self._channel, self._request, self._node = channel, request, node
        self._tasks: List[RunningTask] = []
        self._files: Set[str] = set()  # that tasks write to
        self._left_open: Set[int] = set()  # streams that something holds whose task is over: read, and thrown away
        self._connected = True
        self._done = False  # everything was said, if not sent
        self._childless = False
        self._ending = False  # somebody wanted all of it to end
        self._kill_at: Optional[float] = None  # monotonic
        self._condemned: Set[int] = set()
        self._sweeping = False
        self._swept_by = 0.0  # monotonic; what lives then is not waited for
        self._credit = frames.FIRST_CREDIT
        self._memory_kills = out_of_memory_kills()
        self._heard = self._spoke = time.monotonic()
        self._wake, self._waker = os.pipe()
        for descriptor in (self._wake, self._waker):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in _WAKES:
            signal.signal(number, lambda caught, frame: None)  # of its own, as those are not inherited

    def run(self, first: Sequence[Frame]) -> None:
        """Until nothing is left of it."""
        environment = self._environment()
        # All of them at once: another thread takes as long as many a process.
        started = self._aside(lambda: [(asked, self._start(asked, environment)) for asked in self._request.tasks])
        for asked, task in started:
            self._take_up(asked, task)
        try:
            for frame in first:
                self._obey(frame)
        except OSError:
            self._lose()
        while self._connected or not self._childless:
            self._turn()
        for task in self._tasks:
            if not task.told:
                self._tell_end(task)

    def close(self) -> None:
        """Leave the process as it was before. For a session that has run."""
        for number in _WAKES:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        for descriptor in (self._wake, self._waker, *self._left_open):
            os.close(descriptor)

    def _environment(self) -> Dict[str, str]:
        request, node = self._request, self._node
        environment = dict(node.environment if request.environment is None else request.environment)
        for name in request.unset:
            environment.pop(name, None)
        environment.update(node.own)
        return environment

    def _start(self, asked: TaskAsked, environment: Mapping[str, str]) -> Union[RunningTask, RefusedError]:
        try:
            return RunningTask(self._request, asked, environment, self._files)
        except RefusedError as error:
            return error

    def _take_up(self, asked: TaskAsked, task: Union[RunningTask, RefusedError]) -> None:
        identity = asked.identity
        if isinstance(task, RunningTask):
            self._tasks.append(task)
            self._channel.send(frames.STARTED, identity, b"%d" % task.pid)
            return
        code, reason, words = task.args
        self._tell(frames.ERROR, identity, {"code": code, "reason": reason, "words": words})
        self._note(identity, self._request.program, code, 0, words.encode("utf-8", "replace"), asked=False)

    # One turn

    def _turn(self) -> None:
        self._reap()
        for task in self._tasks:
            if task.status is not None and not task.told and self._has_said_all(task):
                self._tell_end(task)
        self._follow_time()
        poll = select.poll()
        waits = {self._wake: select.POLLIN}
        full = self._connected and self._channel.unsent > UNSENT_BYTES
        sources = {descriptor: task for task in self._tasks if not task.told for descriptor in task.streams}
        if not full:
            waits.update(dict.fromkeys(sources, select.POLLIN))
        waits.update(dict.fromkeys(self._left_open, select.POLLIN))
        fed = {task.stdin: task for task in self._tasks if task.wants_input()}
        waits.update(dict.fromkeys(fed, select.POLLOUT))
        if self._connected:
            waits[self._channel.fileno()] = self._channel.events()
        for descriptor, events in waits.items():
            poll.register(descriptor, events)
        ready = {descriptor for descriptor, _ in poll.poll(self._patience())}
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        says = ready & set(sources)
        share = max(PIPE_BUF, UNSENT_BYTES // max(1, len(says)))  # all have their turn, and memory its bounds
        for descriptor in says:
            self._pass_on(sources[descriptor], descriptor, min(frames.CHUNK, share))
        for descriptor in ready & self._left_open:
            self._throw_away(descriptor)
        for descriptor in ready & set(fed):
            fed[descriptor].feed()
        if self._connected:
            self._converse()

    def _patience(self) -> float:
        """Milliseconds until something is due."""
        now = time.monotonic()
        due = [task.look_at for task in self._tasks if task.status is not None and not task.told]
        if self._connected:
            if self._channel.has_more():
                return 0.0
            due += [self._spoke + frames.PING_SECONDS, self._heard + frames.SILENT_SECONDS]
            due += [self._swept_by] * (self._sweeping and not self._done)
        if self._kill_at is not None:
            due.append(self._kill_at)
        return max(0.0, min(due) - now) * 1000.0 + 1.0 if due else 3_600_000.0

    def _follow_time(self) -> None:
        now = time.monotonic()
        if self._connected:
            if now >= self._spoke + frames.PING_SECONDS:
                self._spoke = now
                if not self._channel.unsent:
                    self._channel.send(frames.PING)
            if now >= self._heard + frames.SILENT_SECONDS:
                self._lose()
            elif not self._done and all(task.told for task in self._tasks) and self._swept(now):
                self._done = True  # the client hangs up, once it has read so far: who did it now might lose words
                self._channel.send(frames.DONE)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill()

    def _swept(self, now: float) -> bool:
        """End what its tasks have left behind, where that is asked for: the next step is to find GPUs and ports free.
        True: nothing is left, or what does not die."""
        if not self._request.sweep or self._childless:
            return True
        if not self._sweeping:
            self._sweeping = True
            self._swept_by = now + self._request.grace + SWEEP_SECONDS
            self._end(self._request.grace)
        if self._childless or now < self._swept_by:
            return self._childless
        left = ", ".join(f"{pid} {_name_of(pid)}" for pid in descendants(os.getpid())[:3])
        log_line(f"a step of {self._request.program} is over, and what it left here does not die: {left}")
        return True

    # Its tasks

    def _reap(self) -> None:
        tasks = {task.pid: task for task in self._tasks if task.status is None}
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self._childless = True
                return
            if found is None:
                return
            name = "" if found.si_pid in tasks else _name_of(found.si_pid)
            _, status = os.waitpid(found.si_pid, 0)
            if found.si_pid in tasks:
                task = tasks[found.si_pid]
                task.status, task.asked = status, task.asked or self._ending
            elif os.WIFSIGNALED(status) and name in LAUNCHERS:  # of others the launcher that they had may be the cause
                self._note(self._tasks[0].identity, name, 0, os.WTERMSIG(status), b"", asked=self._ending)

    def _has_said_all(self, task: RunningTask) -> bool:
        """Its output has ended; or who still holds that has left its session, and says nothing at the moment."""
        if not task.streams:
            return True
        now = time.monotonic()
        due, first = task.look_at, not task.look_at  # at first its end is merely on its way
        if first or now >= due:
            task.look_at = now + LOOK_SECONDS
        if first or now < due:
            return False
        if not self._request.sweep and Descendants(self._tasks).any_in(task):
            return False
        return not any(frames.is_ready(descriptor, select.POLLIN) for descriptor in task.streams)

    def _tell_end(self, task: RunningTask) -> None:
        task.told = True
        self._left_open |= set(task.streams)
        task.streams.clear()
        task.give_no_more()

        def last() -> Tuple[List[bytes], bytes]:
            return task.last_lines(), task.last_words()

        lines, words = self._aside(last) if task.says_into else last()
        for line in lines:
            tell(self._node.ends, line_row(line))
        status = task.status or 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 0 if number else os.WEXITSTATUS(status)
        if self._connected:
            memory = number == signal.SIGKILL and out_of_memory_kills() > self._memory_kills
            self._tell(frames.EXIT, task.identity, {"code": code, "signal": number, "reason": OUT_OF_MEMORY * memory})
        if code or number:
            asked = task.asked or was_asked(task.sent, code, number)
            self._note(task.identity, self._request.program, code, number, words, asked=asked)

    def _pass_on(self, task: RunningTask, descriptor: int, most: int) -> None:
        kind = task.streams[descriptor]
        data = task.read(descriptor, most)
        if kind == frames.STDERR:
            for line in task.signs.feed(data):
                tell(self._node.ends, line_row(line))
        if data and self._connected:
            self._channel.send(kind, task.identity, data)

    def _throw_away(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            if os.read(descriptor, frames.CHUNK):
                return
            self._left_open.discard(descriptor)
            os.close(descriptor)

    def _end(self, grace: float) -> None:
        self._reap()  # who has ended by now was not asked to
        self._ending = True
        terminate(self._held())
        kill_at = time.monotonic() + grace
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)

    def _held(self) -> Set[int]:
        """Who is to end: daemons only where nothing is to be left."""
        found = Descendants(self._tasks)
        alive = {process.pid for process in found.processes}
        self._condemned |= alive if self._sweeping else found.held()
        self._condemned &= alive
        return self._condemned

    def _kill(self) -> None:
        left = self._held()
        send(left, signal.SIGKILL)
        self._kill_at = time.monotonic() + KILL_SECONDS if left else None

    def _aside(self, work: Callable[[], _T]) -> _T:
        """What a file system may hold up for long: meanwhile its client hears that this node is there. Raises what it
        raises."""
        made: List[_T] = []
        errors: List[Exception] = []
        over = _thread.allocate_lock()
        over.acquire()

        def do() -> None:
            try:
                made.append(work())
            except Exception as error:
                errors.append(error)
            finally:
                over.release()

        try:
            _thread.start_new_thread(do, ())  # that of ``threading`` is waited for until it runs
        except RuntimeError:  # no room for another one
            return work()
        while not over.acquire(timeout=frames.PING_SECONDS):
            self._heard = self._spoke = time.monotonic()  # what it says is waiting here
            with contextlib.suppress(OSError):  # found again in _turn
                self._channel.send(frames.PING)
                self._channel.flush()
        if errors:
            raise errors[0]
        return made[0]

    # Its client

    def _converse(self) -> None:
        try:
            self._channel.flush()
            for frame in self._channel.receive():
                self._heard = time.monotonic()
                self._obey(frame)
            self._give_credit()
            self._channel.flush()
        except OSError:
            self._lose()
        else:
            if self._channel.over:
                self._lose()

    def _lose(self) -> None:
        """The client is gone: what it wanted to go on it would have waited for."""
        self._connected = False
        with contextlib.suppress(OSError):
            self._channel.tls.close()
        for task in self._tasks:
            task.give_no_more()
        if not self._done:
            self._end(self._request.grace)

    def _obey(self, frame: Frame) -> None:
        """Raises ProtocolError."""
        if frame.kind == frames.PING:
            return
        if frame.kind == frames.END:
            self._end(frame.number(0.0, 3600.0))
            return
        tasks = [task for task in self._tasks if frame.task in (task.identity, ALL)]
        if frame.kind == frames.STDIN and self._request.stdin:
            self._credit -= len(frame.data)
            if self._credit < 0:
                raise ProtocolError("more was sent than there is room for")
            for task in tasks:
                task.give(frame.data)
                task.feed()
        elif frame.kind == frames.STDIN_END:
            for task in tasks:
                task.give_no_more()
        elif frame.kind == frames.SIGNAL:
            number = int(frame.number(1, 64))
            self._reap()  # who has ended by now hears nothing
            for task in tasks:
                task.signal(number)
        else:
            raise ProtocolError(f"a frame of kind {frame.kind} is not expected")

    def _give_credit(self) -> None:
        room = frames.FIRST_CREDIT - max((task.unread for task in self._tasks), default=0) - self._credit
        if room >= frames.CHUNK or (room > 0 and not self._credit):
            self._credit += room
            self._channel.send(frames.CREDIT, ALL, b"%d" % room)

    def _tell(self, kind: int, identity: int, value: JSON) -> None:
        self._channel.send_object(kind, identity, value)

    def _note(self, identity: int, program: str, code: int, number: int, tail: bytes, *, asked: bool) -> None:
        """For the worker, which tells the operator."""
        ended = ProcessEnd(program, code, number, tail, asked=asked)
        tell(self._node.ends, ended.row(self._request.step, identity))


def _name_of(pid: int) -> str:
    """Of a process that lives, or has ended and was not reaped."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as stream:
        return stream.read().strip()
    return ""
