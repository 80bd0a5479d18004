"""Which archive job is wanted, and what one that ended means: by table, and through deaths of the operator."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_spec import ArchiveTier
from lockstep.api.checkpoint_status import (
    ArchivedCheckpoint,
    ArchiveJobStatus,
    ArchiveStatus,
    DivergedSaves,
    QuarantinedCheckpoint,
)
from lockstep.api.checkpoint_status import SavedCheckpoint as SavedCheckpoint
from lockstep.api.run_status import Condition
from lockstep.archive import outcomes
from lockstep.core.checkpoints.archive_job import FINAL_CODES, RESULT_FORMAT, job_name, parse_result
from lockstep.core.checkpoints.archiving import (
    MAX_PUBLISHED,
    ArchivePlan,
    archive_candidates,
    is_worth_a_search,
    keep_archive,
    paths_awaited,
    paths_in_use,
    plan_archive,
    published_as,
    restored_candidate,
)
from lockstep.core.checkpoints.resume import world_refusal
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.settings import ArchiveSettings, PodPolicy
from lockstep.core.model.snapshot import JobPhase, JobView, Leadership, RunSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support import sample_runs

NOW = sample_runs.NOW
SETTINGS = ArchiveSettings(image="registry.example/lockstep:1")
TIER = {"uri": "s3://golden/llama", "interval": "6h", "credentialsSecretRef": {"name": "s3"}}
PATH = f"/shared-checkpoints/team/llama/{sample_runs.UID}"
OVER = (Condition(type="Finished", status="True", reason="Succeeded", last_transition_time=NOW),)


def run_of(
    archive: ArchiveStatus | None = None, *, saved: tuple[int, int] | None = (2, 300), tier: dict[str, Any] = TIER
) -> RunView:
    checkpoint = {"shared": {"claimName": "lustre"}, "archive": tier}
    run = parse_run(sample_runs.run(checkpoint=checkpoint))
    assert run.spec_error == ""
    latest = ()
    if saved is not None:
        attempt, step = saved
        latest = (SavedCheckpoint(tier="shared", step=step, path=f"{PATH}/a{attempt}/step-{step}", attempt=attempt),)
    known = archive if archive is not None else ArchiveStatus(uri="s3://golden/llama")
    status = changed(run.status.checkpoint, latest=latest, archive=known)
    return replace(run, status=changed(run.status, checkpoint=status))


def after(run: RunView, plan: ArchivePlan, **checkpoint: Any) -> RunView:
    """The run once the plan's status was written."""
    status = changed(run.status.checkpoint, **({"archive": plan.status} | checkpoint))
    return replace(run, status=changed(run.status, checkpoint=status))


def job(plan: ArchivePlan, phase: JobPhase = JobPhase.COMPLETE, **result: Any) -> JobView:
    assert plan.status.job is not None
    body = json.dumps({"format": RESULT_FORMAT, "outcome": "Done"} | result) if result else ""
    name = plan.status.job.name
    return JobView("team", name, "uid", sample_runs.UID, phase, finished_at=NOW + 100, result=body)


def copied(attempt: int = 2, step: int = 300) -> ArchiveStatus:
    """What is known after the first copy was published."""
    published = (ArchivedCheckpoint(step=step, attempt=attempt, bytes=7, time=NOW),)
    return ArchiveStatus(uri="s3://golden/llama", published=published, time=NOW)


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


def test_a_finished_copy_is_told_and_remembered() -> None:
    run = run_of()
    first = plan_archive(run, (), SETTINGS, NOW)
    told = {"attempt": 2, "step": 300, "bytes": 42, "world": 8, "format": "TorchDCP"}
    done = plan_archive(after(run, first), [job(first, checkpoint=told)], SETTINGS, NOW + 200)
    assert done.status.job is None
    copy = ArchivedCheckpoint(step=300, attempt=2, bytes=42, world=8, format="TorchDCP", time=NOW + 100)
    assert done.status.published == (copy,)
    assert (done.status.time, done.status.copy_seconds) == (NOW + 100, 100)
    assert [event.reason for event in done.events] == ["Archived"]
    assert plan_archive(after(run, done), (), SETTINGS, NOW + 201).events == ()


def test_the_exit_code_alone_proves_a_copy() -> None:
    run = run_of()
    first = plan_archive(run, (), SETTINGS, NOW)
    done = plan_archive(after(run, first), [job(first)], SETTINGS, NOW + 200)
    assert [each.step for each in done.status.published] == [300]


