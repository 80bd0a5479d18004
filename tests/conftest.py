"""A real control plane for the tests that need one, and what holds for every property test.

One is started for the whole session, or with LOCKSTEP_TEST_STATE=DIR the one that runs in DIR is used and
left running. A session that is killed leaves its control plane; the next one stops it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from harness.kube import wait_until_established
from localcluster import LocalCluster, build, processes
from localcluster.errors import ApiError, NotRunningError
from localcluster.processnodes import ProcessNodes
from support.examples import AT_MOST, OTHERS, QUICK

CRDS = Path(__file__).resolve().parents[1] / "crds"

# How long an example takes says more about what else the machine does than about the code.
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time, so that a failure is of the change that is tested; `make test-more` looks for others.
settings.register_profile("the same", SLOW, derandomize=True)
settings.register_profile(OTHERS, SLOW)
# For people who wait: `make check`. What a test asks for itself goes over this, hence support.examples.
settings.register_profile(QUICK, SLOW, derandomize=True, max_examples=AT_MOST, stateful_step_count=AT_MOST)
settings.load_profile("the same")


# Thousands of tests are collected, and none of what that makes is garbage: to look for it takes half of that time, and
# a good part of that of the tests afterwards. To look as often as Python does is still a tenth of these.
def pytest_configure() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20)
    gc.enable()


@contextlib.contextmanager
def _started(request: pytest.FixtureRequest, kind: str = "", **options: Any) -> Iterator[LocalCluster]:
    """A cluster of this session. ``kind`` tells it from others, ``options`` are those of LocalCluster.start."""
    clusters = build.build_dir() / "test-clusters"
    _stop_abandoned(clusters)
    me = processes.this_process()
    started = LocalCluster.start(clusters / f"{me.pid}-{me.start_ticks}{kind}", report=print, **options)
    try:
        yield started
    finally:
        started.stop()
        if request.session.testsfailed == 0:  # otherwise the logs are worth keeping
            shutil.rmtree(started.state_dir)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    if given := os.environ.get("LOCKSTEP_TEST_STATE"):
        yield LocalCluster.attach(given)
        return
    with _started(request) as started:
        yield started


@pytest.fixture(scope="session")
def gang_scheduling_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One whose kube-scheduler binds PodGroups as a whole."""
    with _started(request, "-gangs", gang_scheduling=True) as started:
        yield started


@pytest.fixture(scope="session")
def crds_installed(cluster: LocalCluster) -> None:
    """The CustomResourceDefinitions of the repository are served by `cluster`."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    wait_until_established(cluster.kubectl, "-f", str(CRDS))


@pytest.fixture
def namespace(cluster: LocalCluster) -> Iterator[str]:
    """A new namespace, ready for pods; deleted after the test without waiting for it."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    _wait_for_default_service_account(cluster, name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def _wait_for_default_service_account(cluster: LocalCluster, namespace: str) -> None:
    """Until it is there no pod can be created in the namespace."""
    deadline = time.monotonic() + 60
    while True:
        try:
            cluster.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
            return
        except ApiError as error:
            if error.status != 404 or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _stop_abandoned(clusters: Path) -> None:
    """Stops what test sessions left that ended without a chance to do so."""
    for directory in clusters.glob("*-*"):
        pid, start_ticks = directory.name.split("-")[:2]
        owner = processes.ProcessRecord(int(pid), int(start_ticks), processes.this_process().boot_id)
        if processes.is_alive(owner):
            continue
        ProcessNodes(directory).stop()
        with contextlib.suppress(NotRunningError):  # it was stopped, only its logs are left
            LocalCluster.attach(directory).stop()
        shutil.rmtree(directory, ignore_errors=True)
