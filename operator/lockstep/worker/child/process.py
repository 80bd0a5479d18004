"""One attempt's process: started, stopped, and its output passed on."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from lockstep.worker.child.processes import other_processes, terminate
from lockstep.worker.errors import trouble
from lockstep.worker.output import log_line, whole_lines, write_all

STDERR_TAIL_BYTES = 4096
LAUNCHERS_SECONDS = 3.0  # of its grace, for launchers that did not end with what they had started
NO_FAULT_OF_THE_COMMAND = (
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR,
)  # fmt: skip


class LaunchError(Exception):
    """The child could not be started: (exit code as of a shell, reason, words)."""


class Outlets(NamedTuple):
    """Files that get what a batch script says, as well as the pod's log. The same one twice: the streams are one."""

    stdout: str
    stderr: str
    append: bool = False


class _Copy:
    """One of them, for the thread that passes the stream on. What cannot be written is said once, and nothing ends."""

    def __init__(self, path: str, append: bool) -> None:
        self._path, self._descriptor = path, -1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | (0 if append else os.O_TRUNC)
            self._descriptor = os.open(path, flags, 0o666)
        except (OSError, ValueError) as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._descriptor >= 0:
            try:
                view = view[os.write(self._descriptor, view) :]
            except OSError as error:
                self.close()
                self._give_up(error)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _give_up(self, error: Exception) -> None:
        words = trouble(error) if isinstance(error, OSError) else str(error)
        log_line(f"the script's output is in this log alone, as {self._path} cannot be written: {words}")


class Child:
    """One attempt's process, in a session of its own. Its output goes through as two streams, in whole lines.

    ``hear`` is called with what was read from stdout (1) or stderr (2), in the threads that pass it on; it must
    neither block nor raise. ``steps``: it or others on this node may have been started by a launcher, which is to end
    last. ``serves``: descriptors that it gets as the step server, which ends with what it has started. ``outlets``: it
    is a batch shell, which is to end after what it waits for.
    """

    def __init__(
        self, attempt: int, command: Sequence[str], environment: Dict[str, str], hear: Callable[[int, bytes], None],
        *, steps: bool = False, serves: Sequence[int] = (), outlets: Optional[Outlets] = None,
    ) -> None:  # fmt: skip
        together = outlets is not None and outlets.stdout == outlets.stderr
        try:
            self._process = subprocess.Popen(
                list(command), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if together else subprocess.PIPE, bufsize=0, start_new_session=True,
                pass_fds=serves,
            )  # fmt: skip
        except (FileNotFoundError, NotADirectoryError) as error:
            raise LaunchError(127, "CommandNotFound", f"{command[0]}: {error.strerror}") from None
        except (OSError, ValueError) as error:
            reason = (125, "ProcessNotStarted") if getattr(error, "errno", 0) in NO_FAULT_OF_THE_COMMAND else None
            raise LaunchError(*(reason or (126, "CommandNotExecutable")), f"{command[0]}: {error}") from None
        self.attempt = attempt
        self._hear = hear
        self.pid = self._process.pid
        self.started = time.monotonic()
        self.kill_at: Optional[float] = None  # monotonic; None: nobody asked it to end
        self.stop_reason = ""
        self._steps, self._serves, self._outlets = steps, bool(serves), outlets
        self._awaited: Set[int] = set()  # what a batch shell is to outlive
        self._grace = 0.0  # seconds, of the strictest request
        self._launchers_asked = False
        self.stderr_tail = b""
        streams: List[Tuple[Any, int]] = [(self._process.stdout, 1), (self._process.stderr, 2)]
        if together:
            streams = streams[:1]  # in its order, and looked at like stderr
        self._pumps = [threading.Thread(target=self._pump, args=stream, daemon=True) for stream in streams]
        try:
            for pump in self._pumps:
                pump.start()
        except RuntimeError as error:  # no room for another thread
            self._signal(signal.SIGKILL)
            self._process.returncode = -signal.SIGKILL  # reaped by the main thread
            for (source, _), pump in zip(streams, self._pumps):  # noqa: B905, strict is younger than Python 3.8
                if pump.ident is None and source is not None:
                    source.close()
            raise LaunchError(125, "ProcessNotStarted", f"{command[0]}: {error}") from None

    def _pump(self, source: Any, sink: int) -> None:
        readable = True
        heard_as = 2 if self._process.stderr is None else sink
        copy = None
        if self._outlets is not None:
            copy = _Copy(self._outlets.stdout if sink == 1 else self._outlets.stderr, self._outlets.append)
        with source:
            for data in whole_lines(source.fileno()):
                if heard_as == 2:
                    self.stderr_tail = (self.stderr_tail + data)[-STDERR_TAIL_BYTES:]
                readable = readable and write_all(sink, data)
                if copy is not None:
                    copy.write(data)
                with contextlib.suppress(Exception):  # else the pipe would close, and the program end of that
                    self._hear(heard_as, data)
        if copy is not None:
            copy.close()

    def stop(self, grace: float, reason: str) -> bool:
        """SIGTERM now, SIGKILL after ``grace`` seconds; of several requests the strictest holds. True: the first."""
        first, kill_at = self.kill_at is None, time.monotonic() + grace
        if self.kill_at is None or kill_at < self.kill_at:
            self.kill_at, self._grace = kill_at, grace
        if first:
            self.stop_reason = reason
            if self._steps:
                self._awaited = terminate(self.pid, launchers=False, shell=self._outlets is not None)
            if self._serves:
                with contextlib.suppress(OSError):
                    os.kill(self.pid, signal.SIGTERM)
            elif not self._steps:
                self._signal(signal.SIGTERM)
        return first

    def enforce(self) -> None:
        """Kill it if its grace is over; shortly before, launchers that are still there are asked to end.

        A batch shell is so once all have ended that it may have waited for: it would begin with something else.
        """
        if self.kill_at is None:
            return
        now = time.monotonic()
        due = now >= self.kill_at - min(LAUNCHERS_SECONDS, self._grace / 4)
        if self._steps and not self._launchers_asked and (due or self._is_alone()):
            self._launchers_asked = True
            terminate(self.pid, launchers=True, shell=self._outlets is not None)
        if now >= self.kill_at:
            self._signal(signal.SIGKILL)

    def _is_alone(self) -> bool:
        """A batch shell that waits for none of those that were to end before it."""
        if self._outlets is None:
            return False
        return self._awaited.isdisjoint(process.pid for process in other_processes())

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            os.killpg(self.pid, number)

    def drain(self, code: int) -> None:
        """After it was reaped: let the last output through, bounded, since a process that survived may hold a pipe."""
        self._process.returncode = code
        deadline = time.monotonic() + 1.0
        for pump in self._pumps:
            pump.join(max(0.0, deadline - time.monotonic()))
