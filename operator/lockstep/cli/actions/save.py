"""`lockstep checkpoint RUN`: ask a training gang to save now, and wait for what comes of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from lockstep.api.base import names
from lockstep.cli import runs
from lockstep.cli.actions import wait
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import CliError
from lockstep.core.model.conditions import is_true
from lockstep.core.model.reasons import ConditionType, RequestResult
from lockstep.core.model.snapshot import RunView

_NAME = names.ANNOTATION_CHECKPOINT_REQUEST.partition("/")[2]
_REMEDIES: Mapping[str, tuple[str, str]] = {
    RequestResult.NOT_RUNNING: ("it does not train now", "lockstep explain {run}"),
    RequestResult.NOBODY_LISTENS: (
        "no process of it asks for saves",
        "call should_checkpoint() of lockstep_training, or set checkpoint.signal; docs/stopping.md says how",
    ),
    RequestResult.EXPIRED: (
        "no checkpoint became valid on all ranks within checkpoint.gracePeriod",
        "lockstep info {run}",
    ),
    RequestResult.FAILED: ("the attempt ended, or a rank was lost, before it was complete", "lockstep history {run}"),
}


def ask(cluster: Cluster, name: str) -> tuple[Json, str]:
    """Ask for a save; the run as it is then, and the request's token. Raises CliError when it has finished."""
    raw = runs.fetch(cluster, name)
    run = runs.view(raw)
    if is_true(run.status, ConditionType.FINISHED):
        raise CliError(f"{run.name} has finished already ({run.status.reason}); there is nothing to save")
    token = uuid.uuid4().hex[:16]
    patch = {"metadata": {"annotations": {names.ANNOTATION_CHECKPOINT_REQUEST: token}}}
    return cluster.merge_patch(runs_path(cluster.namespace, run.name), patch), token


def answer(cluster: Cluster, raw: Json, token: str, timeout: float | None) -> str:
    """Wait for what comes of the request: ``Saved step N``.

    Raises CliError, with the remedy, when nothing was saved, and with exit code 124 after ``timeout`` seconds.
    """
    return next(filter(None, (_result(run, token) for run in wait.versions(cluster, raw, timeout))))


def _result(run: RunView, token: str) -> str:
    """What came of the request; empty while nothing has."""
    request = next((r for r in run.status.requests if r.name == _NAME and r.token == token), None)
    if request is not None and request.result.startswith(RequestResult.SAVED):
        return request.result
    if request is not None and request.result != RequestResult.TAKEN_UP:
        why, remedy = _REMEDIES.get(request.result, (request.result, "lockstep explain {run}"))
        raise CliError(f"{run.name} was not saved: {why}", remedy.format(run=run.name))
    if run.annotations.get(names.ANNOTATION_CHECKPOINT_REQUEST) != token:
        raise CliError(f"somebody else asked {run.name} to save meanwhile", f"lockstep checkpoint {run.name} --wait")
    if is_true(run.status, ConditionType.FINISHED):
        raise CliError(f"{run.name} has ended as {run.status.state} ({run.status.reason}) and was not saved for this")
    return ""
