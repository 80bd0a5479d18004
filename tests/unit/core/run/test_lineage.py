"""A run that goes on from another keeps the record of it, and the other one, where it still is, a link to it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.lineage_status import MAX_PREVIOUS
from lockstep.core.run.lineage import MOST_READ, records_in, records_of
from support.world import World, spec, world

SHARED_TIER = {"shared": {"claimName": "lustre"}}
RECORD: dict[str, Any] = {"name": "one", "uid": "uid-old", "outcome": "Failed", "reason": "Deterministic", "saved": 40}


def ended() -> World:
    """``base`` has saved step 40 and was cancelled; ``next`` is to start from it."""
    w = world(2)
    w.apply("base", spec(1, checkpoint=SHARED_TIER))
    w.settle()
    w.train("base", 40)
    w.tell_of_save("base", 40)
    w.apply("base", spec(1, checkpoint=SHARED_TIER, cancel=True))
    w.pass_time(200, step=5)
    return w


def test_a_run_that_starts_from_another_has_its_record_and_the_other_one_a_link() -> None:
    w = ended()
    w.apply("next", spec(1, checkpoint=SHARED_TIER | {"start": {"run": "base"}}))
    w.settle()
    (record,) = w.status("next").previous
    assert (record.name, record.uid, record.outcome, record.reason) == ("base", "uid-base", "Cancelled", "Cancelled")
    assert (record.attempts, record.saved) == (1, 40)
    assert record.ended is not None
    link = w.status("base").next
    assert link is not None
    assert (link.name, link.uid) == ("next", "uid-next")
    del w.runs["next"]
    w.settle()
    assert w.status("base").next == link, "it was gone on from, whatever became of that run"


def test_a_run_has_a_record_whatever_somebody_has_edited_its_status_to() -> None:
    w = ended()
    status = w.runs["base"].status
    for number in (-(2**63), -1, 2**53 + 1, 2**63 - 1):
        latest = [changed(each, step=number) for each in status.checkpoint.latest]
        edited = changed(
            status,
            totals=changed(status.totals, attempts=number),
            progress=changed(status.progress, step=number),
            checkpoint=changed(status.checkpoint, latest=tuple(latest)),
        )
        (record,) = records_of(replace(w.runs["base"], status=edited))
        assert (record.attempts, record.step, record.saved) == ((0, 0, 0) if number < 0 else (2**31 - 1, 2**53, 2**53))


@pytest.mark.parametrize("saved", [True, False])
def test_a_run_that_goes_on_from_nothing_of_another_is_linked_by_the_record_that_it_was_made_with(saved: bool) -> None:
    w = world(2)
    w.apply("base", spec(1))
    w.settle()
    w.apply("base", spec(1, cancel=True))
    w.pass_time(200, step=5)
    w.apply("next", spec(1, checkpoint=SHARED_TIER | {"start": {"mode": "Fresh"}} if saved else None))
    w.annotate("next", previous=json.dumps([RECORD | {"name": "base", "uid": "uid-base"}]))
    w.settle()
    link = w.status("base").next
    assert link is not None
    assert (link.name, link.uid) == ("next", "uid-next")


def test_a_run_that_only_asks_when_it_would_start_is_nobodys_successor() -> None:
    w = ended()
    w.apply("question", spec(1, checkpoint=SHARED_TIER | {"start": {"run": "base"}}))
    w.annotate("question", test_only="true")
    w.settle()
    assert w.status("question").resolved.start_run_uid == "uid-base"
    assert w.status("base").next is None


def test_the_record_of_a_run_that_was_deleted_is_what_the_command_told() -> None:
    w = world(1)
    w.apply("one", spec(1))
    w.annotate("one", previous=json.dumps([RECORD]))
    w.settle()
    (record,) = w.status("one").previous
    assert (record.uid, record.outcome, record.saved) == ("uid-old", "Failed", 40)
    w.annotate("one", previous=json.dumps([RECORD | {"uid": "another"}]))
    w.settle()
    assert w.status("one").previous == (record,), "written once"


def test_a_run_that_is_there_counts_more_than_what_is_told_of_it() -> None:
    w = ended()
    w.apply("next", spec(1, checkpoint=SHARED_TIER | {"start": {"run": "base"}}))
    w.annotate("next", previous=json.dumps([RECORD]))
    w.settle()
    assert [each.uid for each in w.status("next").previous] == ["uid-base"]


def test_the_records_of_those_before_go_on_and_end_somewhere() -> None:
    w = ended()
    w.amend("base", previous=records_in(json.dumps([RECORD] * (MAX_PREVIOUS + 3))))
    assert [each.uid for each in records_of(w.runs["base"])] == ["uid-base"] + ["uid-old"] * (MAX_PREVIOUS - 1)
    written = json.dumps([each.dump() for each in records_of(w.runs["base"])], separators=(",", ":"))
    assert records_in(written) == records_of(w.runs["base"])


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "no JSON",
        "{}",
        "[" * MOST_READ,
        "[" * 300 + "]" * 300,
        json.dumps([RECORD]) + " " * MOST_READ,
        json.dumps([RECORD | {"outcome": "Whatever"}]),
        json.dumps([RECORD | {"name": "n" * 300}]),
        json.dumps([RECORD | {"attempts": -1}]),
        json.dumps([RECORD | {"ended": "yesterday"}]),
        json.dumps([{"uid": "u"}]),
    ],
)
def test_of_an_annotation_that_is_not_as_the_command_writes_it_nothing_is_taken(annotation: str) -> None:
    assert records_in(annotation) == ()


def test_what_a_terminal_would_obey_is_taken_out_of_a_record() -> None:
    (record,) = records_in(json.dumps([RECORD | {"name": "a\x1b[2Jb"}]))
    assert record.name == "ab"
