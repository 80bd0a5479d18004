"""The processes of one session: started, fed, listened to, and told apart from what they left behind."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
from typing import Callable, Deque, Dict, List, Mapping, Optional, Sequence, Set

from lockstep.worker.child.process import NO_FAULT_OF_THE_COMMAND
from lockstep.worker.child.processes import Process, other_processes
from lockstep.worker.child.sign_words import SignLines
from lockstep.worker.errors import open_plain
from lockstep.worker.steps.frames import CHUNK, STDERR, STDOUT
from lockstep.worker.steps.request import NOT_EXECUTABLE, NOT_FOUND, NOT_STARTED, AskedOfNode, RefusedError, TaskAsked
from lockstep.worker.steps.told import TAIL_BYTES

_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which Python before 3.10 has no name for
_PIPE_BYTES = 256 << 10
_SIGN_BYTES = 64 << 10  # at the end of a file that a task writes its stderr to


class RunningTask:
    """A process, in a session of its own, which is not its step's: what it starts may leave that.

    ``begun``: files that a task before it writes to already; its own are added. Raises RefusedError where it cannot be
    started.
    """

    def __init__(self, request: AskedOfNode, asked: TaskAsked, environment: Mapping[str, str], begun: Set[str]) -> None:
        self.identity = asked.identity
        self.status: Optional[int] = None  # as waitpid has it, once it was reaped
        self.told = False  # the client was told how it ended
        self.asked = False  # its session was to end, before it did
        self.sent: Set[int] = set()  # signals
        self.look_at = 0.0  # monotonic; when to look again at who holds its streams
        self.tail = b""
        self.signs = SignLines()
        self._input: Deque[memoryview] = collections.deque()
        self.unread = 0  # bytes of stdin
        self._input_ends = False
        command, directory = request.command, request.directory
        if directory is not None and not os.path.isdir(directory):
            raise RefusedError(NOT_STARTED, "DirectoryNotFound", f"{directory}: there is no such directory")
        files = _Files(asked, directory or os.getcwd(), begun)
        self.says_into = files.path(asked.stderr) if asked.stderr else ""  # its stderr; a file
        self._says_from = files.size("stderr")
        reads = subprocess.PIPE if request.stdin and asked.reads else subprocess.DEVNULL
        own = {**environment, **asked.environment}
        program = command[0] if "PATH" in own else shutil.which(command[0]) or command[0]  # on this node's
        try:
            process = subprocess.Popen(
                command, executable=program, env=own, cwd=directory, bufsize=0, start_new_session=True,
                preexec_fn=_knowing_its_pid(program, command, own, asked.pid_in) if asked.pid_in else None,
                stdin=files.opened.get("stdin", reads), stdout=files.opened.get("stdout", subprocess.PIPE),
                stderr=files.opened.get("stderr", subprocess.PIPE),
            )  # fmt: skip
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RefusedError(NOT_FOUND, "CommandNotFound", f"{command[0]}: {error.strerror}") from None
        except (OSError, ValueError) as error:
            if getattr(error, "errno", 0) in NO_FAULT_OF_THE_COMMAND:
                raise RefusedError(NOT_STARTED, "ProcessNotStarted", f"{command[0]}: {error}") from None
            raise RefusedError(NOT_EXECUTABLE, "CommandNotExecutable", f"{command[0]}: {error}") from None
        finally:
            files.close()
        self.pid = process.pid
        self.streams: Dict[int, int] = {}  # kind of frame by descriptor; none is left at the end of both
        self.stdin = -1
        try:
            self._hold_streams(process)
        except OSError as error:  # nobody would hear it, nor end it
            self._undo(process)
            raise RefusedError(NOT_STARTED, "ProcessNotStarted", f"{command[0]}: {error}") from None
        process.returncode = 0  # reaped by the session

    def _hold_streams(self, process: subprocess.Popen[bytes]) -> None:
        """Raises OSError."""
        for stream, kind in ((process.stdout, STDOUT), (process.stderr, STDERR)):
            if stream is None:
                continue
            descriptor = os.dup(stream.fileno())
            self.streams[descriptor] = kind
            stream.close()
            os.set_blocking(descriptor, False)
            with contextlib.suppress(OSError):  # the user may have no more room for pipes
                fcntl.fcntl(descriptor, _SET_PIPE_SIZE, _PIPE_BYTES)
        if process.stdin is not None:
            self.stdin = os.dup(process.stdin.fileno())
            process.stdin.close()
            os.set_blocking(self.stdin, False)

    def _undo(self, process: subprocess.Popen[bytes]) -> None:
        """It has hardly begun."""
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        for descriptor in (*self.streams, *([self.stdin] if self.stdin >= 0 else ())):
            os.close(descriptor)

    def read(self, descriptor: int, most: int = CHUNK) -> bytes:
        """What a stream has; empty: nothing at the moment, or its end, when it is not in ``streams`` any more."""
        try:
            data = os.read(descriptor, most)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            del self.streams[descriptor]
            os.close(descriptor)
        elif self.streams[descriptor] == STDERR:
            self.tail = (self.tail + data)[-TAIL_BYTES:]
        return data

    def give(self, data: bytes) -> None:
        """For its stdin."""
        if self.stdin >= 0 and not self._input_ends:
            self._input.append(memoryview(data))
            self.unread += len(data)

    def give_no_more(self) -> None:
        """It reads the end after what was given."""
        self._input_ends = True
        self.feed()

    def wants_input(self) -> bool:
        """Something is there to be fed."""
        return self.stdin >= 0 and bool(self._input)

    def feed(self) -> None:
        """Give it what it takes."""
        try:
            while self._input and self.stdin >= 0:
                written = os.write(self.stdin, self._input[0])
                self.unread -= written
                if written == len(self._input[0]):
                    self._input.popleft()
                else:
                    self._input[0] = self._input[0][written:]
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self._input.clear()
            self._input_ends = True
        if self._input_ends and not self._input and self.stdin >= 0:
            os.close(self.stdin)
            self.stdin, self.unread = -1, 0

    def signal(self, number: int) -> None:
        """To its process group, while it is there."""
        if self.status is None:
            self.sent.add(number)
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)

    def last_words(self) -> bytes:
        """The end of its stderr."""
        return self._end_of_file(TAIL_BYTES) if self.says_into else self.tail

    def last_lines(self) -> List[bytes]:
        """Those of its stderr that may be signs, and could not be told as they came: all of a file's, for one."""
        in_file = self.signs.feed(self._end_of_file(_SIGN_BYTES)) if self.says_into else []
        return [*in_file, *self.signs.rest()]

    def _end_of_file(self, most: int) -> bytes:
        """What it wrote there, or others of the same file meanwhile."""
        with contextlib.suppress(OSError), open_plain(self.says_into) as stream:
            stream.seek(max(self._says_from, os.fstat(stream.fileno()).st_size - most))
            return stream.read(most)
        return b""


