"""Which saves and copies are removed, when, and whose are spared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import ArchiveStatus, DivergedSaves, QuarantinedCheckpoint, SavedCheckpoint
from lockstep.core.checkpoints.archiving import paths_awaited, paths_in_use, plan_archive
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import JobPhase, RunView
from support import sample_runs
from support.archive_plans import NOW, OVER, PATH, SETTINGS, TIER, after, copied, job, rolled_back, run_of, tidying


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
