"""The program ``srun`` of a batch job: a step of its gang."""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Dict, NoReturn, Sequence

from lockstep.slurm import scontrol, srun
from lockstep.slurm.getopt import OptionError
from lockstep.slurm.layout import LayoutError
from lockstep.slurm.srun_options import OPTIONS
from lockstep.worker.shims.request import NOBODY
from lockstep.worker.shims.srun import Place, call, laid_out
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.client import RunningStep
from lockstep.worker.steps.credentials import CredentialError
from lockstep.worker.steps.slurm import devices, registry
from lockstep.worker.steps.slurm.job import JobHere, given_environment, job_here
from lockstep.worker.steps.slurm.running import StepOutput
from lockstep.worker.steps.slurm.signals import catch, ignore, keep_messages

FAILED = 1
NOT_UNDERSTOOD = 255
_MOST_OF_FILE = 4 << 20  # bytes of a list of nodes


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    environ = given_environment()
    try:
        components = srun.parse(arguments, environ, _text_of)
        first = components[0]
        if first.show_version or first.show_help or first.show_mpi_types:
            return _shown(first)
        ignore(first.ignored_signals)
        here = job_here(environ)
        if any(each.job and not here.is_own(each.job) for each in components):
            raise LayoutError(
                f"Unable to confirm allocation for job {first.job}: Invalid job id specified\n"
                f"srun: Check SLURM_JOB_ID environment variable. Expired or invalid job {first.job}"
            )
        if here.ending:
            raise LayoutError(
                f"Unable to confirm allocation for job {here.job.id}: Job/step already completing or completed"
            )
        return _run(here, components, environ)
    except OptionError as error:
        shimmed.say(str(error))
        return FAILED if str(error).startswith("srun: fatal:") else NOT_UNDERSTOOD
    except (LayoutError, CredentialError) as error:
        shimmed.say(f"srun: error: {error}\n")
    except OSError as error:
        shimmed.say(f"srun: error: Could not open file {error.filename}: {error.strerror}\n")
    return FAILED


@functools.lru_cache(maxsize=None)  # a pipe, as of <(command), can be read but once
def _text_of(path: str) -> str:
    """Raises OSError."""
    with open(path, "rb") as stream:
        return stream.read(_MOST_OF_FILE).decode("utf-8", "replace")


def _shown(step: srun.Step) -> int:
    if step.show_mpi_types:
        text = srun.MPI_TYPES
    elif step.show_version:
        text = scontrol.version()
    else:
        names = " ".join(f"[--{option.name}]" for option in OPTIONS if not option.same_as)
        text = f"Usage: srun [OPTIONS...] executable [args...]\n{names}\n"
    os.write(1, text.encode("ascii"))
    return 0


def _run(here: JobHere, components: Sequence[srun.Step], environ: Dict[str, str]) -> int:
    """Raises LayoutError, CredentialError, OSError."""
    gang = here.at.gang
    peer = gang.peers[gang.rank]
    lay = functools.partial(laid_out, components, here.job, here.batch.words)
    laid = lay()  # what cannot be takes no number
    number = registry.next_step(here.directory, gang.rank)
    place = Place(number, peer.address, peer.port, os.getcwd())
    record = registry.StepRecord(
        number, os.getpid(), registry.born_of(os.getpid()), _name(components[0]), [],
        sum(layout.total for layout in laid.layouts), time.time(),
    )  # fmt: skip
    keep_messages()
    record, laid = devices.enter(here, record, components[0], lay, environ, lambda line: shimmed.say([line]))
    made = call(components, here.job, laid, environ, place, record.gpus)
    output = StepOutput(made, components[0], here, number)
    stdin = -1
    if made.request.stdin != NOBODY:
        stdin = os.open(made.stdin, os.O_RDONLY | os.O_CLOEXEC) if made.stdin else 0
    asked = shimmed.requests_of(made.request, sweep=True, pid_in="SLURM_TASK_PID")
    step = RunningStep(gang, here.directory, asked, output, stdin=stdin)
    output.begin(step)
    catch(output, components[0].ignored_signals)
    step.run()
    code = output.finish()
    ended = record._replace(end=time.time(), state=output.state, code=output.worst[0], signal=output.worst[1])
    registry.leave(here.directory, ended)
    return code


def _name(step: srun.Step) -> str:
    return step.own_name or os.path.basename(step.command[0])[:64]


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
