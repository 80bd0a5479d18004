"""Checkpoints that are not loaded again, by save: a step that a later attempt saved anew is another checkpoint."""

from msgspec import Struct

from lockstep.api.checkpoint_status import CheckpointStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.tiers import LOCAL, SHARED


class Save(Struct, frozen=True, array_like=True):
    """A step that an attempt saved; attempt 0: which one cannot be told. ``[step, attempt]`` on the wire."""

    step: int
    attempt: int = 0

    def may_be(self, other: "Save") -> bool:
        """The same as far as can be told: by step alone where one of the attempts is not known."""
        return self.step == other.step and (self.attempt == other.attempt or 0 in (self.attempt, other.attempt))

    @property
    def label(self) -> str:
        """``step 300 of attempt 2``, or without the attempt."""
        return f"step {self.step} of attempt {self.attempt}" if self.attempt else f"step {self.step}"


class SavesFrom(Save, frozen=True, array_like=True):
    """All that this attempt and those before it saved at this step or later. What is of no known attempt is not."""

    def may_be(self, other: Save) -> bool:
        return 0 < other.attempt <= self.attempt and other.step >= self.step

    @property
    def label(self) -> str:
        return f"step {self.step} and later of attempts up to {self.attempt}"


Quarantine = frozenset[tuple[str, Save]]
"""By tier."""


def quarantine_of(checkpoint: CheckpointStatus) -> Quarantine:
    """What status says is not to be loaded again."""
    single = {(entry.tier, Save(entry.step, entry.attempt)) for entry in checkpoint.quarantined}
    return frozenset(single | {(tier, bad) for tier in (LOCAL, SHARED) for bad in diverged_saves(checkpoint)})


def diverged_saves(checkpoint: CheckpointStatus) -> tuple[SavesFrom, ...]:
    """What was saved after training had gone wrong, of roll-backs that are over."""
    return tuple(SavesFrom(entry.step, entry.attempt) for entry in checkpoint.diverged)


def in_quarantine(quarantine: Quarantine, tier: str, step: int, attempt: int | None) -> bool:
    """It may be one of those; ``attempt`` 0 or None: not known."""
    return quarantined_as(quarantine, tier, step, attempt) is not None


def quarantined_as(quarantine: Quarantine, tier: str, step: int, attempt: int | None) -> Save | None:
    """Which of those it may be, one that is meant alone before others."""
    save = Save(step, attempt or 0)
    found = [bad for bad_tier, bad in quarantine if tier == bad_tier and bad.may_be(save)]
    return min(found, key=lambda bad: (isinstance(bad, SavesFrom), bad.step, bad.attempt), default=None)


def is_trusted(status: TrainingRunStatus, tier: str, step: int, attempt: int | None) -> bool:
    """Training may go on from it: it is not in quarantine, nor beyond a roll back and saved before that."""
    ceiling = status.checkpoint.ceiling
    is_beyond = ceiling is not None and step > ceiling and (attempt or 0) <= status.recovery.diverged_attempt
    return not is_beyond and not in_quarantine(quarantine_of(status.checkpoint), tier, step, attempt)
