"""Objects that are nested deeper than Python counts to: the API server takes 10,000 levels, of anybody."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base import nesting
from lockstep.api.base.nesting import TOO_DEEP
from lockstep.controller.kube.pages import LONGEST_PAGE
from lockstep.controller.store.archive_jobs import parse_job
from lockstep.core.model.cluster_objects import parse_namespace, parse_node, parse_pod, parse_priority_class
from lockstep.core.model.own_objects import parse_run, parse_run_set
from support.sources import nodes

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
    assert one.spec_error == f"spec.podTemplate: {TOO_DEEP}"
    assert one.spec is not None
    assert one.spec.pod_template is None
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


def levels_in(text: bytes) -> Iterator[tuple[int, int]]:
    """Where a sign that is in no string ends, and the level after it."""
    level = at = 0
    while at < len(text):
        sign = text[at : at + 1]
        if sign == b'"':
            at += 1
            while at < len(text) and text[at : at + 1] != b'"':
                at += 2 if text[at : at + 1] == b"\\" else 1
        level += (sign in b"[{") - (sign in b"]}")
        at += 1
        yield at, level


def scanned(text: bytes) -> int:
    """The levels, counted sign by sign."""
    return max((level for _, level in levels_in(text)), default=0)


def cut_by_signs(text: bytes) -> bytes:
    kept, begin, above, deepest = b"", 0, 0, 0
    for at, level in levels_in(text):
        deepest = max(deepest, level)
        if level <= nesting.MAX_LEVELS:
            if deepest > nesting.DEEPEST:
                kept += text[begin:above] + nesting.CUT_OFF
                begin = at
            above, deepest = at, 0
    return kept + text[begin:]


def in_brackets(parts: list[bytes], levels: int) -> bytes:
    return b'{"[":[' * (levels // 2) + b",".join(parts) + b"]}" * (levels // 2)


DEEP_AND_SHALLOW = st.recursive(
    st.sampled_from([b"1", b'""', b'"a, b and c: [[[ \\" {{{ \\\\"', b"[]", b'{"a":[{},"]"]}']),
    lambda inner: st.builds(in_brackets, st.lists(inner, min_size=1, max_size=4), st.integers(0, 160)),
    max_leaves=30,
)


@given(st.lists(DEEP_AND_SHALLOW, min_size=1, max_size=6))
def test_the_quick_cut_is_the_slow_one(parts: list[bytes]) -> None:
    text = in_brackets(parts, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_PIECE", 2 * nesting._STRETCH)
        assert nesting.is_deep(text) == (scanned(text) > nesting.DEEPEST)
        found = nesting.cut(text)
    assert found == cut_by_signs(text)
    orjson.loads(found)


@pytest.mark.parametrize("spaces", range(nesting._STRETCH + 1))
def test_a_part_is_cut_wherever_it_begins(spaces: int) -> None:
    above = b"[" * nesting.MAX_LEVELS + b" " * (nesting._STRETCH + spaces)
    text = above + b"[" * 200 + b"]" * 200 + b"]" * nesting.MAX_LEVELS
    assert nesting.cut(text) == above + nesting.CUT_OFF + b"]" * nesting.MAX_LEVELS


BROAD = {
    "in a list": b"[]",
    "one in another": b"[[[[[[[[[{}]]]]]]]]],",
    "in strings": b'"[",',
    "beside quotes": rb'"\"[",',
    "where the last level is that is kept": b"[" * 47 + b"[],[]" + b"]" * 47 + b",",
    "each of them deep": b"[" * 201 + b"]" * 201 + b",",
}


@pytest.mark.slow
@pytest.mark.parametrize("part", BROAD.values(), ids=BROAD.keys())
def test_a_page_full_of_brackets_is_cut_before_anybody_waits_for_it(part: bytes) -> None:
    """What renews the lease does: the leader lets go when it was not renewed for eight seconds."""
    text = b'{"deep":' + nested(210) + b',"broad":[' + part * (LONGEST_PAGE // len(part)) + b"1]}"
    began = time.thread_time()
    assert nesting.is_deep(text)
    kept = nesting.cut(text)
    assert time.thread_time() - began < 4.0  # half a second, on a machine that is eight times as slow
    assert not nesting.is_deep(kept)


def test_what_stands_for_parts_is_no_longer_than_they_are() -> None:
    text = b"[" * 200 + b"[]," * 100_000 + b"1" + b"]" * 200
    assert len(nesting.cut(text)) < len(text)
    apart = b"[" * 50 + (b"[" * 151 + b"]" * 151 + b",") * 1_000 + b"1" + b"]" * 50
    assert len(nesting.cut(apart)) < len(apart)


HOSTILE = {
    "as deep as the API server takes": nested(9_990),
    "brackets that never end": b"[" * 1_000_000,
    "brackets in strings": b'["' + b"[" * 5_000 + b'",1]',
    "quotes that are escaped": b'["\\"' + b"[" * 5_000 + b'\\\\"]',
    "a backslash at the end of a string": b'["\\\\",' + b"[" * 300 + b"]" * 300 + b"]",
    "a string that never ends": b"[" * 150 + b'"' + b"]" * 300 + b"[" * 300,
    "many that are shallow": b"[" + b"[1]," * 200_000 + b"1]",
    "deep among much": b"[" + nested(500) + b',"a b c"' * 100_000 + b"]",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_levels_are_counted_without_decoding_whatever_is_in_strings(text: bytes) -> None:
    began = time.process_time()
    assert nesting.is_deep(text) == (scanned(text) > nesting.DEEPEST)
    kept = nesting.cut(text)
    assert not nesting.is_deep(kept)
    assert time.process_time() - began < 10.0  # linear, on whatever machine


@given(st.text(alphabet='[]{}"\\ax,: ', max_size=60), st.integers(0, 8))
def test_the_quick_count_is_the_slow_one(text: str, levels: int) -> None:
    encoded = text.encode()
    assert nesting.is_deep(encoded, levels) == (scanned(encoded) > levels)


def test_what_is_deep_is_not_decoded_by_any_recursion() -> None:
    """As far down as a decoder goes, it is where no interpreter and no library of ours counts."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    cuts: list[bool] = []
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        found = nesting.decode(decoder, b'{"type":"ADDED","object":' + nested(9_990) + b"}", lambda: cuts.append(True))
    finally:
        sys.setrecursionlimit(usual)
    assert (found["type"], cuts) == ("ADDED", [True])


