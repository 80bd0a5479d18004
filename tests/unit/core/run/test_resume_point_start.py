"""Where a gang starts from when its spec names another run, or a directory."""

import json
from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.lineage_status import PreviousRun
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.checkpoints.inventory import is_foreign
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from lockstep.core.pods.gang import pod_body
from support.foreign_saves import theirs
from support.world import World, node, spec, world_with_gang


def starting(start: dict[str, object], *, claim: str = "lustre", rows: tuple[CheckpointReport, ...] = ()) -> World:
    """Run `two`, which is to start from `start`, beside run `one`, which has saved."""
    w = World({f"n{index}": node(f"n{index}") for index in range(4)})
    w.foreign = rows
    w.apply("one", spec(2))
    w.settle()
    w.apply("two", following(start, claim))
    w.settle()
    return w


def following(start: dict[str, object], claim: str = "lustre") -> TrainingRunSpec:
    return spec(2, checkpoint={"shared": {"claimName": claim}, "start": start})


def test_a_run_starts_from_the_newest_valid_checkpoint_of_another_one() -> None:
    w = starting({"run": "one"}, rows=(theirs(500), theirs(600, Verdict.INVALID), theirs(400)))
    resolved = w.status("two").resolved
    assert (resolved.start_run, resolved.start_run_uid) == ("one", "uid-one")
    assert resolved.start_root == "/shared-checkpoints/ns/one/uid-one"
    start = w.starts["uid-two", 1]
    assert (start.resume_step, start.resume.path) == (500, "/shared-checkpoints/ns/one/uid-one/a3/step-500")
    assert w.status("two").checkpoint.latest == (), "it has saved nothing itself"
    assert not w.pointed_at, "nothing of another run is changed"
    config = pod_body(w.runs["two"], w.status("two"), w.tunables, 0, 1, "n0")["spec"]["containers"][0]["env"]
    (told,) = [json.loads(each["value"]) for each in config if each["name"] == "LOCKSTEP_CHECKPOINT_CONFIG"]
    assert told["start"] == {"root": "/shared-checkpoints/ns/one/uid-one", "runUid": "uid-one"}


DATE = 20251101


@pytest.mark.parametrize(
    ("start", "trained", "step"),
    [
        ({"run": "one"}, 500, 500),
        ({"run": "one"}, 0, 500),  # it reported nothing: by the others there
        ({"run": "one"}, 15_000_000, DATE),
        ({"run": "one", "step": DATE}, 500, DATE),  # somebody says that it is one
        ({"path": "ns/one/uid-one"}, 500, 500),
    ],
)
def test_a_number_that_is_no_step_is_not_started_from_unless_the_spec_names_it(
    start: dict[str, object], trained: int, step: int
) -> None:
    w = World({f"n{index}": node(f"n{index}") for index in range(4)})
    w.foreign = tuple(theirs(each) for each in (500, DATE) if start.get("step", each) == each)
    w.apply("one", spec(2))
    w.settle()
    w.amend("one", progress=changed(w.status("one").progress, step=trained))
    w.apply("two", following(start))
    w.settle()
    assert w.starts["uid-two", 1].resume_step == step


@pytest.mark.parametrize(("reported", "step"), [(600, 500), (None, 20_000)])  # so many may be done, for all one knows
def test_a_run_that_goes_on_from_one_that_is_gone_knows_how_far_that_had_come(reported: int | None, step: int) -> None:
    w = World({})
    w.foreign = (theirs(500), theirs(20_000))
    w.apply("two", following({"path": "ns/one/uid-one"}))
    if reported is not None:
        w.amend("two", previous=(PreviousRun(name="one", uid="uid-one", step=reported),))
    w.nodes = {f"n{index}": node(f"n{index}") for index in range(4)}
    w.pass_time(30, step=5)
    assert w.starts["uid-two", 1].resume_step == step


def test_what_another_run_has_reported_to_ray_train_stays_that_runs() -> None:
    path = "/shared-checkpoints/ns/one/uid-one/a3/experiment/checkpoint_2026-11-27_08-00-00.0"
    w = starting({"run": "one"}, rows=(theirs(500, path=path, run_uid="", format="RayTrain"),))
    assert w.starts["uid-two", 1].resume_step == 500
    assert w.status("two").checkpoint.latest == ()
    assert not w.pointed_at, "nothing of another run is changed"


def test_the_workers_are_told_the_one_step_to_start_from() -> None:
    w = starting({"run": "one", "step": 400}, rows=(theirs(400),))
    config = pod_body(w.runs["two"], w.status("two"), w.tunables, 0, 1, "n0")["spec"]["containers"][0]["env"]
    (told,) = [json.loads(each["value"]) for each in config if each["name"] == "LOCKSTEP_CHECKPOINT_CONFIG"]
    assert told["start"] == {"root": "/shared-checkpoints/ns/one/uid-one", "runUid": "uid-one", "step": 400}
    assert w.starts["uid-two", 1].resume_step == 400


