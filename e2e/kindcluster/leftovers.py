"""What runs on and stays mounted below a folder when whoever made it there was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from localcluster import processes


def clear(folder: Path) -> None:
    """End what runs there, unmount what is mounted there, remove it. No such folder is fine."""
    end_processes(folder)
    unmount(folder)
    shutil.rmtree(folder, ignore_errors=True)


def end_processes(folder: Path) -> None:
    """SIGKILL to what names a path below `folder` in its command line or has its root there, and to its children.

    Of a container the shim names such a path, and its child is the container's first process, which takes all others
    along.
    """
    doomed = running_below(folder)
    records = [record for pid in doomed if (record := processes.record_of(pid)) is not None]
    processes.end(records, grace=0)


def running_below(folder: Path) -> set[int]:
    """Pids of what `end_processes` would end. Whoever asks, and those whose child it is, are none of them."""
    parents: dict[int, int] = {}
    users: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry.name)
                parents[pid] = _parent(entry)
                if _uses(entry, f"{folder}/"):
                    users.add(pid)
    spared, pid = {0, 1}, os.getpid()
    while pid not in spared:
        spared.add(pid)
        pid = parents.get(pid, 0)
    return (users | {pid for pid, parent in parents.items() if parent in users}) - spared


def unmount(folder: Path) -> None:
    """Lazily, whatever is mounted at `folder` and below."""
    for point in mounted_at(folder, Path("/proc/self/mounts").read_text()):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def mounted_at(folder: Path, table: str) -> list[str]:
    """Mount points of `folder` and below in a table as the kernel gives it, the innermost first."""
    points = (line.split()[1] for line in table.splitlines())
    return sorted((point for point in points if f"{point}/".startswith(f"{folder}/")), reverse=True)


def _parent(entry: Path) -> int:
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def _uses(entry: Path, folder: str) -> bool:
    root = os.readlink(entry / "root") + "/"
    return root.startswith(folder) or any(
        folder in word for word in (entry / "cmdline").read_text(errors="replace").split("\0")
    )
