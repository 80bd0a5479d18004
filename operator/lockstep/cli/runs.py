"""Runs as the API server has them, and as the core sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lockstep.api.base.changes import changed
from lockstep.cli import arrays, output
from lockstep.cli.client import Cluster, Json, core_path, runs_path
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.options import Chosen
from lockstep.core.arrays.members import governed, is_member, is_suspended_by_set
from lockstep.core.batch.submission import NumberedJob
from lockstep.core.model import assignment as slots
from lockstep.core.model import reservation as kept
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import is_true
from lockstep.core.model.own_objects import parse_run, parse_run_set
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.core.run.way_back import begins, retry_of

_NUMBER = re.compile(r"([0-9]{1,8})(?:_([0-9]{1,5}|\[[-0-9,:]+\]))?")


def fetch(cluster: Cluster, name: str) -> Json:
    """One run of the cluster's namespace, by its name or a job's number. Raises CliError with the remedy when there is
    none."""
    name = by_number(cluster, name)
    try:
        return cluster.get(runs_path(cluster.namespace, name))
    except ApiServerError as error:
        if error.status == 404 and error.name:
            here = cluster.namespace
            others = f"lockstep queue -n {here} --finished lists those there are; -n names another namespace"
            none = CliError(f"there is no run {name} in namespace {here}", others)
            raise arrays.why_absent(cluster, name) or none from error
        raise


def jobs_of(cluster: Cluster) -> dict[int, NumberedJob]:
    """By number, the runs and arrays of the cluster's namespace."""
    found = {}
    for raw in cluster.list(runs_path(cluster.namespace))["items"]:
        if number := (raw.get("status") or {}).get("jobId"):
            found[number] = NumberedJob(raw["metadata"]["name"])
    try:
        sets = cluster.list(arrays.sets_path(cluster.namespace))["items"]
    except ApiServerError as error:
        if error.status not in (403, 404):
            raise
        sets = []
    for raw in sets:
        if number := (raw.get("status") or {}).get("jobId"):
            found[number] = NumberedJob(raw["metadata"]["name"], is_array=True)
    return found


def by_number(cluster: Cluster, name: str) -> str:
    """The run or array that is meant by the number of a batch job (``12``, of an array's task ``12_3``, ``12_[3-5]``);
    any other name is itself, also that of a run which is called so."""
    found = _NUMBER.fullmatch(name)
    if found is None:
        return name
    job = jobs_of(cluster).get(int(found[1]))
    if job is None or arrays.is_run(cluster, name):
        return name
    if found[2] is None:
        return job.name
    if not job.is_array:
        return name
    return f"{job.name}-{int(found[2])}" if found[2].isdigit() else f"{job.name}_{found[2]}"


view = parse_run
"""The run as the core sees it."""


def governed_view(cluster: Cluster, raw: Json) -> RunView:
    """The run as its array has it, which may suspend or cancel it; where that may not be read, as it is by itself."""
    run = view(raw)
    owner = arrays.fetch_if_allowed(cluster, run.set_name) if run.set_uid and run.set_name else None
    run_set = parse_run_set(owner) if owner is not None else None
    is_its = run_set is not None and run_set.uid == run.set_uid and is_member(run, run_set)
    return governed(run, run_set if is_its else None)


def whole(cluster: Cluster, run: RunView) -> RunView:
    """The run with its assignment, also where that is too large for status and lies in a ConfigMap."""
    assignment = run.status.assignment
    if not assignment.config_map:
        return run
    content = cluster.get(core_path(run.namespace, "configmaps", assignment.config_map))
    with _unless_changing("the assignment"):
        restored = slots.restored(assignment, content["data"][slots.ASSIGNMENT_KEY])
    return replace(run, status=changed(run.status, assignment=restored))


def with_reservation(cluster: Cluster, run: RunView) -> RunView:
    """The run with all that is kept for it, also where that lies in a ConfigMap."""
    reservation = run.status.reservation
    if reservation is None or not kept.is_unread(reservation):
        return run
    content = cluster.get(core_path(run.namespace, "configmaps", reservation.config_map))
    with _unless_changing("the reservation"):
        restored = kept.restored(reservation, content["data"][kept.RESERVATION_KEY])
    return replace(run, status=changed(run.status, reservation=restored))


@contextmanager
def _unless_changing(what: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError) as error:
        raise CliError(str(error), f"ask again in a moment: {what} is changing") from error


def has_finished(view: RunView | RunSetView) -> bool:
    """Whether nothing can be changed any more, which is told."""
    finished = is_true(view.status, ConditionType.FINISHED)
    if finished:
        remedy = f"{retry_of(view)} would {begins(view, view.status)[0]}." if isinstance(view, RunView) else ""
        output.note(f"{view.name} has finished already ({view.status.reason}); nothing to change. {remedy}".rstrip())
    return finished


def held_by_set(cluster: Cluster, raw: Json, verb: str) -> CliError | None:
    """Why a run does not go on whatever its own ``suspend`` says: ``verb`` is for its whole array then."""
    run = governed_view(cluster, raw | {"spec": raw["spec"] | {"suspend": False}})
    if not is_suspended_by_set(run):
        return None
    words = f"{run.name} is suspended with its array {run.set_name}"
    return CliError(words, f"lockstep {verb} {run.set_name} has all its runs go on")


def named(cluster: Cluster, chosen: Chosen) -> Iterator[str]:
    """The runs that names or a selector choose. Raises CliError where no run has its labels."""
    if chosen.runs:
        yield from (by_number(cluster, name) for name in chosen.runs)
        return
    found = cluster.list(runs_path(cluster.namespace), labelSelector=chosen.selector)["items"]
    if not found:
        raise CliError(f"no run in namespace {cluster.namespace} has the labels {chosen.selector}")
    yield from (raw["metadata"]["name"] for raw in found)
