"""Steps of a job, in files of the node where their srun runs: numbers, who to tell to end, and how they ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from typing import Collection, Dict, Iterator, List, NamedTuple, Set, Tuple

from lockstep.slurm.layout import InUse
from lockstep.worker.errors import open_plain

HEARS = int(signal.SIGRTMIN) + 6  # sent to an srun that was left a message
IDS_OF_NODE = 100_000  # numbers of steps that are begun on one node: those of rank 0 are the usual ones
_MOST_STEPS = 4096  # listed
_MOST_BYTES = 4 << 20  # of steps that have ended
_DIRECTORY, _NEXT, _ENDED, _PLACES = "sruns", "next", "ended", "places"


class StepRecord(NamedTuple):
    """A step. ``state`` and code are of one that has ended."""

    step: int
    pid: int
    born: str  # when the kernel started that process: PIDs come again
    name: str
    nodes: List[str]
    tasks: int
    start: float  # unix s
    end: float = 0.0
    state: str = "RUNNING"
    code: int = 0
    signal: int = 0
    gpus: Dict[str, List[int]] = {}  # noqa: RUF012, nobody changes it; by name of the node, which no other step has
    overlap: bool = False  # it takes nobody's place


def next_step(directory: str, rank: int) -> int:
    """A number that no other step of the attempt has. Raises OSError."""
    os.makedirs(os.path.join(directory, _DIRECTORY), 0o700, exist_ok=True)
    descriptor = os.open(os.path.join(directory, _DIRECTORY, _NEXT), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        said = stream.read(16).strip()
        number = int(said) if said.isdigit() else 0
        stream.seek(0)
        stream.write(f"{number + 1}\n")
    return rank * IDS_OF_NODE + number


def rank_of(step: int) -> int:
    """Where its srun runs."""
    return step // IDS_OF_NODE


def enter(directory: str, record: StepRecord) -> None:
    """It runs. Raises OSError."""
    _write(directory, record)


@contextlib.contextmanager
def choosing(directory: str) -> Iterator[None]:
    """No other srun of this node looks for a place meanwhile. Raises OSError."""
    with open(os.path.join(directory, _DIRECTORY, _PLACES), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def in_use(directory: str, but: Collection[int]) -> InUse:
    """By the steps whose srun runs on this node, ``but`` these, and those that overlap."""
    gpus: Dict[str, Set[int]] = {}
    steps: Dict[str, int] = {}
    sharing: Dict[str, int] = {}
    for other in running(directory):
        if other.overlap or other.step in but:
            continue
        for node, devices in other.gpus.items():
            gpus.setdefault(node, set()).update(devices)
        for node in other.nodes:
            steps[node] = steps.get(node, 0) + 1
            sharing[node] = sharing.get(node, 0) + (not other.gpus)
    return InUse(gpus, steps, sharing)


def leave(directory: str, record: StepRecord) -> None:
    """It has ended. Never raises OSError."""
    for path in (_path(directory, record.step), _messages(directory, record.step)):
        with contextlib.suppress(OSError):
            os.unlink(path)
    path = os.path.join(directory, _DIRECTORY, _ENDED)
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            if os.fstat(descriptor).st_size < _MOST_BYTES:
                stream.write(json.dumps(record._asdict()) + "\n")


def running(directory: str) -> List[StepRecord]:
    """By number."""
    found: Dict[int, StepRecord] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(os.path.join(directory, _DIRECTORY))[:_MOST_STEPS]:
            if name.endswith(".json"):
                with contextlib.suppress(OSError, ValueError, TypeError):
                    with open_plain(os.path.join(directory, _DIRECTORY, name)) as stream:
                        record = StepRecord(**json.loads(stream.read(1 << 20).decode("utf-8")))
                    if record.born == born_of(record.pid):
                        found[record.step] = record
    return [found[step] for step in sorted(found)]


def ended(directory: str) -> List[StepRecord]:
    """By number."""
    found: Dict[int, StepRecord] = {}
    with contextlib.suppress(OSError):
        with open_plain(os.path.join(directory, _DIRECTORY, _ENDED)) as stream:
            lines = stream.read(_MOST_BYTES + (1 << 20)).splitlines()
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                record = StepRecord(**json.loads(line.decode("utf-8")))
                found[record.step] = record
    return [found[step] for step in sorted(found)]


def tell(directory: str, record: StepRecord, message: str) -> bool:
    """Have a step's srun hear ``cancel``, or the number of a signal. False: it has ended."""
    try:
        descriptor = os.open(
            _messages(directory, record.step), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "w") as stream:
            stream.write(message + "\n")
        if record.born != born_of(record.pid):
            return False
        os.kill(record.pid, HEARS)
    except OSError:
        return False
    return True


def hear(directory: str, step: int, read: int) -> Tuple[List[str], int]:
    """(the messages behind so many bytes that were read already, how many those are now)."""
    with contextlib.suppress(OSError), open_plain(_messages(directory, step)) as stream:
        stream.seek(read)
        whole = stream.read(1 << 16).rpartition(b"\n")[0]
        return whole.decode("ascii", "replace").split(), read + len(whole) + bool(whole)
    return [], read


def born_of(pid: int) -> str:
    """Empty of none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")
    except (OSError, IndexError, ValueError):
        return ""


def _write(directory: str, record: StepRecord) -> None:
    """Raises OSError."""
    path = _path(directory, record.step)
    with open(path + ".tmp", "w") as stream:
        json.dump(record._asdict(), stream)
    os.rename(path + ".tmp", path)


def _path(directory: str, step: int) -> str:
    return os.path.join(directory, _DIRECTORY, f"{step}.json")


def _messages(directory: str, step: int) -> str:
    return os.path.join(directory, _DIRECTORY, f"{step}.messages")
