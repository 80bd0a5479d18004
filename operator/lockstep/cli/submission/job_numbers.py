"""Numbers of batch jobs: whose they are, and when a new one has its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from lockstep.api.run_set import TrainingRunSetStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.cli import arrays, runs
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import CliError, ExitCode
from lockstep.cli.submission.array_manifests import is_set
from lockstep.core.batch.submission import NumberedJob
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.own_objects import parse_run_set
from lockstep.core.model.reasons import ConditionType

NUMBER_SECONDS = 60.0
"""For which a number is waited for."""
_SOON, _LATER = 0.1, 2.0


class Numbers:
    """Of the jobs of a namespace, read once they are asked for."""

    def __init__(self, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._jobs: dict[int, NumberedJob] | None = None

    def job(self, number: str) -> NumberedJob:
        """Raises ValueError where nobody has it."""
        if self._jobs is None:
            self._jobs = runs.jobs_of(self._cluster) if self._cluster is not None else {}
        found = self._jobs.get(int(number))
        if found is None:
            where = f"namespace {self._cluster.namespace}" if self._cluster is not None else "no cluster"
            raise ValueError(f"there is no job {number} in {where}")
        return found


def await_number(
    cluster: Cluster, raw: Json, seconds: float = NUMBER_SECONDS, sleep: Callable[[float], None] = time.sleep
) -> Json:
    """The run or array once it has its number.

    Raises CliError where it is refused, which then is not there any more, and with exit code 124 when nobody gave it
    one in that time: it is there, and named.
    """
    pause, waited, name = _SOON, 0.0, raw["metadata"]["name"]
    while not (raw.get("status") or {}).get("jobId"):
        words = refusal(raw)
        if words:
            with contextlib.suppress(CliError):
                cluster.delete(_path(cluster, raw), raw["metadata"]["uid"])
            raise CliError(f"Batch job submission failed: {words}")
        if waited >= seconds:
            words = f"{name} is submitted, and has no number after {seconds:.0f} s: is the operator running?"
            raise CliError(words, f"lockstep {'status' if is_set(raw) else 'info'} {name}", ExitCode.TIMED_OUT)
        sleep(pause)
        waited, pause = waited + pause, min(_LATER, pause * 1.5)
        raw = cluster.get(_path(cluster, raw))
    return raw


def await_end(cluster: Cluster, raw: Json, sleep: Callable[[float], None] = time.sleep) -> int:
    """What sbatch --wait ends with: the script's code; 1 where it did not end by itself, or an array failed."""
    while not _has_finished(raw):
        sleep(_LATER)
        raw = cluster.get(_path(cluster, raw))
    if is_set(raw):
        return ExitCode.OK if is_true(_status(raw), ConditionType.SUCCEEDED) else ExitCode.FAILED
    status = runs.view(raw).status
    if is_true(status, ConditionType.SUCCEEDED):
        return ExitCode.OK
    return (status.attempts[-1].script_exit_code if status.attempts else None) or ExitCode.FAILED


def refusal(raw: Json) -> str:
    """Why it is not accepted, as things are. Empty: it is, or nobody has looked yet."""
    accepted = find(_status(raw), ConditionType.ACCEPTED)
    if accepted is None or accepted.status != "False":
        return ""
    return accepted.message if accepted.observed_generation == raw["metadata"]["generation"] else ""


def _has_finished(raw: Json) -> bool:
    return is_true(_status(raw), ConditionType.FINISHED)


def _status(raw: Json) -> TrainingRunStatus | TrainingRunSetStatus:
    return parse_run_set(raw).status if is_set(raw) else runs.view(raw).status


def _path(cluster: Cluster, raw: Json) -> str:
    name = raw["metadata"]["name"]
    return arrays.sets_path(cluster.namespace, name) if is_set(raw) else runs_path(cluster.namespace, name)
