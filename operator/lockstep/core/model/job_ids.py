"""Numbers of batch jobs: from a counter that outlives the operator, in blocks, and none of them twice.

A leader takes a block before it gives out the first of it. What it has not given out when it dies is never used.
"""

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.slurm.environment import MOST_JOB_ID

BLOCK = 100
GAP = 10 * BLOCK
"""Left free above the highest number that is known, where the counter is lost: some may have been given out of late
that stand nowhere yet."""


def has_job_id(spec: TrainingRunSpec | None) -> bool:
    """Whether runs of this spec are jobs of Slurm, which have a number before they are accepted."""
    return spec is not None and spec.launcher.type == "Slurm"


def job_ids_of(spec: TrainingRunSpec | None) -> int:
    """How many numbers, one after the other, a run takes: one for each component of a heterogeneous job."""
    batch = spec.launcher.batch if spec is not None else None
    return max(1, len(batch.components)) if batch is not None else 1


def next_block(counter: object, highest: int, least: int = 1) -> range:
    """The next numbers to give out, at least as many as that; fewer: they are used up.

    ``counter``: the first that was not taken, as it is kept; ``highest``: of all runs and arrays that are known. A
    counter that is gone, no number, or older than what is known goes on above that.
    """
    text = counter if isinstance(counter, str) and len(counter) <= len(str(MOST_JOB_ID)) else ""
    first = int(text) if text.isascii() and text.isdigit() else 0
    if not first or first <= highest:
        first = highest + GAP + 1 if highest else max(first, 1)
    return range(first, min(first + max(BLOCK, least), MOST_JOB_ID + 1))
