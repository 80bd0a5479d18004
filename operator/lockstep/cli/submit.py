"""`lockstep submit`: a run from a manifest or from flags, refused early and in the words of the fix."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import typer
import yaml
from pydantic import ValidationError

from lockstep.api import names
from lockstep.api.fields import fields_of
from lockstep.api.run_set import TrainingRunSetSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.schema import ApiModel
from lockstep.cli import arrays, output, runs, wait
from lockstep.cli.client import Cluster, Json, core_path, runs_path
from lockstep.cli.errors import ApiError, CliError, UsageError
from lockstep.core.snapshot import RunView
from lockstep.core.validation import validate

DryRun = Literal["none", "client", "server"]


class _PlainLoader(yaml.SafeLoader):
    """Times stay as they are written, as they do in kubectl."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

_UNKNOWN_FIELD = re.compile('unknown field "([^"]+)"')
_INDEX = re.compile(r"\[[^]]*\]")


@dataclass(frozen=True, slots=True)
class Flags:
    """A run told on the command line, as with sbatch. None and empty: left out of the spec."""

    nodes: int | None = None
    image: str | None = None
    gpus_per_node: int | None = None
    queue: str | None = None
    launcher: str | None = None
    claim: str | None = None
    shm_size: str | None = None
    env: Sequence[str] = ()
    only_nodes: Sequence[str] = ()
    exclude_nodes: Sequence[str] = ()
    command: Sequence[str] = ()

    def manifest(self, name: str | None) -> Json:
        """The TrainingRun. Raises UsageError on a variable without a value."""
        spec: Json = {"nodes": self.nodes or 1, "image": self.image, "command": list(self.command)}
        if self.gpus_per_node is not None:
            spec["gpusPerNode"] = self.gpus_per_node
        if self.queue:
            spec["queue"] = self.queue
        if self.launcher:
            spec["launcher"] = {"type": self.launcher}
        if self.claim:
            spec["checkpoint"] = {"shared": {"claimName": self.claim}}
        if self.shm_size:
            spec["shmSize"] = self.shm_size
        if self.env:
            spec["env"] = [_variable(assignment) for assignment in self.env]
        placement = {"nodes": list(self.only_nodes), "excludeNodes": list(self.exclude_nodes)}
        if any(placement.values()):
            spec["placement"] = {field: named for field, named in placement.items() if named}
        metadata = {"name": name} if name else {"generateName": f"{_stem(self.command)}-"}
        return {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": metadata, "spec": spec}


def manifests_of(arguments: Sequence[str], flags: Flags, name: str | None) -> list[Json]:
    """What to create. With an image the arguments are the command, otherwise the one manifest."""
    if flags.image:
        if not arguments:
            raise UsageError("no command is given", "write it after --, e.g. -- torchrun train.py")
        return [Flags(**{**_fields(flags), "command": arguments}).manifest(name)]
    if len(arguments) != 1:
        raise UsageError(
            "submit takes one manifest, or flags and a command",
            "lockstep submit run.yaml, or lockstep submit --nodes 2 --image IMAGE -- torchrun train.py",
        )
    if any(value for value in _fields(flags).values()):
        raise UsageError(
            "with a manifest only --name, and when the run starts, may be said",
            "edit the manifest, or give --image too",
        )
    manifests = read_manifests(arguments[0])
    if name:
        if len(manifests) > 1:
            raise UsageError("--name needs a manifest with one run")
        manifests[0]["metadata"] = {k: v for k, v in manifests[0]["metadata"].items() if k != "generateName"}
        manifests[0]["metadata"]["name"] = name
    return manifests


def read_manifests(path: str) -> list[Json]:
    """The runs in a file (-: standard input). Raises CliError on anything that is no run."""
    found = read_documents(path)
    for document in found:
        if not _is_run(document) and not arrays.is_set(document):
            kind = document.get("kind") if isinstance(document, dict) else None
            raise CliError(
                f"{path} holds {f'a {kind}, ' if kind else 'something '}not a {names.RUN_KIND} of {names.API_VERSION}",
                "lockstep takes runs only; create the rest with kubectl apply -f",
            )
    return found


def read_one_run(path: str) -> Json:
    """The only run in a file, whatever else is in it. Raises CliError when there is none, or more than one."""
    found: list[Json] = [document for document in read_documents(path) if _is_run(document)]
    if len(found) != 1:
        raise CliError(f"{path} holds {output.plural(len(found), 'run')}", "write one into a file of its own")
    return found[0]


def read_documents(path: str) -> list[Any]:
    """What a YAML file holds; ``metadata`` is there in every run. Raises CliError when it cannot be read."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        found = [document for document in yaml.load_all(text, _PlainLoader) if document]
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CliError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not found:
        raise CliError(f"{path} holds no run")
    for document in found:
        if not (_is_run(document) or arrays.is_set(document)):
            continue
        document["metadata"] = document.get("metadata") or {}
    return found


def refuse_malformed(manifest: Json) -> None:
    """Raise CliError with every field that does not parse. Where a server is asked, its words are the better ones."""
    model = _model_of(manifest)
    try:
        model.model_validate(manifest.get("spec") or {})
    except ValidationError as error:
        raise _refused(manifest, list(_problems_of(error, model))) from error


def refuse_bad(manifest: Json, namespace_labels: Mapping[str, str] | None) -> None:
    """Raise CliError with every problem of a well-formed spec that the operator would find. Labels None: not
    known, nothing is refused for their sake."""
    try:
        spec = _model_of(manifest).model_validate(manifest.get("spec") or {})
    except ValidationError:
        return
    above, run_spec = ("spec", spec) if isinstance(spec, TrainingRunSpec) else ("spec.template.spec", _template(spec))
    labels = {names.LABEL_ALLOW_PRIVILEGED: "true"} if namespace_labels is None else namespace_labels
    found = validate(run_spec, labels)
    problems = [(above + problem.field.removeprefix("spec"), problem.message) for problem in found]
    if problems:
        raise _refused(manifest, problems)


def name_user(cluster: Cluster, manifests: Sequence[Json]) -> None:
    """Say in each who submits it, as the API server knows them; where it does not tell, nothing is said."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = cluster.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    except ApiError:
        return
    user = answer.get("status", {}).get("userInfo", {}).get("username", "")
    for manifest in manifests if user else ():
        annotations = manifest["metadata"].get("annotations") or {}
        manifest["metadata"]["annotations"] = {names.ANNOTATION_USER: user} | annotations


def create(cluster: Cluster, manifest: Json, *, dry_run: bool) -> Json:
    """Create the run; its namespace is the manifest's, which must be the cluster's where both are said."""
    namespace = manifest["metadata"].get("namespace") or cluster.namespace
    query = {"dryRun": "All"} if dry_run else {}
    try:
        place = arrays.sets_path(namespace) if arrays.is_set(manifest) else runs_path(namespace)
        return cluster.create(place, manifest, **query)
    except ApiError as error:
        raise _in_words(error, manifest, namespace) from error


def namespace_labels(cluster: Cluster, namespace: str) -> Mapping[str, str] | None:
    """Labels of the namespace; None when they cannot be read."""
    try:
        labels: Mapping[str, str] = cluster.get(core_path(None, "namespaces", namespace))["metadata"].get("labels", {})
    except ApiError:
        return None
    return labels


def show_created(raw: Json, form: str, *, dry_run: bool) -> None:
    """Say what was created."""
    if form == "name":
        typer.echo(f"{output.object_name(raw)} created{' (server dry run)' if dry_run else ''}")
    else:
        output.print_object(raw, form)


def await_end(cluster: Cluster, raw: Json) -> None:
    """Follow the run to its end, telling each new state. Raises CliError when it does not succeed."""
    last = ""

    def tell(run: RunView) -> None:
        nonlocal last
        state, reason = runs.state_of(run)
        words = f"{run.name}: {state}{f' ({reason})' if reason else ''}"
        if words != last:
            output.note(words)
        last = words

    wait.until(cluster, raw, "succeeded", None, tell)


def _is_run(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    return document.get("kind") == names.RUN_KIND and document.get("apiVersion") == names.API_VERSION


def _in_words(error: ApiError, manifest: Json, namespace: str) -> CliError:
    name = manifest["metadata"].get("name", "")
    if error.status == 409 and name:
        return CliError(
            f"there is {'an array' if arrays.is_set(manifest) else 'a run'} {name} in namespace {namespace} already",
            "choose another --name, or change that one with kubectl apply; "
            f"lockstep {'status' if arrays.is_set(manifest) else 'info'} {name} shows it",
        )
    if error.status == 404 and error.name == namespace:
        return CliError(f"there is no namespace {namespace}", "name another with -n")
    unknown = _UNKNOWN_FIELD.findall(str(error))
    if unknown:
        model = _model_of(manifest)
        return _refused(manifest, [(field, f"is no field; {_nearest(field, model)}") for field in unknown])
    if error.causes:
        return _refused(manifest, [(field, _without_value(message)) for field, message in error.causes])
    return error


def _refused(manifest: Json, problems: Sequence[tuple[str, str]]) -> CliError:
    metadata = manifest["metadata"]
    name = metadata.get("name") or metadata.get("generateName", "").rstrip("-") or "the run"
    return CliError("\n".join([f"{name} is refused:", *(f"  {field}: {words}" for field, words in problems)]))


def _model_of(manifest: Json) -> type[TrainingRunSpec] | type[TrainingRunSetSpec]:
    return TrainingRunSetSpec if arrays.is_set(manifest) else TrainingRunSpec


def _template(spec: TrainingRunSetSpec) -> TrainingRunSpec:
    return spec.template.spec


def _problems_of(error: ValidationError, root: type[ApiModel]) -> Iterator[tuple[str, str]]:
    for problem in error.errors():
        field = "spec"
        for part in problem["loc"]:
            field += f"[{part}]" if isinstance(part, int) else f".{part}"
        if problem["type"] == "extra_forbidden":
            yield field, f"is no field; {_nearest(field, root)}"
        else:
            yield field, problem["msg"].removeprefix("Value error, ")


def _nearest(field: str, root: type[ApiModel]) -> str:
    """The field that was probably meant."""
    *parents, wrong = _INDEX.sub("", field).split(".")
    model: type[ApiModel] | None = root if parents else None
    for parent in parents[1:]:
        found = next((f.type for f in fields_of(model) if f.name == parent), None) if model is not None else None
        inner = found.item or found if found is not None else None
        model = inner.model if inner is not None else None
    near = get_close_matches(wrong, [f.name for f in fields_of(model)], 1) if model is not None else []
    return f"write {near[0]}" if near else "docs/api.md and kubectl explain trainingrun.spec list those there are"


def _without_value(message: str) -> str:
    """API servers put the whole offending object in front of some messages."""
    match = re.fullmatch(r'Invalid value: "(?:object|array)": (.*)', message, re.DOTALL)
    return match[1] if match else message


def _variable(assignment: str) -> Json:
    name, equals, value = assignment.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {assignment} has no value", "write --env NAME=VALUE")
    return {"name": name, "value": value}


def _stem(command: Sequence[str]) -> str:
    """A name for people: that of the script, or of the program."""
    script = next((word for word in command if word.endswith((".py", ".sh"))), command[0])
    words = re.sub("[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-")
    return words[: names.MAX_RUN_NAME - 6].strip("-") or "run"


def _fields(flags: Flags) -> dict[str, Any]:
    return {name: getattr(flags, name) for name in Flags.__dataclass_fields__}
