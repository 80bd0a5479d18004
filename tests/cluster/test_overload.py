"""A gang that is launched while everything is slow starts all the same, in its first attempt and as it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from harness.site import LEASE, Site
from localcluster import LocalCluster
from support.benchmarks import figures_of

pytestmark = pytest.mark.cluster
NODES = 64
BUSY = 4
TAKES = 2.0
"""Seconds that every request of the operator waits: reviews of workers' tokens, too."""
DEADLINES = {"scheduled": 2.0, "started": 2.0, "registered": 2.0, "ready": 2.0, "startAcknowledged": 2.0}
PATIENCE = 300.0


@pytest.fixture
def impatient(cluster: LocalCluster, crds_installed: None, tmp_path: Path) -> Iterator[Site]:
    """Its operator has deadlines that nobody keeps where every request takes so long."""
    with Site.started(cluster, tmp_path, {"deadlines": DEADLINES}) as site:
        yield site


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes do nothing but compute."""
    with ExitStack() as stack:
        for _ in range(processes):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


@pytest.mark.nightly  # its busy processes would be in the way of all that runs beside it
def test_a_gang_that_is_launched_while_all_is_slow_starts_as_it_is_and_the_lease_is_held(
    impatient: Site, namespace: str
) -> None:
    site = impatient
    with site.with_nodes(NODES, prefix="slow"):
        lease, starts = site.cluster.api.get(LEASE)["spec"], site.operator.starts
        with busy(BUSY):
            site.proxy.slow_down(TAKES)
            run = site.apply(namespace, "wide", nodes=NODES)
            run.wait_until_running(1, PATIENCE)
            measured = site.operator.metrics()
            site.proxy.slow_down(0.0)
        assert run.deleted_pods() == []
        assert set(run.status["assignment"]["incarnations"]) == {1}
        held = site.cluster.api.get(LEASE)["spec"]
        assert [held[name] for name in ("holderIdentity", "leaseTransitions")] == [
            lease[name] for name in ("holderIdentity", "leaseTransitions")
        ]
        assert site.operator.starts == starts
        assert measured["lockstep_lag_seconds"][("part", "api-server"),] >= TAKES
        assert sum(measured["lockstep_lag_allowance_seconds"].values()) > 0
        site.workers.finish(run.uid)
        run.wait_until_finished(PATIENCE)
        assert run.is_true("Succeeded")
        assert run.status["attempt"] == 1
        run.delete()
        run.wait("its pods are gone", lambda: not run.pods, PATIENCE)
    assert site.workers.shared_nodes == []


@pytest.mark.nightly
def test_the_benchmark_ends_with_one_line_of_json() -> None:
    # Long enough for what was written in peace just before to be no longer half of what was written of late.
    figures = figures_of("overload", "--nodes=8", "--busy=2", "--takes=2")
    assert (figures["bench"], figures["size"], figures["nodes"]) == ("overload", "own", 8)
    assert [figures[name] for name in ("attempt", "replaced", "requeues", "leases_lost")] == [1, 0, 0, 0]
    assert figures["failed"] == []
    assert 0 < figures["calm_s"] < figures["loaded_s"]
    assert figures["allowance_s"] > 0
