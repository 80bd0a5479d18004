"""Whether what is to be created would share its name with something of the other kind.

A run and an array may: the API server minds names within a kind alone. Which of the two is meant by a command, and by
whoever reads a list, nobody could know.
"""

from __future__ import annotations

from lockstep.api.base.indices import parse_indices
from lockstep.cli import arrays
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.submission.array_manifests import is_set
from lockstep.core.arrays.members import split_run_name
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import is_true
from lockstep.core.model.own_objects import parse_run, parse_run_set
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView

_ANOTHER = "choose another --name"


def refuse_taken(cluster: Cluster, manifest: Json) -> None:
    """Raise CliError where a run that has not ended is called as an array is to be, or the other way round."""
    name = manifest["metadata"].get("name")
    if not isinstance(name, str) or not name:
        return
    here = f"in namespace {cluster.namespace}"
    if is_set(manifest):
        if _lives(_run(cluster, name)):
            raise CliError(f"there is a run {name} {here}, and an array needs a name of its own", _ANOTHER)
        return
    if _lives(_array(cluster, name)):
        raise CliError(f"there is an array {name} {here}, and a run needs a name of its own", _ANOTHER)
    found = split_run_name(name)
    array = _array(cluster, found[0]) if found is not None else None
    if found is None or array is None or array.spec is None or not _lives(array):
        return
    if found[1] in parse_indices(array.spec.indices) and _run(cluster, name) is None:
        raise CliError(f"{name} is the name of a run of the array {found[0]} {here}", _ANOTHER)


def _lives(found: RunView | RunSetView | None) -> bool:
    return found is not None and not is_true(found.status, ConditionType.FINISHED)


def _array(cluster: Cluster, name: str) -> RunSetView | None:
    raw = arrays.fetch_if_allowed(cluster, name)
    return parse_run_set(raw) if raw is not None else None


def _run(cluster: Cluster, name: str) -> RunView | None:
    """None where there is none, or none that may be seen."""
    try:
        return parse_run(cluster.get(runs_path(cluster.namespace, name)))
    except ApiServerError as error:
        if error.status in (403, 404):
            return None
        raise
