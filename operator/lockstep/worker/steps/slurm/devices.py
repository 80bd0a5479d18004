"""The GPUs that a step has for itself: taken before it begins, and waited for while other steps have them."""

from __future__ import annotations

import time
from typing import Callable, Mapping

from lockstep.slurm.layout import LayoutError
from lockstep.slurm.srun import Step
from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.job import JobHere
from lockstep.worker.steps.slurm.registry import StepRecord

LOOK_SECONDS, MOST_LOOK_SECONDS = 0.1, 1.0
_BUSY = "Requested nodes are busy"


def enter(
    here: JobHere, record: StepRecord, step: Step, wanted: Mapping[str, int], environ: Mapping[str, str],
    say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep,
) -> StepRecord:  # fmt: skip
    """The step is listed as running, with the GPUs that it wants of each node for itself. ``step``: the first of its
    components.

    Raises LayoutError where it is not to wait, or the job ends; OSError.
    """
    if not wanted:
        registry.enter(here.directory, record)
        return record
    if here.at.gang.rank:
        say("srun: GPUs that steps hold whose srun runs on another node are not known here, and may be the same")
    number = environ.get("SLURM_STEP_ID", "")
    within = int(number) if number.isdigit() else -1
    waited, pause = 0.0, LOOK_SECONDS
    while True:
        entered = registry.enter_with_gpus(
            here.directory, record, wanted, here.job.gpus, within=within, overlap=step.overlap
        )
        if entered is not None:
            break
        if step.immediate is not None and waited >= step.immediate:
            raise LayoutError(f"Unable to create step for job {here.job.id}: {_BUSY}")
        if not waited and not step.quiet:
            say(f"srun: Job {here.job.id} step creation temporarily disabled, retrying ({_BUSY})")
        _wait(here, pause, say, sleep)
        waited, pause = waited + pause, min(pause * 1.5, MOST_LOOK_SECONDS)
    if waited and not step.quiet:
        say(f"srun: Step created for StepId={here.job.id}.{record.step}")
    return entered


def _wait(here: JobHere, seconds: float, say: Callable[[str], None], sleep: Callable[[float], None]) -> None:
    """Raises LayoutError where it is not to go on."""
    try:
        sleep(seconds)
    except KeyboardInterrupt:
        say("srun: Cancelled pending job step with signal 2")
    else:
        if not here.ending:
            return
    raise LayoutError(f"Unable to create step for job {here.job.id}: Job/step already completing or completed")
