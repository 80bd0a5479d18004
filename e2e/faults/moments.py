"""Moments at which the trainer lets something go wrong, as files that both sides see. Standard library only.

A plan is a list of moments in the environment of the trainer. Each comes once in the life of a run, whichever attempt
gets there, unless it comes always. A moment with the deed ``wait`` holds the rank until whoever broke something lets
it go on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PLAN = "FAULT_PLAN"
"""Environment variable with the plan."""
WAIT, SEGFAULT, ABORT, ERROR, MISTAKE, POISON = "wait", "segfault", "abort", "error", "mistake", "poison"
"""What happens at a moment; ``exit:N`` ends the process with that code."""
START, FRESH, RESTORE, STEP, SAVE, SAVED = "start", "fresh", "restore", "step", "save", "saved"
"""Points of the program: before it meets the others; about to begin at step 0; about to load; after a step; in a save,
before its own shard is written; after the commit."""


@dataclass(frozen=True)
class Moment:
    """One rank at one point of the program. ``step`` None: at the first such point. ``asked``: in a save that was
    asked for, before a stop. ``always``: each time."""

    name: str
    point: str
    deed: str
    rank: int = 1
    step: int | None = None
    asked: bool = False
    always: bool = False

    def marker(self, run_folder: Path) -> Path:
        """Appears when the moment has come."""
        return run_folder / f"moment-{self.name}"

    def permit(self, run_folder: Path) -> Path:
        """Ends the waiting."""
        return run_folder / f"moment-{self.name}.over"


def encoded(plan: Sequence[Moment]) -> str:
    return json.dumps([asdict(moment) for moment in plan])


def decoded(text: str) -> list[Moment]:
    return [Moment(**moment) for moment in json.loads(text or "[]")]
