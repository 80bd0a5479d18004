"""Jobs in the operator's image copy what containers saved, as users who are not root, and bring it back.

`tests/nodes` runs the test too, with processes for containers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.object_store import ACCESS, BUCKET, SECRET, S3Server
from harness.training import NAMESPACE, AnySite, TrainingRun
from localcluster.build import build_all
from localcluster.state import free_ports

pytestmark = pytest.mark.containers
CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


STEPS = 40


@pytest.fixture
def server(site: AnySite, tmp_path: Path) -> Iterator[S3Server]:
    """An object store that the nodes reach, and the secret with its credentials."""
    build_all(names=["versitygw"])
    server = S3Server(tmp_path / "s3", free_ports(("s3",))["s3"], site.gateway)
    server.start()
    literals = [f"--from-literal={name}={value}" for name, value in CREDENTIALS.items()]
    site.world.kubectl("create", "secret", "generic", "s3", "-n", NAMESPACE, *literals)
    yield server
    site.world.kubectl("delete", "secret", "s3", "-n", NAMESPACE)
    server.stop()


def archived(site: AnySite, server: S3Server, name: str, *options: str) -> TrainingRun:
    archive = {
        "uri": f"s3://{BUCKET}/{name}",
        "endpoint": server.endpoint,
        "interval": "1s",
        "credentialsSecretRef": {"name": "s3"},
    }
    checkpoint = {"format": "Manifest", "shared": {"claimName": "checkpoints"}, "archive": archive}
    return site.train(name, 2, STEPS, *options, checkpoint=checkpoint, podTemplate=site.pod_template)


def published(run: TrainingRun) -> list[tuple[int, int]]:
    known = run.status.get("checkpoint", {}).get("archive", {}).get("published", [])
    return [(each["attempt"], each["step"]) for each in known]


@pytest.mark.nightly
def test_a_gang_whose_shared_tier_was_lost_goes_on_from_the_archive(site: AnySite, server: S3Server) -> None:
    run = archived(site, server, "brought-back", "--save-every=10", "--step-delay=0.5")
    run.wait("a copy is published", lambda: published(run))
    attempt, step = published(run)[0]
    for path in run.folder.iterdir():
        shutil.rmtree(path)  # somebody cleans up
    run.kill_process(1)
    run.wait("the gang waits for the copy", lambda: run.events("Restored"), 150)
    run.wait("attempt 2 has started", lambda: run.status.get("start", {}).get("attempt") == 2)
    resume = run.status["start"]["resume"]
    assert resume["tier"] == "shared"
    assert resume["step"] >= step
    assert f"/{run.uid}/a0/" in resume["path"]
    run.wait_until_succeeded(120)
    assert attempt == 1
    # A job that is ended while its program is only starting takes the whole grace of its pod.
    run.wait("the last checkpoint is published", lambda: published(run)[0][1] == STEPS)