@pytest.mark.parametrize("kind", ["pods", "nodes", "jobs", "namespaces", "priorityclasses"])
def test_who_wrote_which_field_of_a_core_kind_is_cut_and_the_rest_is_read(kind: str) -> None:
    """The API server takes it from anybody: 9,994 levels in managedFields of a pod."""
    parse: Any = {
        "pods": parse_pod,
        "nodes": parse_node,
        "jobs": parse_job,
        "namespaces": parse_namespace,
        "priorityclasses": parse_priority_class,
    }[kind]
    assert parse(stored({}, 9_994).replace(b',"status":{"attempt":3}', b"")).uid == "u1"


def test_nothing_of_the_operator_decodes_what_was_not_looked_at() -> None:
    rooms = ("api", "controller", "core", "present")
    found = {str(path) for path, call in nodes(ast.Call) if path.parts[0] in rooms and decodes(call)}
    assert found == {"api/base/nesting.py"}


def decodes(call: ast.Call) -> bool:
    """A call of a JSON decoder, or a piece that would pass for one that was looked at."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("loads", "load", "decode", "Raw"):
        return False
    called = ast.unparse(call.func)
    if called in ("json.loads", "json.load", "orjson.loads", "msgspec.json.decode", "msgspec.Raw"):
        return True
    # Text is decoded without arguments, or with the name of an encoding.
    names_encoding = not call.args or isinstance(call.args[0], ast.Constant)
    return called.endswith(".decode") and called != "nesting.decode" and not names_encoding


@pytest.mark.parametrize("text", [b"", b'{"a":', b'{"a": nothing}'])
def test_what_is_no_object_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        nesting.read_object(text)
