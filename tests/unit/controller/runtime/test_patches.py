"""What is sent of a status that changed, and what a server left out of it."""

from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AssignmentStatus, QueueStatus, TrainingRunStatus
from lockstep.controller.runtime import patches
from lockstep.controller.runtime.patches import dropped, dump_status, merge_patch, status_patch

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


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_a_merge_patch_says_only_what_changes(old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]) -> None:
    assert merge_patch(old, new) == patch


def test_an_assignment_in_a_config_map_is_only_named_in_status() -> None:
    assignment = AssignmentStatus(revision=1, hash="h", nodes=("a", "b"), incarnations=(1, 1))
    inline = TrainingRunStatus(assignment=assignment)
    assert dump_status(inline)["assignment"]["nodes"] == ["a", "b"]
    named = TrainingRunStatus(assignment=changed(assignment, config_map="big"))
    assert dump_status(named)["assignment"] == {"revision": 1, "hash": "h", "configMap": "big"}


OLD_STATUS = TrainingRunStatus(attempt=1, state="Pending", queue=QueueStatus(position=3))


NEW_STATUS = changed(
    OLD_STATUS,
    attempt=2,
    assignment=AssignmentStatus(revision=1, hash="h", nodes=("a",), incarnations=(1,)),
    queue=QueueStatus(),
)


def test_a_status_patch_is_that_of_the_whole_status() -> None:
    old, new = OLD_STATUS, NEW_STATUS
    assert status_patch(old, new) == merge_patch(dump_status(old), dump_status(new))
    assert status_patch(old, new).keys() == {"attempt", "assignment", "queue"}
    assert status_patch(old, old) == {}


def test_for_a_status_patch_only_what_is_new_is_dumped(monkeypatch: pytest.MonkeyPatch) -> None:
    dumped: list[set[str] | None] = []

    def note(status: TrainingRunStatus, only: set[str] | None = None) -> dict[str, Any]:
        dumped.append(only)
        return dump_status(status, only)

    monkeypatch.setattr(patches, "dump_status", note)
    status_patch(OLD_STATUS, NEW_STATUS)
    assert dumped == [{"attempt", "assignment", "queue"}] * 2
