"""Processes of this PID namespace."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import time
from typing import Any, Collection, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set

from lockstep.worker.output import log_line

SWEEP_SECONDS = 20.0
MEMORY_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")  # of cgroups v2 and v1
STEP_SERVER = "lockstep-server"  # what the kernel calls the worker's own processes that hold steps
STEP_CLIENT = "lockstep-step"  # and the programs that ask for them, by whatever names they are called
RANK_HOLDER = "lockstep-rank"  # and what stands in front of each of mpirun's ranks
_KERNEL_NAME = 15  # bytes of a process's name that the kernel keeps
LAUNCHERS = frozenset(
    name[:_KERNEL_NAME]
    for name in (
        "mpirun", "mpiexec", "orterun", "prterun", "prun", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich",
        "mpiexec.mpich", "mpiexec.hydra", "orted", "prte", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy",
        "pmi_proxy", STEP_CLIENT,
    )
)  # fmt: skip
"""Programs that start others and take them along when they end: they are asked to end last, and never to save."""
HOLDERS = LAUNCHERS | {STEP_SERVER, RANK_HOLDER}


def adopt_orphans() -> None:
    """Be the parent of descendants whose own parent died, as PID 1 is by itself."""
    if os.getpid() != 1:
        try:
            c_library().prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        except (ImportError, OSError, AttributeError) as error:
            log_line(f"cannot adopt orphaned processes: {error}")


@functools.lru_cache(maxsize=None)
def c_library() -> Any:
    """The C library of this process. Raises ImportError, OSError."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def name_process(name: str) -> None:
    """What the kernel calls this process and its forks."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as stream:
        stream.write(name)


class Process(NamedTuple):
    """A line of /proc."""

    pid: int
    parent: int
    state: str
    name: str
    group: int = 0
    session: int = 0


def other_processes() -> List[Process]:
    """Living processes that are not the worker: all of its PID namespace where it is PID 1, else its descendants."""
    own, found = os.getpid(), _all_processes()
    mine = set(found) if own == 1 else _with_descendants(own, found)
    return [found[pid] for pid in sorted(mine - {own}) if pid in found and found[pid].state not in "ZX"]


def descendants(pid: int) -> List[int]:
    """Those of any process."""
    return sorted(_with_descendants(pid, _all_processes()) - {pid})


def _all_processes() -> Dict[int, Process]:
    found: Dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    head, _, tail = stream.read().decode("utf-8", "replace").rpartition(")")
                fields = tail.split()
                parent, group, session = map(int, fields[1:4])
                found[int(name)] = Process(int(name), parent, fields[0], head.partition("(")[2], group, session)
            except (OSError, IndexError, ValueError):
                continue  # it ended meanwhile
    return found


def _with_descendants(pid: int, found: Dict[int, Process]) -> Set[int]:
    mine, grown = {pid}, True
    while grown:
        children = {process.pid for process in found.values() if process.parent in mine}
        grown = not children <= mine
        mine |= children
    return mine


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for that signal; whoever has none would die of it."""
    try:
        with open(f"/proc/{pid}/status") as stream:
            masks = dict(line.rstrip().split(":\t", 1) for line in stream if line.startswith("Sig"))
        return bool(int(masks["SigCgt"], 16) >> (number - 1) & 1)
    except (OSError, ValueError, KeyError):
        return False


def catching(number: int, session: int = 0) -> List[int]:
    """The other processes that catch a signal, without those below one that does: a fork inherits its handlers.

    With a ``session`` none of another, but what steps have started. Launchers are passed over, and where ranks of one
    catch it also whoever waits for one, as batch scripts do: what they would do with it is not what is asked of a rank.
    """
    others = {process.pid: process for process in other_processes()}
    launchers = {pid for pid, process in others.items() if process.name in HOLDERS}
    asked = {pid for pid in others if not session or others[pid].session == session or _is_of_step(pid, others)}
    found = {pid for pid in asked - launchers if catches(pid, number)}
    if any(above in launchers for pid in found for above in _ancestors(pid, others)):
        found -= launching(others.values())
    return sorted(pid for pid in found if not any(above in found for above in _ancestors(pid, others)))


def _ancestors(pid: int, processes: Dict[int, Process]) -> Iterator[int]:
    while pid in processes:
        pid = processes[pid].parent
        yield pid


def launching(processes: Iterable[Process]) -> Set[int]:
    """Launchers and the worker's own processes that hold steps, and whatever is above one of them."""
    others = {process.pid: process for process in processes}
    found = {pid for pid, process in others.items() if process.name in HOLDERS}
    return found.union(*(_ancestors(pid, others) for pid in found))


