"""Which saves and copies are removed, when, and whose are spared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import ArchiveStatus, DivergedSaves, QuarantinedCheckpoint, SavedCheckpoint
from lockstep.core.checkpoints.archive_job import is_removal
from lockstep.core.checkpoints.archiving import ArchivePlan, plan_archive
from lockstep.core.checkpoints.removals import paths_awaited, paths_in_use
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import JobPhase, JobView, RunView
from support import sample_runs
from support.archive_plans import NOW, OVER, PATH, SETTINGS, TIER, after, copied, job, rolled_back, run_of, tidying

RETAINING = TIER | {"retention": {"keepLast": 1, "keepEvery": 1000, "keepFor": "30d"}}


def arguments(plan: ArchivePlan) -> str:
    assert plan.create is not None
    return " ".join(plan.create.body["spec"]["template"]["spec"]["containers"][0]["args"])


def with_checkpoint(run: RunView, **checkpoint: Any) -> RunView:
    return replace(run, status=changed(run.status, checkpoint=changed(run.status.checkpoint, **checkpoint)))


def test_the_archive_is_pruned_once_a_copy_is_known_and_spares_what_the_run_rests_on() -> None:
    resume = SavedCheckpoint(tier="shared", step=100, path=f"{PATH}/a1/step-100", attempt=1)
    run = with_checkpoint(run_of(tier=RETAINING), resume=resume)
    copying = plan_archive(run, (), SETTINGS, NOW)
    assert "--keep-last" not in arguments(copying), "what is to be kept is known when the copy is there"
    assert paths_in_use(after(run, copying).status.checkpoint) == {f"{PATH}/a1/step-100", f"{PATH}/a2/step-300"}
    pruning = plan_archive(after(run, copying), [job(copying)], SETTINGS, NOW + 100)
    assert pruning.status.job is not None
    assert pruning.status.job.action == "Prune"
    assert arguments(pruning) == (
        f"prune --uri s3://golden/llama --run-uid {sample_runs.UID} "
        "--keep-last 2 --keep-every 1000 --keep-for 2592000s --pin a1/step-100"
    ), "one more than the newest always stays: it may turn out to be bad"
    left = [{"attempt": 2, "step": 300, "bytes": 7, "time": int(NOW)}]
    done = plan_archive(after(run, pruning), [job(pruning, published=left)], SETTINGS, NOW + 200)
    assert [(each.attempt, each.step) for each in done.status.published] == [(2, 300)]
    assert (done.create, done.status.pruned_for) == (None, "a2/step-300")
    assert plan_archive(after(run, done), (), SETTINGS, NOW + 1e6).create is None, "until there is a newer one"


def test_pruning_that_fails_is_tried_again_by_another_job_and_holds_up_no_copy() -> None:
    run = run_of(copied(), tier=RETAINING)
    first = plan_archive(run, (), SETTINGS, NOW + 1)
    ended = job(first, JobPhase.FAILED, outcome="StoreUnavailable", message="down")
    failed = plan_archive(after(run, first), [ended], SETTINGS, NOW + 50)
    assert (failed.status.failures, failed.status.not_before, failed.wake_at) == (0, None, NOW + 50 + 1800)
    again = plan_archive(after(run, failed), [ended], SETTINGS, NOW + 50 + 1800)
    assert again.create is not None
    assert again.create.name != ended.name


@pytest.mark.parametrize("tier", [None, RETAINING], ids=["Tidy", "Prune"])
def test_what_cannot_be_removed_is_tried_less_and_less_often_and_then_after_the_next_save_or_copy_alone(
    tier: dict[str, Any] | None,
) -> None:
    def next_try(run: RunView, at: float) -> tuple[RunView, float]:
        """Fails a minute after ``at``; and when the next one would be made, 0: never."""
        begun = plan_archive(run, (), SETTINGS, at)
        assert begun.create is not None
        ended = replace(job(begun, JobPhase.FAILED, outcome="StoreRefused"), finished_at=at + 60)
        failed = plan_archive(after(run, begun), [ended], SETTINGS, at + 60)
        assert [event.reason for event in failed.events] == ["ArchiveJobFailed"]
        return after(run, failed), failed.wake_at or 0.0

    run = tidying() if tier is None else run_of(changed(copied(), pruned=NOW - 1e6), tier=tier)
    at, waits = NOW, []
    while at and len(waits) < 20:
        run, due = next_try(run, at)
        waits.append((due - at - 60) / 1800 if due else 0.0)
        at = due
    assert waits == [1, 2, 4, 8, 16, 32, 48, 0]
    later = NOW + 9e6
    assert plan_archive(run, (), SETTINGS, later).create is None
    newer = (SavedCheckpoint(tier="shared", step=400, path=f"{PATH}/a2/step-400", attempt=2),)
    archive = run.status.checkpoint.archive
    if tier is not None:
        archive = changed(archive, published=copied(2, 400).published)
    run, due = next_try(with_checkpoint(run, archive=archive, latest=newer), later)
    assert due == 0
    begun = plan_archive(with_checkpoint(run, archive=changed(archive, tidied=None)), (), SETTINGS, later)
    done = plan_archive(after(run, begun), [job(begun)], SETTINGS, later + 60)
    assert (done.status.tidy_failures, done.status.prune_failures) == (0, 0)


@pytest.mark.parametrize(
    ("pruned", "ended", "is_looked_for"),
    [(None, True, False), (None, False, True), (NOW - 1e6, True, True)],
    ids=["ended before copies had a job for it", "trains", "ended since"],
)
def test_the_archives_of_runs_that_ended_long_ago_are_not_all_looked_through_by_a_new_release(
    pruned: float | None, ended: bool, is_looked_for: bool
) -> None:
    known = changed(copied(), pruned=pruned, pruned_for="a2/step-200" if pruned else "")
    plan = plan_archive(run_of(known, tier=RETAINING), (), SETTINGS, NOW + 1e6, ended=ended)
    assert (plan.create is not None) is is_looked_for


@pytest.mark.parametrize("tier", [None, RETAINING], ids=["Tidy", "Prune"])
@pytest.mark.parametrize("idle_since", [0.0, NOW], ids=["its pod runs", "its pod waits for room"])
@pytest.mark.parametrize(
    "change",
    [
        {"ceiling": 100},
        {"quarantined": (QuarantinedCheckpoint(tier="shared", step=300, attempt=2, reason="NaN"),)},
        {"diverged": (DivergedSaves(step=150, attempt=2),)},
    ],
    ids=["goes back", "quarantine", "went wrong"],
)
def test_a_job_that_was_told_to_spare_less_than_is_needed_now_is_ended(
    tier: dict[str, Any] | None, idle_since: float, change: dict[str, Any]
) -> None:
    run = tidying() if tier is None else run_of(copied(), tier=tier)
    begun = plan_archive(run, (), SETTINGS, NOW)
    there = replace(job(begun, JobPhase.ACTIVE), idle_since=idle_since)
    newer = (SavedCheckpoint(tier="shared", step=400, path=f"{PATH}/a2/step-400", attempt=2),)
    kept = plan_archive(after(run, begun, latest=newer), [there], SETTINGS, NOW + 5)
    assert (kept.delete, kept.status.job) == (None, begun.status.job), "it removes nothing newer than it knows of"
    ends = plan_archive(with_checkpoint(after(run, begun), **change), [there], SETTINGS, NOW + 5)
    assert ends.delete is not None
    gone = plan_archive(with_checkpoint(after(run, ends), **change), (), SETTINGS, NOW + 9)
    anew = gone.create is not None and is_removal(gone.create.body["spec"]["template"]["spec"]["containers"][0]["args"])
    assert anew is ("ceiling" not in change)


def test_a_job_is_ended_for_what_another_run_starts_from_since_and_for_a_policy_that_keeps_more() -> None:
    run = tidying()
    begun = plan_archive(run, (), SETTINGS, NOW)
    there = replace(job(begun, JobPhase.ACTIVE), idle_since=NOW)
    run = after(run, begun)
    assert plan_archive(run, [there], SETTINGS, NOW + 5).delete is None
    assert plan_archive(run, [there], SETTINGS, NOW + 5, awaited=frozenset({"step-100"})).delete is not None
    more = tidying(run.status.checkpoint.archive, retention=5)
    assert plan_archive(more, [there], SETTINGS, NOW + 5).delete is not None
    none = run_of(run.status.checkpoint.archive)
    assert plan_archive(none, [there], SETTINGS, NOW + 5).delete is not None


@pytest.mark.parametrize("run", [tidying(), run_of(copied(), tier=RETAINING)], ids=["Tidy", "Prune"])
def test_nothing_is_removed_while_a_gang_gathers_and_is_about_to_choose(run: RunView) -> None:
    assert plan_archive(run, (), SETTINGS, NOW, gathers=True).create is None
    begun = plan_archive(run, (), SETTINGS, NOW)
    assert begun.create is not None
    not_seen = plan_archive(after(run, begun), (), SETTINGS, NOW + 5, gathers=True)
    assert (not_seen.create, not_seen.status.job) == (None, None)
    ends = plan_archive(after(run, begun), [job(begun, JobPhase.ACTIVE)], SETTINGS, NOW + 5, gathers=True)
    assert ends.delete is not None


@pytest.mark.parametrize(
    ("known", "there", "ended"),
    [
        ({}, {}, True),
        ({}, {"removes": False}, False),
        ({}, {"deleting": True}, False),
        ({}, {"finished_at": NOW - 9}, False),
        ({}, {"phase": JobPhase.COMPLETE}, False),
        ({"tidied": NOW - 60}, {}, False),
        ({"pruned": NOW - 60}, {}, False),
        ({"tidied": NOW - 1800}, {}, True),
    ],
)
def test_a_job_that_status_has_forgotten_is_ended_unless_it_was_waited_for_just_now(
    known: dict[str, Any], there: dict[str, Any], ended: bool
) -> None:
    stray = replace(JobView("team", "one-tidy", "uid", sample_runs.UID, JobPhase.ACTIVE, removes=True), **there)
    plan = plan_archive(run_of(changed(copied(), **known)), [stray], SETTINGS, NOW)
    assert (plan.delete is not None) is ended
    assert (plan.status.job is not None) is ended


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


def test_while_a_run_goes_back_nothing_is_removed_that_it_may_need() -> None:
    run = tidying()
    begun = plan_archive(run, (), SETTINGS, NOW)
    assert begun.status.job is not None
    assert begun.status.job.action == "Tidy"
    assert plan_archive(rolled_back(run, 200), (), SETTINGS, NOW).create is None
    given_up = plan_archive(rolled_back(after(run, begun), 200), (), SETTINGS, NOW)
    assert given_up.status.job is None
    assert given_up.create is None


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


def another(uid: str, *, of: str = sample_runs.UID, step: int | None = None, **status: Any) -> RunView:
    """A run that starts from the sample run."""
    start = {"run": "llama"} | ({"step": step} if step is not None else {})
    made = parse_run(sample_runs.run(checkpoint={"shared": {"claimName": "lustre"}, "start": start}))
    assert made.spec_error == ""
    resolved = changed(made.status.resolved, start_run_uid=of)
    return replace(made, uid=uid, status=changed(made.status, **({"resolved": resolved} | status)))


@pytest.mark.parametrize(
    ("path", "is_spared"),
    [
        (f"{PATH}/a1/step-40", True),
        ("/shared-checkpoints/team/tuned/its-uid/a3/step-900", False),
        ("/shared-checkpoints/team/llama/its-uid/a3/step-900", False),
        (f"{PATH}-b/a1/step-40", False),
        ("/local-checkpoints/its-uid/a3/step-900", False),
    ],
    ids=["of this run", "its own", "its own, in the same path", "of a longer name", "on its nodes' disks"],
)
def test_what_another_run_resumes_from_matters_only_where_this_run_has_saved_it(path: str, is_spared: bool) -> None:
    run = tidying()
    begun = plan_archive(run, (), SETTINGS, NOW)
    there = job(begun, JobPhase.ACTIVE)
    checkpoint = changed(run.status.checkpoint, resume=SavedCheckpoint(tier="shared", step=40, path=path))
    awaited = paths_awaited(run, [another("its-uid", checkpoint=checkpoint)])
    assert awaited == ({path} if is_spared else set())
    ends = plan_archive(after(run, begun), [there], SETTINGS, NOW + 5, awaited=awaited)
    assert (ends.delete is not None) is is_spared


def test_retention_spares_what_other_runs_start_from() -> None:
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
