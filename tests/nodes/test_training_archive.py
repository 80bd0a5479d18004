"""Checkpoints of real training reach a real object store by jobs that Kubernetes runs, and come back whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from containers.test_archive import (
    CREDENTIALS,
    STEPS,
    archived,
    published,
    server,
    test_a_gang_whose_shared_tier_was_lost_goes_on_from_the_archive,
)
from harness.object_store import BUCKET, OPERATOR, S3Server
from harness.training import NAMESPACE, TrainingRun, TrainingSite
from lockstep.api.base import names
from lockstep.core.checkpoints.archive_job import RESULT_FORMAT

__all__ = ["server", "test_a_gang_whose_shared_tier_was_lost_goes_on_from_the_archive"]
pytestmark = pytest.mark.nodes


def jobs(run: TrainingRun) -> list[str]:
    selector = f"labelSelector={names.LABEL_ARCHIVE_OF}={run.uid}"
    found = run.world.cluster.api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs?{selector}")["items"]
    return [job["metadata"]["name"] for job in found]


def test_checkpoints_are_in_the_archive_through_the_operators_death_and_the_last_one_too(
    site: TrainingSite, server: S3Server, tmp_path: Path
) -> None:
    run = archived(site, server, "archived", "--save-every=10", "--step-delay=0.25")
    run.wait("a job copies the first checkpoint", lambda: jobs(run))
    site.kill_operator()
    run.wait("a copy is published", lambda: published(run))
    run.wait_until_succeeded()
    run.wait("the last checkpoint is published", lambda: published(run)[0][1] == STEPS)
    made = jobs(run)
    assert len(made) == len(set(made))
    assert run.events("Archived")
    assert run.events("ArchiveJobFailed") == []
    for attempt, step in published(run):
        assert f"archived/{run.uid}/a{attempt}/step-{step}/lockstep-archive.json" in server.objects()

    ended = subprocess.run(
        [
            *(sys.executable, "-m", "lockstep.archive", "restore", "--uri", f"s3://{BUCKET}/archived"),
            *("--endpoint", server.endpoint, "--run-uid", run.uid),
            *("--checkpoint", f"a1/step-{STEPS}", "--into", str(tmp_path / "back")),
        ],
        env={**os.environ, **CREDENTIALS, "PYTHONPATH": str(OPERATOR)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["format"] == RESULT_FORMAT
    saved = run.folder / "a1" / f"step-{STEPS}"
    for path in saved.iterdir():
        assert (tmp_path / "back" / saved.name / path.name).read_bytes() == path.read_bytes()


def test_wrong_credentials_are_said_and_disturb_no_training(site: TrainingSite, server: S3Server) -> None:
    site.world.kubectl("delete", "secret", "s3", "-n", NAMESPACE)
    wrong = [f"--from-literal={name}={value}" for name, value in (CREDENTIALS | {"AWS_SECRET_ACCESS_KEY": "x"}).items()]
    site.world.kubectl("create", "secret", "generic", "s3", "-n", NAMESPACE, *wrong)
    run = archived(site, server, "refused", "--save-every=10", "--step-delay=0.1")
    run.wait_until_succeeded()
    run.wait("the refusal is said", lambda: run.events("ArchiveJobFailed"))
    assert "CredentialsRefused" in run.status["checkpoint"]["archive"]["message"]
    assert run.status["checkpoint"]["archive"]["failures"] >= 1
    assert [entry["cause"] for entry in run.attempts] == ["Succeeded"]
