"""`lockstep cancel`, `suspend` and `resume`: one field of the spec each; the operator does the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from lockstep.cli import arrays, output, runs
from lockstep.cli.client import Cluster, runs_path
from lockstep.cli.errors import CliError, Unreachable
from lockstep.core.conditions import is_true


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the spec, and the words that go with it."""

    spec: Mapping[str, Any]
    done: str
    already: str


CANCEL = Change({"cancel": True}, "cancelled", "is cancelled already")
SUSPEND = Change({"suspend": True}, "suspended", "is suspended already")
RESUME = Change({"suspend": False}, "resumed", "is not suspended")


def apply(cluster: Cluster, run_names: Sequence[str] | None, selector: str, change: Change, form: str) -> None:
    """Make the change on every chosen run."""
    each(cluster, run_names, selector, lambda name: _apply_to(cluster, name, change, form))


def each(cluster: Cluster, run_names: Sequence[str] | None, selector: str, act: Callable[[str], None]) -> None:
    """``act`` on every chosen run; go on after a failure and fail at the end."""
    failures: list[CliError] = []
    for name in list(runs.chosen(cluster, run_names, selector)):
        try:
            act(name)
        except CliError as error:
            if isinstance(error, Unreachable):
                raise
            failures.append(error)
    for failure in failures[:-1]:
        output.note(f"error: {failure}")
    if failures:
        raise failures[-1]


def _apply_to(cluster: Cluster, name: str, change: Change, form: str) -> None:
    try:
        raw = runs.fetch(cluster, name)
    except CliError:
        if arrays.change(cluster, name, change.spec, change.done, form):
            return
        raise
    run = runs.view(raw)
    if is_true(run.status, "Finished"):
        output.note(f"{name} has finished already ({run.status.reason}); nothing to change.")
    elif all((raw["spec"].get(field) or False) == value for field, value in change.spec.items()):
        output.note(f"{name} {change.already}.")
    else:
        raw = cluster.merge_patch(runs_path(cluster.namespace, name), {"spec": dict(change.spec)})
        if form == "name":
            typer.echo(f"{output.object_name(raw)} {change.done}")
            return
    if form != "name":
        output.print_object(raw, form)
