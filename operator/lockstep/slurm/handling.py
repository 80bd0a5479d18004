"""What becomes of an option: each has one of these, and none is dropped in silence."""

from __future__ import annotations

from typing import Dict, Tuple

SUPPORTED, MAPPED, HOLDS, IGNORED, REFUSED = "supported", "mapped", "always true", "ignored", "refused"
OF_ALLOCATION = "of the allocation"
"""Of srun: counts where it asks for nodes; within a job it changes nothing, in Slurm neither."""


def rows(handling: str, names: str, words: str = "") -> Dict[str, Tuple[str, str]]:
    """By name: (what becomes of it, why or what instead)."""
    return dict.fromkeys(names.split(), (handling, words))