def test_a_failed_copy_is_tried_again_later_under_another_name() -> None:
    run = run_of()
    first = plan_archive(run, (), SETTINGS, NOW)
    ended = job(first, JobPhase.FAILED, outcome="CredentialsRefused", message="the store says: no")
    failed = plan_archive(after(run, first), [ended], SETTINGS, NOW)
    assert failed.create is None
    assert failed.wake_at == NOW + 60
    assert failed.status.failures == 1
    assert failed.status.message == "Upload of a2/step-300 failed: CredentialsRefused: the store says: no"
    assert [(event.type, event.reason) for event in failed.events] == [("Warning", "ArchiveJobFailed")]
    again = plan_archive(after(run, failed), [ended], SETTINGS, NOW + 60)
    assert again.create is not None
    assert again.create.name == "llama-c83fa-097bbc-archive-2-300-1"


def test_back_off_grows_to_an_hour() -> None:
    status = ArchiveStatus(uri="s3://golden/llama", failures=20)
    run = run_of(status)
    first = plan_archive(run, (), SETTINGS, NOW)
    failed = plan_archive(after(run, first), [job(first, JobPhase.FAILED)], SETTINGS, NOW)
    assert failed.wake_at == NOW + 3600


@pytest.mark.parametrize("outcome", ["SourceInvalid", "SourceVanished", "Conflict"])
def test_a_source_that_was_refused_is_not_tried_again_but_the_next_one_is(outcome: str) -> None:
    run = run_of()
    first = plan_archive(run, (), SETTINGS, NOW)
    ended = job(first, JobPhase.FAILED, outcome=outcome, message="changed")
    failed = plan_archive(after(run, first), [ended], SETTINGS, NOW)
    assert plan_archive(after(run, failed), [ended], SETTINGS, NOW + 1e6).create is None
    newer = (SavedCheckpoint(tier="shared", step=400, path=f"{PATH}/a2/step-400", attempt=2),)
    assert plan_archive(after(run, failed, latest=newer), [ended], SETTINGS, NOW + 1e6).create is not None


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


def test_another_uri_is_another_archive() -> None:
    run = run_of(ArchiveStatus(uri="s3://old/place", published=copied().published, time=NOW))
    plan = plan_archive(run, (), SETTINGS, NOW + 1)
    assert plan.status.published == ()
    assert plan.create is not None


def test_a_job_that_tidies_is_known_of_though_the_archive_moves() -> None:
    tidying = ArchiveJobStatus(name="one-tidy", action="Tidy", step=9, attempt=1, path="/shared-checkpoints/x")
    run = run_of(ArchiveStatus(uri="s3://old/place", job=tidying))
    moved = plan_archive(run, [JobView("team", "one-tidy", "uid", sample_runs.UID, JobPhase.ACTIVE)], SETTINGS, NOW + 1)
    assert moved.status.job == tidying


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


def test_retention_is_carried_out_by_the_copy_and_spares_what_the_run_rests_on() -> None:
    tier = TIER | {"retention": {"keepLast": 3, "keepEvery": 1000, "keepFor": "30d"}}
    run = run_of(tier=tier)
    resume = SavedCheckpoint(tier="shared", step=100, path=f"{PATH}/a1/step-100", attempt=1)
    status = changed(run.status.checkpoint, resume=resume)
    run = replace(run, status=changed(run.status, checkpoint=status))
    plan = plan_archive(run, (), SETTINGS, NOW)
    assert plan.create is not None
    arguments = plan.create.body["spec"]["template"]["spec"]["containers"][0]["args"]
    words = " ".join(arguments)
    assert "--keep-last 3 --keep-every 1000 --keep-for 2592000s --pin a1/step-100" in words
    assert paths_in_use(after(run, plan).status.checkpoint) == {f"{PATH}/a1/step-100", f"{PATH}/a2/step-300"}


def test_without_an_image_the_remedy_is_said() -> None:
    plan = plan_archive(run_of(), (), ArchiveSettings(), NOW)
    assert plan.create is None
    assert "archive.image" in plan.status.message


def test_job_names_fit_their_label_and_still_tell_the_work_apart() -> None:
    run, tier = replace(run_of(), name="r" * 40), ArchiveTier(uri="s3://golden/llama")
    names = {job_name(run, tier, "Upload", 2, step, failures) for step in (10**15, 10**15 + 1) for failures in (0, 1)}
    assert len(names) == 4
    assert all(len(name) <= 63 for name in names)


def test_the_job_gives_up_on_exactly_the_codes_that_the_program_calls_final() -> None:
    assert FINAL_CODES == outcomes.FINAL_CODES
    assert len({reason.exit_code for reason in outcomes.REASONS}) == len(outcomes.REASONS)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', '{"format": "lockstep-archive-job/1"}', "null"])
def test_a_message_of_another_form_is_no_result(text: str) -> None:
    assert parse_result(text) is None


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


