"""`lockstep wait`: until a run has come so far, cannot any more, or the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from lockstep.cli import runs
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import ApiServerError, CliError, ExitCode, may_pass
from lockstep.cli.options import Goal
from lockstep.cli.output import note
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.present.runs import current_phase, state_of

_WATCH_SECONDS = 300.0
_RETRY_SECONDS = 2.0
_ADMITTED = (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING)


def until(
    cluster: Cluster, raw: Json, goal: Goal, timeout: float | None, seen: Callable[[RunView], None] = lambda run: None
) -> RunView:
    """Wait until the run ``raw`` meets ``goal`` and return it. ``seen`` is called with every state of it.

    Raises CliError when it can no longer meet it, when it is deleted, and after ``timeout`` seconds
    (None: never; exit code 124). A server that does not answer is asked again.
    """

    def met(run: RunView) -> bool:
        seen(run)
        return is_met(run, goal)

    return next(filter(met, versions(cluster, raw, timeout)))


def versions(cluster: Cluster, raw: Json, timeout: float | None) -> Iterator[RunView]:
    """The run ``raw`` and what becomes of it, without end. Raises CliError as ``until`` does."""
    uid = raw["metadata"]["uid"]
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        run = runs.view(raw)
        if run.uid != uid:
            raise CliError(f"{run.name} was deleted and created anew while it was waited for")
        yield run
        raw = next_version(cluster, raw, deadline)


def is_met(run: RunView, goal: Goal) -> bool:
    """Whether the run has come so far. Raises CliError when it has ended without."""
    phase = current_phase(run)
    if phase is Phase.FINISHED:
        if goal == "finished" or is_true(run.status, ConditionType.SUCCEEDED):
            return True
        succeeded = find(run.status, ConditionType.SUCCEEDED)
        why = f": {succeeded.message}" if succeeded is not None and succeeded.message else ""
        raise CliError(
            f"{run.name} has ended as {run.status.state} ({run.status.reason}){why}", f"lockstep explain {run.name}"
        )
    if goal == "running":
        return phase is Phase.RUNNING
    return goal == "admitted" and phase in _ADMITTED


def next_version(cluster: Cluster, raw: Json, deadline: float | None) -> Json:
    """The run ``raw`` as it is after its next change.

    Raises CliError when it is deleted, and with exit code 124 when the monotonic clock passes ``deadline``.
    """
    path, name = runs_path(cluster.namespace), raw["metadata"]["name"]
    query = {"fieldSelector": f"metadata.name={name}"}
    version, is_too_old, complained = raw["metadata"]["resourceVersion"], False, False
    while True:
        left = _WATCH_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            state, reason = state_of(runs.view(raw))
            raise CliError(
                f"the time is up: {name} is {state} ({reason})", f"lockstep explain {name}", ExitCode.TIMED_OUT
            )
        try:
            if is_too_old:
                return runs.fetch(cluster, name)
            for kind, changed in cluster.watch(
                path, seconds=min(left, _WATCH_SECONDS), resourceVersion=version, **query
            ):
                if kind == "DELETED":
                    raise CliError(f"{name} was deleted while it was waited for")
                version = changed["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    return changed
        except CliError as error:
            if isinstance(error, ApiServerError) and error.status == 410 and not is_too_old:
                is_too_old = True
                continue
            if not may_pass(error):
                raise
            if not complained:
                note(f"{error}; asking again until it answers.")
            complained = True
            time.sleep(max(0.0, min(_RETRY_SECONDS, left)))
