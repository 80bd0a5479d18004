"""`lockstep cancel`, `suspend` and `resume` of arrays: whole, or some indices of one (``sweep_[3-5]``)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lockstep.api.base import names
from lockstep.api.base.indices import parse_indices
from lockstep.cli import arrays, output, runs
from lockstep.cli.client import Cluster, Json, retried
from lockstep.cli.errors import CliError, UsageError
from lockstep.core.arrays.members import split_run_name
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.kept_nodes import nodes_kept
from lockstep.core.model.own_objects import parse_run_set
from lockstep.core.model.ranges import format_ranges
from lockstep.present.arrays import shortened

_TARGET = re.compile(r"(?P<name>[^_\s]+)_(?:\[(?P<ranges>[^\]]+)\]|(?P<index>\d+))")


def change(cluster: Cluster, target: str, spec: Mapping[str, object], done: str, form: str) -> bool:
    """Change a set, or cancel some of its indices; False when ``target`` means no set. Raises CliError."""
    found = _TARGET.fullmatch(target)
    if found is not None:
        if "cancel" not in spec:
            raise UsageError(f"{target} names indices, which can only be cancelled", "name single runs, e.g. sweep-3")
        _cancel_indices(cluster, found["name"], found["ranges"] or found["index"], form)
        return True
    raw = arrays.fetch_if_allowed(cluster, target)
    if raw is not None:
        change_set(cluster, raw, spec, done, form)
        return True
    single = split_run_name(target)
    if single is not None and "cancel" in spec and arrays.fetch_if_allowed(cluster, single[0]) is not None:
        _cancel_indices(cluster, single[0], str(single[1]), form)
        return True
    return False


def _cancel_indices(cluster: Cluster, name: str, text: str, form: str) -> None:
    try:
        wanted = parse_indices(text)
    except ValueError as error:
        raise UsageError(f"{name}_[{text}]: {error}") from error

    def write() -> Json:
        raw = arrays.fetch(cluster, name)
        if raw is None:
            raise CliError(f"there is no {names.RUN_SET_KIND} {name} in namespace {cluster.namespace}")
        view = parse_run_set(raw)
        absent = wanted - parse_indices(view.spec.indices) if view.spec is not None else frozenset[int]()
        if absent:
            raise CliError(f"{name} has no index {shortened(absent)}", f"it has {raw['spec']['indices']}")
        before = raw["spec"].get("cancelIndices") or ""
        try:
            after = format_ranges(wanted | (parse_indices(before) if before else frozenset()))
        except ValueError as error:
            raise CliError(f"spec.cancelIndices of {name} cannot be read: {error}", "correct it first") from error
        version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
        body = {"metadata": version, "spec": {"cancelIndices": after}}
        return cluster.merge_patch(arrays.sets_path(cluster.namespace, name), body)

    output.print_done(retried(write), form, f"cancelled {shortened(wanted)}")


def _keeps_nodes(cluster: Cluster, view: RunSetView) -> bool:
    return any(nodes_kept(run.status) for run in arrays.members(cluster, view))


def change_set(cluster: Cluster, raw: Json, spec: Mapping[str, object], done: str, form: str) -> None:
    """Change the spec of one set, unless it has finished and, to be cancelled, keeps no nodes for debugging."""
    view = parse_run_set(raw)
    if not runs.has_finished(view) or (spec.get("cancel") and _keeps_nodes(cluster, view)):
        patched = cluster.merge_patch(arrays.sets_path(cluster.namespace, view.name), {"spec": dict(spec)})
        output.print_done(patched, form, done)
