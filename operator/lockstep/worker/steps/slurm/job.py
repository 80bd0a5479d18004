"""What programs of a batch job know of it, wherever in the gang they run."""

from __future__ import annotations

import os
from typing import Dict, Mapping, NamedTuple

from lockstep.slurm.environment import SlurmJob
from lockstep.worker.launchers import slurm
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.credentials import CredentialError
from lockstep.worker.steps.shimmed import Here


class JobHere(NamedTuple):
    """A node of the job, and the job."""

    at: Here
    batch: slurm.StartedBatch

    @property
    def job(self) -> SlurmJob:
        return self.batch.job

    @property
    def directory(self) -> str:
        return self.at.directory

    def is_own(self, number: str) -> bool:
        """Whether that id means this job: its number, or its array's and its index."""
        array = self.job.array
        return number == str(self.job.id) or (array is not None and number == f"{array.job}_{array.task}")

    @property
    def ending(self) -> bool:
        """It is being stopped."""
        return os.path.exists(os.path.join(self.directory, slurm.STOPPING))


def job_here(environ: Mapping[str, str]) -> JobHere:
    """Raises CredentialError."""
    at = shimmed.here(environ)
    try:
        return JobHere(at, slurm.read_job(at.directory))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CredentialError(f"what the job is cannot be read in {at.directory}: {error}") from None


def given_environment() -> Dict[str, str]:
    """This process's, without what Python has added to it."""
    environ = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as stream:
            given = {row.partition(b"=")[0] for row in stream.read().split(b"\0")}
    except OSError:
        return environ
    if b"LC_CTYPE" not in given:
        environ.pop("LC_CTYPE", None)
    return environ