def tidying(archive: ArchiveStatus | None = None, *, retention: int = 1, tier: dict[str, Any] | None = None) -> RunView:
    checkpoint = {"shared": {"claimName": "lustre"}, "retention": {"keepLast": retention}}
    raw = sample_runs.run(checkpoint=checkpoint | ({"archive": tier} if tier else {}))
    run = parse_run(raw)
    assert run.spec_error == ""
    return replace(run, status=run_of(archive or ArchiveStatus()).status)


def test_the_shared_tier_is_tidied_after_a_save_now_and_then() -> None:
    run = tidying()
    plan = plan_archive(run, (), SETTINGS, NOW)
    assert plan.create is not None
    container = plan.create.body["spec"]["template"]["spec"]["containers"][0]
    assert " ".join(container["args"]) == (
        f"prune --run-uid {sample_runs.UID} --root /shared-checkpoints/team/llama --layout PerAttempt --format Auto "
        f"--keep-last 2 --pin {PATH}/a2/step-300"
    ), "one more than the newest always stays: it may turn out to be bad"
    assert container["volumeMounts"][0]["readOnly"] is False
    done = plan_archive(after(run, plan), [job(plan)], SETTINGS, NOW + 100)
    assert (done.create, done.wake_at, done.events) == (None, None, ())
    newer = (SavedCheckpoint(tier="shared", step=400, path=f"{PATH}/a2/step-400", attempt=2),)
    soon = plan_archive(after(run, done, latest=newer), (), SETTINGS, NOW + 200)
    assert (soon.create, soon.wake_at) == (None, NOW + 100 + 1800)
    assert plan_archive(after(run, done, latest=newer), (), SETTINGS, NOW + 1900).create is not None
    assert plan_archive(after(run, done, latest=newer), (), SETTINGS, NOW + 1900, ended=True).create is None


def rolled_back(run: RunView, ceiling: int) -> RunView:
    checkpoint = changed(run.status.checkpoint, ceiling=ceiling)
    return replace(run, status=changed(run.status, checkpoint=checkpoint))


def test_while_a_run_goes_back_nothing_is_removed_that_it_may_need() -> None:
    run = tidying()
    begun = plan_archive(run, (), SETTINGS, NOW)
    assert begun.status.job is not None
    assert begun.status.job.action == "Tidy"
    assert plan_archive(rolled_back(run, 200), (), SETTINGS, NOW).create is None
    given_up = plan_archive(rolled_back(after(run, begun), 200), (), SETTINGS, NOW)
    assert given_up.status.job is None
    assert given_up.create is None


def test_what_training_went_wrong_after_is_not_copied() -> None:
    run = run_of(saved=(2, 300))
    assert plan_archive(rolled_back(run, 200), (), SETTINGS, NOW).status.job is None
    assert plan_archive(rolled_back(run, 300), (), SETTINGS, NOW).status.job is not None
    bad = (QuarantinedCheckpoint(tier="shared", step=300, reason="NaN"),)
    checkpoint = changed(run.status.checkpoint, quarantined=bad)
    run = replace(run, status=changed(run.status, checkpoint=checkpoint))
    assert plan_archive(run, (), SETTINGS, NOW).status.job is None


@pytest.mark.parametrize(
    ("attempt", "copied_again", "told"),
    [(1, True, "--quarantined a1/step-300"), (2, False, ""), (0, False, "")],
)
def test_a_step_that_was_trained_again_is_copied(attempt: int, copied_again: bool, told: str) -> None:
    run = run_of(saved=(2, 300), tier=TIER | {"retention": {"keepLast": 3}})
    bad = (QuarantinedCheckpoint(tier="shared", step=300, attempt=attempt, reason="NaN"),)
    checkpoint = changed(run.status.checkpoint, quarantined=bad)
    run = replace(run, status=changed(run.status, checkpoint=checkpoint))
    plan = plan_archive(run, (), SETTINGS, NOW)
    assert (plan.create is not None) is copied_again
    if plan.create is not None:
        assert told in " ".join(plan.create.body["spec"]["template"]["spec"]["containers"][0]["args"])


def test_what_is_to_be_pruned_is_told_of_every_save_that_does_not_count() -> None:
    run = tidying()
    bad = tuple(
        QuarantinedCheckpoint(tier=tier, step=step, attempt=attempt, reason="NaN")
        for tier, step, attempt in (("shared", 200, 0), ("archive", 100, 2), ("shared", 100, 1), ("local", 50, 1))
    )
    diverged = (DivergedSaves(step=150, attempt=2),)
    checkpoint = changed(run.status.checkpoint, quarantined=bad, diverged=diverged)
    run = replace(run, status=changed(run.status, checkpoint=checkpoint))
    plan = plan_archive(run, (), SETTINGS, NOW)
    assert plan.create is not None
    words = " ".join(plan.create.body["spec"]["template"]["spec"]["containers"][0]["args"])
    told = ("a1/step-100", "a2/step-100", "a2/step-150+", "200")
    assert words.endswith(" ".join(f"--quarantined {save}" for save in told))


