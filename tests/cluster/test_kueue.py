"""Runs that Kueue admits, on a real API server and with the operator's real rights.

Kueue itself is its own manager where LOCKSTEP_TEST_KUEUE names one (CONTRIBUTING.md), else a double.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from harness.site import Run, Site
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from localcluster.kwok import RACK_LABEL
from support.kueue_at_work import QUEUE, KueueAtWork, kueue_installed, queues_of_kueue
from support.kueue_double import assigned_hosts

pytestmark = pytest.mark.cluster

LABEL = "kueue.x-k8s.io/queue-name"
SOON = 60.0
"""Seconds for what takes the operator one look for Kueue, which it takes every 15."""
NODES = 4


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
    with running_site.with_nodes(NODES, racks=2) as made:
        yield made
    assert running_site.workers.shared_nodes == []


class Installation:
    """Of Kueue, once for all tests here: to remove its definitions and make them anew takes an API server its time."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._installed = contextlib.ExitStack()

    def is_needed(self) -> None:
        """It is installed from now on."""
        if not self.is_there:
            self._installed.enter_context(kueue_installed(self._cluster))
            self.is_there = True

    def is_not_wanted(self) -> None:
        """It is not installed from now on."""
        self._installed.close()
        self.is_there = False

    is_there = False


@pytest.fixture(scope="module")
def installation(running_site: Site) -> Iterator[Installation]:
    found = Installation(running_site.cluster)
    try:
        yield found
    finally:
        found.is_not_wanted()


@pytest.fixture
def kueue(running_site: Site, installation: Installation, namespace: str, nodes: list[str]) -> Iterator[KueueAtWork]:
    installation.is_needed()
    with queues_of_kueue(running_site.cluster, namespace, nodes) as work:
        yield work


@contextlib.contextmanager
def labelled(site: Site, namespace: str, name: str, count: int, **spec: Any) -> Iterator[Run]:
    run = site.apply(namespace, name, count, gpusPerNode=8, suspend=True, **spec)
    label = {"metadata": {"labels": {LABEL: QUEUE}}, "spec": {"suspend": False}}
    site.cluster.api.send(Request("PATCH", run.path, label, MERGE_PATCH))
    try:
        yield run
    finally:
        run.delete()
        wait_for(f"no pod of {name} is left", lambda: not run.pods, seconds=60, every=0.2)


def waits_for(run: Run, reason: str, words: str = "", seconds: float = 90) -> None:
    """Until the run's pending reason is this, with these words."""

    def says_so() -> bool:
        queue = run.status.get("queue", {})
        return bool(queue.get("reason") == reason and words in queue.get("message", ""))

    run.wait(f"it says {reason} {words}", says_so, seconds)


def test_a_run_waits_for_kueue_to_be_installed_trains_where_it_says_is_evicted_and_finishes(
    running_site: Site, installation: Installation, namespace: str, nodes: list[str]
) -> None:
    site = running_site
    installation.is_not_wanted()
    with labelled(site, namespace, "llama", 2) as run:
        waits_for(run, "KueueNotInstalled")
        installation.is_needed()
        with queues_of_kueue(site.cluster, namespace, nodes) as kueue:
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
            with kueue.rival():
                run.wait("it is released", lambda: kueue.told("llama", "QuotaReserved")[0] == "False", 90)
                assert not run.pods
                assert kueue.told("llama", "Admitted") == ("False", "NoReservation")
                assert kueue.told("llama", "Requeued") == ("True", "Preempted")
                assert "admission" not in kueue.of("llama")["status"]
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
        kueue.stop("HoldAndDrain")
        run.wait("it stops", lambda: run.status.get("stop") or not run.status.get("start"))
        site.kill_operator()
        site.mend()
        run.wait("it is released", lambda: kueue.told("mistral", "QuotaReserved")[0] == "False", 90)
        assert not run.pods
        assert kueue.told("mistral", "Requeued") == ("False", "ClusterQueueStopped")
        waits_for(run, "WaitingForKueue", "is stopped")
        kueue.stop("None")
        run.wait_until_running(2, 60)


