"""Volcano's PodGroups at a real API server, by their CustomResourceDefinition alone.

Volcano's scheduler is not to be had here: what it would do, to bind the pods, the test does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.site import Run, Site
from localcluster import LocalCluster
from localcluster.api import Request
from lockstep.api.base import names

pytestmark = pytest.mark.cluster
DEFINITION = Path(__file__).parent / "volcano-podgroups.yaml"
PATIENCE = 120.0


@pytest.fixture
def site(cluster: LocalCluster, tmp_path: Path) -> Iterator[Site]:
    """An operator that is told of Volcano, and a cluster that has none."""
    settings = {"podGroups": {"kind": "Volcano", "queue": "research"}}
    with Site.started(cluster, tmp_path, settings) as site, site.with_nodes(2, prefix="volcano"):
        yield site
    cluster.kubectl("delete", "--ignore-not-found", "-f", str(DEFINITION))


def groups(run: Run) -> dict[str, Any]:
    """The run's PodGroups by name."""
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{run.namespace}/podgroups"
    found = run.site.cluster.api.get(f"{path}?labelSelector={names.LABEL_RUN_UID}={run.uid}")
    return {item["metadata"]["name"]: item for item in found["items"]}


@pytest.mark.nightly
def test_runs_wait_until_volcano_is_installed_and_then_say_what_its_queue_has_to_count(
    site: Site, namespace: str
) -> None:
    run = site.apply(namespace, "volcano", 2, resourcesPerNode={"cpu": "2", "memory": "4Gi"}, gpusPerNode=8)
    run.wait("it is refused", lambda: run.condition("Accepted").get("reason") == "PodGroupsNotServed", PATIENCE)
    assert "install Volcano" in run.condition("Accepted")["message"]
    assert not run.pods
    site.cluster.kubectl("apply", "--server-side", "-f", str(DEFINITION))
    run.wait("discovery finds it", lambda: len(run.pods) == 2, 2 * PATIENCE)
    ((name, group),) = groups(run).items()
    assert group["spec"] == {
        "minMember": 2,
        "minResources": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "16"},
        "priorityClassName": "lockstep-gang",
        "queue": "research",
    }
    for pod in run.pods:
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name
    assert not any(pod["spec"].get("nodeName") for pod in run.pods), "kube-scheduler leaves them alone"
    bind_all(run)
    run.wait_until_running(1, PATIENCE)
    site.workers.finish(run.uid)
    run.wait_until_finished(PATIENCE)
    run.wait("a finished run has no group", lambda: not groups(run), PATIENCE)
    run.delete()


def bind_all(run: Run) -> None:
    """What Volcano's scheduler would do: each pod to the only node that it may be on."""
    for pod in run.pods:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (node,) = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod["metadata"]["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{run.namespace}/pods/{pod['metadata']['name']}/binding"
        run.site.cluster.api.send(Request("POST", path, body))
