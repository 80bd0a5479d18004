"""Kubernetes' own PodGroups on a real control plane of 1.36, with gang scheduling switched on, which is alpha there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.site import Run, Site
from localcluster import LocalCluster
from localcluster.api import Request
from lockstep.api.base import names

pytestmark = pytest.mark.cluster
NATIVE = "scheduling.k8s.io/v1alpha2"
PATIENCE = 120.0
NEVER, SOON = 900.0, 10.0


@pytest.fixture(scope="module")
def cluster(gang_scheduling_cluster: LocalCluster) -> LocalCluster:
    """In place of the one that other tests share."""
    return gang_scheduling_cluster


@pytest.fixture
def site(cluster: LocalCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """With native PodGroups. The parameter: seconds until a rank that is not scheduled gets another node."""
    settings = {"podGroups": {"kind": "Native"}, "deadlines": {"scheduled": request.param}}
    with Site.started(cluster, tmp_path, settings) as site:
        yield site


def groups(run: Run) -> dict[str, Any]:
    """The run's PodGroups by name."""
    selector = f"labelSelector={names.LABEL_RUN_UID}={run.uid}"
    path = f"/apis/{NATIVE}/namespaces/{run.namespace}/podgroups?{selector}"
    return {item["metadata"]["name"]: item for item in run.site.cluster.api.get(path)["items"]}


def bound(run: Run) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in run.pods if pod["spec"].get("nodeName")}


def member_of(pod: dict[str, Any]) -> str:
    return str(pod["spec"].get("schedulingGroup", {}).get("podGroupName", ""))


def messages_of(run: Run) -> list[str]:
    """Why its pods are not scheduled, of those that the scheduler has looked at."""
    conditions = [c for pod in run.pods for c in pod.get("status", {}).get("conditions", ())]
    return [str(c["message"]) for c in conditions if c["type"] == "PodScheduled" and c.get("message")]


@contextlib.contextmanager
def taken(site: Site, namespace: str, node: str) -> Iterator[None]:
    """Somebody else's pod has the host port of gangs on a node, which is no resource and so unknown to admission."""
    port = {"containerPort": names.NODE_MUTEX_PORT, "hostPort": names.NODE_MUTEX_PORT}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "in-the-way"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "c", "ports": [port]}],
        },
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    site.cluster.api.send(Request("POST", path, body))
    try:
        yield
    finally:
        gone = {"gracePeriodSeconds": 0}
        site.cluster.api.send(Request("DELETE", f"{path}/in-the-way", gone, absence_is_fine=True))


@pytest.mark.parametrize("site", [NEVER], indirect=True)
def test_the_gang_is_bound_as_a_whole_or_not_at_all(site: Site, namespace: str) -> None:
    with site.with_nodes(3, prefix="whole") as nodes:
        with taken(site, namespace, nodes[1]):
            run = site.apply(namespace, "whole", 3)
            run.wait("the scheduler has looked at all", lambda: len(messages_of(run)) == 3, PATIENCE)
            messages = sorted(messages_of(run))
            assert "free ports" in messages[0], messages
            assert all(message.startswith("pod group is unschedulable") for message in messages[1:]), messages
            assert not bound(run), "two of three would fit"
            (group,) = groups(run).values()
            assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
            assert {member_of(pod) for pod in run.pods} == {group["metadata"]["name"]}
            uids = run.pod_uids
            site.kill_operator()  # its successor finds group and pods, and makes none anew
            site.operator.wait_until_leading()
            assert not bound(run)
        run.wait_until_running(1, PATIENCE)
        assert bound(run) == set(nodes)
        assert run.pod_uids == uids
        assert set(groups(run)) == {group["metadata"]["name"]}
        run.delete()
        run.wait("the group goes with the run", lambda: not groups(run), PATIENCE)


@pytest.mark.parametrize("site", [SOON], indirect=True)
def test_the_rank_that_holds_the_others_back_gets_another_node(site: Site, namespace: str) -> None:
    with site.with_nodes(4, prefix="other") as nodes, taken(site, namespace, nodes[0]):
        run = site.apply(namespace, "other", 3, placement={"excludeNodes": [nodes[3]]})
        run.wait("it has nodes", lambda: len(run.pods) == 3, PATIENCE)
        run.patch_spec({"placement": {"excludeNodes": []}})
        before = run.pod_uids
        run.wait_until_running(1, PATIENCE)
        assert bound(run) == set(nodes[1:])
        assert len(before & run.pod_uids) == 2, "those that only waited keep their pods"
        assert len({member_of(pod) for pod in run.pods}) == 1, "one that is launched again is of the launch"
        run.delete()
        run.wait("its pods are gone", lambda: not run.pods, PATIENCE)


@pytest.mark.nightly
@pytest.mark.parametrize("site", [NEVER], indirect=True)
def test_a_replacement_is_bound_by_itself_and_the_group_ends_with_the_launch(site: Site, namespace: str) -> None:
    with site.with_nodes(4, prefix="life"):
        run = site.apply(namespace, "life", 3)
        run.wait_until_running(1, PATIENCE)
        (first,) = groups(run)
        lost = run.status["assignment"]["nodes"][2]
        site.cluster.remove_kwok_nodes([lost])
        run.wait_until_running(2, PATIENCE)
        by_group = sorted(member_of(pod) for pod in run.pods if pod["spec"].get("nodeName") != lost)
        assert by_group == ["", first, first]
        assert set(groups(run)) == {first}
        run.patch_spec({"suspend": True})
        run.wait("nothing of it is left", lambda: not run.pods and not groups(run), PATIENCE)
        assert "podGroup" not in run.status["resolved"]
        run.patch_spec({"suspend": False})
        run.wait_until_running(3, PATIENCE)
        (second,) = groups(run)
        assert second != first
        site.workers.finish(run.uid)
        run.wait_until_finished(PATIENCE)
        run.wait("a finished run has no group", lambda: not groups(run), PATIENCE)
