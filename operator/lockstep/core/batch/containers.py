"""What the steps of a script say of images and mounts (pyxis), held against what the job's pods have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lockstep.slurm.handling import IGNORED, REFUSED
from lockstep.slurm.images import are_the_same, image, insides, is_below
from lockstep.slurm.submission import pyxis
from lockstep.slurm.submission.batch import OptionOutcome

_NAMED = 8


def first_of(paths: Sequence[str]) -> str:
    """A few of them, and how many more there are: scripts of tenants may have thousands."""
    more = len(paths) - _NAMED
    return ", ".join(paths[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def images_of_steps(script: str, job_image: str, *, said: bool) -> Iterator[OptionOutcome]:
    """A row for each that is not the job's. ``said``: the job's is one that options name, so that a file, if all steps
    name the same, may be what that was made of."""
    steps = pyxis.step_options(script, pyxis.IMAGE)
    for step in steps:
        handling, words = REFUSED, (
            f"the job runs in {job_image}, and its steps have no other image; have one image hold what all steps need, "
            "or submit them as jobs of their own"
        )  # fmt: skip
        try:
            if not step.is_known:
                handling = IGNORED
                words = f"is known only once the script runs; srun refuses what is not the job's image {job_image}"
            elif are_the_same(image(step.filled), job_image):
                continue
        except ValueError:
            if said and len(steps) == 1:
                handling, words = IGNORED, f"is a file; its steps run in the job's image {job_image}"
        yield OptionOutcome("srun --container-image", step.filled, handling, words)


def mounts_of_steps(script: str, job_mounts: Sequence[str], where: str) -> Iterator[OptionOutcome]:
    """A row for each step of which no volume has a path inside. ``where``: which ones there are, in words."""
    for step in pyxis.step_options(script, pyxis.MOUNTS):
        paths = dict.fromkeys(insides(step.filled))
        unknown = {path for path in paths if re.search(r"[$`()]", path)}
        lost = [path for path in paths if path not in unknown and not is_below(path, job_mounts)]
        if lost:
            words = f"{first_of(lost)} {'is' if len(lost) == 1 else 'are'} on no volume; {where}"
            yield OptionOutcome("srun --container-mounts", step.written, REFUSED, words)
        if unknown:
            words = "is known only once the script runs; srun says then what is on no volume"
            yield OptionOutcome("srun --container-mounts", step.written, IGNORED, words)
