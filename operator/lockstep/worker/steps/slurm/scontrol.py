"""The program ``scontrol`` of a batch job: host lists, the own job, and what the operator is asked for."""

from __future__ import annotations

import os
import sys
import time
from typing import NoReturn, Optional, Sequence

from lockstep.slurm import scontrol, times
from lockstep.slurm.getopt import OptionError
from lockstep.slurm.hostlist import compress
from lockstep.slurm.scontrol import Printed, ScontrolCommand
from lockstep.worker.launchers import slurm
from lockstep.worker.shims.request import ShimAnswer
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.credentials import CredentialError
from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.asking import AskedError, ask
from lockstep.worker.steps.slurm.job import JobHere, given_environment, job_here

_ASKED = {"requeue": ("requeue",), "hold": ("hold",), "requeuehold": ("hold", "requeue")}
_JOB, _COMMENTS = ("jobid", "job"), ("comment", "admincomment", "extra")
_ELSEWHERE = "not from inside a job; see lockstep --help where the job was submitted"


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    environ = given_environment()
    try:
        command = scontrol.parse(arguments)
        said = scontrol.answer(command, environ)
        if said is None:
            said = _of_job(command, job_here(environ))
    except (OptionError, ValueError) as error:
        said = Printed(1, err=str(error))
    except (CredentialError, OSError) as error:
        said = Printed(1, err=f"scontrol: error: {error}\n")
    return shimmed.print_answer(ShimAnswer(*said))


def _of_job(command: ScontrolCommand, here: JobHere) -> Printed:
    if command.verb == "show":
        return _show(command, here)
    if command.verb == "ping":
        return Printed(0, f"Slurmctld(primary) at {here.job.cluster} is UP\n")
    if command.verb == "update":
        return _updated(command, here)
    kinds = _ASKED.get(command.verb)
    if kinds is None:
        return Printed(1, err=f"scontrol: error: {command.verb}: {_ELSEWHERE}\n")
    wanted = [word for word in command.argument.split(",") if word]
    if not wanted or not all(here.is_own(word) for word in wanted):
        return Printed(
            1, err=f"Invalid job id specified for job {command.argument}: only this job's own is known here\n"
        )
    for kind in kinds:
        try:
            answer = ask(here.directory, kind, {})
        except AskedError as error:
            return Printed(1, err=f"{error}\n")
        if not answer.agreed:
            return Printed(1, err=f"{answer.words} for job {command.argument}\n")
    return Printed(0)


def _updated(command: ScontrolCommand, here: JobHere) -> Printed:
    """Comments are for people to read: that they are kept nowhere ends no script."""
    others = [name for name in command.fields if name not in _COMMENTS and name not in _JOB]
    number = next((command.fields[name] for name in _JOB if name in command.fields), "")
    if others or not here.is_own(number):
        return Printed(1, err=f"scontrol: error: update: {_ELSEWHERE}\n")
    return Printed(0, err="scontrol: Comment is not kept here, and changes nothing else\n")


def _show(command: ScontrolCommand, here: JobHere) -> Printed:
    job = here.job
    if command.entity == "config":
        return Printed(0, scontrol.show_config(job.cluster))
    if command.entity == "jobs":
        number = command.argument
        if number and not here.is_own(number) and not (job.array and number == str(job.array.job)):
            return Printed(1, err="slurm_load_jobs error: Invalid job id specified\n")
        return Printed(0, _job(here, command.one_line))
    if command.entity == "nodes":
        wanted = _index_of(command.argument, here) if command.argument else -1
        if wanted is None:
            return Printed(1, err=f"Node {command.argument} not found\n")
        nodes = range(len(job.nodes)) if wanted < 0 else [wanted]
        return Printed(0, "".join(_node(here, index, command.one_line) for index in nodes))
    if command.entity == "steps":
        return Printed(0, "".join(_step(here, each, command.one_line) for each in registry.running(here.directory)))
    return Printed(1, err=f"scontrol: error: show {command.entity}: {_ELSEWHERE}\n")


def _job(here: JobHere, one_line: bool) -> str:
    files, job = slurm.batch_files(here.batch), here.job
    state = "COMPLETING" if here.ending else "RUNNING"
    outputs = (files.stdout, files.stderr, files.stdin or "/dev/null")
    return scontrol.show_job(job, state, here.batch.command, outputs, int(time.time()), one_line)


def _index_of(word: str, here: JobHere) -> Optional[int]:
    return next((index for index, words in enumerate(here.batch.words) if word in words), None)


def _node(here: JobHere, index: int, one_line: bool) -> str:
    job = here.job
    gpus = f"gpu:{job.gpus}" if job.gpus else "(null)"
    rows = [
        f"NodeName={job.nodes[index]} CPUAlloc={job.cpus[index]} CPUTot={job.cpus[index]}",
        f"Gres={gpus}",
        f"NodeAddr={job.nodes[index]} NodeHostName={here.batch.words[index][-1]}",
        f"State=ALLOCATED Partitions={job.partition}",
    ]
    return (" " if one_line else "\n   ").join(rows) + "\n" * (1 if one_line else 2)


def _step(here: JobHere, record: registry.StepRecord, one_line: bool) -> str:
    rows = [
        f"StepId={here.job.id}.{record.step} UserId={here.job.uid} StartTime={times.moment(int(record.start))}",
        f"State={record.state} Partition={here.job.partition} NodeList={compress(record.nodes)}",
        f"Nodes={len(record.nodes)} Tasks={record.tasks} Name={record.name}",
    ]
    return (" " if one_line else "\n   ").join(rows) + "\n" * (1 if one_line else 2)


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
