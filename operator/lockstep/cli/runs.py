"""Runs as the API server has them, and as the core sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lockstep.api.base.changes import changed
from lockstep.cli import arrays
from lockstep.cli.client import Cluster, Json, core_path, runs_path
from lockstep.cli.errors import ApiServerError, CliError, UsageError
from lockstep.core.model import assignment as slots
from lockstep.core.model import reservation as kept
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView


def fetch(cluster: Cluster, name: str) -> Json:
    """One run of the cluster's namespace. Raises CliError with the remedy when there is none."""
    try:
        return cluster.get(runs_path(cluster.namespace, name))
    except ApiServerError as error:
        if error.status == 404 and error.name:
            raise arrays.why_absent(cluster, name) or not_found(cluster, name) from error
        raise


def not_found(cluster: Cluster, name: str) -> CliError:
    """There is no such run."""
    return CliError(
        f"there is no run {name} in namespace {cluster.namespace}",
        f"lockstep queue -n {cluster.namespace} --finished lists those there are; -n names another namespace",
    )


def view(raw: Json) -> RunView:
    """The run as the core sees it."""
    return parse_run(raw)


def whole(cluster: Cluster, run: RunView) -> RunView:
    """The run with its assignment, also where that is too large for status and lies in a ConfigMap."""
    assignment = run.status.assignment
    if not assignment.config_map:
        return run
    content = cluster.get(core_path(run.namespace, "configmaps", assignment.config_map))
    try:
        restored = slots.restored(assignment, content["data"][slots.ASSIGNMENT_KEY])
    except (KeyError, ValueError) as error:
        raise CliError(str(error), "ask again in a moment: the assignment is changing") from error
    return replace(run, status=changed(run.status, assignment=restored))


def with_reservation(cluster: Cluster, run: RunView) -> RunView:
    """The run with all that is kept for it, also where that lies in a ConfigMap."""
    reservation = run.status.reservation
    if reservation is None or not kept.is_unread(reservation):
        return run
    content = cluster.get(core_path(run.namespace, "configmaps", reservation.config_map))
    try:
        restored = kept.restored(reservation, content["data"][kept.RESERVATION_KEY])
    except (KeyError, ValueError) as error:
        raise CliError(str(error), "ask again in a moment: the reservation is changing") from error
    return replace(run, status=changed(run.status, reservation=restored))


def chosen(cluster: Cluster, run_names: Sequence[str] | None, selector: str) -> Iterator[str]:
    """The runs that names or a selector choose. Raises UsageError unless exactly one of the two is given."""
    if bool(run_names) == bool(selector):
        raise UsageError("name runs, or choose them with -l", "e.g. lockstep cancel hello, or -l team=nlp")
    if run_names:
        yield from run_names
        return
    found = cluster.list(runs_path(cluster.namespace), labelSelector=selector)["items"]
    if not found:
        raise CliError(f"no run in namespace {cluster.namespace} has the labels {selector}")
    yield from (raw["metadata"]["name"] for raw in found)