def test_a_copy_that_is_touched_while_the_gang_waits_for_it_is_started_from() -> None:
    words = "changed after its commit; all else is right, as of a copy"
    w = starting({"run": "one"}, rows=(theirs(500, Verdict.UNKNOWN, reason=words, as_copied=True),))
    w.pass_time(300, step=10)
    assert ("uid-two", 1) not in w.starts
    assert words in said_of(w, "two")
    for worker in w.workers.values():  # they look again, as long as something is unknown
        worker.inventory = (theirs(500),)
    w.work()
    w.pass_time(20, step=5)
    assert w.starts["uid-two", 1].resume_step == 500


def test_that_it_is_a_copy_is_told_to_the_workers() -> None:
    w = starting({"run": "one", "acceptCopy": True}, rows=(theirs(400),))
    config = pod_body(w.runs["two"], w.status("two"), w.tunables, 0, 1, "n0")["spec"]["containers"][0]["env"]
    (told,) = [json.loads(each["value"]) for each in config if each["name"] == "LOCKSTEP_CHECKPOINT_CONFIG"]
    assert told["start"] == {"root": "/shared-checkpoints/ns/one/uid-one", "runUid": "uid-one", "acceptCopy": True}


def said_of(w: World, run: str) -> str:
    condition = find(w.status(run), "GangReady")
    assert condition is not None
    return condition.message


def test_a_run_that_has_saved_goes_on_from_its_own() -> None:
    w = starting({"run": "one"}, rows=(theirs(500),))
    w.exit_child("two", 1, 1)
    w.settle()
    assert w.starts["uid-two", 2].resume_step == 500, "nothing of its own yet"
    w.train("two", 20)
    w.tell_of_save("two", 520)
    w.exit_child("two", 0, 1)
    w.settle()
    assert (w.starts["uid-two", 3].resume_step, w.starts["uid-two", 3].resume.path) == (520, "/shared/520")


@pytest.mark.parametrize(("step", "resumed"), [(400, 400), (500, 500)])
def test_a_run_starts_from_exactly_the_step_that_is_named(step: int, resumed: int) -> None:
    w = starting({"run": "one", "step": step}, rows=(theirs(500), theirs(400)))
    assert w.starts["uid-two", 1].resume_step == resumed


def test_a_run_that_requires_a_checkpoint_finds_it_where_its_spec_says_to_start() -> None:
    w = starting({"run": "one", "mode": "Require"}, rows=(theirs(500),))
    assert w.starts["uid-two", 1].resume_step == 500


def test_a_start_that_cannot_be_had_stops_the_run_rather_than_beginning_at_step_0() -> None:
    w = starting({"run": "one", "step": 450}, rows=(theirs(500),))
    w.pass_time(70, step=5)
    finished = find(w.status("two"), "Finished")
    assert finished is not None
    assert finished.reason == "NoStartCheckpoint"
    assert "step 450 of run one" in finished.message
    assert ("uid-two", 1) not in w.starts


@pytest.mark.parametrize(
    ("start", "claim", "words"),
    [
        ({"run": "gone"}, "lustre", "there is no run gone in namespace ns"),
        ({"run": "one"}, "scratch", "write shared: {claimName: lustre}"),
        ({"run": "two"}, "lustre", "is this run itself"),
    ],
)
def test_what_cannot_be_started_from_is_refused_with_the_remedy(
    start: dict[str, object], claim: str, words: str
) -> None:
    w = starting(start, claim=claim)
    accepted = find(w.status("two"), "Accepted")
    assert accepted is not None
    assert accepted.status == "False"
    assert words in accepted.message
    assert not w.status("two").assignment.nodes


def test_once_resolved_the_other_run_may_be_deleted() -> None:
    w = World({f"n{index}": node(f"n{index}") for index in range(2)})
    w.foreign = (theirs(500),)
    w.apply("one", spec(2))
    w.settle()  # it holds all nodes
    w.apply("two", following({"run": "one"}))
    w.settle()
    assert is_true(w.status("two"), "Accepted")
    del w.runs["one"]
    w.pods.clear()
    w.workers.clear()
    w.settle()
    assert w.starts["uid-two", 1].resume_step == 500


def test_a_directory_of_the_claim_may_be_named() -> None:
    rows = (theirs(7, path="/shared-checkpoints/base/llama/iter_0000007", run_uid=""),)
    w = starting({"path": "base/llama"}, rows=rows)
    assert w.status("two").resolved.start_root == "/shared-checkpoints/base/llama"
    assert w.starts["uid-two", 1].resume.path == "/shared-checkpoints/base/llama/iter_0000007"


@pytest.mark.parametrize(
    ("path", "foreign"),
    [
        ("/s/base/step-3", True),
        ("/s/base/a2/step-3", True),
        ("/s/base/a2/experiment/checkpoint_3", True),
        ("/s/base-2/step-3", False),
        ("/s/base/me/a1/step-3", False),
        ("/s/other/step-3", False),
    ],
)
def test_checkpoints_elsewhere_are_told_from_ones_own_by_their_place(path: str, foreign: bool) -> None:
    run = replace(world_with_gang(1).runs["one"], uid="me")
    assert is_foreign(path, "/s/base", run) == foreign
    assert not is_foreign(path, "", run)
