"""Where a gang resumes from when its own tiers have nothing: from the archive, or what its spec says to start from."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from lockstep.api.base.changes import changed
from lockstep.api.lineage_status import PreviousRun
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.checkpoints.archive_job import RESULT_FORMAT, parse_result
from lockstep.core.checkpoints.inventory import foreign_candidates, is_foreign
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.settings import ArchiveSettings, PodPolicy
from lockstep.core.model.snapshot import JobPhase, JobView
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from lockstep.core.pods.gang import pod_body
from lockstep.core.run.resume_point import MAX_ARCHIVE_FAILURES
from support.values import not_none
from support.world import World, node, spec, world_with_gang

ARCHIVED = {"shared": {"claimName": "lustre"}, "archive": {"uri": "s3://golden/one", "interval": "6h"}}
BACK = "/shared-checkpoints/ns/one/uid-one/a0/step-100"


def archived(image: str = "lockstep:1") -> World:
    """A gang that has saved step 100, of which there is a copy in the archive; then the shared tier is lost."""
    w = World({f"n{index}": node(f"n{index}") for index in range(3)}, Tunables(archive=ArchiveSettings(image=image)))
    w.apply("one", spec(2, checkpoint=ARCHIVED))
    w.settle()
    w.train("one", 100)
    w.tell_of_save("one", 100)
    w.pass_time(40, step=5)
    if image:
        end_job(w, "Upload", outcome="Done", published=[{"attempt": 1, "step": 100, "bytes": 7, "time": int(w.now)}])
        assert [(each.attempt, each.step) for each in w.status("one").checkpoint.archive.published] == [(1, 100)]
    w.saved.clear()
    return w


def end_job(w: World, action: str, phase: JobPhase = JobPhase.COMPLETE, **result: object) -> None:
    """The job that status names ends, with what its last pod said."""
    work = w.status("one").checkpoint.archive.job
    assert work is not None
    assert work.action == action
    said = json.dumps({"format": RESULT_FORMAT, **result})
    assert parse_result(said) is not None, "a real job writes nothing else"
    w.jobs["one"] = (JobView("ns", work.name, "uid-job", "uid-one", phase, finished_at=w.now, result=said),)
    w.settle()


def said(w: World, kind: str = "GangReady") -> str:
    condition = find(w.status("one"), kind)
    assert condition is not None
    return condition.message


def test_a_copy_is_brought_back_when_nothing_else_is_left_and_the_gang_resumes_from_it() -> None:
    w = archived()
    w.exit_child("one", 1, 1)
    w.pass_time(70, step=5)
    assert w.status("one").totals.attempts == 1
    work = w.status("one").checkpoint.archive.job
    assert work is not None
    assert (work.action, work.attempt, work.step) == ("Restore", 1, 100)
    w.pass_time(5)
    assert "waits for step 100 of attempt 1 (archive) to be brought back" in said(w)
    w.crash()
    w.pass_time(600, step=60)  # it takes longer than anybody would be given to read a checkpoint
    assert w.status("one").totals.attempts == 1
    end_job(w, "Restore", outcome="Done", path=BACK)
    assert w.status("one").totals.attempts == 2
    resume = w.status("one").checkpoint.resume
    assert resume is not None
    assert (resume.tier, resume.step, resume.path) == ("shared", 100, BACK)
    assert len(w.children("one")) == 2
    assert "resumes from step 100 of attempt 1 (shared)" in w.status("one").checkpoint.choice


@pytest.mark.parametrize("is_there", [False, True])
def test_what_was_brought_back_and_is_gone_is_brought_back_once_more_and_nothing_else_is(
    is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = archived()
    w.exit_child("one", 1, 1)
    w.pass_time(70, step=5)
    first = not_none(w.status("one").checkpoint.archive.job)
    end_job(w, "Restore", outcome="Done", path=BACK)
    assert w.starts["uid-one", 2].resume.path == BACK
    w.pass_time(600, step=60)
    if is_there:
        monkeypatch.setattr(w, "_rows", lambda *_: (theirs(100, path=BACK, attempt=0),))
    w.exit_child("one", 1, 1)
    w.pass_time(70, step=5)
    work = w.status("one").checkpoint.archive.job
    assert (work is None) is is_there
    if work is not None:
        assert (work.action, work.attempt, work.step, work.path) == ("Restore", 1, 100, first.path)
        assert work.name != first.name, "whose job is still there"
        end_job(w, "Restore", outcome="Done", path=BACK)
    assert w.starts["uid-one", 3].resume.path == BACK


def test_after_repeated_failures_the_run_stops_waiting_and_says_what_went_wrong() -> None:
    w = archived()
    w.exit_child("one", 1, 1)
    w.pass_time(70, step=5)
    for _ in range(MAX_ARCHIVE_FAILURES):
        assert not is_true(w.status("one"), "Finished")
        end_job(w, "Restore", JobPhase.FAILED, outcome="CredentialsRefused", message="the store refuses the key")
        w.pass_time(310, step=30)
    assert is_true(w.status("one"), "Finished")
    assert "CredentialsRefused: the store refuses the key" in said(w, "Finished")
    rejected = w.status("one").checkpoint.rejected
    assert any(each.tier == "archive" and "CredentialsRefused" in each.reason for each in rejected)


def test_uploads_that_failed_before_neither_hold_up_a_restore_nor_count_as_failures_of_it() -> None:
    w = archived()
    known = w.status("one").checkpoint
    archive = changed(known.archive, failures=7, not_before=w.now + 3600, message="Upload of a1/step-200 failed: no")
    w.amend("one", checkpoint=changed(known, archive=archive))
    w.exit_child("one", 1, 1)
    w.pass_time(70, step=5)
    end_job(w, "Restore", JobPhase.FAILED, outcome="StoreUnavailable", message="for a moment")
    w.pass_time(70, step=5)
    assert not is_true(w.status("one"), "Finished")
    end_job(w, "Restore", outcome="Done", path=BACK)
    assert not_none(w.status("one").checkpoint.resume).step == 100


@pytest.mark.parametrize("seen", [None, Verdict.INVALID], ids=["nothing", "half of it"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_rank_that_came_to_the_barrier_before_another_had_saved_looks_again_before_anything_is_chosen(
    seen: Verdict | None, whole: bool
) -> None:
    w = world_with_gang(2, checkpoint={"shared": {"claimName": "lustre"}})
    w.train("one", 100)
    w.tell_of_save("one", 100)
    w.settle()
    w.exit_child("one", 1, 1)
    while any(worker.ready_for < 2 for worker in w.workers.values()):
        w.reconcile("one")
        w.work()
    first, other = (w.worker("one", rank) for rank in (0, 1))
    assert first is not None
    assert other is not None
    (row,) = first.inventory
    newest = structs.replace(row, step=105, path="/shared/105")
    first.inventory = (row, newest)  # saved on SIGTERM
    if seen is not None:
        other.inventory = (row, structs.replace(newest, verdict=seen, reason="manifest.json is missing"))
    if whole:
        w.saved["uid-one"].append(105)
    w.work_reports_only()
    w.settle()
    assert ("uid-one", 2) not in w.starts or whole
    assert not whole or w.starts["uid-one", 2].resume_step == 105
    w.pass_time(70, step=5)
    assert w.starts["uid-one", 2].resume_step == (105 if whole else 100)


def test_the_archive_is_asked_what_it_holds_before_saved_work_is_given_up() -> None:
    w = archived()
    view = w.runs["one"]
    known = changed(view.status.checkpoint.archive, published=(), job=None)
    checkpoint = changed(view.status.checkpoint, archive=known, latest=())
    w.runs["one"] = replace(view, status=changed(view.status, checkpoint=checkpoint))
    w.tell_of_save("one", 0)
    for worker in w.workers.values():
        worker.inventory = ()
    w.jobs.clear()
    w.exit_child("one", 1, 1)
    w.pass_time(70, step=5)
    assert w.status("one").totals.attempts == 1
    assert "asks the archive what it holds" in said(w)
    end_job(w, "List", outcome="Done", published=[{"attempt": 1, "step": 100, "bytes": 7, "time": int(w.now)}])
    end_job(w, "Restore", outcome="Done", path=BACK)
    assert w.starts["uid-one", 2].resume.path == BACK


def test_without_an_image_for_its_jobs_the_archive_is_not_waited_for() -> None:
    w = archived(image="")
    w.exit_child("one", 1, 1)
    w.pass_time(70, step=5)
    assert find(w.status("one"), "Finished") is not None
    assert "was valid before, and no rank sees it now" in said(w, "Finished")


def test_an_archive_whose_jobs_may_not_have_their_account_is_not_waited_for() -> None:
    w = archived()
    view = w.runs["one"]
    kept = not_none(not_none(view.spec).checkpoint)
    archive = changed(not_none(kept.archive), service_account_name="admin")
    w.runs["one"] = replace(view, spec=changed(not_none(view.spec), checkpoint=changed(kept, archive=archive)))
    w.tunables = replace(w.tunables, pod_policy=PodPolicy(service_accounts=("robot",)))
    w.exit_child("one", 1, 1)
    w.pass_time(70, step=5)
    assert find(w.status("one"), "Finished") is not None
    assert "serviceAccountName" in said(w, "Finished")


# --- start from another run, or from a directory


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


def theirs(step: int, verdict: Verdict = Verdict.VALID, **changes: object) -> CheckpointReport:
    row = CheckpointReport(
        tier="shared",
        step=step,
        path=f"/shared-checkpoints/ns/one/uid-one/a3/step-{step}",
        verdict=verdict,
        reason="" if verdict is Verdict.VALID else "torn",
        format="Megatron",
        attempt=3,
        run_uid="uid-one",
        committed_at=1.0,
    )
    return structs.replace(row, **changes)


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


# --- layout Shared: start from the directory that the run itself saves in


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
