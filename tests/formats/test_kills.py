"""Saves that are killed: before every change to a name, and at random moments in the middle of writing.

What is left must be VALID only if the library's own loader takes it, and finds the state of one save, not of two.
"""

import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from layouts import LAYOUTS
from library import KilledError, Library, LibraryError

from lockstep.worker.checkpoints.formats import VALID, examine, verify_checkpoint
from support.checkpoint_damage import HOUR, age

STEP = 2
SEED = int(os.environ.get("LOCKSTEP_FORMATS_SEED", "1"))
MOMENTS = int(os.environ.get("LOCKSTEP_FORMATS_MOMENTS", "4"))  # random ones, for each library and kind of save
LARGE = 48  # times larger than tiny: writing takes long enough to be hit


class Trial:
    """Kills saves of one library and holds the verdict on what is left against what the library makes of it."""

    def __init__(self, library: Library, scratch: Path, size: int) -> None:
        self.library, self.scratch, self.size = library, scratch, size
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.first = scratch / "first"  # what a second generation is saved over
        self.first.mkdir()
        self.events = library.save(self.first, STEP, size=size)
        age(self.first, HOUR)

    def kill(self, generation: int, crash: dict[str, Any]) -> None:
        root = self.scratch / "killed"
        shutil.rmtree(root, ignore_errors=True)
        if generation == 1:
            root.mkdir()
        else:
            shutil.copytree(self.first, root)
        told = f"generation {generation}, killed at {crash}"
        try:
            self.library.save(root, STEP, generation=generation, size=self.size, crash=crash)
        except KilledError:
            pass
        else:
            told += ": too late"
        age(root, 60)
        self.judge(root, told)

    def judge(self, root: Path, told: str) -> None:
        path = root / LAYOUTS[self.library.name].checkpoint.format(step=STEP)
        findings = [examine(str(path), form=form) for form in (self.library.form, "Auto")]
        verdicts = {finding.verdict if finding else "nothing" for finding in findings}
        if findings[0] is None or findings[0].verdict != VALID:
            self.seen["refused by us"] += 1
        else:
            assert verify_checkpoint(str(path), form=self.library.form)[0] == VALID, told
            try:
                self.seen[f"VALID, holds {self.library.load(root, STEP, size=self.size)}"] += 1
            except LibraryError as error:
                self.wrong.append(f"{told}: VALID, but the library says {str(error)[:300]}")
        if len(verdicts) > 1 and path.exists():
            self.wrong.append(f"{told}: {findings[0]} by name, {findings[1]} by Auto")


@pytest.fixture
def generations(library: Library) -> tuple[int, ...]:
    return (1, 2) if LAYOUTS[library.name].overwrites else (1,)


def test_a_save_killed_before_any_of_its_changes_is_valid_only_if_it_loads(
    library: Library, generations: tuple[int, ...], tmp_path: Path
) -> None:
    trial = Trial(library, tmp_path, size=1)
    for generation in generations:
        for rank in range(library.world):
            for event in range(1, trial.events[rank] + 1):
                trial.kill(generation, {"rank": rank, "event": event})
    print(f"\n{library.name}: {dict(trial.seen)}")
    assert not trial.wrong
    assert trial.seen["refused by us"] or library.name == "nvrx", "copies stand in for what one process did not save"


def test_a_save_killed_at_a_random_moment_is_valid_only_if_it_loads(
    library: Library, generations: tuple[int, ...], tmp_path: Path
) -> None:
    chosen = random.Random(f"{SEED} {library.name}")
    trial = Trial(library, tmp_path, size=LARGE)
    for generation in generations:
        for _ in range(MOMENTS):
            rank = chosen.randrange(library.world)
            event = chosen.randint(1, trial.events[rank])
            trial.kill(generation, {"rank": rank, "event": event, "delay": chosen.uniform(0, 0.05)})
    print(f"\n{library.name}: {dict(trial.seen)}")
    assert not trial.wrong
