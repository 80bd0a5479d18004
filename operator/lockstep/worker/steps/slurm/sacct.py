"""The program ``sacct`` of a batch job: the job and its steps, of this attempt."""

from __future__ import annotations

import os
import sys
import time
from typing import NoReturn, Sequence

from lockstep.slurm import sacct, scontrol
from lockstep.slurm.getopt import OptionError
from lockstep.slurm.sacct import AccountedStep
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.credentials import CredentialError
from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.job import given_environment, job_here


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    environ = given_environment()
    try:
        asked = sacct.parse(arguments, environ)
        if asked.show_version or asked.show_fields:
            text = scontrol.version() if asked.show_version else sacct.fields()
            os.write(1, text.encode("ascii"))
            return 0
        here = job_here(environ)
    except OptionError as error:
        shimmed.say(str(error))
        return 1
    except CredentialError as error:
        shimmed.say(f"sacct: error: {error}\n")
        return 1
    found = {each.step: each for each in (*registry.ended(here.directory), *registry.running(here.directory))}
    steps = [
        AccountedStep(
            str(each.step), each.name, each.nodes, each.tasks, int(each.start), int(each.end), each.state, each.code,
            each.signal,
        )
        for _, each in sorted(found.items())
    ]  # fmt: skip
    lines = sacct.lines(asked, here.job, "RUNNING", steps, int(time.time()))
    os.write(1, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    return 0


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
