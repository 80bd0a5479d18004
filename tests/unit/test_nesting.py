"""Objects that are nested deeper than Python counts to: the API server takes 10,000 levels, of anybody."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import orjson
import pytest

from lockstep.api.base import nesting
from lockstep.api.base.nesting import TOO_DEEP
from lockstep.core.model.own_objects import parse_run, parse_run_set

METADATA = {
    "namespace": "team",
    "name": "llama",
    "uid": "u1",
    "resourceVersion": "11",
    "creationTimestamp": "2026-01-01T00:00:00Z",
}


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def stored(spec: dict[str, Any], levels: int) -> bytes:
    """An object as the API server has it: who wrote which field is nested as deep as the field."""
    fields = {"managedFields": [{"fieldsV1": "DEEP"}]}
    text = orjson.dumps({"metadata": METADATA | fields, "spec": spec, "status": {"attempt": 3}})
    return text.replace(b'"DEEP"', nested(levels))


def run(levels: int, **changes: Any) -> bytes:
    return stored({"nodes": 1, "image": "trainer", "command": ["train"], "podTemplate": "DEEP"} | changes, levels)


def array(levels: int) -> bytes:
    spec = {"nodes": 1, "image": "trainer", "command": ["train"], "podTemplate": "DEEP"}
    return stored({"indices": "0-3", "template": {"spec": spec}}, levels)


@pytest.mark.parametrize("levels", [51, 300, 990, 1_500, 9_900])
def test_a_spec_that_is_nested_too_deeply_is_refused_by_its_field(levels: int) -> None:
    one, many = parse_run(nesting.read_object(run(levels))), parse_run_set(nesting.read_object(array(levels)))
    assert (one.spec, one.spec_error) == (None, f"spec.podTemplate: {TOO_DEEP}")
    assert (many.spec, many.spec_error) == (None, f"spec.template.spec.podTemplate: {TOO_DEEP}")
    assert one.status.attempt == 3  # what is on record stands


def test_a_source_of_volumes_counts_as_well() -> None:
    volume = {"name": "data", "mountPath": "/data", "projected": "DEEP"}
    read = parse_run(nesting.read_object(run(9_000, volumes=[volume], podTemplate={})))
    assert read.spec_error == f"spec.volumes.0.projected: {TOO_DEEP}"


def test_as_many_levels_as_are_allowed_are_taken() -> None:
    assert parse_run(nesting.read_object(run(nesting.MAX_LEVELS))).spec_error == ""


def test_a_list_with_one_that_is_too_deep_has_the_others_whole() -> None:
    plain = orjson.dumps({"metadata": METADATA, "spec": {"nodes": 2}})
    found = nesting.read_object(b'{"metadata":{},"items":[' + array(9_000) + b"," + plain + b"]}")["items"]
    assert found[0]["metadata"]["name"] == "llama"
    assert TOO_DEEP in str(found[0]["spec"]["template"]["spec"]["podTemplate"])
    assert found[1] == orjson.loads(plain)


def test_what_is_cut_is_what_lies_too_deep_and_nothing_else() -> None:
    text = orjson.dumps({"words": 'a "quoted" [{ and a \\', "list": [[1], {"a": "]}"}], "n": 1})
    assert nesting.cut(text) == text
    found = orjson.loads(nesting.cut(b'{"before":[1],"deep":' + nested(9_990) + b',"after":[{"a":"[{"}]}'))
    assert (found["before"], found["after"]) == ([1], [{"a": "[{"}])
    assert TOO_DEEP in orjson.dumps(found["deep"]).decode()


def test_an_interpreter_that_cannot_skip_what_is_deep_is_given_what_is_not() -> None:
    """From 3.12 on Python counts levels of C apart, and no limit that is set counts for them."""

    class Shallow:
        def decode(self, text: bytes) -> Any:
            if text.count(b"{") > 1_000:
                raise RecursionError
            return orjson.loads(text)

    decoder = cast(msgspec.json.Decoder[Any], Shallow())
    found = nesting.decode(decoder, b'{"type":"ADDED","object":' + nested(9_990) + b"}")
    assert found["type"] == "ADDED"


@pytest.mark.parametrize("text", [b"", b'{"a":', b'{"a": nothing}'])
def test_what_is_no_object_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        nesting.read_object(text)
