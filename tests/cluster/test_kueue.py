"""Runs that Kueue admits, on a real API server and with the operator's real rights; Kueue itself is a double."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from harness.site import Run, Site
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from support.kueue_at_work import QUEUE, KueueAtWork, kueue_at_work
from support.kueue_double import assigned_hosts

pytestmark = pytest.mark.cluster

LABEL = "kueue.x-k8s.io/queue-name"
SOON = 60.0
"""Seconds for what takes the operator one look for Kueue, which it takes every 15."""


@pytest.fixture(scope="module")
def running_site(
    cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """With an operator that is told of Kueue, and has the rights that come with it."""
    with Site.started(cluster, tmp_path_factory.mktemp("site"), {"kueue": {"enabled": True}}) as site:
        yield site


@pytest.fixture
def nodes(running_site: Site) -> Iterator[list[str]]:
    running_site.mend()
    with running_site.with_nodes(4) as made:
        yield made
    assert running_site.workers.shared_nodes == []


@pytest.fixture
def kueue(running_site: Site, namespace: str, nodes: list[str]) -> Iterator[KueueAtWork]:
    with kueue_at_work(running_site.cluster, namespace, nodes) as work:
        yield work


@contextlib.contextmanager
def labelled(site: Site, namespace: str, name: str, count: int) -> Iterator[Run]:
    run = site.apply(namespace, name, count, gpusPerNode=8, suspend=True)
    label = {"metadata": {"labels": {LABEL: QUEUE}}, "spec": {"suspend": False}}
    site.cluster.api.send(Request("PATCH", run.path, label, MERGE_PATCH))
    try:
        yield run
    finally:
        run.delete()
        pods = f"/api/v1/namespaces/{namespace}/pods"
        wait_for("no pod is left", lambda: not site.cluster.api.get(pods)["items"], seconds=60, every=0.2)


def test_a_run_waits_for_kueue_to_be_installed_trains_where_it_says_is_evicted_and_finishes(
    running_site: Site, namespace: str, nodes: list[str]
) -> None:
    site = running_site
    with labelled(site, namespace, "llama", 2) as run:
        run.wait("it says that Kueue lacks", lambda: run.status.get("queue", {}).get("reason") == "KueueNotInstalled")
        with kueue_at_work(site.cluster, namespace, nodes) as kueue:
            run.wait_until_running(1, SOON)
            run.wait("Kueue is told", lambda: kueue.told("llama", "PodsReady") == ("True", "Started"))
            workload = kueue.of("llama")
            assert run.status["assignment"]["nodes"] == assigned_hosts(workload)
            assert run.status["kueue"]["workloadUid"] == workload["metadata"]["uid"]
            for pod in run.pods:
                meta = pod["metadata"]
                assert meta["annotations"]["kueue.x-k8s.io/workload"] == workload["metadata"]["name"]
                assert meta["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"
                assert meta["labels"]["kueue.x-k8s.io/podset"] == "gang"
            kueue.pool.pods = 0
            kueue.evict("llama", "Preempted")
            run.wait("it is released", lambda: kueue.told("llama", "QuotaReserved")[0] == "False", 90)
            assert not run.pods
            assert kueue.told("llama", "Admitted") == ("False", "NoReservation")
            assert kueue.told("llama", "Requeued") == ("True", "Preempted")
            assert "admission" not in kueue.of("llama")["status"]
            kueue.pool.pods = 4
            run.wait_until_running(2, 60)
            site.workers.finish(run.uid)
            run.wait_until_finished(60)
            run.wait("the quota is back", lambda: kueue.told("llama", "Finished") == ("True", "Succeeded"), 300)


def test_an_operator_killed_in_the_middle_of_an_eviction_has_a_successor_that_releases(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    site = running_site
    with labelled(site, namespace, "mistral", 3) as run:
        run.wait_until_running(1, SOON)
        kueue.pool.pods = 0
        kueue.evict("mistral", "ClusterQueueStopped")
        run.wait("it stops", lambda: run.status.get("stop") or not run.status.get("start"))
        site.kill_operator()
        site.mend()
        run.wait("it is released", lambda: kueue.told("mistral", "QuotaReserved")[0] == "False", 90)
        assert not run.pods
        assert kueue.told("mistral", "Requeued")[1] in ("ClusterQueueStopped", "BackoffFinished")
        run.wait("it waits", lambda: run.status.get("queue", {}).get("reason") == "WaitingForKueue")


def test_a_run_that_is_deactivated_says_so_and_a_suspended_one_takes_its_workload_away(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    with labelled(running_site, namespace, "qwen", 2) as run:
        run.wait_until_running(1, SOON)
        kueue.activate("qwen", False)
        run.wait("it says so", lambda: run.status.get("queue", {}).get("reason") == "KueueDeactivated", 90)
        assert not run.pods
        run.patch_spec({"suspend": True})
        run.wait("the Workload is gone", lambda: not kueue.workloads)
        run.patch_spec({"suspend": False})
        run.wait_until_running(2, 60)


def test_a_run_that_changes_its_size_while_it_waits_asks_kueue_for_the_new_one(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    def asked() -> tuple[str, int]:
        workload = kueue.of("olmo")
        return workload["metadata"]["uid"], workload["spec"]["podSets"][0]["count"]

    kueue.pool.pods = 0
    with labelled(running_site, namespace, "olmo", 2) as run:
        run.wait("Kueue is asked", lambda: kueue.workloads, SOON)
        uid, _ = asked()
        run.patch_spec({"nodes": 3})
        run.wait("Kueue is asked for three", lambda: asked() == (uid, 3))
        kueue.pool.pods = 4
        run.wait_until_running(1, SOON)
