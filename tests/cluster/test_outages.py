"""What is out of order around a gang whose steps advance is no reason to touch it."""

from __future__ import annotations

import time

import pytest

from harness.site import PATIENCE, Run, Site
from harness.waiting import wait_for

pytestmark = pytest.mark.cluster

# Two and ten minutes in life. Both are longer than the lease, after whose loss nothing new can happen.
API_AWAY_SECONDS = 15.0
NOT_READY_SECONDS = 10.0  # twice the silence after which a worker on such a node would be given up


def assert_untouched(run: Run, pods: set[str]) -> None:
    assert run.site.workers.running(run.uid, 1) == len(pods)
    assert run.pod_uids == pods
    status = run.status
    assert status["attempt"] == status["start"]["attempt"] == 1
    assert run.deleted_pods() == []


@pytest.mark.nightly
def test_a_gang_whose_steps_advance_survives_unready_nodes_and_an_operator_without_api_server(
    site: Site, namespace: str
) -> None:
    run = site.apply(namespace, "llama", nodes=4)
    run.wait_until_running(1)
    pods, nodes = run.pod_uids, run.status["assignment"]["nodes"]
    site.workers.outlive(nodes)
    site.cluster.silence_kwok_nodes(nodes)
    before = site.workers.steps(run.uid)
    time.sleep(NOT_READY_SECONDS)
    assert_untouched(run, pods)
    assert run.status["state"] == "Running"

    starts = site.operator.starts
    site.proxy.take_down()
    time.sleep(API_AWAY_SECONDS)
    wait_for("it lost its lease, and ends as it must", lambda: site.operator.starts > starts, seconds=PATIENCE)
    site.proxy.bring_up()
    site.operator.wait_until_leading()
    site.cluster.restore_kwok_nodes(nodes)
    run.wait("progress is told again", lambda: run.status["progress"]["step"] > before + 300)
    assert_untouched(run, pods)
    assert run.heard.attempts() == [1]
    site.workers.outlive([])
    site.workers.finish(run.uid)
    run.wait_until_finished()
    assert run.is_true("Succeeded")


def test_an_operator_that_never_hears_what_became_of_its_writes_launches_a_gang_and_does_it_once(
    site: Site, namespace: str
) -> None:
    site.proxy.lose_answers(True)
    try:
        run = site.apply(namespace, "llama", nodes=4)
        run.wait_until_running(1)
    finally:
        site.proxy.lose_answers(False)
    assert run.heard.start(1)["attempt"] == 1
    assert len([write for write in site.proxy.writes if write.method == "POST" and run.owns(write)]) == 4
    assert run.deleted_pods() == []
    run.delete()
