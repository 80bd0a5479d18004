"""The START record: in status and on the wire it says the same."""

from typing import Any

import pytest

from lockstep.core.model.start_record import CollectiveStart, Members, Resume, to_record, to_status

RESUMED = {"resume": Resume("shared", 300, "/ckpt/step-300")}


def record(**fields: Any) -> CollectiveStart:
    known = {"attempt": 2, "assignment_hash": "abc", "master_address": "10.0.0.1", "master_port": 20_123, **fields}
    return CollectiveStart(**known)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        RESUMED,
        {"members": (Members("0-1", 1), Members("2", 3))},
        {"order": "0,2,1"},
        {**RESUMED, "members": (Members("0", 1),)},
    ],
    ids=["fresh", "resumed", "members", "order", "all"],
)
def test_a_record_comes_back_from_status_as_it_was(fields: dict[str, Any]) -> None:
    assert to_record(to_status(record(**fields))) == record(**fields)


@pytest.mark.parametrize(("fields", "step"), [({}, None), (RESUMED, 300)])
def test_status_names_a_checkpoint_only_where_there_is_one(fields: dict[str, Any], step: int | None) -> None:
    started = record(**fields)
    resume = to_status(started).resume
    assert (resume and resume.step) == step
    assert started.resume_step == (step or 0)
