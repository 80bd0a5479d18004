"""The structural schemas in crds/: what an API server would refuse of a value, and values that it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from lockstep.api.base.times import to_rfc3339

Schema = Mapping[str, Any]
CRDS = Path(__file__).resolve().parents[2] / "crds"
MOST, LEAST = 2**63 - 1, -(2**63)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


@cache
def schema_of(plural: str, part: str) -> Schema:
    """Of ``spec`` or ``status`` of a kind."""
    text = (CRDS / f"lockstep.dev_{plural}.yaml").read_text("utf-8")
    (version,) = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]["versions"]
    found: Schema = version["schema"]["openAPIV3Schema"]["properties"][part]
    return found


def problem(schema: Schema, value: Any) -> str:
    """Where ``value`` is none of the schema, and why; empty: it is one. What a server would drop is a problem too."""
    if "x-kubernetes-int-or-string" in schema:
        return "" if _is_int(value) or isinstance(value, str) else f": {value!r:.60} is no number and no text"
    return _CHECKS[schema["type"]](schema, value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and LEAST <= value <= MOST


def _object(schema: Schema, value: Any) -> str:
    if not isinstance(value, Mapping):
        return f": {value!r:.60} is no object"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key, item in value.items():
        below = properties.get(key, others)
        if below is None:
            if "x-kubernetes-preserve-unknown-fields" in schema:
                continue
            return f".{key}: not known"
        if found := problem(below, item):
            return f".{key}{found}"
    for key in schema.get("required", ()):
        if key not in value:
            return f".{key}: lacks"
    return _within(len(value), schema.get("minProperties"), schema.get("maxProperties"), "fields")


def _array(schema: Schema, value: Any) -> str:
    if not isinstance(value, list):
        return f": {value!r:.60} is no list"
    for index, item in enumerate(value):
        if found := problem(schema["items"], item):
            return f"[{index}]{found}"
    kind = schema.get("x-kubernetes-list-type")
    if kind in ("map", "set"):
        of = schema.get("x-kubernetes-list-map-keys")
        keys = [tuple(item.get(key) for key in of) for item in value] if of else value
        if len(set(keys)) < len(keys):
            return ": names something twice"
    return _within(len(value), schema.get("minItems"), schema.get("maxItems"), "items")


def _string(schema: Schema, value: Any) -> str:
    if not isinstance(value, str):
        return f": {value!r:.60} is no text"
    if "enum" in schema and value not in schema["enum"]:
        return f": {value!r:.60} is none of {schema['enum']}"
    if schema.get("format") == "date-time" and _MOMENT.fullmatch(value) is None:
        return f": {value!r:.60} is no moment"
    if "pattern" in schema and re.search(schema["pattern"], value) is None:
        return f": {value!r:.60} does not match"
    return _within(len(value), schema.get("minLength"), schema.get("maxLength"), "characters")


def _integer(schema: Schema, value: Any) -> str:
    if not _is_int(value):
        return f": {value!r:.60} is no whole number of 64 bits"
    return _within(value, schema.get("minimum"), schema.get("maximum"), "")


def _boolean(_: Schema, value: Any) -> str:
    return "" if isinstance(value, bool) else f": {value!r:.60} is neither true nor false"


def _within(number: int, least: int | None, most: int | None, of: str) -> str:
    if (least is not None and number < least) or (most is not None and number > most):
        return f": {number} {of} are not from {least} to {most}"
    return ""


_CHECKS = {"object": _object, "array": _array, "string": _string, "integer": _integer, "boolean": _boolean}

# -- values ------------------------------------------------------------------------------------------

NUMBERS = (-1, 0, 0, 1, 1, 2, 3, 5, 64, 999, 2**31 - 1, 2**31, 2**53, MOST, LEAST)
_WAYS = 4
_AWAY = (-(10**7), -4000, -400, -60, -10, -1, 0, 1, 20, 300, 4000, 10**7)
MOMENTS = ("0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-11-22T00:00:00.5+01:00")
TEXTS = (
    *(
        "",
        "",
        "x",
        "n0",
        "n1",
        "n2",
        "one",
        "two",
        "uid-one",
        "uid-two",
        "ns/two",
        "a1/step-5",
        "/shared/5",
        "/local/5/rank-0",
    ),
    *(
        "0",
        "0-1",
        "0-3",
        "0,0",
        "1,0",
        "3-1",
        "0-99999999999",
        "-",
        ",",
        "0-131071",
        "0.5",
        "1e0",
        "1e9999",
        "nan",
        "-inf",
    ),
    *("{}", "[", "null", '{"a": 1}', "é" * 40, "\u202e\u0000", "a b\nc", "x" * 300, "10.0.0.1", "::1"),
)


class Making:
    """Random values of schemas. ``texts`` has the words of fields by name, beside those for all."""

    def __init__(self, texts: Mapping[str, tuple[Any, ...]], fill: float = 0.3, now: float = 1_795_000_000.0) -> None:
        self.texts, self.fill, self.now = texts, fill, now

    def value(self, schema: Schema, rng: Random, name: str = "") -> Any:
        """One that the schema takes, as far as that is easily had."""
        known = self.texts.get(name)
        if known is not None and rng.random() < 0.9:
            return rng.choice(known)
        if "x-kubernetes-int-or-string" in schema:
            return rng.choice((*NUMBERS, *TEXTS))
        match schema["type"]:
            case "object":
                return self._object(schema, rng)
            case "array":
                return self._array(schema, rng, name)
            case "boolean":
                return rng.random() < 0.5
            case "integer":
                least, most = schema.get("minimum", LEAST), schema.get("maximum", MOST)
                fit = [number for number in NUMBERS if least <= number <= most]
                return rng.choice([*fit, min(most, max(least, rng.randrange(8)))])
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if schema.get("format") == "date-time":
            return to_rfc3339(self.now + rng.choice(_AWAY)) if rng.random() < 0.8 else rng.choice(MOMENTS)
        text = rng.choice(TEXTS)[: schema.get("maxLength", 300)]
        return text.ljust(schema.get("minLength", 0), "x")

    def _object(self, schema: Schema, rng: Random) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        made = {
            key: self.value(below, rng, key)
            for key, below in properties.items()
            if key in required or rng.random() < self.fill
        }
        if others := schema.get("additionalProperties"):
            for _ in range(rng.randrange(3)):
                made[rng.choice(("a", "cpu", "nvidia.com/gpu", "x/y", ""))] = self.value(others, rng)
        return made

    def _array(self, schema: Schema, rng: Random, name: str) -> list[Any]:
        most = min(schema.get("maxItems", 4), rng.choice((0, 1, 1, 2, 3, 40 if rng.random() < 0.02 else 1)))
        items = [self.value(schema["items"], rng, name) for _ in range(max(schema.get("minItems", 0), most))]
        return items if not problem(schema, items) else items[:1]

    def altered(self, schema: Schema, value: Any, rng: Random, name: str = "") -> Any:
        """Another one that differs somewhere from ``value``, which stays as it is."""
        kind = schema.get("type")
        if kind == "object" and isinstance(value, Mapping) and "properties" in schema:
            properties = schema["properties"]
            key = rng.choice([*value] if value and rng.random() < 0.75 else [*properties])
            if key not in properties:
                return value
            new = dict(value)
            if key in value and rng.random() < 0.15:
                del new[key]
            elif key in value:
                new[key] = self.altered(properties[key], value[key], rng, key)
            else:
                new[key] = self.value(properties[key], rng, key)
            return new
        if kind == "array" and isinstance(value, list) and value:
            index, new_items = rng.randrange(len(value)), list(value)
            match rng.randrange(5):
                case 0:
                    del new_items[index]
                case 1:
                    new_items.insert(index, rng.choice(value))
                case 2:
                    rng.shuffle(new_items)
                case _:
                    new_items[index] = self.altered(schema["items"], value[index], rng, name)
            return new_items
        if kind == "integer" and rng.random() < 0.4:
            return value + rng.choice((-1, 1))
        return self.value(schema, rng, name)

    def everywhere(self, schema: Schema, value: Any, rng: Random, name: str = "") -> Iterator[Any]:
        """``value`` with one field changed, for every field that the schema has, some ways each."""
        if schema.get("type") == "object" and "properties" in schema:
            whole = value if isinstance(value, Mapping) else self.value(schema, rng, name)
            for key, below in schema["properties"].items():
                if key in whole:
                    yield {other: item for other, item in whole.items() if other != key}
                for changed in self.everywhere(below, whole.get(key), rng, key):
                    yield {**whole, key: changed}
        elif schema.get("type") == "array" and schema["items"].get("type") == "object":
            items = list(value) if value else [self.value(schema["items"], rng, name)]
            yield from ([], items * 2)
            for changed in self.everywhere(schema["items"], items[0], rng, name):
                yield [changed, *items[1:]]
        else:
            yield from (self.value(schema, rng, name) for _ in range(_WAYS))
