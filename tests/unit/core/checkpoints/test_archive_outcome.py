"""What an upload that ended means for status, and for the next one."""

from __future__ import annotations

import pytest

from lockstep.api.checkpoint_status import (
    ArchivedCheckpoint,
    ArchiveStatus,
    SavedCheckpoint,
)
from lockstep.core.checkpoints.archiving import plan_archive
from lockstep.core.model.snapshot import JobPhase
from support.archive_plans import (
    NOW,
    PATH,
    SETTINGS,
    after,
    job,
    run_of,
)


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