def test_what_is_to_be_pruned_is_told_how_far_the_run_has_come() -> None:
    run = tidying()
    run = replace(run, status=changed(run.status, progress=changed(run.status.progress, step=320)))
    plan = plan_archive(run, (), SETTINGS, NOW)
    assert plan.create is not None
    assert plan.create.body["spec"]["template"]["spec"]["containers"][0]["args"][-2:] == ["--reached", "320"]


def test_a_job_that_is_gone_with_its_tier_does_not_hold_up_others() -> None:
    both = tidying(tier=TIER)
    begun = plan_archive(both, (), SETTINGS, NOW)
    assert begun.status.job is not None
    assert begun.status.job.action == "Upload"
    known = changed(begun.status, tidied=None)
    without = tidying(known)
    later = plan_archive(without, (), SETTINGS, NOW)
    assert later.status.job is not None
    assert later.status.job.action == "Tidy"


def test_tidying_that_fails_holds_up_no_copy() -> None:
    known = ArchiveStatus(uri="s3://golden/llama", published=copied(1, 100).published, time=NOW)
    run = tidying(known, tier=TIER)
    plan = plan_archive(run, (), SETTINGS, NOW)
    assert plan.status.job is not None
    assert plan.status.job.action == "Tidy", "the copy is not due yet"
    ended = job(plan, JobPhase.FAILED, outcome="DestinationRefused", message="must not be written")
    failed = plan_archive(after(run, plan), [ended], SETTINGS, NOW + 10)
    assert failed.status.failures == 0
    assert failed.status.not_before is None
    assert "must not be written" in failed.status.message
    due = plan_archive(after(run, failed), [ended], SETTINGS, NOW + 6 * 3600)
    assert due.status.job is not None
    assert due.status.job.action in ("Upload", "Tidy")


def test_retention_spares_what_other_runs_start_from() -> None:
    def another(uid: str, *, of: str = sample_runs.UID, step: int | None = None, **status: Any) -> RunView:
        start = {"run": "llama"} | ({"step": step} if step is not None else {})
        made = parse_run(sample_runs.run(checkpoint={"shared": {"claimName": "lustre"}, "start": start}))
        assert made.spec_error == ""
        resolved = changed(made.status.resolved, start_run_uid=of)
        return replace(made, uid=uid, status=changed(made.status, **({"resolved": resolved} | status)))

    checkpoint = run_of().status.checkpoint
    chosen = SavedCheckpoint(tier="shared", step=40, path=f"{PATH}/a1/step-40", attempt=1)
    training = changed(checkpoint, resume=chosen, latest=())
    queued = changed(checkpoint, latest=())
    awaited = paths_awaited(
        run_of(),
        [
            another("trains", checkpoint=training),
            another("queued", of="", step=50, checkpoint=queued),
            another("saves by itself", step=60, checkpoint=checkpoint),
            another("started from a namesake", of="another UID", step=70, checkpoint=queued),
            another("ended", step=80, checkpoint=queued, conditions=OVER),
        ],
    )
    assert awaited == {f"{PATH}/a1/step-40", "step-50"}
    plan = plan_archive(tidying(), (), SETTINGS, NOW, awaited=awaited)
    assert plan.create is not None
    assert plan.status.job is not None
    assert plan.status.job.action == "Tidy"
    words = " ".join(plan.create.body["spec"]["template"]["spec"]["containers"][0]["args"])
    assert f"--pin {PATH}/a1/step-40" in words
    assert "--pin step-50" in words


def builder_of(run: RunView, *jobs: JobView, policy: PodPolicy | None = None) -> PlanBuilder:
    snapshot = RunSnapshot(run=run, pods=(), reports={}, nodes={}, leadership=Leadership(NOW), jobs=jobs)
    return PlanBuilder(RunContext(snapshot, Tunables(archive=SETTINGS, pod_policy=policy or PodPolicy()), NOW))


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


@pytest.mark.parametrize(
    "field",
    [
        '"checkpoint": {"bytes": Infinity}',
        '"checkpoint": {"bytes": 1%s}' % ("0" * 30),
        '"message": "\\udc80"',
        '"published": [{"step": 1, "attempt": -1}]',
        '"published": [{"step": 1, "attempt": 1, "time": NaN}]',
        '"published": [{"step": 1, "attempt": 1, "time": 999999999999999}]',
        '"published": %s' % ("[" * 4000),
    ],
)
def test_last_words_that_do_not_fit_into_status_are_none(field: str) -> None:
    assert parse_result(f'{{"format": "{RESULT_FORMAT}", "outcome": "Done", {field}}}') is None