def terminate(child: int, *, launchers: bool, shell: bool = False) -> Set[int]:
    """SIGTERM to the program and to the processes of steps on this node: to the process group of each.

    Not to launchers, whose end would take their ranks along before those have saved; with ``launchers`` to these alone.
    ``shell``: so would the program's own. Never to who reads what they say, and ends with them.
    Returns those that were asked, and clients of steps that wait for such.
    """
    processes = {process.pid: process for process in other_processes()}
    held = launching(processes.values()) | ({child} if shell else set())
    readers = _readers(held, processes)
    asked = {pid for pid, process in processes.items() if process.name == STEP_CLIENT}
    for pid in sorted(processes):
        process = processes[pid]
        if process.name == STEP_SERVER or pid in readers or not _is_of_program(pid, child, processes):
            continue
        first = pid == child or process.parent in held | readers or process.parent not in processes
        if (pid in held) != launchers or not (launchers or first):
            continue
        alone = launchers and not (shell and pid == child)
        group = [pid] if alone else [each.pid for each in _group_below(process, processes)]
        group = [member for member in group if member not in readers]
        asked.update(group)
        for member in group:
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                os.kill(member, signal.SIGTERM)
    return asked


def _readers(held: Set[int], processes: Dict[int, Process]) -> Set[int]:
    """Whoever reads what those say, as ``tee`` behind srun does: without a reader the last words of a save would fail.

    Behind others that catch SIGTERM, and so may save, this is who does not catch it: it has nothing to do at its end.
    """
    pipes = {pid: _pipes_of(pid) for pid in processes}
    savers = {pid for pid in processes if catches(pid, signal.SIGTERM)}
    found: Set[int] = set()
    while True:
        ends = {pipe for pid in (held & set(processes)) | found for pipe in pipes[pid].said}
        saves = {pipe for pid in savers for pipe in pipes[pid].said}
        more = {
            pid for pid, process in processes.items()
            if pid not in held | found and (
                pipes[pid].read in ends
                or (pid not in savers and (pipes[pid].read in saves or process.parent in found))
            )
        }  # fmt: skip
        if not more:
            return found
        found |= more


class _Pipes(NamedTuple):
    """What a process has as stdin, and as stdout and stderr, of what is a pipe."""

    read: str
    said: Set[str]


def _pipes_of(pid: int) -> _Pipes:
    found = []
    for descriptor in range(3):
        target = ""
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        found.append(target if target.startswith("pipe:") else "")
    return _Pipes(found[0], set(found[1:]) - {""})


def _is_of_program(pid: int, child: int, processes: Dict[int, Process]) -> bool:
    line = [pid, *_ancestors(pid, processes)]
    return child in line or processes[pid].group == child or _is_of_step(pid, processes)


def _is_of_step(pid: int, processes: Dict[int, Process]) -> bool:
    line = [pid, *_ancestors(pid, processes)]
    return any(each in processes and processes[each].name == STEP_SERVER for each in line)


def _group_below(first: Process, processes: Dict[int, Process]) -> Iterator[Process]:
    """It, and those of its process group that descend from it."""
    for pid, process in processes.items():
        if pid == first.pid or (process.group == first.group and first.pid in _ancestors(pid, processes)):
            yield process


def kill_others(spare: Collection[int] = ()) -> List[Process]:
    """Send SIGKILL to every other process but ``spare`` once; returns those it was sent to."""
    others = [process for process in other_processes() if process.pid not in spare]
    for process in others:
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            os.kill(process.pid, signal.SIGKILL)
    return others


def end_other_processes() -> str:
    """Kill until nothing else lives; returns what is in the way, or an empty string."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while True:
        left = kill_others()
        if not left:
            return ""
        if time.monotonic() > deadline:
            named = ", ".join(f"{process.pid} {process.name} (state {process.state})" for process in left[:3])
            count = "1 process" if len(left) == 1 else f"{len(left)} processes"
            return f"{count} of an earlier attempt {'does' if len(left) == 1 else 'do'} not die: {named}"
        time.sleep(0.02)


def output_of(command: Sequence[str], seconds: float) -> bytes:
    """What a tool prints on stdout. Raises OSError, TimeoutExpired.

    One that hangs inside a driver cannot be killed: it is not waited for, but reaped by the main thread once it ends.
    """
    process = subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            process.kill()
        process.returncode = -signal.SIGKILL
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()


def out_of_memory_kills() -> int:
    """How many processes of this container the kernel has killed for memory; 0 where it does not say."""
    for path in MEMORY_EVENTS:
        with contextlib.suppress(OSError, ValueError), open(path) as stream:
            return {key: int(value) for key, value in map(str.split, stream)}.get("oom_kill", 0)
    return 0
