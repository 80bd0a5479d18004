"""Checkpoints that are not loaded again, by save: a step that a later attempt saved anew is another checkpoint."""

from msgspec import Struct

from lockstep.api.checkpoint_status import CheckpointStatus
from lockstep.api.run_status import TrainingRunStatus


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


Quarantine = frozenset[tuple[str, Save]]
"""By tier."""


def quarantine_of(checkpoint: CheckpointStatus) -> Quarantine:
    """What status says is not to be loaded again."""
    return frozenset((entry.tier, Save(entry.step, entry.attempt)) for entry in checkpoint.quarantined)


def in_quarantine(quarantine: Quarantine, tier: str, step: int, attempt: int | None) -> bool:
    """It may be one of those; ``attempt`` 0 or None: not known."""
    save = Save(step, attempt or 0)
    return any(tier == bad_tier and bad.may_be(save) for bad_tier, bad in quarantine)


def is_trusted(status: TrainingRunStatus, tier: str, step: int, attempt: int | None) -> bool:
    """Training may go on from it: it is not in quarantine, nor beyond a roll back and saved before that."""
    ceiling = status.checkpoint.ceiling
    is_beyond = ceiling is not None and step > ceiling and (attempt or 0) <= status.recovery.diverged_attempt
    return not is_beyond and not in_quarantine(quarantine_of(status.checkpoint), tier, step, attempt)
