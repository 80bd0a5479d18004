"""The program ``squeue`` of a batch job, which knows no other."""

from __future__ import annotations

import os
import sys
import time
from typing import NoReturn, Sequence

from lockstep.slurm import scontrol, squeue
from lockstep.slurm.getopt import OptionError
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.credentials import CredentialError
from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.job import given_environment, job_here

FAILED = 1


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    environ = given_environment()
    try:
        queue = squeue.parse(arguments, environ)
        if queue.show_version:
            os.write(1, scontrol.version().encode("ascii"))
            return 0
        here = job_here(environ)
    except OptionError as error:
        shimmed.say(str(error))
        return FAILED
    except CredentialError as error:
        shimmed.say(f"squeue: error: {error}\n")
        return FAILED
    job, now = here.job, int(time.time())
    own = [each for each in queue.jobs if here.is_own(each.partition(".")[0]) or _is_array(each, here.job.array)]
    if queue.jobs and not own:
        shimmed.say("slurm_load_jobs error: Invalid job id specified\n")
        return FAILED
    lines = [squeue.header(queue)] if queue.header else []
    if squeue.fits(queue, job, here.batch.words):
        if queue.steps:
            lines += [
                squeue.step_line(queue, job, each.step, each.name, each.nodes, now - int(each.start))
                for each in registry.running(here.directory)
            ]
        else:
            state = ("CG", "COMPLETING") if here.ending else ("R", "RUNNING")
            lines.append(squeue.job_line(queue, job, state, here.batch.command, now))
    os.write(1, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    return 0


def _is_array(word: str, array: object) -> bool:
    return word == str(getattr(array, "job", ""))


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
