"""The program ``scancel`` of a batch job: its steps and its shell are told here, the job's end is the operator's."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Dict, Iterator, List, NoReturn, Optional, Sequence, Set

from lockstep.slurm import scancel, scontrol
from lockstep.slurm.getopt import OptionError
from lockstep.worker.child.processes import descendants
from lockstep.worker.launchers import slurm
from lockstep.worker.shims.request import ShimPart, ShimRequest, ShimTask
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.client import TaskOutcome
from lockstep.worker.steps.credentials import CredentialError
from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.asking import AskedError, ask
from lockstep.worker.steps.slurm.job import JobHere, given_environment, job_here

FAILED = 1
_ASKED = "LOCKSTEP_SCANCEL_ASKED"  # set where another node's scancel asks, for one id: such a one asks no further
_OVER = "Job/step already completing or completed"


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    environ = given_environment()
    try:
        cancel = scancel.parse(arguments, environ.get("SLURM_JOB_USER", ""))
        if cancel.show_version:
            os.write(1, scontrol.version().encode("ascii"))
            return 0
        here = job_here(environ)
        if environ.get(_ASKED) and len(cancel.ids) == 1 and cancel.ids[0].step != "batch":
            return _asked(cancel, here)
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
            words = _cancel_step(cancel, here, int(which.step))
            if words:
                problems.append(f"scancel: error: Kill job error on job step id {which.job}.{which.step}: {words}")
        elif which.step or not scancel.ends(cancel):
            problems += _signal(cancel, here, shell=bool(which.step) or cancel.batch_only)
        else:
            problems += _end(here)
    return problems


def _is_own(which: scancel.Which, here: JobHere) -> bool:
    array = here.job.array
    if which.tasks is None:
        return which.job == here.job.id
    return array is not None and which.job == array.job and which.tasks == (array.task,)


def _by_filter(cancel: scancel.Cancel, here: JobHere) -> List[str]:
    """Of all jobs only this one is known, and meant where everything fits.

    Raises AskedError, CredentialError, OSError.
    """
    if not scancel.fits(cancel, here.job, here.batch.words):
        return []
    if scancel.ends(cancel):
        return _end(here)
    return _signal(cancel, here, shell=cancel.batch_only)


def _end(here: JobHere) -> List[str]:
    answer = ask(here.directory, "cancel", {})
    return [] if answer.agreed else [f"scancel: error: Kill job error on job id {here.job.id}: {answer.words}"]


def _asked(cancel: scancel.Cancel, here: JobHere) -> int:
    """By another node, for what this one alone knows."""
    (which,) = cancel.ids
    if which.step:
        return 0 if _cancel_own(cancel, here, int(which.step)) else FAILED
    _signal_own(cancel, here, shell=cancel.batch_only)
    return 0


def _cancel_step(cancel: scancel.Cancel, here: JobHere, step: int) -> str:
    """Why it cannot be; or empty. Raises CredentialError, OSError."""
    rank = registry.rank_of(step)
    if rank == here.at.gang.rank:
        return "" if _cancel_own(cancel, here, step) else _OVER
    if rank >= len(here.job.nodes):
        return _OVER
    said = [] if cancel.signal is None else [f"--signal={cancel.signal}"]
    with _spared(cancel.signal):
        outcome = _there([rank], here, [*said, f"{here.job.id}.{step}"])[rank]
    return _unheard(outcome) or (_OVER if outcome.exit_code else "")


def _cancel_own(cancel: scancel.Cancel, here: JobHere, step: int) -> bool:
    """One whose srun runs on this node."""
    message = "cancel" if cancel.signal is None else str(cancel.signal)
    return any(
        record.step == step and registry.tell(here.directory, record, message)
        for record in registry.running(here.directory)
    )


def _signal(cancel: scancel.Cancel, here: JobHere, shell: bool) -> List[str]:
    """To the steps of all nodes, or to the shell alone, or to all; what is said of those that cannot be.

    Raises CredentialError, OSError.
    """
    ranks = {0} if shell else set(range(len(here.job.nodes)))
    own = here.at.gang.rank
    whom = [name for name, wanted in (("--batch", shell), ("--full", cancel.everything)) if wanted]
    outcomes: Dict[int, TaskOutcome] = {}
    with _spared(cancel.signal):
        for turn in _turns(ranks, own, cancel.signal):
            if own in turn:
                _signal_own(cancel, here, shell)
            said = [f"--signal={cancel.signal or 15}", *whom, str(here.job.id)]
            outcomes.update(_there(sorted(turn - {own}), here, said))
    return [
        f"scancel: error: Kill job error on job id {here.job.id}: {words}"
        for words in (
            _unheard(outcome) or f"scancel on {here.job.nodes[rank]} ended with code {outcome.exit_code}"
            for rank, outcome in outcomes.items()
            if outcome.exit_code
        )
    ]


def _turns(ranks: Set[int], own: int, number: Optional[int]) -> List[Set[int]]:
    """Who is told after whom: last the node whose srun may kill or stop this process, which cannot be spared that."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        return [ranks]
    step = os.environ.get("SLURM_STEP_ID", "")
    last = registry.rank_of(int(step)) if step.isdigit() else own
    return [ranks - {own, last}, ranks & {own} - {last}, ranks & {last}]


def _signal_own(cancel: scancel.Cancel, here: JobHere, shell: bool) -> None:
    """To what this node knows."""
    number = cancel.signal or 15
    if not shell:
        for record in registry.running(here.directory):
            registry.tell(here.directory, record, str(number))
    if here.at.gang.rank == 0 and (shell or cancel.everything):
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


@contextlib.contextmanager
def _spared(number: Optional[int]) -> Iterator[None]:
    """This process, which may be of a step that gets the signal: all nodes are asked before it does. SIGKILL and
    SIGSTOP spare nobody."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {number} if number else set())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _there(ranks: Sequence[int], here: JobHere, arguments: Sequence[str]) -> Dict[int, TaskOutcome]:
    """How scancel has ended on the nodes that know the processes, by rank. Raises CredentialError, OSError."""
    argv = ["scancel", *arguments]
    parts = [ShimPart(rank, [ShimTask(rank, {_ASKED: "1"})], argv=argv) for rank in ranks]
    return shimmed.run(ShimRequest(parts), here.at) if parts else {}


def _unheard(outcome: TaskOutcome) -> str:
    """Why a node could not be asked; or empty."""
    return outcome.words if outcome.reason else ""


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
