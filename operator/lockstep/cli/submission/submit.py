"""`lockstep submit`: a run is created, or what would be created is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import typer

from lockstep.api.base import names
from lockstep.cli import arrays, output, runs
from lockstep.cli.actions import wait
from lockstep.cli.client import Cluster, Json, core_path, runs_path
from lockstep.cli.errors import ApiServerError, CliError, NoApiServer, Unreachable
from lockstep.cli.submission import code, queue_defaults
from lockstep.cli.submission.array_manifests import is_run, is_set
from lockstep.cli.submission.look_up import missing_problems
from lockstep.cli.submission.packing import Packed
from lockstep.cli.submission.refusals import (
    Told,
    in_fields,
    no_namespace,
    not_in,
    problems_of,
    refuse_bad,
    refused,
    server_problems,
)
from lockstep.cli.submission.taken_names import refuse_taken
from lockstep.cli.user import my_name
from lockstep.core.model.limits import can_be_asked
from lockstep.core.model.own_objects import parse_run_set
from lockstep.core.model.snapshot import RunView
from lockstep.present.runs import state_of
from lockstep.present.start_estimate import limit_of_spec


def each_in_its_namespace(cluster: Cluster, manifests: Sequence[Json]) -> Iterator[Json]:
    """One after the other; ``cluster`` has the namespace that each names meanwhile, or else its own."""
    own = cluster.namespace
    for manifest in manifests:
        cluster.namespace = manifest["metadata"].get("namespace") or own
        yield manifest
    cluster.namespace = own


def name_user(cluster: Cluster, manifests: Sequence[Json]) -> None:
    """Say in each who submits it, as the API server knows them; where it does not tell, nothing is said."""
    user = my_name(cluster)
    for manifest in manifests if user else ():
        annotations = manifest["metadata"].get("annotations") or {}
        manifest["metadata"]["annotations"] = {names.ANNOTATION_USER: user} | annotations


def refuse_any_wrong(
    cluster: Cluster,
    manifests: Sequence[Json],
    packed: Packed | None = None,
    *,
    look_up: bool = True,
    is_question: bool = False,
) -> None:
    """Before any is created, raise CliError with all that is wrong with each: in itself, by its name, and to the API
    server, unless it is but a question, which has a name of its own."""
    refusals, seen = list[CliError](), set[tuple[str, str]]()
    for manifest in each_in_its_namespace(cluster, manifests):
        name = manifest["metadata"].get("name")
        try:
            if name and (cluster.namespace, str(name)) in seen:
                raise CliError(f"two in the manifest are called {name}", "give each a name of its own")
            seen.add((cluster.namespace, str(name)))
            refuse_taken(cluster, manifest)
            refuse_wrong(cluster, manifest, look_up=look_up, made=code.made_for(manifest, packed))
            if len(manifests) > 1 and not is_question:
                create(cluster, manifest, dry_run=True)
        except (Unreachable, NoApiServer):
            raise
        except CliError as error:
            refusals.append(error)
    _raise_all(refusals)


def _raise_all(refusals: Sequence[CliError]) -> None:
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        told = "\n".join(f"{each}{f'; {each.remedy}' if each.remedy else ''}" for each in refusals)
        raise CliError(told, exit_code=refusals[0].exit_code)


def refuse_wrong(cluster: Cluster, manifest: Json, *, look_up: bool = True, made: Collection[str] = ()) -> None:
    """Raise CliError with all that is wrong with a manifest: in itself, in what it names (``look_up``) and is not
    ``made`` with it, and to the API server. Where nothing is, the server is not asked: it judges what it creates."""
    labels = namespace_labels(cluster, cluster.namespace)
    problems, rest = problems_of(manifest, labels)
    if look_up:
        problems += not_in(missing_problems(cluster, rest, made), problems)
    if problems:
        raise refused(manifest, [*problems, *not_in(_said_of(cluster, rest), problems)])


def _said_of(cluster: Cluster, rest: Json) -> list[Told]:
    """What the API server has against what was good so far."""
    place = arrays.sets_path if is_set(rest) else runs_path
    try:
        cluster.create(place(cluster.namespace), rest, dryRun="All")
    except ApiServerError as error:
        return server_problems(error, rest) if error.status in (400, 422) else []
    return []


def create(cluster: Cluster, manifest: Json, *, dry_run: bool, sent: code.Sent | None = None) -> Json:
    """Create the run; its namespace is the manifest's, which must be the cluster's where both are said. The code that
    was ``sent`` is needed from then on, unless it was refused, or the run only asks."""
    namespace = manifest["metadata"].get("namespace") or cluster.namespace
    query, sent = {"dryRun": "All"} if dry_run else {}, sent or code.Sent()
    mounts = not dry_run and not code.is_question(manifest)
    try:
        place = arrays.sets_path(namespace) if is_set(manifest) else runs_path(namespace)
        sent.needed = mounts
        made = cluster.create(place, manifest, **query)
    except ApiServerError as error:
        sent.needed = mounts and error.status >= 500
        raise in_fields(error, manifest, namespace) from error
    if not dry_run:
        code.adopt(cluster, made, sent)
    return made


def namespace_labels(cluster: Cluster, namespace: str) -> Mapping[str, str] | None:
    """Labels of the namespace; None when they cannot be read. Raises CliError where there is none of that name."""
    try:
        labels: Mapping[str, str] = cluster.get(core_path(None, "namespaces", namespace))["metadata"].get("labels", {})
    except ApiServerError as error:
        if error.status == 404 and error.name == namespace:
            raise no_namespace(namespace) from error
        return None
    return labels


def show_unsent(manifests: Sequence[Json], form: str) -> None:
    """Print what would be created. Raises CliError with what is wrong with it, as far as no server is asked."""
    refusals = list[CliError]()
    for manifest in manifests:
        try:
            if is_run(manifest) or is_set(manifest):  # else what goes along
                refuse_bad(manifest, None)
        except CliError as error:
            refusals.append(error)
    _raise_all(refusals)
    for index, manifest in enumerate(manifests):
        if index and form != "json":
            typer.echo("---")
        output.print_object(manifest, "yaml" if form == "name" else form)


def limit_told(cluster: Cluster, raw: Json) -> str:
    """When a run that can be asked to save will be, before its own time limit or its queue's, and so each run of an
    array: not everybody expects it. Empty: it is as anybody would think."""
    if is_set(raw):
        array, whose = parse_run_set(raw).spec, "The time of each run"
        spec = array.template.spec if array is not None else None
    else:
        spec, whose = runs.view(raw).spec, "Its time"
    if spec is None or not can_be_asked(spec):
        return ""
    words = limit_of_spec(spec, queue_defaults.limits_of(cluster, spec.queue))
    return f"{whose}: {words}." if words else ""


def tell_limit(cluster: Cluster, raw: Json) -> None:
    """Say so beside the answer."""
    if words := limit_told(cluster, raw):
        output.note(words)


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
