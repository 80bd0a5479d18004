"""Models to the structural OpenAPI v3 of a CRD: no references, no unions, every list with its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import annotated_types
from pydantic import BaseModel

from lockstep.api.base.fields import ApiField, ApiType, fields_of
from lockstep.api.base.schema import DateTime, IntOrString, MapList, Opaque, Rule, SetList, SpecModel

Schema = dict[str, Any]

_SCALARS = {bool: "boolean", int: "integer", str: "string"}
_LENGTHS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}
_PROPERTIES = ("minProperties", "maxProperties")


def structural_schema(model: type[BaseModel]) -> Schema:
    """Return the schema of `model`. Raises TypeError on a type that the API does not use, floats among them."""
    return unruled_schema(model) | validations(getattr(model, "cross_field_rules", ()))


def unruled_schema(model: type[BaseModel]) -> Schema:
    """Return the same without the rules between the fields of `model` itself, which stand elsewhere."""
    fields = list(fields_of(model))
    schema: Schema = {"type": "object", "description": " ".join((model.__doc__ or "").split())}
    if required := [field.name for field in fields if field.required]:
        schema["required"] = required
    schema["properties"] = {field.name: _field_schema(field, model) for field in fields}
    return schema


def validations(rules: Sequence[Rule]) -> Schema:
    """Return CEL rules in the words of a CRD."""
    written = [
        {"rule": rule.cel, "message": rule.message}
        | ({"messageExpression": rule.message_cel} if rule.message_cel else {})
        | ({"fieldPath": rule.field} if rule.field else {})
        | ({"optionalOldSelf": True} if rule.from_creation else {})
        for rule in rules
    ]
    return {"x-kubernetes-validations": written} if written else {}


def _field_schema(field: ApiField, model: type[BaseModel]) -> Schema:
    schema = _type_schema(field.type)
    # Status has no defaults: what is absent there is not known, and nobody but the operator writes it. Nor has a group
    # of fields: stored where nobody wrote it, every write and every copy of the object would pay for it.
    if issubclass(model, SpecModel) and field.default is not None and field.type.model is None:
        schema["default"] = field.default
    return {"description": field.description} | {key: value for key, value in schema.items() if key != "description"}


def _type_schema(of: ApiType) -> Schema:
    schema = _shape(of)
    least, most = _LENGTHS.get(schema.get("type", ""), _PROPERTIES)
    for mark in of.marks:
        match mark:
            case annotated_types.Ge(ge=bound):
                schema["minimum"] = bound
            case annotated_types.Le(le=bound):
                schema["maximum"] = bound
            case annotated_types.MinLen(min_length=length):
                schema[least] = length
            case annotated_types.MaxLen(max_length=length):
                schema[most] = length
            case object(pattern=str(pattern)) if not of.all(Rule):  # a rule beside it says the same in better words
                schema["pattern"] = pattern
    return schema | validations(of.all(Rule))


def _shape(of: ApiType) -> Schema:
    if of.one(IntOrString):
        return {"x-kubernetes-int-or-string": True}
    if of.one(Opaque):
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if of.one(DateTime):
        return {"type": "string", "format": "date-time", "maxLength": 40}
    if of.choices:
        return {"type": "string", "enum": list(of.choices)}
    if of.model is not None:
        return structural_schema(of.model)
    if of.item is not None:
        held = _type_schema(of.item)
        if of.bare.__origin__ is dict:
            return {"type": "object", "additionalProperties": held}
        return {"type": "array", "items": held} | _list_kind(of)
    if of.bare in _SCALARS:
        return {"type": _SCALARS[of.bare]}
    raise TypeError(f"{of.bare!r} has no place in a CRD")


def _list_kind(of: ApiType) -> Schema:
    if (named := of.one(MapList)) is not None:
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [named.key]}
    return {"x-kubernetes-list-type": "set" if of.one(SetList) else "atomic"}
