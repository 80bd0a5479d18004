"""Detached processes that are known by pid and start time, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_INTERVAL = 0.02  # seconds


@dataclass(frozen=True)
class ProcessRecord:
    """A process as written to the state file.

    `start_ticks` is the start time in /proc/PID/stat, in clock ticks since boot: a pid comes again, the pair
    of pid and start time does not before the next boot, hence `boot_id`.
    """

    pid: int
    start_ticks: int
    boot_id: str


def spawn(argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> ProcessRecord:
    """Starts `argv` in a session of its own, to outlive the caller; its output is appended to `log`.

    Not subprocess.Popen: that wants its object kept and waited for by whoever started the process.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        # Python ignores these two, and an ignored signal stays ignored in the child.
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )
    start_ticks = _start_ticks(pid)
    # A child that is ours and not waited for stays in /proc at least as a zombie.
    assert start_ticks is not None
    return ProcessRecord(pid, start_ticks, _boot_id())


def this_process() -> ProcessRecord:
    found = record_of(os.getpid())
    assert found is not None
    return found


def record_of(pid: int) -> ProcessRecord | None:
    """The process that has this pid now; None where none has."""
    start_ticks = _start_ticks(pid)
    return None if start_ticks is None else ProcessRecord(pid, start_ticks, _boot_id())


def is_alive(record: ProcessRecord) -> bool:
    """Whether this very process still runs. A zombie does not; if it is our child it is reaped here."""
    if record.boot_id != _boot_id() or _start_ticks(record.pid) != record.start_ticks:
        return False
    if _state(record.pid) != "Z":
        return True
    with contextlib.suppress(ChildProcessError):  # another's child: its parent, or init, reaps it
        os.waitpid(record.pid, os.WNOHANG)
    return False


def send(record: ProcessRecord, signal_number: int) -> None:
    """Signals the process if it still is the one recorded."""
    if is_alive(record):
        with contextlib.suppress(ProcessLookupError):  # ended between the look and the signal
            os.kill(record.pid, signal_number)


def freeze(record: ProcessRecord) -> None:
    """SIGSTOP. Returns when all of its threads stand still: on a busy machine some run on for tens of milliseconds.

    Raises TimeoutError when one still runs after 10 s."""
    send(record, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while is_alive(record) and not _stands_still(record.pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {record.pid} runs on 10 s after SIGSTOP")
        time.sleep(POLL_INTERVAL)


def end(records: Sequence[ProcessRecord], *, grace: float) -> None:
    """Ends the processes and returns when they are gone: SIGTERM, and after `grace` seconds SIGKILL."""
    if grace > 0:
        for record in records:
            send(record, signal.SIGTERM)
            send(record, signal.SIGCONT)  # a paused process would keep its SIGTERM pending
        if wait_until_ended(records, timeout=grace):
            return
    for record in records:
        send(record, signal.SIGKILL)
    wait_until_ended(records, timeout=10)


def wait_until_ended(records: Sequence[ProcessRecord], *, timeout: float) -> bool:
    """Whether all of them ended within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while any(is_alive(record) for record in records):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL)
    return True


def parse_stat(stat: str) -> tuple[str, int]:
    """State letter and start time of a /proc/PID/stat line; the program's name in it may hold anything."""
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def _state(pid: int) -> str | None:
    stat = _stat(pid)
    return stat[0] if stat else None


def _stands_still(pid: int) -> bool:
    """Every thread is stopped. One that ends meanwhile runs no more either."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if parse_stat(stat.read_text())[0] not in "TtZX":
                return False
    return True


def _start_ticks(pid: int) -> int | None:
    stat = _stat(pid)
    return stat[1] if stat else None


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
