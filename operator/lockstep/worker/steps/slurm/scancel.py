"""The program ``scancel`` of a batch job: its steps and its shell are told here, the job's end is the operator's."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import List, NoReturn, Sequence

from lockstep.slurm import scancel, scontrol
from lockstep.slurm.getopt import OptionError
from lockstep.worker.child.processes import descendants
from lockstep.worker.launchers import slurm
from lockstep.worker.shims.request import ShimPart, ShimRequest, ShimTask
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.credentials import CredentialError
from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.asking import AskedError, ask
from lockstep.worker.steps.slurm.job import JobHere, given_environment, job_here

FAILED = 1


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    environ = given_environment()
    try:
        cancel = scancel.parse(arguments, environ.get("SLURM_JOB_USER", ""))
        if cancel.show_version:
            os.write(1, scontrol.version().encode("ascii"))
            return 0
        here = job_here(environ)
        problems = _with_ids(cancel, here) if cancel.ids else _by_filter(cancel, here)
    except OptionError as error:
        shimmed.say(str(error))
        return FAILED
    except (CredentialError, AskedError, OSError) as error:
        shimmed.say(f"scancel: error: {error}\n")
        return FAILED
    if not cancel.quiet:
        shimmed.say(problems)
    return FAILED if problems else 0


def _with_ids(cancel: scancel.Cancel, here: JobHere) -> List[str]:
    """What is said of those that cannot be. Raises AskedError, CredentialError, OSError."""
    problems = []
    for which in cancel.ids:
        if not _is_own(which, here):
            problems.append(f"scancel: error: Kill job error on job id {which.job}: Invalid job id specified")
        elif not scancel.fits(cancel, here.job, here.batch.words):
            continue
        elif which.step and which.step != "batch":
            if not _cancel_step(cancel, here, int(which.step)):
                words = "Job/step already completing or completed"
                problems.append(f"scancel: error: Kill job error on job step id {which.job}.{which.step}: {words}")
        elif which.step or not scancel.ends(cancel):
            _signal(cancel, here, shell=bool(which.step) or cancel.batch_only)
        else:
            problems += _end(here)
    return problems


def _is_own(which: scancel.Which, here: JobHere) -> bool:
    array = here.job.array
    if which.tasks is None:
        return which.job == here.job.id
    return array is not None and which.job == array.job and which.tasks == (array.task,)


def _by_filter(cancel: scancel.Cancel, here: JobHere) -> List[str]:
    """Of all jobs only this one is known, and meant where everything fits. Raises AskedError."""
    if not scancel.fits(cancel, here.job, here.batch.words):
        return []
    if scancel.ends(cancel):
        return _end(here)
    _signal(cancel, here, shell=cancel.batch_only)
    return []


def _end(here: JobHere) -> List[str]:
    answer = ask(here.directory, "cancel", {})
    return [] if answer.agreed else [f"scancel: error: Kill job error on job id {here.job.id}: {answer.words}"]


def _cancel_step(cancel: scancel.Cancel, here: JobHere, step: int) -> bool:
    """Raises CredentialError, OSError."""
    rank = registry.rank_of(step)
    if rank != here.at.gang.rank:
        return rank < len(here.job.nodes) and _there(rank, here) == 0
    message = "cancel" if cancel.signal is None else str(cancel.signal)
    return any(
        record.step == step and registry.tell(here.directory, record, message)
        for record in registry.running(here.directory)
    )


def _signal(cancel: scancel.Cancel, here: JobHere, shell: bool) -> None:
    """To the steps, or to the shell alone, or to all. Raises CredentialError, OSError."""
    number = cancel.signal or 15
    if here.at.gang.rank != 0:
        _there(0, here)
        return
    if not shell:
        for record in registry.running(here.directory):
            registry.tell(here.directory, record, str(number))
    if shell or cancel.everything:
        pid = _shell_of(here)
        for each in ([pid, *descendants(pid)] if cancel.everything else [pid]) if pid else []:
            if each != os.getpid():
                with contextlib.suppress(OSError):
                    os.kill(each, number)


def _shell_of(here: JobHere) -> int:
    """0: it has ended."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(here.directory, slurm.SHELL)) as stream:
        return int(stream.read(32))
    return 0


def _there(rank: int, here: JobHere) -> int:
    """The same on the node that knows the processes; its exit code. Raises CredentialError, OSError."""
    user = {"SLURM_JOB_USER": here.job.user}
    part = ShimPart(rank, [ShimTask(0, user)], argv=["scancel", *sys.argv[1:]])
    (outcome,) = shimmed.run(ShimRequest([part]), here.at).values()
    return outcome.exit_code


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
