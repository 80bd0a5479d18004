"""What is brought back from the archive, how often that is tried, and when the archive is searched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import ArchiveStatus, SavedCheckpoint
from lockstep.core.checkpoints.archiving import (
    ArchivePlan,
    archive_candidates,
    is_worth_a_search,
    keep_archive,
    plan_archive,
    published_as,
    restored_candidate,
)
from lockstep.core.checkpoints.resume import world_refusal
from lockstep.core.model.snapshot import JobPhase, JobView, RunView
from support.archive_plans import NOW, PATH, SETTINGS, after, builder_of, copied, job, run_of


def test_a_restore_goes_before_everything_else_and_ends_with_a_path() -> None:
    run = run_of(copied(), saved=(2, 400))
    plan = plan_archive(run, (), SETTINGS, NOW + 1e6, restore=copied().published[0])
    assert plan.create is not None
    container = plan.create.body["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][0] == "restore"
    assert container["args"][-1] == f"{PATH}/a0", "where no attempt ever writes"
    assert container["volumeMounts"][0]["readOnly"] is False
    done = plan_archive(after(run, plan), [job(plan, path=f"{PATH}/a0/step-300")], SETTINGS, NOW + 1e6)
    back = restored_candidate(done.status)
    assert back is not None
    assert (back.tier, back.step, back.path, back.attempt) == ("shared", 300, f"{PATH}/a0/step-300", 2)


@pytest.mark.parametrize("action", ["Restore", "List"])
@pytest.mark.parametrize("moved", [False, True])
def test_what_is_fetched_once_more_is_not_taken_for_done_by_the_job_of_before(action: str, moved: bool) -> None:
    wanted: dict[str, Any] = {"restore": copied().published[0]} if action == "Restore" else {"search": True}
    run = run_of(copied(), saved=None)
    first = plan_archive(run, (), SETTINGS, NOW, **wanted)
    ended = job(first, path=f"{PATH}/a0/step-300", published=[])
    run = after(run, plan_archive(after(run, first), [ended], SETTINGS, NOW + 200, **wanted))
    known = changed(run.status.checkpoint.archive, listed=None)
    run = replace(run, status=changed(run.status, checkpoint=changed(run.status.checkpoint, archive=known)))
    if moved:  # elsewhere, and back
        known = changed(known, uri="s3://elsewhere", job=None)
        run = replace(run, status=changed(run.status, checkpoint=changed(run.status.checkpoint, archive=known)))
    again = plan_archive(run, [ended], SETTINGS, NOW + 300, **wanted)
    assert again.create is not None
    assert again.create.name != ended.name
    assert again.status.job is not None
    assert again.status.job.action == action
    under_way = plan_archive(
        after(run, again),
        [ended, replace(ended, name=again.create.name, phase=JobPhase.ACTIVE)],
        SETTINGS,
        NOW + 310,
        **wanted,
    )
    assert (under_way.create, under_way.status.job) == (None, again.status.job)


@pytest.mark.parametrize("action", ["Restore", "List"])
def test_what_a_gang_waits_for_has_tries_and_a_backoff_of_its_own(action: str) -> None:
    known = changed(copied(), failures=7, not_before=NOW + 3600, message="Upload of a2/step-400 failed: no")
    run, now = run_of(known, saved=(2, 400)), NOW
    wanted: dict[str, Any] = {"restore": known.published[0]} if action == "Restore" else {"search": True}
    for wait in (60, 120, 240, 300, 300):
        made = plan_archive(run, (), SETTINGS, now, **wanted)
        assert made.status.job is not None, "uploads that failed hold it up no longer than those before it"
        assert made.status.job.action == action
        ended = job(made, JobPhase.FAILED, outcome="StoreUnavailable", message="down")
        failed = plan_archive(after(run, made), [ended], SETTINGS, now, **wanted)
        run, now = after(run, failed), now + wait
        assert (failed.status.failures, failed.status.not_before) == (7, NOW + 3600)
        assert failed.status.restore_not_before == now
    assert run.status.checkpoint.archive.restore_failures == 5
    upload = plan_archive(run, (), SETTINGS, NOW + 3600, ended=True)
    assert upload.status.job is not None
    assert upload.status.job.name.endswith("archive-2-400-7")
    done = plan_archive(after(run, upload), [job(upload)], SETTINGS, NOW + 3700)
    assert (done.status.failures, done.status.restore_failures, done.status.message) == (0, 0, "")


def test_a_restore_that_succeeds_has_uploads_tried_at_once_as_the_next_of_their_tries() -> None:
    known = changed(copied(), failures=7, not_before=NOW + 3600)
    run = run_of(known, saved=(2, 400))
    made = plan_archive(run, (), SETTINGS, NOW, restore=known.published[0])
    ended = job(made, path=f"{PATH}/a0/step-300")
    back = plan_archive(after(run, made), [ended], SETTINGS, NOW + 100)
    next_one = plan_archive(after(run, back), [ended], SETTINGS, NOW + 101, ended=True)
    assert next_one.status.job is not None
    assert next_one.status.job.name.endswith("archive-2-400-7")


@pytest.mark.parametrize("action", ["Restore", "List"])
def test_what_a_gang_waits_for_has_failed_once_no_pod_of_it_ran_for_ten_minutes(action: str) -> None:
    wanted: dict[str, Any] = {"restore": copied().published[0]} if action == "Restore" else {"search": True}
    made = plan_archive(run_of(copied(), saved=None), (), SETTINGS, NOW, **wanted)
    run = after(run_of(copied(), saved=None), made)
    runs = job(made, JobPhase.ACTIVE)
    idle = replace(runs, idle_since=NOW)  # since when it is there

    def pass_over(seen: JobView | None, at: float) -> ArchivePlan:
        nonlocal run
        plan = plan_archive(run, [seen] if seen is not None else [], SETTINGS, at, **wanted)
        run = after(run, plan)
        return plan

    assert pass_over(idle, NOW + 10).wake_at == NOW + 610
    assert pass_over(runs, NOW + 300).wake_at is None
    assert pass_over(idle, NOW + 900).wake_at == NOW + 1500, "one pod has failed, and the next is yet to come"
    ends = pass_over(idle, NOW + 1500)
    assert ends.delete is not None
    assert [event.reason for event in ends.events] == ["ArchiveJobIdle"]
    assert pass_over(replace(idle, deleting=True), NOW + 1501).delete is None
    gone = pass_over(None, NOW + 1510)
    assert gone.status.job is None
    assert gone.status.restore_failures == 1
    assert gone.status.message.startswith(action), "six in a row, and the gang goes on without the archive"
    assert [event.reason for event in gone.events] == ["ArchiveJobFailed"]
    again = pass_over(None, NOW + 1510 + 60)
    assert again.create is not None
    assert again.create.name == f"{runs.name}-1"


def test_a_copy_whose_name_is_taken_is_passed_over_alone() -> None:
    known = changed(copied(), published=(*copied().published, *copied(1, 200).published))
    run = replace(run_of(known, saved=None), status=changed(run_of(known, saved=None).status, attempt=3))
    made = plan_archive(run, (), SETTINGS, NOW, restore=known.published[0])
    ended = job(made, JobPhase.FAILED, outcome="DestinationTaken", message="is another one")
    failed = plan_archive(after(run, made), [ended], SETTINGS, NOW + 100)
    assert [each.step for each in archive_candidates(failed.status)] == [200]
    assert failed.status.restore_not_before is None
    older = plan_archive(after(run, failed), [ended], SETTINGS, NOW + 100, restore=known.published[1])
    assert older.status.job is not None
    assert (older.status.job.action, older.status.job.step) == ("Restore", 200)
    assert failed.status.damaged == ("a2/step-300",), "a listing would name it again"


def test_a_copy_that_cannot_be_restored_is_no_candidate_any_more() -> None:
    run = run_of(copied(), saved=None)
    wanted = copied().published[0]
    assert published_as(copied(), archive_candidates(copied())[0]) == wanted
    plan = plan_archive(run, (), SETTINGS, NOW, restore=wanted)
    ended = job(plan, JobPhase.FAILED, outcome="ArchiveCorrupt", message="other bytes")
    failed = plan_archive(after(run, plan), [ended], SETTINGS, NOW)
    assert archive_candidates(failed.status) == ()
    searched = plan_archive(after(run, failed), [ended], SETTINGS, NOW, search=True)
    assert searched.create is not None
    assert searched.create.body["spec"]["template"]["spec"]["containers"][0]["args"][0] == "list"


def test_a_damaged_copy_that_every_listing_names_is_brought_back_once() -> None:
    """A listing compares sizes, a restore every byte."""
    named = [{"attempt": 2, "step": 300, "bytes": 7, "time": int(NOW)}]
    run = run_of(copied(), saved=None)
    run = replace(run, status=changed(run.status, attempt=2))
    ended: list[JobView] = []
    for _ in range(9):
        archive = run.status.checkpoint.archive
        published = archive.published[0] if archive.published else None
        search = published is None and is_worth_a_search(run, archive)
        plan = plan_archive(run, ended, SETTINGS, NOW, restore=published, search=search)
        run = after(run, plan)
        if plan.create is not None:
            assert plan.status.job is not None
            restores = plan.status.job.action == "Restore"
            ended.append(
                job(plan, JobPhase.FAILED, outcome="ArchiveCorrupt", message="other bytes")
                if restores
                else job(plan, published=named)
            )
    archive = run.status.checkpoint.archive
    assert len(ended) == 2
    assert archive.job is None
    assert archive.damaged == ("a2/step-300",)
    assert archive.message == "Restore of a2/step-300 failed: ArchiveCorrupt: other bytes"
    same = (SavedCheckpoint(tier="shared", step=300, path=f"{PATH}/a2/step-300", attempt=2),)
    assert plan_archive(after(run, plan, latest=same), ended, SETTINGS, NOW + 1e6).create is None


def test_what_a_job_tells_of_a_copy_is_what_the_choice_goes_by() -> None:
    run = run_of(saved=None)
    plan = plan_archive(run, (), SETTINGS, NOW, search=True)
    named = [
        {"attempt": 2, "step": 300, "bytes": 7, "world": 4, "format": "TorchDCP"},
        {"attempt": 2, "step": 200, "bytes": 7, "world": 4, "format": "what ever"},
    ]
    done = plan_archive(after(run, plan), [job(plan, published=named)], SETTINGS, NOW, search=True)
    found = archive_candidates(done.status)
    assert [(each.step, each.world, each.format) for each in found] == [(300, 4, "TorchDCP"), (200, 4, "")]
    assert [world_refusal(each, 8) for each in found] == ["", "was saved by 4 nodes and cannot be loaded by 8"]


def test_a_lost_status_is_rebuilt_by_listing_once() -> None:
    run = run_of(ArchiveStatus(), saved=None)
    plan = plan_archive(run, (), SETTINGS, NOW, search=True)
    assert plan.create is not None
    published = [{"attempt": 3, "step": 500, "bytes": 9, "time": int(NOW)}, {"attempt": 2, "step": 300}]
    done = plan_archive(after(run, plan), [job(plan, published=published)], SETTINGS, NOW, search=True)
    assert [(each.attempt, each.step) for each in done.status.published] == [(3, 500), (2, 300)]
    assert done.create is None
    empty = plan_archive(after(run, plan), [job(plan, published=[])], SETTINGS, NOW, search=True)
    assert empty.status.listed is not None
    assert plan_archive(after(run, empty), (), SETTINGS, NOW, search=True).create is None


def test_what_the_resume_choice_waits_for_comes_first() -> None:
    builder = builder_of(run_of(copied(), saved=(2, 400)))
    keep_archive(builder, copied().published[0])
    assert builder.status.checkpoint.archive.job is not None
    assert builder.status.checkpoint.archive.job.action == "Restore"


def test_the_archive_is_searched_only_where_it_may_hold_something_forgotten() -> None:
    def run(attempt: int, archive: ArchiveStatus) -> RunView:
        made = run_of(archive)
        return replace(made, status=changed(made.status, attempt=attempt))

    empty, asked = ArchiveStatus(), ArchiveStatus(listed=NOW)
    assert is_worth_a_search(run(2, empty), empty)
    assert not is_worth_a_search(run(1, empty), empty), "nothing of this UID was ever saved"
    assert not is_worth_a_search(run(2, asked), asked)
