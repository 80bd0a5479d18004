"""A manifest refused, before the API server does or as it does: every problem by its field, with the fix."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from pydantic import ValidationError

from lockstep.api.base import names
from lockstep.api.base.fields import fields_of
from lockstep.api.base.schema import ApiModel
from lockstep.api.run_set import TrainingRunSetSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.cli.client import Json
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.submission.array_manifests import called, is_set
from lockstep.core.pods.validation import validate

_UNKNOWN_FIELD = re.compile('unknown field "([^"]+)"')
_INDEX = re.compile(r"\[[^]]*\]")


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
    above, run_spec = (
        ("spec", spec) if isinstance(spec, TrainingRunSpec) else ("spec.template.spec", spec.template.spec)
    )
    labels = {names.LABEL_ALLOW_PRIVILEGED: "true"} if namespace_labels is None else namespace_labels
    found = validate(run_spec, labels)
    problems = [(above + problem.field.removeprefix("spec"), problem.message) for problem in found]
    if problems:
        raise _refused(manifest, problems)


def in_fields(error: ApiServerError, manifest: Json, namespace: str) -> CliError:
    """What the API server said of a manifest, by field and with the remedy."""
    name = manifest["metadata"].get("name", "")
    if error.status == 409 and name:
        return CliError(
            f"there is {'an array' if is_set(manifest) else 'a run'} {name} in namespace {namespace} already",
            "choose another --name, or change that one with kubectl apply; "
            f"lockstep {'status' if is_set(manifest) else 'info'} {name} shows it",
        )
    if error.status == 404 and error.name == namespace:
        tasks = "; -n is the namespace here, as in kubectl, and -N the number of nodes" if namespace.isdigit() else ""
        return CliError(f"there is no namespace {namespace}", f"name another with -n{tasks}")
    unknown = _UNKNOWN_FIELD.findall(str(error))
    if unknown:
        model = _model_of(manifest)
        return _refused(manifest, [(field, f"is no field; {_nearest(field, model)}") for field in unknown])
    if error.causes:
        return _refused(manifest, [(field, _without_value(message)) for field, message in error.causes])
    return error


def _refused(manifest: Json, problems: Sequence[tuple[str, str]]) -> CliError:
    lines = (f"  {field}: {words}" if field else f"  {words}" for field, words in problems)
    return CliError("\n".join([f"{called(manifest)} is refused:", *lines]))


def _model_of(manifest: Json) -> type[TrainingRunSpec] | type[TrainingRunSetSpec]:
    return TrainingRunSetSpec if is_set(manifest) else TrainingRunSpec


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
