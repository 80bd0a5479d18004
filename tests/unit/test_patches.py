"""What a server left out of a status that it was sent."""

from typing import Any

import pytest

from lockstep.controller.runtime.patches import dropped

KEPT: dict[str, Any] = {
    "attempt": 2,
    "start": {"resume": {"step": 40}, "phase": "Prepare"},
    "attempts": [{"number": 1}, {"number": 2}],
    "nodes": ["a", "b"],
}


@pytest.mark.parametrize(
    ("patch", "paths"),
    [
        ({}, []),
        (KEPT, []),
        ({"attempt": 2, "gone": None, "start": {"stage": None}}, []),
        ({"nodes": ["a", "b"], "attempts": []}, []),
        ({"new": 0}, ["status.new"]),
        ({"start": {"resume": {"step": 40, "sum": ""}}}, ["status.start.resume.sum"]),
        ({"attempts": [{"number": 1}, {"number": 2, "why": "x"}]}, ["status.attempts[1].why"]),
        ({"new": {"of": 1}, "start": {"late": {}}}, ["status.new", "status.start.late"]),
    ],
)
def test_a_field_that_was_sent_and_not_kept_is_named(patch: dict[str, Any], paths: list[str]) -> None:
    assert list(dropped(patch, KEPT)) == paths
