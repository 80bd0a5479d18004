"""Where a step runs, and the GPUs that it has for itself: taken before it begins, and waited for while others have
them."""

from __future__ import annotations

import contextlib
import time
from typing import Callable, Collection, Mapping, NamedTuple, Optional

from lockstep.slurm.gpus import chosen
from lockstep.slurm.layout import IDLE, InUse, LayoutError
from lockstep.slurm.srun import Step
from lockstep.worker.shims.srun import Laid
from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.job import JobHere
from lockstep.worker.steps.slurm.registry import StepRecord

LOOK_SECONDS, MOST_LOOK_SECONDS = 0.1, 1.0
_BUSY = "Requested nodes are busy"


class EnteredStep(NamedTuple):
    """A step that is listed as running, and where."""

    record: StepRecord
    laid: Laid


def enter(
    here: JobHere, record: StepRecord, step: Step, lay: Callable[[InUse], Laid], environ: Mapping[str, str],
    say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep,
) -> EnteredStep:  # fmt: skip
    """The step is listed as running, on nodes that have room for it, with the GPUs that it wants of each for itself.
    ``step``: the first of its components. ``lay``: where all of them run, by what others use. It may use what the step
    has that it is called in.

    Raises LayoutError where it is not to wait, or the job ends; OSError.
    """
    number = environ.get("SLURM_STEP_ID", "")
    within = int(number) if number.isdigit() else -1
    record = record._replace(overlap=step.overlap)
    if not lay(IDLE).gpus_of_nodes(here.job):
        return _enter_sharing(here, record, lay, within)
    if here.at.gang.rank:
        say("srun: GPUs that steps hold whose srun runs on another node are not known here, and may be the same")
    waited, pause = 0.0, LOOK_SECONDS
    while True:
        entered = _enter_with_gpus(here, record, lay, (within, record.step))
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


def _enter_sharing(here: JobHere, record: StepRecord, lay: Callable[[InUse], Laid], within: int) -> EnteredStep:
    """It begins at once, whether or not it can be listed."""
    entered = _placed(here, record, lay(IDLE))
    with contextlib.suppress(OSError):
        if record.overlap or len(entered.record.nodes) == len(here.job.nodes):  # it has no choice
            registry.enter(here.directory, entered.record)
            return entered
        with registry.choosing(here.directory):
            entered = _placed(here, record, lay(registry.in_use(here.directory, (within,))))
            registry.enter(here.directory, entered.record)
    return entered


def _enter_with_gpus(
    here: JobHere, record: StepRecord, lay: Callable[[InUse], Laid], but: Collection[int]
) -> Optional[EnteredStep]:
    """None: there are not so many at the moment. What overlaps shares what it gets. Raises LayoutError, OSError."""
    with registry.choosing(here.directory):
        used = registry.in_use(here.directory, but)
        # Of several components one that may choose can take the only place of the next: then as if all were free.
        for others in (IDLE,) if record.overlap else (used, IDLE):
            entered = _placed(here, record, lay(others))
            wanted = entered.laid.gpus_of_nodes(here.job)
            found = chosen(wanted, used.gpus, here.job.gpus, overlap=record.overlap)
            if found is not None:
                break
        else:
            return None
        registry.enter(here.directory, entered.record if record.overlap else entered.record._replace(gpus=found))
        return entered._replace(record=entered.record._replace(gpus=found))


def _placed(here: JobHere, record: StepRecord, laid: Laid) -> EnteredStep:
    return EnteredStep(record._replace(nodes=laid.nodes(here.job)), laid)


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
