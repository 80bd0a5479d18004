"""One attempt's process: started, stopped, and its output passed on."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
from typing import Any, Callable, Dict, Optional, Sequence

from lockstep.worker.child.processes import terminate
from lockstep.worker.output import write_all

STDERR_TAIL_BYTES = 4096
LAUNCHERS_SECONDS = 3.0  # of its grace, for launchers that did not end with what they had started
NO_FAULT_OF_THE_COMMAND = (
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR,
)  # fmt: skip


class LaunchError(Exception):
    """The child could not be started: (exit code as of a shell, reason, words)."""


class Child:
    """One attempt's process, in a session of its own. Its output goes through byte by byte as two streams.

    ``hear`` is called with what was read from stdout (1) or stderr (2), in the threads that pass it on; it must
    neither block nor raise. ``steps``: it or others on this node may have been started by a launcher, which is to end
    last. ``serves``: descriptors that it gets as the step server, which ends with what it has started.
    """

    def __init__(
        self, attempt: int, command: Sequence[str], environment: Dict[str, str], hear: Callable[[int, bytes], None],
        *, steps: bool = False, serves: Sequence[int] = (),
    ) -> None:  # fmt: skip
        try:
            self._process = subprocess.Popen(
                list(command), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, bufsize=0, start_new_session=True, pass_fds=serves,
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
        self._steps, self._serves = steps, bool(serves)
        self._grace = 0.0  # seconds, of the strictest request
        self._launchers_asked = False
        self.stderr_tail = b""
        streams = ((self._process.stdout, 1), (self._process.stderr, 2))
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
        with source:
            while True:
                data = os.read(source.fileno(), 65536)
                if not data:
                    return
                if sink == 2:
                    self.stderr_tail = (self.stderr_tail + data)[-STDERR_TAIL_BYTES:]
                readable = readable and write_all(sink, data)
                with contextlib.suppress(Exception):  # else the pipe would close, and the program end of that
                    self._hear(sink, data)

    def stop(self, grace: float, reason: str) -> bool:
        """SIGTERM now, SIGKILL after ``grace`` seconds; of several requests the strictest holds. True: the first."""
        first, kill_at = self.kill_at is None, time.monotonic() + grace
        if self.kill_at is None or kill_at < self.kill_at:
            self.kill_at, self._grace = kill_at, grace
        if first:
            self.stop_reason = reason
            if self._steps:
                terminate(self.pid, launchers=False)
            if self._serves:
                with contextlib.suppress(OSError):
                    os.kill(self.pid, signal.SIGTERM)
            elif not self._steps:
                self._signal(signal.SIGTERM)
        return first

    def enforce(self) -> None:
        """Kill it if its grace is over; shortly before, launchers that are still there are asked to end."""
        if self.kill_at is None:
            return
        now = time.monotonic()
        if self._steps and not self._launchers_asked and now >= self.kill_at - min(LAUNCHERS_SECONDS, self._grace / 4):
            self._launchers_asked = True
            terminate(self.pid, launchers=True)
        if now >= self.kill_at:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            os.killpg(self.pid, number)

    def drain(self, code: int) -> None:
        """After it was reaped: let the last output through, bounded, since a process that survived may hold a pipe."""
        self._process.returncode = code
        deadline = time.monotonic() + 1.0
        for pump in self._pumps:
            pump.join(max(0.0, deadline - time.monotonic()))
