"""A real Ray for tests, and runs whose driver says what it sees of it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.ray_program import DRIVER, HELD_AT, QUIET, SMALL, arguments
from harness.training import TrainingRun, TrainingSite

VENV = Path(os.environ.get("LOCKSTEP_TEST_RAY") or Path(__file__).parents[2] / ".build" / "ray").absolute()
"""A virtual environment with Ray: that of `make ray-ready`."""
MISSING = f"no Ray in {VENV}: see CONTRIBUTING.md"


def train(site: TrainingSite, name: str, nodes: int = 3, held_at: int = HELD_AT, **spec: Any) -> TrainingRun:
    """Its lineage is the driver's, as that of one rank."""
    program = spec.pop("program", DRIVER)
    quiet = {**QUIET, "RAY_DEDUP_LOGS": "0"}  # otherwise what differs by a number is one line, of any of the ranks
    path = f"{VENV / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    settings = {"arguments": SMALL, **spec.pop("ray", {})}
    run = site.apply(
        name, nodes, ["python", "-c", program, *arguments(held_at=held_at)], launcher={"type": "Ray", "ray": settings},
        env=[{"name": key, "value": value} for key, value in {**quiet, "PATH": path}.items()],
        recovery={"hangTimeout": "30m"}, **spec,
    )  # fmt: skip
    return replace(run, ranks=1)


def processes(run: TrainingRun, rank: int, name: str) -> list[int]:
    """PIDs of the processes that the kernel calls so on the node of a rank."""
    wanted = {f"LOCKSTEP_RUN_UID={run.uid}".encode(), f"LOCKSTEP_NODE_RANK={rank}".encode()}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_of_node = wanted <= set((folder / "environ").read_bytes().split(b"\0"))
            if is_of_node and (folder / "comm").read_text().strip() == name:
                found.append(int(folder.name))
    return found


def driver(run: TrainingRun) -> int:
    [pid] = [
        pid
        for name in ("python", "python3", "python3.11")
        for pid in processes(run, 0, name)
        if b"ranks_of_ray" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return pid


def lose(site: TrainingSite, node: str) -> None:
    """Power off, and the node controller has taken note."""
    site.kill_node(node)
    site.declare_not_ready(node)
