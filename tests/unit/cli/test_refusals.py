"""All that is wrong with a manifest, in one answer and in words that say what to write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.api.base import names
from lockstep.api.base.fields import fields_of
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.cli.errors import ApiServerError
from lockstep.cli.submission.field_words import words_of_server
from lockstep.cli.submission.refusals import problems_of, server_problems
from support.examples import examples

GOOD: dict[str, Any] = {"nodes": 2, "image": "pytorch/pytorch", "command": ["torchrun", "train.py"]}
LEFT_OUT = object()


def manifest(metadata: dict[str, Any] | None = None, kind: str = "TrainingRun", **spec: Any) -> dict[str, Any]:
    fields = {key: value for key, value in (GOOD | spec).items() if value is not LEFT_OUT}
    named = {"name": "llama"} if metadata is None else metadata
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": named, "spec": fields}


def told(wrong: dict[str, Any]) -> list[str]:
    return [f"{field}: {words}" for field, words in problems_of(wrong, {})[0]]


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, ""),
    "empty values of a template": ({"env": None, "placement": {"gpuTypes": None}, "timeLimit": None}, ""),
    "a command as one text": (
        {"command": "python train.py"},
        "spec.command: has to be a list; write [python, train.py]",
    ),
    "a command as one text, with quotes": (
        {"command": "sh -c 'echo a b'"},
        'spec.command: has to be a list; write [sh, "-c", "echo a b"]',
    ),
    "a command whose quotes do not end": (
        {"command": "echo 'a"},
        'spec.command: has to be a list; write [echo, "\'a"]',
    ),
    "a number in a command": (
        {"command": ["python", "--lr", 0.1]},
        'spec.command[2]: is 0.1, and text is wanted; quote it: "0.1"',
    ),
    "a truth in a command": (
        {"command": ["python", True]},
        'spec.command[1]: is true, and text is wanted; quote it: "true"',
    ),
    "nothing in a command": ({"command": ["python", None]}, "spec.command[1]: is empty; write some text"),
    "a map for env": (
        {"env": {"FOO": "bar"}},
        'spec.env: has to be a list; write each variable as - {name: FOO, value: "bar"}',
    ),
    "a map with a number for env": ({"env": {"N": 3}}, 'as - {name: N, value: "3"}'),
    "a number as a variable's value": (
        {"env": [{"name": "A", "value": 1}]},
        'spec.env[0].value: is 1, and text is wanted; quote it: "1"',
    ),
    "no nodes": ({"nodes": 0}, "spec.nodes: is 0; write 1 or more"),
    "nodes in quotes": ({"nodes": "2"}, 'spec.nodes: is "2"; write a whole number, e.g. 2, without quotes'),
    "half a node": ({"nodes": 2.5}, "spec.nodes: is 2.5; write a whole number, e.g. 2, without quotes"),
    "no number at all": ({"nodes": float("nan")}, "spec.nodes: is NaN; write a whole number"),
    "nodes left out": ({"nodes": LEFT_OUT}, "spec.nodes: is missing; write it"),
    "a negative nice": ({"nice": -5}, "spec.nice: is -5; write 0 or more"),
    "a yes": ({"suspend": "yes"}, 'spec.suspend: is "yes"; write true or false, without quotes'),
    "an unknown field": ({"gpuPerNode": 8}, "spec.gpuPerNode: unknown field; write gpusPerNode"),
    "a choice in other letters": (
        {"launcher": {"type": "torchrun"}},
        'spec.launcher.type: is "torchrun"; write Torchrun; there are Plain, Torchrun,',
    ),
    "a launcher as one word": (
        {"launcher": "JAX"},
        'spec.launcher: is "JAX", and has fields of its own; write them below it',
    ),
    "a time limit as a number": ({"timeLimit": 60}, "spec.timeLimit: is 60; write a duration as 90s"),
    "a time that is none": ({"notBefore": "tomorrow"}, "spec.notBefore: is no time; write it as 2026-12-01T08:00:00Z"),
    "a size in the wrong unit": ({"shmSize": "200GB"}, 'spec.shmSize: is "200GB"; write a size as 512Mi, 200Gi or 2Ti'),
    "a time without its unit": ({"timeLimit": "3600"}, 'spec.timeLimit: is "3600"; write a duration as 90s'),
    "a size as a number": ({"shmSize": 200}, "spec.shmSize: is 200; write a size as 512Mi"),
    "one text in place of a list": (
        {"placement": {"gpuTypes": "H100"}},
        "spec.placement.gpuTypes: has to be a list; write [H100]",
    ),
    "an empty image": ({"image": ""}, "spec.image: is empty; write it, or leave the field out"),
    "one of two forms": (
        {"checkpoint": {"local": {"storage": "nvme", "keepLast": "x"}}},
        'spec.checkpoint.local.keepLast: is "x"; write how many of the newest valid steps',
    ),
    "neither of two forms": (
        {"checkpoint": {"local": {"storage": "nvme", "keepLast": [1]}}},
        "spec.checkpoint.local.keepLast: is [1]",
    ),
    "a template that is a list": ({"podTemplate": [1]}, "spec.podTemplate: is [1], and has fields of its own"),
}


@pytest.mark.parametrize(("spec", "words"), FIELDS.values(), ids=FIELDS)
def test_a_wrong_field_is_told_once_with_what_to_write(spec: dict[str, Any], words: str) -> None:
    found = told(manifest(**spec))
    if not words:
        assert found == []
        return
    assert len(found) == 1
    assert words in found[0]
    assert "Input should" not in found[0]


NAMES: list[tuple[dict[str, Any], str]] = [
    (
        {"name": "Llama_70B"},
        "metadata.name: Llama_70B may have only lower case letters, digits, and '-' between them; write llama-70b",
    ),
    ({"name": "a" * 41}, f"has 41 characters, and 40 are the most; write {'a' * 40}"),
    ({"name": "A" * 41}, f"may have only lower case letters, digits, and '-' between them; write {'a' * 40}"),
    ({"name": "-a"}, "-a may have only lower case letters, digits, and '-' between them; write a"),
    ({"name": "_"}, "write a-name"),
    ({"name": 70}, 'metadata.name: is 70, and text is wanted; quote it: "70"'),
    ({}, "metadata.name: is missing; write it, or give --name"),
    ({"name": "x", "labels": {"team": 1}}, 'metadata.labels.team: is 1, and text is wanted; quote it: "1"'),
    (
        {"name": "x", "annotations": {"a": True}},
        'metadata.annotations.a: is true, and text is wanted; quote it: "true"',
    ),
]


@pytest.mark.parametrize(("metadata", "words"), NAMES)
def test_so_is_what_stands_around_the_spec(metadata: dict[str, Any], words: str) -> None:
    (found,) = told(manifest(metadata))
    assert words in found


def test_an_array_has_less_room_for_its_name_and_the_fields_of_its_template_are_told_by_their_path() -> None:
    template = {"spec": GOOD | {"command": "python train.py", "gpuPerNode": 8, "resourcesPerNode": {"gpu": 8}}}
    wrong = manifest({"name": "a" * 35}, kind="TrainingRunSet")
    wrong["spec"] = {"indices": 3, "template": template}
    found = "\n".join(told(wrong))
    for words in (
        f"write {'a' * 34}",
        "spec.indices: is 3",
        "spec.template.spec.command: has to be a list; write [python, train.py]",
        "spec.template.spec.gpuPerNode: unknown field; write gpusPerNode",
        "spec.template.spec.resourcesPerNode[gpu]: is no resource of Kubernetes; write nvidia.com/gpu",
    ):
        assert words in found


def test_mistakes_of_every_kind_are_told_together_and_none_that_comes_of_another() -> None:
    wrong = manifest(
        {"name": "Llama", "labels": {"team": 1}},
        nodes=0,
        image=LEFT_OUT,
        command="python train.py",
        env={"FOO": 1},
        checkpoint={"shared": {"claim": "lustre"}, "format": "Manifesto"},
        resourcesPerNode={"gpu": 8},
        gpuPerNode=8,
    ) | {"status": {}, "specs": {}}
    fields = [line.partition(":")[0] for line in told(wrong)]
    assert sorted(fields) == sorted(
        [
            "specs",
            "metadata.name",
            "metadata.labels.team",
            "spec.nodes",
            "spec.image",
            "spec.command",
            "spec.env",
            "spec.checkpoint.shared.claim",
            "spec.checkpoint.shared.claimName",
            "spec.checkpoint.format",
            "spec.resourcesPerNode[gpu]",
            "spec.gpuPerNode",
        ]
    )


def test_what_is_left_of_a_wrong_manifest_parses_and_the_manifest_is_as_it_was() -> None:
    wrong = manifest(nodes="two", volumes=[{"name": "d"}], placement={"nodes": 3})
    _, rest = problems_of(wrong, {})
    assert rest["spec"] == {
        "nodes": 1,
        "image": GOOD["image"],
        "command": GOOD["command"],
        "volumes": [],
        "placement": {},
    }
    assert wrong["spec"]["nodes"] == "two"


SERVERS: list[tuple[str, Any, str]] = [
    (
        'Invalid value: "string": spec.x in body must be of type array: "string"',
        "a b",
        'has to be a list; write ["a b"]',
    ),
    (
        'Invalid value: "number": spec.x in body must be of type string: "number"',
        0.1,
        'text is wanted; quote it: "0.1"',
    ),
    ('Invalid value: "string": spec.x in body must be of type integer: "string"', "2", 'is "2"; write a whole number'),
    ('Invalid value: "object": spec.x in body must be of type array: "object"', {"a": 1}, 'is {"a": 1}; write a list'),
    ("Invalid value: 0: spec.x in body should be greater than or equal to 1", 0, "is too small; write 1 or more"),
    ("Invalid value: 9e9: spec.x in body should be less than or equal to 16384", 9e9, "write 16384 or less"),
    ('Invalid value: "": spec.x in body should be at least 1 chars long', "", "1 characters are the least"),
    ('Unsupported value: "foo": supported values: "Auto", "Torch"', "foo", 'is "foo"; there are Auto, Torch'),
    ("Required value", None, "is missing; write it"),
    ('Duplicate value: {"name":"a"}', None, 'is there twice: {"name":"a"}; keep one of them'),
    ("Too many: 600: must have at most 512 items", None, "has 600 items; 512 are the most"),
    ("Too long: may not be more than 253 bytes", None, "is too long; 253 is the most"),
    ('Invalid value: "object": keep one of them', None, "keep one of them"),
    ('Invalid value: "200GB": write a size as 512Mi', "200GB", 'is "200GB"; write a size as 512Mi'),
    ("Invalid value: null: keep one of them", None, "keep one of them"),
]


@pytest.mark.parametrize(("said", "value", "words"), SERVERS)
def test_what_an_api_server_says_of_a_schema_is_told_in_our_words(said: str, value: Any, words: str) -> None:
    found = words_of_server("spec.x", said, value)
    assert words in found
    assert not any(raw in found for raw in ("in body", "value:", "Required value", "must be of type"))


def test_the_value_that_a_server_refuses_is_looked_up_in_the_manifest() -> None:
    words = 'Invalid value: "number": spec.command[2] in body must be of type string: "number"'
    error = ApiServerError(422, "", causes=(("spec.command[2]", words),))
    wrong = manifest(command=["python", "--lr", 0.1])
    assert server_problems(error, wrong) == [("spec.command[2]", 'is 0.1, and text is wanted; quote it: "0.1"')]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
WORDS = st.text(max_size=6)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
KNOWN = st.sampled_from(sorted(field.name for field in fields_of(TrainingRunSpec)))


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(KNOWN | WORDS, ANYTHING, max_size=6), st.booleans())
def test_whatever_stands_in_a_spec_is_told_and_never_raised(spec: dict[str, Any], is_array: bool) -> None:
    wrong = manifest(kind="TrainingRunSet" if is_array else "TrainingRun")
    wrong["spec"] = {"indices": "0-3", "template": {"spec": spec}} if is_array else spec
    found, rest = problems_of(wrong, {})
    assert all(field and words for field, words in found)
    assert len({field for field, _ in found}) == len(found)
    assert isinstance(rest["spec"], dict)