def _knowing_its_pid(
    program: str, command: Sequence[str], environment: Mapping[str, str], variable: str
) -> Callable[[], None]:
    """For the child, after its fork: only there the PID is known."""

    def become() -> None:
        with contextlib.suppress(OSError, ValueError):  # it is tried once more, and then heard of
            os.execvpe(program, list(command), {**environment, variable: str(os.getpid())})

    return become


class _Files:
    """Those that a task has in the place of its streams. Raises RefusedError, with nothing left open."""

    def __init__(self, asked: TaskAsked, directory: str, begun: Set[str]) -> None:
        self._directory = directory
        self.opened: Dict[str, int] = {}  # descriptors, by stream
        by_path: Dict[str, int] = {}
        writes = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        named = (
            ("stdin", asked.stdin, os.O_RDONLY),
            ("stdout", asked.stdout, writes),
            ("stderr", asked.stderr, writes),
        )
        try:
            for stream, name, flags in named:
                if name and self.path(name) in by_path and stream == "stderr":
                    self.opened[stream] = by_path[self.path(name)]
                elif name:
                    path = self.path(name)
                    if flags == writes and path not in begun and not asked.append:
                        flags |= os.O_TRUNC
                    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOCTTY, 0o666)
                    self.opened[stream] = by_path[path] = descriptor
                    if stream != "stdin":
                        begun.add(path)
        except (OSError, ValueError) as error:
            self.close()
            raise RefusedError(NOT_STARTED, "FileNotOpened", f"{name}: {getattr(error, 'strerror', error)}") from None

    def path(self, name: str) -> str:
        """Where it is."""
        return os.path.join(self._directory, name)

    def size(self, stream: str) -> int:
        """Bytes that are in it already."""
        return os.fstat(self.opened[stream]).st_size if stream in self.opened else 0

    def close(self) -> None:
        """The task has its own."""
        for descriptor in set(self.opened.values()):
            os.close(descriptor)


class Descendants:
    """What lives below this process, by who holds whom to the step."""

    def __init__(self, tasks: Sequence[RunningTask]) -> None:
        self.processes: List[Process] = other_processes()
        self._sessions = {task.pid for task in tasks}
        # A daemon has left the session that it was started in, and its parent is gone: it came to this process.
        mine = os.getpid()
        daemons: Set[int] = set()
        for process in self.processes:
            if process.parent == mine and process.session not in self._sessions and process.pid not in self._sessions:
                daemons.add(process.pid)
        grown = True
        while grown:
            below = {process.pid for process in self.processes if process.parent in daemons} - daemons
            daemons |= below
            grown = bool(below)
        self.daemons = daemons

    def held(self) -> Set[int]:
        """Those that end with the step."""
        return {process.pid for process in self.processes} - self.daemons

    def any_in(self, task: RunningTask) -> bool:
        """Whether anything is left in the session of a task."""
        return any(process.session == task.pid for process in self.processes)


def send(pids: Set[int], number: int) -> None:
    """A signal to each, if it still lives."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def terminate(pids: Set[int]) -> None:
    """SIGTERM; who was stopped is to hear it, too."""
    send(pids, signal.SIGTERM)
    send(pids, signal.SIGCONT)
