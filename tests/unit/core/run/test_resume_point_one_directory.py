"""Where a gang starts from that saves in the one directory of earlier runs of its name."""

import json
from collections.abc import Sequence

import pytest
from msgspec import structs

from lockstep.api.base.changes import changed
from lockstep.api.lineage_status import PreviousRun
from lockstep.core.checkpoints.inventory import foreign_candidates
from lockstep.core.model.conditions import find
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from lockstep.core.pods.gang import pod_body
from support.foreign_saves import theirs
from support.world import World, node, spec


def in_place(*rows: CheckpointReport, before: Sequence[dict[str, object]] = (), **checkpoint: object) -> World:
    """Run `two`, which goes on in the one directory of an earlier one of its name."""
    w = World({f"n{index}": node(f"n{index}") for index in range(2)})
    root = "/shared-checkpoints/ns/two"
    w.foreign = tuple(
        structs.replace(row, path=f"{root}/step-{row.step}", attempt=row.attempt if row.run_uid else 0) for row in rows
    )
    tier = {"shared": {"claimName": "lustre"}, "layout": "Shared", "start": {"path": "ns/two"}}
    w.apply("two", spec(2, checkpoint=tier | checkpoint))
    w.annotate("two", previous=json.dumps(before))
    w.settle()
    return w


@pytest.mark.parametrize("uid", ["uid-one", ""], ids=["of that run", "of a format that does not say whose it is"])
def test_a_run_goes_on_in_the_directory_that_an_earlier_one_saved_in(uid: str) -> None:
    w = in_place(theirs(400, run_uid=uid), theirs(390, run_uid=uid))
    start = w.starts["uid-two", 1]
    assert (start.resume_step, start.resume.path) == (400, "/shared-checkpoints/ns/two/step-400")
    assert w.pointed_at, "the loader looks there, and it is this run's to change"
    w.train("two", 20)
    w.tell_of_save("two", 420)
    w.pass_time(40, step=5)
    assert [each.step for each in w.status("two").checkpoint.latest] == [420]
    w.exit_child("two", 0, 1)
    w.pass_time(60, step=5)
    assert w.starts["uid-two", 2].resume_step == 420


def test_of_all_that_have_saved_in_its_directory_the_run_that_it_goes_on_from_counts() -> None:
    w = in_place(theirs(5000, run_uid="uid-given-up"), theirs(100, run_uid="uid-before"))
    plan = w.plan("two")
    assert max(each.step for each in foreign_candidates(plan.snapshot, plan.status)) == 5000
    for chain in ([], ["uid-saved-nothing"]):
        before = tuple(PreviousRun(name="two", uid=uid) for uid in [*chain, "uid-before", "uid-given-up"])
        status = changed(plan.status, previous=before)
        assert [each.step for each in foreign_candidates(plan.snapshot, status)] == [100]


def test_one_whose_record_is_from_before_it_saved_counts_by_what_is_there() -> None:
    w = in_place(theirs(900, run_uid="uid-x"), theirs(500, run_uid="uid-w"))
    plan = w.plan("two")
    before = (PreviousRun(name="two", uid="uid-x"), PreviousRun(name="two", uid="uid-w", saved=500))
    status = changed(plan.status, previous=before)
    assert [each.step for each in foreign_candidates(plan.snapshot, status)] == [900]


def test_a_torn_save_of_the_last_one_does_not_stand_for_what_the_one_before_it_saved() -> None:
    w = in_place(theirs(1010, Verdict.INVALID, run_uid="uid-x"), theirs(1000, run_uid="uid-w"))
    plan = w.plan("two")
    before = (PreviousRun(name="two", uid="uid-x"), PreviousRun(name="two", uid="uid-w", saved=1000))
    status = changed(plan.status, previous=before)
    assert [each.step for each in foreign_candidates(plan.snapshot, status)] == [1000]


BEFORE = [
    {"name": "two", "uid": "uid-saved-nothing"},
    {"name": "two", "uid": "uid-before", "saved": 100},
    {"name": "two", "uid": "uid-given-up", "saved": 5000},
]