def test_a_run_that_is_deactivated_says_so_and_a_suspended_one_takes_its_workload_away(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    with labelled(running_site, namespace, "qwen", 2) as run:
        run.wait_until_running(1, SOON)
        kueue.activate("qwen", False)
        waits_for(run, "KueueDeactivated")
        assert not run.pods
        run.patch_spec({"suspend": True})
        run.wait("the Workload is gone", lambda: not kueue.workloads)
        run.patch_spec({"suspend": False})
        run.wait_until_running(2, 60)


def test_a_run_that_kueue_has_given_up_goes_on_once_its_workload_is_active_again(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    with labelled(running_site, namespace, "gemma", 2) as run:
        run.wait_until_running(1, SOON)
        kueue.give_up("gemma")
        waits_for(run, "KueueDeactivated", "DeactivatedDueToRequeuingLimitExceeded")
        run.wait("it is released", lambda: kueue.told("gemma", "QuotaReserved")[0] == "False")
        kueue.activate("gemma", True)
        run.wait_until_running(2, SOON)


def test_no_node_is_used_twice_while_a_run_that_was_deactivated_still_stops(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    site = running_site
    with labelled(site, namespace, "first", 3) as first, labelled(site, namespace, "next", 3) as following:
        run = first.wait("one has nodes", lambda: next(filter(_has_nodes, (first, following)), None), SOON)
        other = following if run is first else first
        run.wait_until_running(1, SOON)
        waits_for(other, "WaitingForKueue", "insufficient unused quota")
        uid = run.uid
        site.workers.hold_replies(lambda body, reply: body["runUid"] != uid)  # it does not hear that it is to stop
        kueue.activate(run.name, False)
        # Kueue gives the quota away at once, and perhaps its nodes too: these are not free before the pods are gone.
        run.wait("Kueue admits the other", lambda: kueue.told(other.name, "Admitted")[0] == "True")
        waits_for(other, "KueueAssignment", "held by others")
        site.workers.hold_replies(lambda body, reply: True)
        other.wait_until_running(1, 120)


def _has_nodes(run: Run) -> bool:
    return bool(run.status.get("assignment", {}).get("nodes"))


def test_a_run_that_changes_its_size_while_it_waits_asks_kueue_for_the_new_one(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    def asked() -> tuple[str, int]:
        workload = kueue.of("olmo")
        return workload["metadata"]["uid"], workload["spec"]["podSets"][0]["count"]

    kueue.give(0)
    with labelled(running_site, namespace, "olmo", 2) as run:
        run.wait("Kueue is asked", lambda: kueue.workloads, SOON)
        uid, _ = asked()
        run.patch_spec({"nodes": 3})
        run.wait("Kueue is asked for three", lambda: asked() == (uid, 3))
        kueue.give(4)
        run.wait_until_running(1, SOON)


def test_what_kueue_says_next_is_told_at_once_and_a_queue_that_is_deleted_is_missed(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    kueue.give(1)
    with labelled(running_site, namespace, "phi", 2) as run:
        waits_for(run, "WaitingForKueue", "ExceedsMaxQuota: couldn't assign flavors to pod set gang", SOON)
        kueue.stop("Hold")
        waits_for(run, "WaitingForKueue", "Suspended: ClusterQueue cluster-queue is inactive", 30)
        kueue.delete_local_queue()
        waits_for(run, "LocalQueueNotFound", seconds=30)
        kueue.make_local_queue()
        kueue.stop("None")
        kueue.give(2)
        run.wait_until_running(1, SOON)


def test_the_nodes_of_a_rack_that_kueue_names_are_chosen_within_it(
    running_site: Site, installation: Installation, namespace: str, nodes: list[str]
) -> None:
    site, rack = running_site, {"topology": [{"level": "rack", "mode": "Required"}]}
    installation.is_needed()
    with (
        queues_of_kueue(site.cluster, namespace, nodes, [RACK_LABEL]) as kueue,
        labelled(site, namespace, "falcon", 2, placement=rack) as run,
    ):
        run.wait_until_running(1, SOON)
        named = kueue.of("falcon")["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
        assert named["levels"] == [RACK_LABEL]
        assert len({_rack(site, node) for node in run.status["assignment"]["nodes"]}) == 1


def _rack(site: Site, node: str) -> str:
    labels = site.cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]
    return str(labels[RACK_LABEL])


def test_a_node_in_whose_place_kueue_puts_another_is_left(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    with labelled(running_site, namespace, "yi", 3) as run:
        run.wait_until_running(1, SOON)
        before = run.status["assignment"]["nodes"]
        kueue.lose_node("yi", before[1])
        run.wait("Kueue names another", lambda: before[1] not in assigned_hosts(kueue.of("yi")))

        def follows() -> bool:
            nodes = run.status.get("assignment", {}).get("nodes", ())
            return sorted(nodes) == assigned_hosts(kueue.of("yi"))

        run.wait("it is where Kueue says", follows)
        run.wait_until_running(2, SOON)


def test_a_run_whose_lost_node_kueue_cannot_replace_is_evicted_and_goes_on_when_there_are_enough(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    site = running_site
    with labelled(site, namespace, "command", NODES) as run:
        run.wait_until_running(1, SOON)
        kueue.lose_node("command", run.status["assignment"]["nodes"][0])
        run.wait("it is evicted", lambda: kueue.told("command", "Evicted") == ("True", "NodeFailures"))
        run.wait_until_running(2, 90)


def test_pods_that_kueue_would_gate_for_good_are_refused_with_the_ways_out(
    running_site: Site, namespace: str, kueue: KueueAtWork
) -> None:
    if not kueue.is_real:
        pytest.skip("the double has no webhook of pods: LOCKSTEP_TEST_KUEUE")
    kueue.make_local_queue("default")
    run = running_site.apply(namespace, "bert", 1, gpusPerNode=8)
    try:
        run.wait("it is refused", lambda: run.condition("Accepted").get("reason") == "PodRefused")
        said = run.condition("Accepted")["message"]
        assert "kueue.x-k8s.io/admission" in said
        assert "managedJobsNamespaceSelector" in said
    finally:
        run.delete()
