"""Arrays as the API server has them."""

from __future__ import annotations

from lockstep.api.base import names
from lockstep.api.base.indices import parse_indices
from lockstep.cli import output
from lockstep.cli.client import Cluster, Json, resource_path, runs_path
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.core.arrays.members import split_run_name
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import is_true
from lockstep.core.model.own_objects import parse_run, parse_run_set
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.present.arrays import OUTCOMES, indices_of


def sets_path(namespace: str | None, name: str = "") -> str:
    """The path of the sets of a namespace (None: of all), or of one set."""
    return resource_path(f"/apis/{names.API_VERSION}", namespace, names.RUN_SETS, name)


def is_run(cluster: Cluster, name: str) -> bool:
    """Whether a run is called so."""
    try:
        cluster.get(runs_path(cluster.namespace, name))
    except ApiServerError as error:
        if error.status != 404:
            raise
        return False
    return True


def fetch(cluster: Cluster, name: str, absent: tuple[int, ...] = (404,)) -> Json | None:
    """One set of the cluster's namespace; None on the HTTP statuses ``absent``: there is none, or no such kind."""
    try:
        return cluster.get(sets_path(cluster.namespace, name))
    except ApiServerError as error:
        if error.status in absent:
            return None
        raise


def fetch_if_allowed(cluster: Cluster, name: str) -> Json | None:
    """The same for a name that need not be an array's: rights on arrays that lack are then nobody's concern."""
    return fetch(cluster, name, (403, 404))


def members(cluster: Cluster, view: RunSetView) -> list[RunView]:
    """The runs of a set."""
    found = cluster.list(runs_path(view.namespace), labelSelector=f"{names.LABEL_SET}={view.name}")["items"]
    return [run for run in map(parse_run, found) if run.set_uid == view.uid]


def selected(cluster: Cluster, selector: str) -> list[Json]:
    """Sets of the cluster's namespace that have the labels; says so where they may not be read."""
    try:
        return cluster.list(sets_path(cluster.namespace), labelSelector=selector)["items"]  # type: ignore[no-any-return]
    except ApiServerError as error:
        if error.status == 403:
            output.note(f"arrays are left out: {error}")
        elif error.status != 404:
            raise
        return []


def why_absent(cluster: Cluster, name: str) -> CliError | None:
    """Why there is no run of this name, where a set has to do with it."""
    if "_" in name:
        return CliError(
            f"{name} is no name of a run",
            "the run of index 7 of sweep is sweep-7; only lockstep cancel takes sweep_[3-5]",
        )
    single = split_run_name(name)
    for set_name in (name, single[0] if single is not None else ""):
        raw = fetch_if_allowed(cluster, set_name) if set_name else None
        view = parse_run_set(raw) if raw is not None else None
        if view is None or view.spec is None:
            continue
        if set_name == name:
            return CliError(
                f"{name} is a {names.RUN_SET_KIND}",
                f"name one of its runs; lockstep status {name} shows them; cancel, suspend and resume take it whole",
            )
        index = single[1] if single is not None else 0
        if index in parse_indices(view.spec.indices):
            word = next((word for word in OUTCOMES if index in indices_of(view)[word]), "pending")
            return CliError(
                f"index {index} of {set_name} has no run, it is {word}", f"lockstep status {set_name} shows them all"
            )
    return None


def listed(cluster: Cluster, *, everywhere: bool, selector: str, queue: str) -> list[Json]:
    """Sets that have not finished; none where the kind is not there or may not be read."""
    query = {"labelSelector": selector} if selector else {}
    try:
        found = cluster.list(sets_path(None if everywhere else cluster.namespace), **query)["items"]
    except ApiServerError as error:
        if error.status in (403, 404):
            return []
        raise
    views = [(parse_run_set(raw), raw) for raw in found]
    return [
        raw
        for view, raw in views
        if not is_true(view.status, ConditionType.FINISHED) and queue in ("", _queue_of(view))
    ]


def _queue_of(view: RunSetView) -> str:
    return view.spec.template.spec.queue if view.spec is not None else ""
