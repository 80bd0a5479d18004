"""The run's checkpoints as files of this machine: what the demo breaks, and what it proves in the end."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Saved:
    """The shared tier of one run: one directory for each attempt."""

    folder: Path
    ranks: int

    def newest_valid(self, attempt: int) -> int:
        """The newest step of an attempt that was committed with a shard of every rank; 0 when there is none."""
        steps = [0]
        for manifest in self._attempt(attempt).glob(f"step-*/{MANIFEST}"):
            content = json.loads(manifest.read_text())
            if len(content["files"]) == self.ranks and all(
                (manifest.parent / entry["name"]).stat().st_size == entry["bytes"] for entry in content["files"]
            ):
                steps.append(int(content["step"]))
        return max(steps)

    def tear(self, attempt: int, step: int) -> Path:
        """Leave what a save leaves that is cut short: the shards of all ranks but the last, and no manifest."""
        whole = self._attempt(attempt) / f"step-{self.newest_valid(attempt)}"
        torn = self._attempt(attempt) / f"step-{step}"
        torn.mkdir()
        for rank in range(self.ranks - 1):
            shutil.copyfile(whole / f"shard-{rank}.f32", torn / f"shard-{rank}.f32")
        return torn

    def broken_promises(self, resume_step: int, total_steps: int) -> list[str]:
        """What is wrong with the lineage of two attempts, for every rank; nothing when all is as promised.

        No step may be skipped or taken twice in the line that led to the result, and every step that both
        attempts took must be the same bit for bit: batch and loss.
        """
        wrong = []
        for rank in range(self.ranks):
            first, second = self._lineage(1, rank), self._lineage(2, rank)
            steps = [*(step for step, _, _ in first if step <= resume_step), *(step for step, _, _ in second)]
            if steps != list(range(1, total_steps + 1)):
                wrong.append(f"rank {rank}: the steps are not 1 to {total_steps}, each once: {steps}")
            again = {step: rest for step, *rest in second}
            for step, *rest in first:
                if step > resume_step and again.get(step) != rest:
                    wrong.append(f"rank {rank}: step {step} differs: {rest}, then {again.get(step)}")
        return wrong

    def repeated_steps(self, resume_step: int) -> int:
        """Steps of the first attempt that the second had to take again."""
        return max((step for step, _, _ in self._lineage(1, 0)), default=0) - resume_step

    def _lineage(self, attempt: int, rank: int) -> list[tuple[int, str, str]]:
        """(step, batch hash, loss) in the order they were taken; a line cut short by the end is none."""
        found = []
        for line in (self._attempt(attempt) / f"lineage-rank{rank}.jsonl").read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            found.append((int(entry["step"]), str(entry["batch_hash"]), str(entry["loss"])))
        return found

    def _attempt(self, attempt: int) -> Path:
        return self.folder / f"a{attempt}"
