"""Without root: one user, network and mount namespace in which everything that reaches nodes lives."""

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from localcluster.processnodes.daemon import folder
from localcluster.processnodes.errors import ProcessNodesError


def enter(state: Path, command: Sequence[str]) -> None:
    """Replace this process by ``command`` inside the namespaces of ``state``, made when missing.

    The command sees itself as root and has a loopback and a network of its own: nothing outside is
    reachable from there, and nothing there from outside. Files are this user's.
    """
    words = list(command[1:] if command[:1] == ["--"] else command) or [os.environ.get("SHELL", "/bin/sh")]
    pid = _holder(folder(state.resolve()))
    namespaces = ["--user", "--net", "--mount", "--preserve-credentials"]
    os.execvp("nsenter", ["nsenter", "-t", str(pid), *namespaces, f"--wd={os.getcwd()}", "--", *words])


def _holder(root: Path) -> int:
    """The process that keeps the namespaces, as recorded in ``root``; started when there is none."""
    root.mkdir(parents=True, exist_ok=True)
    record = root / "namespace.pid"
    with contextlib.suppress(OSError, ValueError):
        pid, started = map(int, record.read_text().split())
        if started == _start_time(pid):
            return pid
    shell = "ip link set lo up && echo ready && exec sleep infinity"
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c", shell],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert holder.stdout is not None
    assert holder.stderr is not None
    if holder.stdout.readline() != b"ready\n":
        raise ProcessNodesError(
            "this machine gives ordinary users no namespaces, so process nodes need root here: "
            + holder.stderr.read().decode().strip()
        )
    record.write_text(f"{holder.pid} {_start_time(holder.pid)}")
    return holder.pid


def leave(state: Path) -> None:
    """End the namespaces of ``state``, if any; whatever still runs inside keeps them."""
    record = folder(state.resolve()) / "namespace.pid"
    with contextlib.suppress(OSError, ValueError):
        pid, started = map(int, record.read_text().split())
        if started == _start_time(pid):
            os.kill(pid, 9)
        record.unlink()


def _start_time(pid: int) -> int:
    """Ticks since boot; with the PID it names a process for good."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
