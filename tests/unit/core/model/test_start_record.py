"""The START record: in status and on the wire it says the same."""

from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import StartMembers, TrainingRunStatus
from lockstep.core.model.start_record import (
    CollectiveStart,
    Members,
    Resume,
    forget_start,
    put_start,
    renew_start,
    restore_start,
    to_record,
    to_status,
)

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


def test_each_start_is_counted_and_one_that_is_written_anew_is_none() -> None:
    status = put_start(TrainingRunStatus(), to_status(record()))
    assert status.totals.attempts == 1
    members = (StartMembers(slots="0-1", incarnation=2),)
    joined = renew_start(status, "def", members, "1,0", 9.0)
    assert joined.totals == status.totals
    assert joined.start == changed(
        to_status(record()), assignment_hash="def", members=members, order="1,0", joins=1, joined_at=9.0
    )
    assert put_start(forget_start(joined), to_status(record())).totals.attempts == 2


def test_one_that_was_lost_is_as_it_is_told_and_counts_no_more() -> None:
    assert restore_start(TrainingRunStatus(), record()) == changed(TrainingRunStatus(), start=to_status(record()))
