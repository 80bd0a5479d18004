"""The step server as the worker of its node sees it: its port, its process, and what it tells of failures."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from lockstep.worker.child.process import LaunchError
from lockstep.worker.child.processes import out_of_memory_kills
from lockstep.worker.errors import trouble
from lockstep.worker.launchers import slurm
from lockstep.worker.output import log_line
from lockstep.worker.settings import JSON, Settings
from lockstep.worker.start import Launch
from lockstep.worker.steps.asks import Asks
from lockstep.worker.steps.credentials import gang_of, write_credentials
from lockstep.worker.steps.mpi_messages import MpiMessages
from lockstep.worker.steps.partly import PartlyEnded
from lockstep.worker.steps.place import VARIABLE
from lockstep.worker.steps.programs import offer_library, offer_programs, program_environment, root
from lockstep.worker.steps.told import NODE_UNREACHABLE, WorkerFifo

FIRST_ENDS = 8  # the cause is among the first or the last, whichever way the command goes on
MAX_ENDS = 16
MAX_UNREACHED = 4  # of these, nodes that could not be reached
BACKLOG = 512
AGAIN_SECONDS = 1.0  # before a server that has died is started anew
MAX_LINES = 256  # that nobody has taken up
_MAIN = """
import os, sys
sys.path.insert(0, sys.argv[1])
from lockstep.worker.steps.server import main
os._exit(main(sys.argv[2]))
"""


def server_command(listener: int, ends: int, own: Sequence[str], library: str = "") -> List[str]:
    """What runs the server with these descriptors. ``library``: where modules are, if not where these come from."""
    given = json.dumps({"listen": listener, "ends": ends, "own": list(own)})
    return [sys.executable, "-I", "-S", "-c", _MAIN, library or root(), given]


class StepService:
    """Used by the main thread only. Without steps, by the pod's settings, all of it does nothing."""

    def __init__(self, settings: Settings) -> None:
        options = settings.launcher_options
        self._settings = settings
        self.wanted = options.get("steps") is True
        self._stands_by = self.wanted and options.get("standsBy") is True
        self.ends: List[JSON] = []  # of its attempt or the last: those that nobody asked for
        self._partly = PartlyEnded()
        self.lines: List[Tuple[float, str]] = []  # of stderr that may be signs, with their times, not taken up yet
        self._told: Optional[WorkerFifo] = None  # by whatever holds steps and ranks
        self._messages: Optional[MpiMessages] = None
        self._listener: Optional[socket.socket] = None
        self._used = False  # by an attempt
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._environment: Dict[str, str] = {}
        self._own: List[str] = []
        self._again_at = 0.0  # monotonic
        self._memory_kills = 0  # before the attempt
        self._batch = ""  # where the job of a batch script is
        self.asks = Asks()

    # Its port

    def hold(self, listener: Optional[socket.socket]) -> None:
        """At the barrier, bound: others may connect from now on, and are answered from START on. Raises OSError."""
        self.release()
        if listener is not None:
            listener.listen(BACKLOG)
        self._listener = listener

    def release(self) -> None:
        """The barrier was left; the port is free, unless an attempt uses it."""
        if not self._used and self._listener is not None:
            self._listener.close()
            self._listener = None

    def report(self) -> JSON:
        """What the protocol carries of it."""
        if not self.wanted:
            return {}
        about: JSON = {"stepsPort": self._listener.getsockname()[1] if self._listener else 0}
        if self.ends:
            about["stepEnds"] = self.ends
        return {**about, **self._partly.report(), **self.asks.report()}

    # An attempt

    def begin(self, launch: Launch, start: JSON) -> None:
        """Make ready for an attempt: files and programs. Raises LaunchError."""
        self.ends, self.lines, self._memory_kills = [], [], out_of_memory_kills()
        self._partly = PartlyEnded()
        if not self.wanted:
            return
        if launch.steps is None or self._listener is None:
            raise LaunchError(125, "ProcessNotStarted", "the operator gave no certificate for steps with START")
        try:
            given = launch.steps
            ports, names = given["ports"], given.get("names")
            gang = gang_of(self._settings.run_uid, launch.rank, start, launch.nodelist, ports, names)
            write_credentials(self.directory(launch), gang, given["ca"], given["certificate"], given["key"])
            if self._settings.launcher == "Slurm":
                self._batch = self.directory(launch)
                slurm.write_job(self._batch, launch.batch or {})
                self.asks.begin(os.path.join(os.path.dirname(self._batch), slurm.ASKS))
            offer_programs(self._settings)
            self._told = WorkerFifo(self.directory(launch))
            self._messages = None
        except OSError as error:
            raise LaunchError(125, "DirectoryNotCreated", trouble(error)) from None
        except (ValueError, KeyError, TypeError) as error:
            raise LaunchError(
                125, "ProcessNotStarted", f"what START says of steps is not understood: {error!r}"
            ) from None
        self._used = True

    @property
    def news_descriptor(self) -> int:
        """Descriptor to be watched for news, or -1."""
        return self._told.reads if self._told is not None else -1

    def environment(self, launch: Launch, environment: Mapping[str, str]) -> Dict[str, str]:
        """What steps add to the environment of the program."""
        if not self._used:
            return {}
        return {VARIABLE: self.directory(launch), **program_environment(self._settings, environment)}

    def begin_stop(self) -> None:
        """The program is asked to end: a batch script is not to begin something else."""
        if self._batch:
            with contextlib.suppress(OSError):
                slurm.begin_stop(self._batch)

    def stands_by(self, launch: Launch) -> bool:
        """The step server is this rank's program."""
        return self._used and self._stands_by and launch.rank != 0

    def command(self, own: Sequence[str]) -> List[str]:
        """The server's; ``own``: variables besides LOCKSTEP_ ones that tell who this node is."""
        listener, told = self.passed
        return server_command(listener, told, own, offer_library(self._settings))

    @property
    def passed(self) -> Sequence[int]:
        """Descriptors that the server has from the worker."""
        assert self._listener is not None
        assert self._told is not None
        return (self._listener.fileno(), self._told.writes)

    def serve(self, environment: Mapping[str, str], own: Sequence[str]) -> None:
        """Start the server beside the program. Raises LaunchError."""
        self._environment, self._own = dict(environment), list(own)
        try:
            self._process = subprocess.Popen(
                self.command(own), env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=self.passed, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise LaunchError(125, "ProcessNotStarted", f"the step server cannot be started: {error}") from None

    def reaped(self, pid: int) -> None:
        """A process that was the server's is started anew: what it had begun goes on without it."""
        if self._process is not None and pid == self._process.pid:
            self._process.returncode = -signal.SIGKILL
            self._process = None
            self._again_at = time.monotonic() + AGAIN_SECONDS

    def follow(self, stopping: bool) -> None:
        """Hear what there is. ``stopping``: whatever ends from now on was asked to."""
        self.hear(stopping)
        self.asks.observe()
        if self._again_at and time.monotonic() >= self._again_at and not stopping:
            self._again_at = 0.0
            log_line("the step server has died and is started anew")
            try:
                self.serve(self._environment, self._own)
            except LaunchError as error:
                log_line(error.args[2])
                self._again_at = time.monotonic() + AGAIN_SECONDS

    def hear(self, stopping: bool) -> None:
        """Take up what is told of failures, and lines that may say why."""
        rows = self._told.rows() if self._told is not None else []
        for row in rows + (self._messages.take() if self._messages is not None else []):
            if "line" in row:
                self.lines = [*self.lines[-MAX_LINES:], (row["at"], row["line"])]
                continue
            if self._partly.take(row):
                continue
            if row["asked"] or stopping:  # no evidence of anything
                continue
            if row["signal"] == signal.SIGKILL and out_of_memory_kills() > self._memory_kills:
                row["reason"] = "OOMKilled"
            self.ends = _kept([*(end for end in self.ends if not _is_replaced(end, row)), row])

    def listener(self, launch: Launch) -> Optional[Callable[[int, bytes], None]]:
        """What else hears the program's output: where all start from there, what it prints of others."""
        if not self._used or not self._stands_by or launch.rank != 0:
            return None
        self._messages = MpiMessages(launch.nodelist)
        return self._messages.feed

    def take_lines(self) -> List[Tuple[float, str]]:
        """Those that nobody has taken up."""
        taken, self.lines = self.lines, []
        return taken

    def finish(self, stopping: bool) -> None:
        """The attempt is over, and every process of it is killed."""
        self.hear(stopping)
        self.asks.end()
        if self._process is not None:
            self._process.returncode = -signal.SIGKILL  # reaped by the main thread
        self._used, self._again_at, self._process = False, 0.0, None
        self._partly = PartlyEnded()
        if self._told is not None:
            self._told.close()
            self._told = None
        self.release()

    def directory(self, launch: Launch) -> str:
        """Where clients find what they need."""
        return os.path.join(self._settings.scratch, f"a{launch.attempt}", "steps")


def _kept(ends: Sequence[JSON]) -> List[JSON]:
    """As many as are told, and few of nodes that could not be reached."""
    unreached = [end for end in ends if _is_of_link(end)][-MAX_UNREACHED:]
    failed = [end for end in ends if not _is_of_link(end)]
    last = MAX_ENDS - FIRST_ENDS - len(unreached)
    return [*failed[:FIRST_ENDS], *failed[FIRST_ENDS:][-last:], *unreached]


def _is_replaced(end: JSON, by: JSON) -> bool:
    """Of each node that could not be reached the last word counts, as a program may try until it succeeds."""
    return _is_of_link(end) and _is_of_link(by) and end["nodeRank"] == by["nodeRank"]


def _is_of_link(row: JSON) -> bool:
    """It tells of another node, that it could not be reached."""
    return row.get("reason") == NODE_UNREACHABLE
