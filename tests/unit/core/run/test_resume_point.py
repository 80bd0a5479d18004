"""Where a gang resumes from when its own tiers have nothing: from the archive, or what a second look finds."""

import json
from dataclasses import replace

import pytest
from msgspec import structs

from lockstep.api.base.changes import changed
from lockstep.core.checkpoints.archive_job import RESULT_FORMAT, parse_result
from lockstep.core.model.bounds import Tier
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.settings import ArchiveSettings, PodPolicy
from lockstep.core.model.snapshot import JobPhase, JobView
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import Verdict, VerifyReport
from lockstep.core.run.resume_point import MAX_ARCHIVE_FAILURES
from support import world_workers
from support.foreign_saves import theirs
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


def reads_other_bytes(tier: Tier, path: str, _: Verdict) -> VerifyReport:
    return VerifyReport(tier, path, Verdict.INVALID, "rank-0.pt has another checksum")


@pytest.mark.parametrize("damage", ["torn", "other bytes"])
def test_what_was_brought_back_under_the_name_of_a_damaged_save_is_looked_at_anew(
    damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = archived()
    row = theirs(100, path="/shared/100", attempt=0)
    torn = theirs(100, Verdict.INVALID, path="/shared/100", attempt=0, reason="rank-0.pt is missing")
    monkeypatch.setattr(w, "_rows", lambda *_: (torn if damage == "torn" else row,))
    with monkeypatch.context() as bad:
        if damage == "other bytes":
            bad.setattr(world_workers, "VerifyReport", reads_other_bytes)
        w.exit_child("one", 1, 1)
        w.pass_time(100, step=5)
        assert not_none(w.status("one").checkpoint.archive.job).action == "Restore"
    monkeypatch.setattr(w, "_rows", lambda *_: (row,))
    end_job(w, "Restore", outcome="Done", path="/shared/100")
    w.settle()
    assert (w.status("one").attempt, w.status("one").totals.attempts) == (3, 2)
    assert w.starts["uid-one", 3].resume.path == "/shared/100"


@pytest.mark.parametrize(("skew", "leads_anew"), [(-120.0, False), (120.0, False), (0.0, True)])
@pytest.mark.parametrize("stays_torn", [False, True], ids=["is whole now", "stays torn"])
def test_what_was_brought_back_is_looked_at_anew_once_whatever_clocks_say_and_whoever_leads(
    stays_torn: bool, skew: float, leads_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = archived()
    row = theirs(100, path="/shared/100", attempt=0)
    torn = theirs(100, Verdict.INVALID, path="/shared/100", attempt=0, reason="rank-0.pt is missing")
    older = theirs(50, path="/shared/50", attempt=0)
    monkeypatch.setattr(w, "_rows", lambda *_: (torn, older))
    w.exit_child("one", 1, 1)
    w.pass_time(100, step=5)
    work = not_none(w.status("one").checkpoint.archive.job)
    assert work.action == "Restore"
    monkeypatch.setattr(w, "_rows", lambda *_: (torn if stays_torn else row, older))
    words = json.dumps({"format": RESULT_FORMAT, "outcome": "Done", "path": "/shared/100"})
    done = JobView("ns", work.name, "uid-job", "uid-one", JobPhase.COMPLETE, finished_at=w.now + skew, result=words)
    w.jobs["one"] = (done,)
    if leads_anew:  # one that dates the inventories by when it heard of them
        w.now += 15
        w.crash()
        for worker in w.workers.values():
            worker.since = w.now
    w.settle()
    w.pass_time(120, step=5)
    assert (w.status("one").attempt, w.status("one").totals.attempts) == (3, 2)
    assert w.starts["uid-one", 3].resume.step == (50 if stays_torn else 100)


@pytest.mark.parametrize("skew", [-120.0, 120.0])
def test_what_was_brought_back_is_no_more_awaited_whatever_the_clock_of_jobs_says(skew: float) -> None:
    w = archived()
    w.exit_child("one", 1, 1)
    w.pass_time(70, step=5)
    work = not_none(w.status("one").checkpoint.archive.job)
    words = json.dumps({"format": RESULT_FORMAT, "outcome": "Done", "path": BACK})
    done = JobView("ns", work.name, "uid-job", "uid-one", JobPhase.COMPLETE, finished_at=w.now + skew, result=words)
    w.jobs["one"] = (done,)
    w.pass_time(10, step=5)
    assert w.starts["uid-one", 2].resume.path == BACK
    assert w.status("one").checkpoint.archive.job is None


@pytest.mark.slow
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


@pytest.mark.slow
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
