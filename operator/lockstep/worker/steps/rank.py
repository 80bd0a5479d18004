"""The program that mpirun puts in front of each rank: it runs the rank, and tells its node's worker how that ended.

The daemons of mpirun reap their ranks, and what they tell of one that failed lacks its code, its stderr or its node.
All that mpirun sees is as without it: the rank's output, its end, and that signals arrive. The rank's process group is
its own, so that it gets each signal once.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
from typing import AbstractSet, Dict, List, Mapping, NoReturn, Sequence, Set, Tuple

from lockstep.worker.child.processes import RANK_HOLDER, c_library, name_process
from lockstep.worker.child.sign_words import SignLines
from lockstep.worker.output import write_all
from lockstep.worker.steps.place import VARIABLE, own_rank
from lockstep.worker.steps.told import MPI, TAIL_BYTES, ProcessEnd, begun_row, line_row, open_told, tell, was_asked

NODE_RANK = "LOCKSTEP_NODE_RANK"
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")  # each MPI has its own name for it
_FORWARDED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGTSTP, signal.SIGCONT,
)  # fmt: skip
_BEFORE_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them
_PR_SET_PDEATHSIG = 1
_CHUNK = 1 << 16


class Rank:
    """One rank, as its parent sees it. Its stderr passes through here."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self._program = os.path.basename(argv[0])
        self._number = _rank_of(environ)
        self._told = -1
        _hold_streams()
        directory = environ.get(VARIABLE, "")
        with contextlib.suppress(OSError):
            self._told = open_told(directory)
        self._tail, self._signs = b"", SignLines()
        self._sent: Set[int] = set()  # signals
        self._wake, wake = os.pipe()
        for descriptor in (self._wake, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._stderr, stderr = os.pipe()
        watched = {*_FORWARDED, signal.SIGCHLD}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            _become(argv, own_environment(environ), stderr, mask, parent)
        with contextlib.suppress(OSError):  # it has done so itself
            os.setpgid(self.pid, self.pid)
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        signal.signal(signal.SIGCHLD, lambda caught, frame: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(stderr)
        _let_go()
        if self._told >= 0:
            tell(self._told, begun_row(self._number, self.pid))

    def _forward(self, caught: int, frame: object) -> None:
        self._sent.add(caught)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, caught)

    def wait(self) -> int:
        """Its status, as waitpid has it, once that is told."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._stderr, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._stderr in ready and not self._pass_on():
                poll.unregister(self._stderr)
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.set_blocking(self._stderr, False)
                with contextlib.suppress(BlockingIOError):  # what is there; a process that it left may hold the rest
                    while self._pass_on():
                        continue
                self._tell(status)
                return status

    def _pass_on(self) -> bool:
        """False at the end of its stderr. Raises BlockingIOError."""
        data = os.read(self._stderr, _CHUNK)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._tell_lines(self._signs.feed(data))
        write_all(2, data)
        return bool(data)

    def _tell_lines(self, lines: List[bytes]) -> None:
        if self._told >= 0:
            for line in lines:
                tell(self._told, line_row(line))

    def _tell(self, status: int) -> None:
        self._tell_lines(self._signs.rest())
        code, number = outcome_of(status)
        if self._told >= 0:
            ended = ProcessEnd(self._program, code, number, self._tail, asked=was_asked(self._sent, code, number))
            tell(self._told, ended.row(MPI, self._number))


def outcome_of(status: int) -> Tuple[int, int]:
    """(code, signal) of what waitpid says."""
    return (0, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), 0)


def own_environment(environ: Mapping[str, str]) -> Dict[str, str]:
    """With the rank of its own node: some mpiruns give all ranks the environment of theirs."""
    environment = dict(environ)
    rank = own_rank(environment.get(VARIABLE, ""))
    if rank is not None:
        environment[NODE_RANK] = str(rank)
    return environment


def _rank_of(environ: Mapping[str, str]) -> int:
    said = next((environ[name] for name in RANKS if name in environ), "0")
    return int(said) if said.isdigit() else 0


def _become(
    argv: Sequence[str], environment: Dict[str, str], stderr: int, mask: AbstractSet[int], parent: int
) -> NoReturn:  # fmt: skip
    """In the child: the rank's program."""
    try:
        os.setpgid(0, 0)
        with contextlib.suppress(ImportError, OSError, AttributeError):
            c_library().prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # as a kill of the group would end both
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        os.dup2(stderr, 2)
        for number in _BEFORE_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(argv[0], list(argv), environment)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126)
    finally:
        os._exit(125)


def _hold_streams() -> None:
    """What is opened from now on is none of the three streams: Open MPI leaves stdin closed."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        os.set_inheritable(descriptor, True)
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


def _let_go() -> None:
    """Of the streams that the rank has inherited: who reads to their end does not wait for this process.

    What else it has inherited stays open until its end is told: Intel's daemon kills all once a rank's is closed.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def end_like(status: int) -> NoReturn:
    """This process's end is the rank's."""
    code, number = outcome_of(status)
    if number:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # of SIGKILL
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(128 + number if number else code)


def main() -> NoReturn:
    """The program."""
    if len(sys.argv) < 2:
        os.write(2, b"usage: lockstep-rank command [argument ...]; mpirun puts it in front of what it starts\n")
        os._exit(2)
    name_process(RANK_HOLDER)
    end_like(Rank(sys.argv[1:], os.environ).wait())
