"""What processes that hold steps and ranks tell the worker of their node: a row of JSON a line, in a FIFO."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, AbstractSet, Any, Iterator, List, Optional

if TYPE_CHECKING:  # what starts these programs wants them to start quickly
    from lockstep.worker.settings import JSON

FIFO = "told"  # in the directory of steps
TAIL_BYTES = 1024  # of its stderr, and of a line of it
MPI = "MPI"  # in the place of a step's name: mpirun has started it, and the task is its rank
NODE_UNREACHABLE = "NodeUnreachable"  # the reason where a process is not known to have begun, or to have ended
ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGKILL})
_UNREACHABLE = 255  # as ssh ends then
_MOST_RANKS = 1 << 16
_MOST_NAME = 64
_PIPE_BUF = 4096  # so much is written to a pipe as a whole
_PATIENCE = 1000.0  # milliseconds; the worker reads, and if it does not, nobody waits
_MOST_AT_ONCE = 1 << 16  # bytes


def was_asked(sent: AbstractSet[int], code: int, number: int) -> bool:
    """Whether an end was wanted of a process that these signals were sent: it may go on after most, and fail later.
    ``code`` or ``number`` as of ProcessEnd."""
    return bool(sent & ENDING) or (number or code - 128) in sent


class ProcessEnd:
    """How a process came to its end: ``code`` or ``number``, of the signal."""

    def __init__(self, program: str, code: int, number: int, tail: bytes, *, asked: bool) -> None:
        self._tail = tail
        self._about = {
            "program": program[:64], "code": None if number else code, "signal": number or None, "asked": asked,
        }  # fmt: skip

    def row(self, step: str, task: int) -> bytes:
        """For the worker, which tells the operator."""
        about = dict(self._about, step=step, task=task, at=time.time())
        return _whole(about, "stderrTail", self._tail)


def unreached_row(step: str, task: int, rank: int, words: str) -> bytes:
    """The node of another rank could not be asked for a process of a step, or was lost with it. ``words``: why."""
    about = {
        "step": step, "task": task, "program": "", "code": _UNREACHABLE, "signal": None, "asked": False,
        "reason": NODE_UNREACHABLE, "nodeRank": rank, "at": time.time(),
    }  # fmt: skip
    return _whole(about, "stderrTail", words.encode("utf-8", "replace"))


def line_row(line: bytes) -> bytes:
    """A line of stderr that may be a sign."""
    return _whole({"at": time.time()}, "line", line)


def partly_row(step: str, task: int, rank: int, at: float, done: int, left: int) -> bytes:
    """``done`` tasks of a step ended with code 0, ``task`` on the node of ``rank`` as the first, while ``left`` go on:
    of this process's step."""
    about = {"step": step, "task": task, "nodeRank": rank, "at": at, "done": done, "left": left, "of": os.getpid()}
    return json.dumps(about).encode("ascii") + b"\n"


def begun_row(task: int, pid: int) -> bytes:
    """A rank of mpirun runs."""
    return json.dumps({"step": MPI, "task": task, "pid": pid, "at": time.time()}).encode("ascii") + b"\n"


def tell(descriptor: int, row: bytes) -> None:
    """Never raises OSError, and never waits for long."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    if poll.poll(_PATIENCE):
        with contextlib.suppress(OSError):
            os.write(descriptor, row)


class WorkerFifo:
    """The worker's end of the FIFO. Whoever shares the pod's files can write into it: what is no row is no news.

    Raises OSError.
    """

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, FIFO)
        os.mkfifo(path, 0o600)
        self.reads = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self.writes = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self.reads)
            raise
        self._begun = b""

    def rows(self) -> List[JSON]:
        """What has come since."""
        with contextlib.suppress(BlockingIOError):
            self._begun += os.read(self.reads, _MOST_AT_ONCE)
        *lines, begun = self._begun.split(b"\n")
        self._begun = begun if len(begun) < _PIPE_BUF else b""
        return [row for row in map(_row, lines) if row is not None]

    def close(self) -> None:
        os.close(self.reads)
        os.close(self.writes)


def open_told(directory: str) -> int:
    """For a program that was not given a descriptor. Raises OSError."""
    return os.open(os.path.join(directory, FIFO), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _whole(about: JSON, name: str, tail: bytes) -> bytes:
    """One write to a pipe, with as much of the text as there is room for."""
    line = b""
    for text in _ever_less(tail.decode("utf-8", "replace")):
        line = json.dumps(dict(about, **{name: text})).encode("ascii") + b"\n"
        if len(line) <= _PIPE_BUF:
            break
    return line


def _ever_less(text: str) -> Iterator[str]:
    """Its end, ever shorter."""
    text = text[-TAIL_BYTES:]
    while text:
        yield text
        text = text[len(text) // 2 + 1 :]
    yield ""


def _row(line: bytes) -> Optional[JSON]:
    """Of these fields and types alone: the operator would refuse all that the worker says for one that is wrong."""
    try:
        said = json.loads(line.decode("ascii"))
        at = float(said["at"])
        if "line" in said:
            return {"at": at, "line": str(said["line"])}
        if "left" in said:
            counts = {name: _count(said[name]) for name in ("task", "nodeRank", "done", "left", "of")}
            return {"step": str(said["step"])[:_MOST_NAME], "at": at, **counts}
        if "pid" in said:
            return {"step": MPI, "task": _count(said["task"]), "pid": _count(said["pid"]), "at": at}
        row = {
            "step": str(said["step"]), "task": _number(said["task"], 1 << 31) or 0, "program": str(said["program"]),
            "code": _number(said["code"], 1 << 31), "signal": _number(said["signal"], 256), "at": at,
            "asked": said["asked"] is True, "stderrTail": str(said["stderrTail"]),
        }  # fmt: skip
        if said.get("reason") == NODE_UNREACHABLE:
            row.update(reason=NODE_UNREACHABLE, nodeRank=_rank(said["nodeRank"]))
        return row
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _count(value: Any) -> int:
    """Raises ValueError, TypeError."""
    found = _number(value, 1 << 31)
    if found is None:
        raise ValueError(value)
    return found


def _rank(value: Any) -> int:
    """Raises ValueError, TypeError."""
    found = _number(value, _MOST_RANKS)
    if found is None:
        raise ValueError(value)
    return found


def _number(value: Any, beyond: int) -> Optional[int]:
    """Raises ValueError, TypeError."""
    if value is None:
        return None
    if not 0 <= int(value) < beyond:
        raise ValueError(value)
    return int(value)
