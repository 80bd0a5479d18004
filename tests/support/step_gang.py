"""A gang of which steps end, and what counts as its failure or its success."""

from typing import Any

from lockstep.core.failures.step_evidence import ends, has_succeeded
from support.world import World, running

NOBODY: frozenset[int] = frozenset()
MPI: dict[str, Any] = {"launcher": {"type": "MPI"}, "command": ["mpirun", "python", "train.py"]}
SLURM: dict[str, Any] = {"launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun x\n"}}, "command": []}
STEPS: dict[str, Any] = {"launcher": {"steps": True}}


def gang(**fields: Any) -> World:
    w = running(3, spare=1, **fields)
    w.train("one", 5)
    w.now += 100.0
    w.work()
    return w


def found(w: World) -> list[tuple[int, str]]:
    """Slots of what has ended badly, earliest first, and what stands between rank and end."""
    w.work_reports_only()
    return [(end.slot, end.what) for end in ends(w.plan("one"), NOBODY)]


def ended(w: World) -> None:
    """The command says 0, and everybody has been heard since."""
    w.exit_child("one", 0, 0)
    w.work_reports_only()
    w.now += 1.0
    w.work_reports_only()


def is_success(w: World) -> bool:
    return has_succeeded(w.plan("one"), frozenset({0}))
