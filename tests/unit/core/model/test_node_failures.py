"""First failures, as the annotation of their node has them: annotations are anybody's to write."""

import json

import pytest

from lockstep.api.base.times import to_rfc3339
from lockstep.core.model.node_failures import read_failures
from lockstep.core.model.snapshot import NodeFailure

NOW = 1_000_000.0


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '[{"run": "a"}]', '[{"run":"a","time":"yesterday","cause":"x"}]', "{}"]
)
def test_an_annotation_that_cannot_be_read_is_nothing(text: str) -> None:
    assert read_failures(text) == ()


def test_an_annotation_is_bounded_whatever_somebody_writes() -> None:
    row = {"run": "r" * 10_000, "time": to_rfc3339(NOW), "cause": "c" * 10_000}
    read = read_failures(json.dumps([row] * 100))
    assert len(read) == 8
    assert len(read[0].run) + len(read[0].cause) < 400


@pytest.mark.parametrize(
    "row",
    [
        '{"run": "a/b", "time": 1e300, "cause": "GPU"}',
        '{"run": "a/b", "time": 1%s, "cause": "GPU"}' % ("0" * 400),
        '{"run": "a/b", "time": -1e15, "cause": "GPU"}',
        '{"run": "a/b", "time": "9999-12-31T23:59:59-23:00", "cause": "GPU"}',
        '{"run": "\\udc80", "time": 1, "cause": "GPU"}',
    ],
)
def test_an_annotation_that_cannot_be_told_on_is_nothing(row: str) -> None:
    assert read_failures(f"[{row}]") == ()


@pytest.mark.parametrize("time", [2.5, "1970-01-01T00:00:02Z"], ids=["number", "text"])
def test_a_failure_is_read_with_its_time_however_that_is_written(time: float | str) -> None:
    row = {"run": "ns/a", "time": time, "cause": "GPU"}
    assert read_failures(json.dumps([row])) == (NodeFailure("ns/a", 2.0, "GPU"),)
