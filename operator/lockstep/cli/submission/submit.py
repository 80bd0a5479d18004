"""`lockstep submit`: a run is created, or what would be created is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import typer

from lockstep.api.base import names
from lockstep.cli import arrays, output
from lockstep.cli.actions import wait
from lockstep.cli.client import Cluster, Json, core_path, runs_path
from lockstep.cli.errors import ApiServerError
from lockstep.cli.submission import code
from lockstep.cli.submission.array_manifests import is_run, is_set
from lockstep.cli.submission.refusals import in_fields, refuse_bad, refuse_malformed
from lockstep.cli.user import my_name
from lockstep.core.model.snapshot import RunView
from lockstep.present.runs import state_of


def name_user(cluster: Cluster, manifests: Sequence[Json]) -> None:
    """Say in each who submits it, as the API server knows them; where it does not tell, nothing is said."""
    user = my_name(cluster)
    for manifest in manifests if user else ():
        annotations = manifest["metadata"].get("annotations") or {}
        manifest["metadata"]["annotations"] = {names.ANNOTATION_USER: user} | annotations


def create(cluster: Cluster, manifest: Json, *, dry_run: bool) -> Json:
    """Create the run; its namespace is the manifest's, which must be the cluster's where both are said."""
    namespace = manifest["metadata"].get("namespace") or cluster.namespace
    query = {"dryRun": "All"} if dry_run else {}
    try:
        place = arrays.sets_path(namespace) if is_set(manifest) else runs_path(namespace)
        made = cluster.create(place, manifest, **query)
    except ApiServerError as error:
        raise in_fields(error, manifest, namespace) from error
    if not dry_run:
        code.adopt(cluster, made)
    return made


def namespace_labels(cluster: Cluster, namespace: str) -> Mapping[str, str] | None:
    """Labels of the namespace; None when they cannot be read."""
    try:
        labels: Mapping[str, str] = cluster.get(core_path(None, "namespaces", namespace))["metadata"].get("labels", {})
    except ApiServerError:
        return None
    return labels


def show_unsent(manifests: Sequence[Json], form: str) -> None:
    """Print what would be created. Raises CliError with what is wrong with it, as far as no server is asked."""
    for index, manifest in enumerate(manifests):
        if is_run(manifest) or is_set(manifest):  # else what goes along
            refuse_malformed(manifest)
            refuse_bad(manifest, None)
        if index and form != "json":
            typer.echo("---")
        output.print_object(manifest, "yaml" if form == "name" else form)


def await_end(cluster: Cluster, raw: Json) -> None:
    """Follow the run to its end, telling each new state. Raises CliError when it does not succeed."""
    last = ""

    def tell(run: RunView) -> None:
        nonlocal last
        state, reason = state_of(run)
        words = f"{run.name}: {state}{f' ({reason})' if reason else ''}"
        if words != last:
            output.note(words)
        last = words

    wait.until(cluster, raw, "succeeded", None, tell)
