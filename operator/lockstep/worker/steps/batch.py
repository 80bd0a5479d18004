"""A batch script as the program of rank 0, and what its node's worker does otherwise because of it."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, NamedTuple, Optional

from lockstep.worker.child.process import LaunchError, Outlets
from lockstep.worker.child.training import Catchers, all_that_catch, nobody, program_alone
from lockstep.worker.errors import trouble
from lockstep.worker.launchers import slurm
from lockstep.worker.start import Launch


class BatchShell(NamedTuple):
    """What is run. Without a command this node stands by."""

    command: List[str]
    environment: Dict[str, str]
    outlets: Optional[Outlets]
    catchers: Catchers


def batch_shell(launch: Launch, directory: str, environment: Mapping[str, str]) -> BatchShell:
    """``directory``: of the certificates, beside which the job is. Raises LaunchError."""
    try:
        batch = slurm.batch_of(launch.batch or {})
        there = os.path.exists(slurm.script_of(directory))
        missing = slurm.missing_interpreter(directory) if there else ""
    except OSError as error:
        raise LaunchError(125, "ProcessNotStarted", trouble(error)) from None
    except (KeyError, TypeError, ValueError) as error:
        raise LaunchError(
            125, "ProcessNotStarted", f"what START says of the job is not understood: {error!r}"
        ) from None
    if launch.rank != 0:
        return BatchShell([], dict(environment), None, nobody if batch.signals_shell_only else all_that_catch)
    if not there:
        raise LaunchError(125, "ProcessNotStarted", "the operator gave no script with START")
    if missing:
        raise LaunchError(127, "CommandNotFound", f"{missing}, which runs the script: No such file or directory")
    files = slurm.batch_files(batch)
    return BatchShell(
        slurm.shell_command(batch, directory), slurm.shell_environment(batch, environment),
        Outlets(files.stdout, files.stderr, batch.append),
        program_alone if batch.signals_shell_only else all_that_catch,
    )  # fmt: skip
