"""`lockstep cancel`, `suspend` and `resume`: one field of the spec each; the operator does the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lockstep.cli import arrays, output, runs
from lockstep.cli.actions import change_array
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import ApiServerError, CliError, Unreachable
from lockstep.cli.options import Chosen
from lockstep.core.model.conditions import is_true
from lockstep.core.model.kept_nodes import nodes_kept
from lockstep.core.model.reasons import ConditionType


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the spec, and the words that go with it."""

    spec: Mapping[str, Any]
    done: str
    already: str


CANCEL = Change({"cancel": True}, "cancelled", "is cancelled already")
SUSPEND = Change({"suspend": True}, "suspended", "is suspended already")
RESUME = Change({"suspend": False}, "resumed", "is not suspended")


def apply(cluster: Cluster, chosen: Chosen, change: Change) -> None:
    """Make the change on every chosen run, and with a selector on every chosen array."""
    if chosen.selector:
        _apply_to_selected(cluster, chosen.selector, change, chosen.output)
    else:
        each(cluster, chosen, lambda name: _apply_to(cluster, name, change, chosen.output))


def each(cluster: Cluster, chosen: Chosen, act: Callable[[str], None]) -> None:
    """``act`` on every chosen run; go on after a failure and fail at the end."""
    _all(partial(act, name) for name in list(runs.named(cluster, chosen)))


def _all(acts: Iterable[Callable[[], None]]) -> None:
    failures: list[CliError] = []
    for act in acts:
        try:
            act()
        except CliError as error:
            if isinstance(error, Unreachable):
                raise
            failures.append(error)
    output.raise_failures(failures)


def _apply_to_selected(cluster: Cluster, selector: str, change: Change, form: str) -> None:
    """Arrays first: what one says goes for its runs too, also for those that are yet to be made."""
    sets = arrays.selected(cluster, selector)
    uids = {raw["metadata"]["uid"] for raw in sets}
    found = cluster.list(runs_path(cluster.namespace), labelSelector=selector)["items"]
    single = [raw for raw in found if runs.view(raw).set_uid not in uids or _is_held_by_itself(raw, change)]
    if not sets and not single:
        raise CliError(f"no run and no array in namespace {cluster.namespace} has the labels {selector}")
    acts = [partial(change_array.change_set, cluster, raw, change.spec, change.done, form) for raw in sets]
    acts += [partial(_apply_to, cluster, raw["metadata"]["name"], change, form) for raw in single]
    _all(acts)


def _is_held_by_itself(raw: Json, change: Change) -> bool:
    """A run of an array that its user holds: resuming the array leaves it held."""
    return change is RESUME and bool(raw["spec"].get("suspend"))


def _apply_to(cluster: Cluster, name: str, change: Change, form: str) -> None:
    try:
        raw = runs.fetch(cluster, name)
    except CliError:
        if change_array.change(cluster, name, change.spec, change.done, form):
            return
        raise
    if is_true(runs.view(raw).status, ConditionType.FINISHED):
        array = arrays.fetch_if_allowed(cluster, name)  # of that name, which the ended run is not in the way of
        if array is not None:
            change_array.change_set(cluster, array, change.spec, change.done, form)
            return
    if change is CANCEL and nodes_kept(runs.view(raw).status) and not raw["spec"].get("cancel"):
        raw = cluster.merge_patch(runs_path(cluster.namespace, name), {"spec": dict(change.spec)})
        output.print_done(raw, form, "debug hold ended")
        return
    if not runs.has_finished(runs.view(raw)):
        held = runs.held_by_set(cluster, raw, "resume") if change is RESUME else None
        if any((raw["spec"].get(field) or False) != value for field, value in change.spec.items()):
            try:
                raw = cluster.merge_patch(runs_path(cluster.namespace, name), {"spec": dict(change.spec)})
            except ApiServerError:
                if runs.has_finished(runs.view(cluster.get(runs_path(cluster.namespace, name)))):
                    return  # meanwhile
                raise
            output.print_done(raw, form, change.done)
            if held is not None:
                output.note(f"{held}; {held.remedy}")
            return
        if held is not None:
            raise held
        output.note(f"{name} {change.already}.")
    if form != "name":
        output.print_object(raw, form)
