"""The models as a reference for people: docs/api.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import annotated_types
import yaml

from lockstep.api.base import names
from lockstep.api.base.fields import ApiField, ApiType, fields_of
from lockstep.api.base.schema import ApiModel, Changeable, DateTime, IntOrString, Opaque, Rule
from lockstep.api.v1alpha1 import AnyKind

_INTRODUCTION = f"""# API reference: {names.API_VERSION}

<!-- Generated from the models in operator/lockstep/api by `make generate`. Do not edit. -->

What the API server refuses is listed under each table, with the words it answers. Fields may change at any
time unless the table says otherwise. Amounts are written as everywhere in Kubernetes.
"""


def api_reference(kinds: Sequence[AnyKind]) -> str:
    """Return the text of docs/api.md."""
    parts = [_INTRODUCTION]
    described: set[type[ApiModel]] = set()
    for kind in kinds:
        crd = kind.crd
        scope = "namespaced" if crd.scope == "Namespaced" else "cluster-scoped"
        parts.append(
            f"## {crd.kind}\n\n{_words(kind.__doc__)}\n\n"
            f"`kubectl get {crd.short_names[0]}`, {scope}; `--field-selector` knows "
            f"{' and '.join(f'`{path[1:]}`' for path in crd.selectable)}.\n"
        )
        if kind.cross_field_rules:
            parts.append(_refusals(kind))
        parts.extend(_sections(crd.spec, "spec", described))
        parts.extend(_sections(crd.status, "status", described))
    return "\n".join(parts)


def _sections(model: type[ApiModel], path: str, described: set[type[ApiModel]]) -> Iterator[str]:
    """Yield one section for `model` and for each model below it that has none yet."""
    if model in described:
        return
    described.add(model)
    fields = list(fields_of(model))
    changes = any(field.type.one(Changeable) for field in fields)
    head = ["Field", "Type", "Default", *(["Changes"] if changes else []), "Meaning"]
    rows = [head, ["---"] * len(head), *(_row(field, changes) for field in fields)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    yield f"### {path}\n\n{_words(model.__doc__)}\n\n{table}\n"
    if refusals := _refusals(model):
        yield refusals
    for field in fields:
        below, suffix = field.type, ""
        if below.model is None and below.item is not None:
            below, suffix = below.item, "[]"
        if below.model is not None:
            yield from _sections(below.model, f"{path}.{field.name}{suffix}", described)


def _row(field: ApiField, changes: bool) -> list[str]:
    name = f"`{field.name}`" + (" (required)" if field.required else "")
    cells = [name, _type_words(field.type), _default_words(field.default)]
    if changes:
        when = field.type.one(Changeable)
        cells.append(when.value if when else "")
    meaning = field.description.replace("<", "&lt;")
    return [cell.replace("|", "\\|") for cell in (*cells, meaning)]


def _type_words(of: ApiType) -> str:
    if of.one(IntOrString):
        return "integer or string"
    if of.one(Opaque):
        return "object, as written"
    if of.one(DateTime):
        return "time"
    if of.choices:
        return ", ".join(f"`{choice}`" if choice else '`""`' for choice in of.choices)
    if of.model is not None:
        return "object"
    if of.item is not None:
        plural = "list" if of.bare.__origin__ is tuple else "map"
        return f"{plural} of {_item_words(of.item)}{_length(of)}"
    if of.bare is str:
        return f"string{_length(of, ' characters')}"
    return {bool: "boolean", int: "integer"}[of.bare] + _range(of)


def _item_words(item: ApiType) -> str:
    if item.bare is str and not item.one(IntOrString):
        return "strings"
    return {"object": "objects", "integer or string": "integers or strings"}.get(_type_words(item), _type_words(item))


def _length(of: ApiType, unit: str = "") -> str:
    most = of.one(annotated_types.MaxLen)
    return f", at most {most.max_length}{unit}" if most else ""


def _range(of: ApiType) -> str:
    least, most = of.one(annotated_types.Ge), of.one(annotated_types.Le)
    if least and most:
        return f", {least.ge} to {most.le}"
    return f", at least {least.ge}" if least else ""


def _default_words(default: Any) -> str:
    if default is None:
        return ""
    flow = yaml.safe_dump([default], default_flow_style=True, width=1000).strip()
    return f"`{flow[1:-1]}`" if default != "" else ""


def _refusals(model: type[ApiModel]) -> str:
    """List what is refused, for the model as a whole and then field by field."""
    said = [(rule.field.removeprefix("."), rule.message) for rule in model.cross_field_rules]
    said += [(field.name, rule.message) for field in fields_of(model) for rule in field.type.all(Rule)]
    if not said:
        return ""
    lines = "\n".join(f"- {f'`{field}`: ' if field else ''}{message}" for field, message in said)
    return f"Refusals:\n\n{lines}\n"


def _words(text: str | None) -> str:
    return " ".join((text or "").split())
