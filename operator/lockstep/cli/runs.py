"""Runs as the API server has them, and as the core sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lockstep.api.base.changes import changed
from lockstep.cli import arrays, output
from lockstep.cli.client import Cluster, Json, core_path, runs_path
from lockstep.cli.errors import ApiServerError, CliError, UsageError
from lockstep.cli.options import Chosen
from lockstep.core.model import assignment as slots
from lockstep.core.model import reservation as kept
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import is_true
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView


def fetch(cluster: Cluster, name: str) -> Json:
    """One run of the cluster's namespace. Raises CliError with the remedy when there is none."""
    try:
        return cluster.get(runs_path(cluster.namespace, name))
    except ApiServerError as error:
        if error.status == 404 and error.name:
            here = cluster.namespace
            others = f"lockstep queue -n {here} --finished lists those there are; -n names another namespace"
            none = CliError(f"there is no run {name} in namespace {here}", others)
            raise arrays.why_absent(cluster, name) or none from error
        raise


view = parse_run
"""The run as the core sees it."""


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
        output.note(f"{view.name} has finished already ({view.status.reason}); nothing to change.")
    return finished


def named(cluster: Cluster, chosen: Chosen) -> Iterator[str]:
    """The runs that names or a selector choose. Raises UsageError unless exactly one of the two is given."""
    if bool(chosen.runs) == bool(chosen.selector):
        raise UsageError("name runs, or choose them with -l", "e.g. lockstep cancel hello, or -l team=nlp")
    if chosen.runs:
        yield from chosen.runs
        return
    found = cluster.list(runs_path(cluster.namespace), labelSelector=chosen.selector)["items"]
    if not found:
        raise CliError(f"no run in namespace {cluster.namespace} has the labels {chosen.selector}")
    yield from (raw["metadata"]["name"] for raw in found)
