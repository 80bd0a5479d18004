"""A manifest refused, before the API server does or as it does: every problem by its field, with the fix."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from lockstep.api.base import names
from lockstep.api.base.fields import fields_of
from lockstep.api.base.schema import ApiModel, Rule
from lockstep.api.run_set import TrainingRunSetSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.cli.client import Json
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.submission.array_manifests import called, is_set
from lockstep.cli.submission.field_words import words_of_model, words_of_server
from lockstep.cli.submission.near_fields import model_at, no_such_field, without_indices
from lockstep.cli.submission.object_words import object_problems
from lockstep.core.pods.validation import validate

Told = tuple[str, str]
"""A field, and what is wrong with it."""
_UNKNOWN_FIELD = re.compile('unknown field "([^"]+)"')
_PART = re.compile(r"[^.[\]]+")
_STAND_INS: Mapping[str, Any] = {"nodes": 1, "image": "x", "command": ["x"], "indices": "0"}
"""What the rest is judged with where one of these is wrong."""
_PASSES = 4


def refuse_bad(manifest: Json, namespace_labels: Mapping[str, str] | None) -> None:
    """Raise CliError with every problem that can be found without a server. Labels None: not known, nothing is refused
    for their sake."""
    if problems := problems_of(manifest, namespace_labels)[0]:
        raise refused(manifest, problems)


def problems_of(manifest: Json, namespace_labels: Mapping[str, str] | None) -> tuple[list[Told], Json]:
    """All that is wrong as far as no server is asked, and the manifest without it: what remains can be judged too."""
    rest = copy.deepcopy(manifest)
    found = list(object_problems(rest, _model_of(rest)))
    found += _mended(rest)
    try:
        spec = _model_of(rest).model_validate(rest["spec"])
    except ValidationError:
        return found, rest
    above, run_spec = (
        ("spec", spec) if isinstance(spec, TrainingRunSpec) else ("spec.template.spec", spec.template.spec)
    )
    labels = {names.LABEL_ALLOW_PRIVILEGED: "true"} if namespace_labels is None else namespace_labels
    rules = [(above + each.field.removeprefix("spec"), each.message) for each in validate(run_spec, labels)]
    return [*found, *not_in(rules, found)], rest


def not_in(more: Sequence[Told], said: Sequence[Told]) -> list[Told]:
    """Those of ``more`` that are about other fields."""
    fields = [without_indices(field) for field, _ in said]
    return [each for each in more if not any(_is_within(without_indices(each[0]), field) for field in fields)]


def in_fields(error: ApiServerError, manifest: Json, namespace: str) -> CliError:
    """What the API server said of a manifest, by field and with the remedy."""
    name = manifest["metadata"].get("name", "")
    if error.status == 409 and name:
        if is_set(manifest):
            remedy = f"choose another --name, or change that one with kubectl apply; lockstep status {name} shows it"
        else:
            remedy = (
                f"choose another --name; if it has ended, lockstep retry {name} -f FILE goes on from its newest "
                f"checkpoint under its name; if not, kubectl apply changes it; lockstep info {name} shows it"
            )
        return CliError(
            f"there is {'an array' if is_set(manifest) else 'a run'} {name} in namespace {namespace} already", remedy
        )
    if error.status == 404 and error.name == namespace:
        return no_namespace(namespace)
    problems = server_problems(error, manifest)
    return refused(manifest, problems) if problems else error


def server_problems(error: ApiServerError, manifest: Json) -> list[Told]:
    """The same as problems; none where it speaks of no field."""
    unknown = _UNKNOWN_FIELD.findall(str(error))
    if unknown:
        return [(field, no_such_field(field, _model_of(manifest))) for field in unknown]
    return [(field, words_of_server(field, words, _value_at(manifest, field))) for field, words in error.causes]


def no_namespace(namespace: str) -> CliError:
    """It is not there, as far as this user can see."""
    meant = "; -n is the namespace here, as in kubectl, and -N the number of nodes" if namespace.isdigit() else ""
    return CliError(f"there is no namespace {namespace}", f"name another with -n{meant}")


def refused(manifest: Json, problems: Sequence[Told]) -> CliError:
    """All of it in one answer."""
    lines = (f"  {field}: {words}" if field else f"  {words}" for field, words in problems)
    return CliError("\n".join([f"{called(manifest)} is refused:", *lines]))


def _model_of(manifest: Json) -> type[TrainingRunSpec] | type[TrainingRunSetSpec]:
    return TrainingRunSetSpec if is_set(manifest) else TrainingRunSpec


def _mended(manifest: Json) -> list[Told]:
    """Take out of ``spec`` what does not parse, with what stands for it where it must be there; what that was."""
    model, found = _model_of(manifest), list[Told]()
    spec = manifest["spec"] = _without_nulls(manifest.get("spec"))
    for _ in range(_PASSES):  # what was in the way of one look is found by the next
        try:
            # As JSON, and strictly: an API server takes no "2" for 2 either.
            model.model_validate_json(json.dumps(spec), strict=True)
        except ValidationError as error:
            errors = error.errors()
            found += not_in(list(_problems_of(errors, model)), found)
            for each in reversed(errors):
                _take_out(spec, each["loc"])
        except (TypeError, ValueError) as error:
            return [*found, ("spec", f"holds what is no JSON: {error}")]
        else:
            break
    return found


def _problems_of(errors: Sequence[Any], root: type[ApiModel]) -> Iterator[Told]:
    told = set[str]()
    for problem in errors:
        field = _field(_told_loc(problem["loc"]))
        if field in told:
            continue
        told.add(field)
        if problem["type"] == "extra_forbidden":
            yield field, no_such_field(field, root)
        else:
            yield field, words_of_model(field, problem, _form_of(field, root))


def _field(parts: Sequence[int | str]) -> str:
    return "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _told_loc(loc: Sequence[int | str]) -> Sequence[int | str]:
    """Without the arms of a union, which pydantic has there as well."""
    return loc[:-1] if loc and loc[-1] in ("int", "str") else loc


def _take_out(spec: Any, loc: Sequence[int | str]) -> None:
    """What is at ``loc``; where that must be there, what holds it."""
    parts = list(_told_loc(loc))
    while parts:
        *above, last = parts
        owner = _at(spec, above)
        if isinstance(owner, dict) and last in _STAND_INS and above in ([], ["template", "spec"]):
            owner[last] = copy.deepcopy(_STAND_INS[str(last)])
            return
        if isinstance(owner, dict) and last in owner:
            del owner[last]
            return
        if isinstance(owner, list) and isinstance(last, int) and last < len(owner):
            del owner[last]
            return
        parts = above


def _at(value: Any, parts: Sequence[int | str]) -> Any:
    for part in parts:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def _value_at(manifest: Json, field: str) -> Any:
    return _at(manifest, [int(part) if part.isdecimal() else part for part in _PART.findall(field)])


def _without_nulls(value: Any) -> Any:
    """As the API server reads them: fields that are not there."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _is_within(field: str, other: str) -> bool:
    return field == other or field.startswith(f"{other}.")


def _form_of(field: str, root: type[ApiModel]) -> str:
    """How its text is to be written, where there is a rule for it."""
    *parents, last = without_indices(field).split(".")
    model = model_at(parents, root)
    found = next((f.type for f in fields_of(model) if f.name == last), None) if model is not None else None
    rules = (found.item or found).all(Rule) if found is not None else []
    return rules[0].message if rules else ""