def test_the_workers_are_told_whose_saves_it_goes_on_from() -> None:
    w = in_place(theirs(100, run_uid="uid-before"), before=BEFORE)
    config = pod_body(w.runs["two"], w.status("two"), w.tunables, 0, 1, "n0")["spec"]["containers"][0]["env"]
    (told,) = [json.loads(each["value"]) for each in config if each["name"] == "LOCKSTEP_CHECKPOINT_CONFIG"]
    assert told["start"] == {"root": "/shared-checkpoints/ns/two", "runUid": "uid-before"}
    assert w.starts["uid-two", 1].resume_step == 100
    assert (
        "resumes from step 100 of attempt 3 (shared) of run two (UID uid-before)" in w.status("two").checkpoint.choice
    )


def test_where_the_saves_of_the_run_that_it_goes_on_from_are_gone_it_takes_no_other_ones() -> None:
    w = in_place(theirs(5000, run_uid="uid-given-up"), before=BEFORE)
    w.pass_time(120, step=5)
    finished = find(w.status("two"), "Finished")
    assert finished is not None
    assert finished.reason == "NoStartCheckpoint"
    assert "run two (UID uid-before) in /shared-checkpoints/ns/two, where no checkpoint is valid" in finished.message


@pytest.mark.parametrize("uid", ["uid-one", ""])
def test_one_that_fails_before_it_saves_goes_on_from_there_once_more(uid: str) -> None:
    w = in_place(theirs(400, run_uid=uid))
    w.exit_child("two", 0, 1)
    w.pass_time(60, step=5)
    assert w.starts["uid-two", 2].resume_step == 400


def begun(step: int, **changes: object) -> CheckpointReport:
    """A save that was cut off: nothing in it says whose it is."""
    return theirs(step, Verdict.INVALID, run_uid="", committed_at=0.0, **changes)


def fails_before_it_saves(w: World) -> None:
    w.train("two", 100)
    w.work()
    w.saved.clear()
    w.exit_child("two", 0, 1)
    w.pass_time(60, step=5)


@pytest.mark.parametrize(
    "left", [begun(200), theirs(200, Verdict.UNKNOWN, run_uid="")], ids=["cut off", "cannot be read"]
)
def test_what_lay_broken_there_before_is_not_held_against_a_run_that_fails_before_it_saves(
    left: CheckpointReport,
) -> None:
    w = in_place(theirs(5000), left)
    fails_before_it_saves(w)
    assert w.starts["uid-two", 2].resume_step == 5000


def test_what_the_run_itself_began_there_and_never_committed_blocks_another_start() -> None:
    w = in_place(theirs(5000))
    w.foreign += tuple(begun(step, path=f"/shared-checkpoints/ns/two/step-{step}") for step in (5050, 5100))
    fails_before_it_saves(w)
    finished = find(w.status("two"), "Finished")
    assert finished is not None
    assert finished.reason == "UnknownSaves"


@pytest.mark.parametrize("rows", [(), (theirs(400, Verdict.INVALID),), (theirs(400, Verdict.UNKNOWN),)])
def test_one_that_finds_nothing_whole_there_never_begins_at_step_0(rows: tuple[CheckpointReport, ...]) -> None:
    w = in_place(*rows)
    w.pass_time(120, step=5)
    finished = find(w.status("two"), "Finished")
    assert finished is not None
    assert finished.reason == "NoStartCheckpoint"
    assert ("uid-two", 1) not in w.starts


def test_where_all_save_in_one_directory_what_lies_elsewhere_may_be_started_from() -> None:
    rows = (theirs(500), theirs(900, path="/shared-checkpoints/ns/two/step-900"))
    w = World({f"n{index}": node(f"n{index}") for index in range(4)})
    w.foreign = rows
    w.apply("one", spec(2))
    w.settle()
    tier = {"shared": {"claimName": "lustre"}, "layout": "Shared", "start": {"run": "one"}}
    w.apply("two", spec(2, checkpoint=tier))
    w.settle()
    assert w.starts["uid-two", 1].resume_step == 500
