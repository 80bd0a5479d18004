"""What /proc says of a process that may end at any moment, also between the opening of a file and its reading."""

import os
from contextlib import suppress
from pathlib import Path

# No file, or, once it is open, no process.
_ENDED = (FileNotFoundError, ProcessLookupError)


def is_alive(pid: int) -> bool:
    """Not ended, nor waiting for its parent to take note."""
    with suppress(*_ENDED):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def children(pid: int) -> list[int]:
    """None of a process that has ended."""
    with suppress(*_ENDED):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def open_files(pid: int) -> int:
    """How many; none of a process that has ended."""
    with suppress(*_ENDED):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def names(pids: list[int]) -> dict[int, str]:
    """What the kernel calls them, by PID; of those that have not ended."""
    found = {}
    for pid in pids:
        with suppress(*_ENDED):
            found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
    return found


def cpu_seconds(pid: int) -> float:
    """What a process has used so far. Raises OSError where it is none."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
