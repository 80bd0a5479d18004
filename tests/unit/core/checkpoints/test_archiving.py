"""Which archive job is wanted: by table, and through deaths of the operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import (
    ArchiveJobStatus,
    ArchiveStatus,
    QuarantinedCheckpoint,
    SavedCheckpoint,
)
from lockstep.core.checkpoints.archive_outcome import MAX_PUBLISHED
from lockstep.core.checkpoints.archiving import ArchivePlan, keep_archive, plan_archive
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.plan import DeleteJob
from lockstep.core.model.settings import ArchiveSettings, PodPolicy
from lockstep.core.model.snapshot import JobPhase, JobView
from support import sample_runs
from support.archive_plans import (
    NOW,
    OVER,
    PATH,
    SETTINGS,
    TIER,
    after,
    builder_of,
    copied,
    job,
    rolled_back,
    run_of,
    tidying,
)


def test_the_first_valid_checkpoint_is_copied_at_once() -> None:
    plan = plan_archive(run_of(), (), SETTINGS, NOW)
    assert plan.create is not None
    assert plan.create.name == "llama-c83fa-097bbc-archive-2-300"
    assert plan.status.job is not None
    assert plan.status.job.name == plan.create.name, "in status before it is made"
    arguments = plan.create.body["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[:5] == ["upload", "--uri", "s3://golden/llama", "--run-uid", sample_runs.UID]
    assert f"{PATH}/a2/step-300" in arguments


def test_without_an_archive_or_a_valid_checkpoint_nothing_is_done() -> None:
    assert plan_archive(run_of(archive=ArchiveStatus(), saved=None), (), SETTINGS, NOW).create is None
    bare = parse_run(sample_runs.run())
    assert plan_archive(bare, (), SETTINGS, NOW) == ArchivePlan(ArchiveStatus())


def test_the_next_copy_waits_for_the_interval_unless_the_run_has_ended() -> None:
    run = run_of(copied(), saved=(2, 400))
    waiting = plan_archive(run, (), SETTINGS, NOW + 60)
    assert waiting.create is None
    assert waiting.wake_at == NOW + 6 * 3600
    assert plan_archive(run, (), SETTINGS, NOW + 6 * 3600).create is not None
    assert plan_archive(run, (), SETTINGS, NOW + 60, ended=True).create is not None


def test_what_is_published_is_not_copied_again() -> None:
    later = plan_archive(run_of(copied()), (), SETTINGS, NOW + 1e6, ended=True)
    assert later.create is None
    assert later.wake_at is None


def test_a_job_is_told_by_how_much_clocks_may_be_apart() -> None:
    plan = plan_archive(run_of(), (), changed(SETTINGS, shared_clock_skew=20.0), NOW)
    assert plan.create is not None
    (container,) = plan.create.body["spec"]["template"]["spec"]["containers"]
    assert {"name": "LOCKSTEP_SHARED_CLOCK_SKEW", "value": "20"} in container["env"]


def test_one_job_at_a_time_and_none_is_made_twice_under_two_names() -> None:
    run = run_of()
    first = plan_archive(run, (), SETTINGS, NOW)
    assert first.create is not None
    not_seen = plan_archive(after(run, first), (), SETTINGS, NOW + 5)
    assert not_seen.create == first.create, "not seen yet: made again under the same name"
    newer = (SavedCheckpoint(tier="shared", step=900, path=f"{PATH}/a2/step-900", attempt=2),)
    running = plan_archive(after(run, first, latest=newer), [job(first, JobPhase.ACTIVE)], SETTINGS, NOW + 1e6)
    assert running.create is None


def test_another_uri_is_another_archive() -> None:
    run = run_of(ArchiveStatus(uri="s3://old/place", published=copied().published, time=NOW))
    plan = plan_archive(run, (), SETTINGS, NOW + 1)
    assert plan.status.published == ()
    assert plan.create is not None


def test_a_job_that_tidies_is_known_of_though_the_archive_moves() -> None:
    tidying = ArchiveJobStatus(name="one-tidy", action="Tidy", step=9, attempt=1, path="/shared-checkpoints/x")
    run = run_of(ArchiveStatus(uri="s3://old/place", job=tidying))
    moved = plan_archive(run, [JobView("team", "one-tidy", "uid", sample_runs.UID, JobPhase.ACTIVE)], SETTINGS, NOW + 1)
    assert moved.status.job == changed(tidying, stopped=NOW + 1), "and ended, as its policy is gone"
    assert moved.delete is not None


@pytest.mark.parametrize("phase", [JobPhase.ACTIVE, JobPhase.COMPLETE, JobPhase.FAILED])
@pytest.mark.parametrize("moved", [{"uri": "s3://other/llama"}, {"endpoint": "https://minio.example"}])
def test_what_a_job_did_for_another_archive_is_nothing_of_this_one(moved: dict[str, str], phase: JobPhase) -> None:
    before = run_of(ArchiveStatus())
    first = plan_archive(before, (), SETTINGS, NOW)
    jobs = [job(first, phase)]
    run = after(run_of(tier=TIER | moved), first)
    made: set[str] = set()
    for later in (1, 2):
        plan = plan_archive(run, jobs, SETTINGS, NOW + later)
        assert (plan.status.published, plan.status.failures, plan.events) == ((), 0, ())
        assert plan.create is not None
        made.add(plan.create.name)
        run = after(run, plan)
    assert len(made) == 1
    assert made.isdisjoint({jobs[0].name})


def test_a_job_of_before_a_name_told_the_archive_is_waited_for_and_counts() -> None:
    work = ArchiveJobStatus(name="llama-c83fa-archive-2-300", action="Upload", step=300, attempt=2, path=PATH, time=NOW)
    run = run_of(ArchiveStatus(uri="s3://golden/llama", job=work), tier=TIER | {"endpoint": "https://minio.example"})
    ended = JobView("team", work.name, "uid", sample_runs.UID, JobPhase.COMPLETE, finished_at=NOW + 100)
    running = plan_archive(run, [replace(ended, phase=JobPhase.ACTIVE)], SETTINGS, NOW + 1)
    assert (running.create, running.status.job) == (None, work)
    done = plan_archive(run, [ended], SETTINGS, NOW + 200)
    assert [each.step for each in done.status.published] == [300]


def test_without_an_image_the_remedy_is_said() -> None:
    plan = plan_archive(run_of(), (), ArchiveSettings(), NOW)
    assert plan.create is None
    assert "archive.image" in plan.status.message


events = st.lists(st.sampled_from(("see", "complete", "fail", "forget", "save", "wait")), max_size=40)


@given(events)
def test_whatever_happens_jobs_come_one_at_a_time_and_status_stays_bounded(history: list[str]) -> None:
    """The operator may die after any write: the next pass then starts from what was written, as here each does."""
    run, now, step = run_of(), NOW, 300
    jobs: dict[str, JobView] = {}
    made: set[str] = set()
    for event in history:
        plan = plan_archive(run, tuple(jobs.values()), SETTINGS, now)
        run = after(run, plan)
        active = [each.name for each in jobs.values() if each.phase is JobPhase.ACTIVE]
        if plan.create is not None:
            assert plan.status.job is not None
            assert plan.create.name == plan.status.job.name
            assert not active
            made.add(plan.create.name)
            if event != "wait":  # else the creation is lost, or the cache lags
                phase = JobPhase.ACTIVE
                jobs[plan.create.name] = JobView("team", plan.create.name, "uid", sample_runs.UID, phase)
        elif active and event in ("complete", "fail"):
            phase = JobPhase.COMPLETE if event == "complete" else JobPhase.FAILED
            jobs[active[0]] = replace(jobs[active[0]], phase=phase, finished_at=now)
        elif event == "forget":
            jobs = {name: each for name, each in jobs.items() if each.phase is JobPhase.ACTIVE}
        elif event == "save":
            step += 100
            latest = (SavedCheckpoint(tier="shared", step=step, path=f"{PATH}/a2/step-{step}", attempt=2),)
            run = after(run, plan, latest=latest)
        now += 3600.0
        archive = run.status.checkpoint.archive
        assert len(archive.published) <= MAX_PUBLISHED
        steps = [each.step for each in archive.published]
        assert steps == sorted(steps, reverse=True)


def test_what_training_went_wrong_after_is_not_copied() -> None:
    run = run_of(saved=(2, 300))
    assert plan_archive(rolled_back(run, 200), (), SETTINGS, NOW).status.job is None
    assert plan_archive(rolled_back(run, 300), (), SETTINGS, NOW).status.job is not None
    bad = (QuarantinedCheckpoint(tier="shared", step=300, reason="NaN"),)
    checkpoint = changed(run.status.checkpoint, quarantined=bad)
    run = replace(run, status=changed(run.status, checkpoint=checkpoint))
    assert plan_archive(run, (), SETTINGS, NOW).status.job is None


@pytest.mark.parametrize(("attempt", "copied_again"), [(1, True), (2, False), (0, False)])
def test_a_step_that_was_trained_again_is_copied(attempt: int, copied_again: bool) -> None:
    run = run_of(saved=(2, 300))
    bad = (QuarantinedCheckpoint(tier="shared", step=300, attempt=attempt, reason="NaN"),)
    checkpoint = changed(run.status.checkpoint, quarantined=bad)
    run = replace(run, status=changed(run.status, checkpoint=checkpoint))
    assert (plan_archive(run, (), SETTINGS, NOW).create is not None) is copied_again


@pytest.mark.parametrize("wanted", [{"restore": copied().published[0]}, {"search": True}], ids=["Restore", "List"])
@pytest.mark.parametrize("idle_since", [0.0, NOW])
@pytest.mark.parametrize("action", ["Upload", "Tidy"])
def test_what_a_gang_waits_for_waits_for_no_other_job(wanted: dict[str, Any], idle_since: float, action: str) -> None:
    run = run_of(saved=(2, 400)) if action == "Upload" else tidying(ArchiveStatus(uri="s3://golden/llama"))
    first = plan_archive(run, (), SETTINGS, NOW)
    assert first.status.job is not None
    assert first.status.job.action == action
    there = replace(job(first, JobPhase.ACTIVE), idle_since=idle_since)
    run = after(tidying(tier=TIER), first)
    ends = plan_archive(run, [there], SETTINGS, NOW + 1, **wanted)
    assert ends.delete == DeleteJob("team", there.name, "uid")
    assert ends.status.job == changed(first.status.job, stopped=NOW + 1), "in status before it is deleted"
    ending = plan_archive(after(run, ends), [replace(there, deleting=True)], SETTINGS, NOW + 9, **wanted)
    assert (ending.delete, ending.create, ending.wake_at) == (None, None, NOW + 1 + 600)
    gone = plan_archive(after(run, ending), (), SETTINGS, NOW + 20, **wanted)
    assert gone.status.job is not None
    assert gone.status.job.action in ("Restore", "List")
    assert gone.status.failures == 0
    assert gone.events == ()


@pytest.mark.parametrize("deleting", [True, False])
def test_what_does_not_end_is_waited_for_no_longer_than_ten_minutes(deleting: bool) -> None:
    run = run_of(saved=(2, 400))
    first = plan_archive(run, (), SETTINGS, NOW)
    there = replace(job(first, JobPhase.ACTIVE), deleting=deleting)
    ends = plan_archive(after(run, first), [there], SETTINGS, NOW + 1, search=True)
    late = plan_archive(after(run, ends), [there], SETTINGS, NOW + 602, search=True)
    assert late.status.job is not None
    assert late.status.job.action == "List"
    assert [event.reason for event in late.events] == ["ArchiveJobFailed"]
    assert f"its job {there.name} does not end" in late.status.message


def test_a_copy_whose_job_was_ended_did_not_fail() -> None:
    run = run_of(saved=(2, 400))
    first = plan_archive(run, (), SETTINGS, NOW)
    ends = plan_archive(after(run, first), [job(first, JobPhase.ACTIVE)], SETTINGS, NOW + 1, search=True)
    ended = plan_archive(after(run, ends), [job(first, JobPhase.FAILED)], SETTINGS, NOW + 2, search=True)
    assert (ended.status.failures, ended.events) == (0, ())
    done = plan_archive(after(run, ends), [job(first)], SETTINGS, NOW + 2, search=True)
    assert [each.step for each in done.status.published] == [400], "it was done by then"


def test_a_plan_writes_the_job_into_status_before_it_makes_it() -> None:
    builder = builder_of(run_of())
    keep_archive(builder)
    plan = builder.build()
    assert plan.status is not None
    assert plan.status.checkpoint.archive.job is not None
    assert [made.name for made in plan.jobs] == [plan.status.checkpoint.archive.job.name]


WITH_ACCOUNT = {**TIER, "serviceAccountName": "admin"}
WAITS = ArchiveJobStatus(name="llama-archive-2-300", action="Upload", step=300, attempt=2, path=PATH, time=NOW)
MAKES_JOBS = {
    "a copy": run_of(tier=WITH_ACCOUNT),
    "a copy that was written and not made": run_of(
        ArchiveStatus(uri="s3://golden/llama", job=WAITS), tier=WITH_ACCOUNT
    ),
    "a restore": run_of(copied(), tier=WITH_ACCOUNT),
    "tidying": tidying(copied(), tier=WITH_ACCOUNT),
    "an end": replace(run_of(tier=WITH_ACCOUNT), status=changed(run_of().status, conditions=OVER)),
}


@pytest.mark.parametrize("kind", MAKES_JOBS)
@pytest.mark.parametrize(
    ("accounts", "made"), [(None, True), (("admin", "robot"), True), (("robot",), False), ((), False)]
)
def test_no_job_has_an_account_that_the_policy_does_not_allow_whatever_state_the_run_is_in(
    kind: str, accounts: tuple[str, ...] | None, made: bool
) -> None:
    builder = builder_of(MAKES_JOBS[kind], policy=PodPolicy(service_accounts=accounts))
    keep_archive(builder, copied().published[0] if kind == "a restore" else None)
    archive = builder.status.checkpoint.archive
    assert (bool(builder.jobs), archive.job is not None) == (made, made)
    if made:
        assert builder.jobs[0].body["spec"]["template"]["spec"]["serviceAccountName"] == "admin"
    else:
        assert (
            "spec.checkpoint.archive.serviceAccountName: admin is not in podPolicy.serviceAccounts" in archive.message
        )


def test_a_run_that_goes_away_gets_no_job() -> None:
    builder = builder_of(replace(run_of(), deleting=True))
    keep_archive(builder)
    assert builder.jobs == []


def test_a_job_that_cannot_begin_is_told_of_once() -> None:
    run = run_of()
    first = plan_archive(run, (), SETTINGS, NOW)
    stuck = replace(job(first, JobPhase.ACTIVE), idle_since=NOW)
    waiting = plan_archive(after(run, first), [stuck], SETTINGS, NOW + 1)
    assert (waiting.wake_at, waiting.events) == (NOW + 600, ())
    told = plan_archive(after(run, first), [stuck], SETTINGS, NOW + 600)
    assert [event.reason for event in told.events] == ["ArchiveJobIdle"]
    assert "kubectl describe job llama-c83fa-097bbc-archive-2-300" in told.status.message
    assert plan_archive(after(run, told), [stuck], SETTINGS, NOW + 700).events == ()
    done = plan_archive(after(run, told), [job(first)], SETTINGS, NOW + 800)
    assert done.status.message == ""
