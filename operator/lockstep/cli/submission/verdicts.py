"""What becomes of a run in the first two seconds: refused, in its queue, or with nodes; in words, and as exit code."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from lockstep.api.base import names
from lockstep.api.base.indices import parse_indices
from lockstep.cli import arrays, output
from lockstep.cli.client import Cluster, Json, resource_path, runs_path
from lockstep.cli.errors import ApiServerError, CliError, ExitCode
from lockstep.cli.submission.array_manifests import is_set
from lockstep.core.arrays.members import run_name
from lockstep.core.model.assignment import is_held
from lockstep.core.model.conditions import find
from lockstep.core.model.own_objects import parse_queue, parse_run, parse_run_set
from lockstep.core.model.reasons import NAMED_IN_VAIN, ConditionReason, ConditionType, WaitReason
from lockstep.core.model.snapshot import RunView
from lockstep.present.amounts import plural
from lockstep.present.runs import nodes_held, queue_of

PATIENCE = 2.0
"""Seconds."""
_FIRST_LOOK, _LONGEST_PAUSE = 0.05, 0.3

NOT_BY_WAITING = frozenset(
    {
        WaitReason.PLACEMENT,
        WaitReason.NODES_PER_RUN_LIMIT,
        WaitReason.QUOTA_TOO_SMALL,
        WaitReason.DEADLINE_UNREACHABLE,
        WaitReason.TIME_LIMIT_TOO_LONG,
        WaitReason.DEPENDENCY_NEVER_SATISFIED,
        WaitReason.NAMESPACE_NOT_ALLOWED,
        WaitReason.PRIORITY_CLASS_NOT_ALLOWED,
        WaitReason.LOCAL_QUEUE_NOT_FOUND,
        WaitReason.KUEUE_NOT_INSTALLED,
        WaitReason.KUEUE_DISABLED,
    }
)
"""Pending reasons of what somebody has to change first: the run, or what it names."""


def tell_verdicts(cluster: Cluster, created: Sequence[Json], seconds: float | None = None) -> ExitCode:
    """Say of each what the operator made of it, ``seconds`` at most for all (``PATIENCE`` by default). REFUSED: one
    starts in no case as it is."""
    deadline = time.monotonic() + (PATIENCE if seconds is None else seconds)
    codes = [_tell(cluster, raw, deadline) for raw in created]
    return ExitCode.REFUSED if ExitCode.REFUSED in codes else ExitCode.OK


def _tell(cluster: Cluster, raw: Json, deadline: float) -> ExitCode:
    name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace") or cluster.namespace
    place = arrays.sets_path if is_set(raw) else runs_path
    try:
        words, code = _awaited(cluster, place(namespace, name), raw, deadline)
    except CliError as error:
        words, code = f"{name} was created; what becomes of it cannot be read: {error}", ExitCode.OK
    if is_set(raw) and words == _accepted(name):
        told, code = _of_first_run(cluster, raw, namespace, deadline)
        words += f"; its first run {told}" if told else ""
    output.note(words or f"{name} is not judged yet; lockstep explain {name} shows what it waits for")
    return code


def _of_first_run(cluster: Cluster, raw: Json, namespace: str, deadline: float) -> tuple[str, ExitCode]:
    """What becomes of the run of the lowest index, which mostly is what becomes of all. Empty: nobody knows yet."""
    array = parse_run_set(raw)
    assert array.spec is not None, "the server has taken it"
    first = run_name(array.name, min(parse_indices(array.spec.indices)))
    with contextlib.suppress(CliError):
        return _awaited(cluster, runs_path(namespace, first), None, deadline, ends=array.name)
    return "", ExitCode.OK


def _awaited(cluster: Cluster, path: str, raw: Json | None, deadline: float, ends: str = "") -> tuple[str, ExitCode]:
    """What can be said of an object by ``deadline``; empty: nothing. With ``raw`` None it need not be there yet."""
    pause, may_come = _FIRST_LOOK, raw is None
    words, code = _words(cluster, raw, ends) if raw is not None else ("", ExitCode.OK)
    while not words and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
        try:
            words, code = _words(cluster, cluster.get(path), ends)
        except ApiServerError as error:
            if error.status != 404 or not may_come:
                raise
    return words, code


def _words(cluster: Cluster, raw: Json, ends: str = "") -> tuple[str, ExitCode]:
    """``ends``: what is cancelled to end it, where that is not the run itself. Empty: nothing is decided yet."""
    view = parse_run_set(raw) if is_set(raw) else parse_run(raw)
    name, accepted = view.name, find(view.status, ConditionType.ACCEPTED)
    if accepted is not None and accepted.status == "False" and accepted.observed_generation == view.generation:
        return _refused(name, accepted.message, ends)
    if accepted is None or accepted.status != "True":
        return "", ExitCode.OK
    if isinstance(view, RunView):
        return _place(cluster, view, ends)
    return _held(name) if view.spec is not None and view.spec.suspend else _accepted(name), ExitCode.OK


def _accepted(array: str) -> str:
    return f"{array} is accepted"


def _held(name: str) -> str:
    return f"{name} is held; lockstep release {name} lets it go"


def _refused(name: str, why: str, ends: str) -> tuple[str, ExitCode]:
    stays = f"\n  It stays, and goes on once that is corrected. lockstep cancel {ends or name} ends it."
    return f"{name} is refused: {why}{stays}", ExitCode.REFUSED


def _place(cluster: Cluster, run: RunView, ends: str) -> tuple[str, ExitCode]:
    name, status = run.name, run.status
    if is_held(status.assignment) or status.attempt:
        return f"{name} has {plural(nodes_held(run), 'node')}, and starts", ExitCode.OK
    if run.spec is not None and run.spec.suspend:
        return _held(name), ExitCode.OK
    told = status.queue
    if not told.reason:
        return "", ExitCode.OK
    if told.reason in NAMED_IN_VAIN:  # its Accepted=False is about to be written
        return _refused(name, told.message, ends)
    why = f"{told.reason}{f': {told.message}' if told.message else ''}"
    may_be_made = told.reason == WaitReason.PLACEMENT and _may_have_nodes_made(cluster, run)
    if told.reason in NOT_BY_WAITING and not may_be_made:
        return f"{name} cannot start as it is: {why}", ExitCode.REFUSED
    why += "; nodes may be made for it" if may_be_made else ""
    where = f" at position {told.position}" if told.position else ""
    return f"{name} waits in queue {queue_of(run)}{where}: {why}", ExitCode.OK


def _may_have_nodes_made(cluster: Cluster, run: RunView) -> bool:
    """Its queue has an autoscaler asked for nodes, and the run may ask. Not known where queues may not be read."""
    told = find(run.status, ConditionType.SCALE_UP)
    if told is not None and told.reason == ConditionReason.CANNOT_ASK_FOR_NODES:
        return False
    with contextlib.suppress(CliError):
        path = resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES, queue_of(run))
        return parse_queue(cluster.get(path)).spec.scale_up == "Enabled"
    return False
