"""Processes of this PID namespace."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Dict, Iterator, List, NamedTuple, Sequence, Set

from lockstep.worker.output import log_line

SWEEP_SECONDS = 20.0
MEMORY_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")  # of cgroups v2 and v1


def adopt_orphans() -> None:
    """Be the parent of descendants whose own parent died, as PID 1 is by itself."""
    if os.getpid() == 1:
        return
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError) as error:
        log_line(f"cannot adopt orphaned processes: {error}")


class Process(NamedTuple):
    """A line of /proc."""

    pid: int
    parent: int
    state: str
    name: str


def other_processes() -> List[Process]:
    """Living processes that are not the worker: all of its PID namespace where it is PID 1, else its descendants."""
    found: Dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    head, _, tail = stream.read().decode("utf-8", "replace").rpartition(")")
                fields = tail.split()
                found[int(name)] = Process(int(name), int(fields[1]), fields[0], head.partition("(")[2])
            except (OSError, IndexError):
                continue  # it ended meanwhile
    own = os.getpid()
    mine: Set[int] = set(found) if own == 1 else {own}
    grown = own != 1
    while grown:
        children = {process.pid for process in found.values() if process.parent in mine}
        grown = not children <= mine
        mine |= children
    return [found[pid] for pid in sorted(mine - {own}) if pid in found and found[pid].state not in "ZX"]


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for that signal; whoever has none would die of it."""
    try:
        with open(f"/proc/{pid}/status") as stream:
            masks = dict(line.rstrip().split(":\t", 1) for line in stream if line.startswith("Sig"))
        return bool(int(masks["SigCgt"], 16) >> (number - 1) & 1)
    except (OSError, ValueError, KeyError):
        return False


def catching(number: int) -> List[int]:
    """The other processes that catch a signal, without those below one that does: a fork inherits its handlers."""
    others = {process.pid: process for process in other_processes()}
    found = {pid for pid in others if catches(pid, number)}
    return sorted(pid for pid in found if not any(above in found for above in _ancestors(pid, others)))


def _ancestors(pid: int, processes: Dict[int, Process]) -> Iterator[int]:
    while pid in processes:
        pid = processes[pid].parent
        yield pid


def kill_others(spare: int = 0) -> List[Process]:
    """Send SIGKILL to every other process but ``spare`` once; returns those it was sent to."""
    others = [process for process in other_processes() if process.pid != spare]
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
            return f"{len(left)} processes of an earlier attempt do not die: {named}"
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
