"""Gangs that have nodes made: ProvisioningRequests by their real CRD, placeholder pods by the real kube-scheduler.

The autoscaler is played (``support/played_autoscaler.py``): neither a cloud nor a cluster-autoscaler is to be had here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.kube import Kubectl, wait_until_established
from harness.site import Run, Site
from localcluster import LocalCluster
from localcluster.api import Request
from lockstep.api.base import names
from support.played_autoscaler import PlayedAutoscaler

pytestmark = pytest.mark.cluster
DEFINITION = Path(__file__).parent / "provisioning-requests.yaml"
QUEUES = f"/apis/{names.API_VERSION}/{names.QUEUES}"
PATIENCE = 120.0
WANTS = {"gpusPerNode": 8, "resourcesPerNode": {"cpu": "2", "memory": "4Gi"}, "queue": "elastic"}


@pytest.fixture(scope="module")
def served(cluster: LocalCluster) -> Iterator[None]:
    """The API server has the kind, as cluster-autoscaler installs it."""
    cluster.kubectl("apply", "--server-side", "-f", str(DEFINITION))
    wait_until_established(Kubectl(cluster.kubeconfig), "crd/provisioningrequests.autoscaling.x-k8s.io")
    yield
    cluster.kubectl("delete", "--ignore-not-found", "-f", str(DEFINITION))


@pytest.fixture(scope="class")
def requesting(
    cluster: LocalCluster, crds_installed: None, served: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    settings = {"scaleUp": {"provisioningRequests": True}}
    with Site.started(cluster, tmp_path_factory.mktemp("requesting"), settings) as site:
        yield site


@pytest.fixture
def queue(cluster: LocalCluster) -> Iterator[None]:
    spec = {"scaleUp": "Enabled", "provisioningClass": "played.example.com"}
    spec["nodeSelector"] = {"pool": "elastic"}  # type: ignore[assignment]
    body = {"apiVersion": names.API_VERSION, "kind": names.QUEUE_KIND, "metadata": {"name": "elastic"}, "spec": spec}
    cluster.api.send(Request("POST", QUEUES, body))
    yield
    cluster.api.send(Request("DELETE", f"{QUEUES}/elastic", absence_is_fine=True))


@pytest.fixture
def autoscaler(cluster: LocalCluster) -> Iterator[PlayedAutoscaler]:
    with PlayedAutoscaler.at_work(cluster, "made", labels={"pool": "elastic"}) as autoscaler:
        yield autoscaler


def places(run: Run) -> list[dict[str, Any]]:
    """The run's placeholders."""
    selector = f"labelSelector={names.LABEL_PLACEHOLDER_OF}={run.uid}"
    found: list[dict[str, Any]] = run.site.cluster.api.get(f"/api/v1/namespaces/{run.namespace}/pods?{selector}")[
        "items"
    ]
    return found


def templates(run: Run) -> list[Any]:
    return list(run.site.cluster.api.get(f"/api/v1/namespaces/{run.namespace}/podtemplates")["items"])


def told(run: Run) -> str:
    return str(run.condition("ScaleUp").get("reason", ""))


@pytest.mark.usefixtures("queue")
class TestProvisioningRequests:
    def test_a_gang_asks_by_one_request_and_starts_on_the_nodes_that_are_made(
        self, requesting: Site, namespace: str, autoscaler: PlayedAutoscaler
    ) -> None:
        run = requesting.apply(namespace, "asks", 2, **WANTS)
        run.wait("it asks", lambda: autoscaler.requests(namespace), PATIENCE)
        (request,) = autoscaler.requests(namespace)
        assert request["spec"]["provisioningClassName"] == "played.example.com"
        assert [each["count"] for each in request["spec"]["podSets"]] == [2]
        template = autoscaler.template(request)
        assert template["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] == "8"
        assert template["spec"]["nodeSelector"] == {"pool": "elastic"}
        assert not places(run), "never both"
        autoscaler.answer(request, "Accepted", message="in a moment")
        run.wait("that is told", lambda: told(run) == "ProvisioningAccepted", PATIENCE)
        requesting.kill_operator()
        autoscaler.answer(request, "Accepted", "Provisioned")
        run.wait_until_running(1, PATIENCE)
        for pod in run.pods:
            found = pod["metadata"]["annotations"]
            assert found["autoscaling.x-k8s.io/consume-provisioning-request"] == request["metadata"]["name"]
            assert found["autoscaling.x-k8s.io/provisioning-class-name"] == "played.example.com"
        run.wait("nothing of it is left", lambda: not autoscaler.requests(namespace) and not templates(run), PATIENCE)
        run.wait("status forgets it", lambda: "scaleUp" not in run.status, PATIENCE)
        requesting.workers.finish(run.uid)
        run.wait_until_finished(PATIENCE)

    @pytest.mark.nightly
    def test_one_that_failed_is_taken_away_and_told_and_what_is_no_longer_wanted_goes(
        self, requesting: Site, namespace: str, autoscaler: PlayedAutoscaler
    ) -> None:
        run = requesting.apply(namespace, "fails", 2, **WANTS)
        run.wait("it asks", lambda: autoscaler.requests(namespace), PATIENCE)
        (request,) = autoscaler.requests(namespace)
        autoscaler.answer(request, "Accepted", "Failed", message="out of H100s in every zone")
        run.wait("it is told", lambda: told(run) == "ProvisioningFailed", PATIENCE)
        assert "out of H100s in every zone" in run.condition("ScaleUp")["message"]
        run.wait("it is gone", lambda: not autoscaler.requests(namespace), PATIENCE)
        assert run.status["scaleUp"]["retryAt"]
        other = requesting.apply(namespace, "leaves", 2, **WANTS)
        other.wait("it asks", lambda: autoscaler.requests(namespace), PATIENCE)
        other.patch_spec({"suspend": True})
        other.wait("it asks no more", lambda: not autoscaler.requests(namespace) and not templates(other), PATIENCE)
        other.wait("status forgets it", lambda: "scaleUp" not in other.status, PATIENCE)
        for each in (run, other):
            each.delete()


@pytest.fixture
def placing(cluster: LocalCluster, crds_installed: None, tmp_path: Path) -> Iterator[Site]:
    """An operator that makes no ProvisioningRequests."""
    with Site.started(cluster, tmp_path) as site:
        yield site


@pytest.mark.usefixtures("queue")
def test_placeholders_have_nodes_made_and_give_them_to_the_gang(
    placing: Site, namespace: str, autoscaler: PlayedAutoscaler
) -> None:
    autoscaler.make(1)
    run = placing.apply(namespace, "asks", 3, **WANTS)
    run.wait("one of them has the node that is there", lambda: len(autoscaler.unschedulable(namespace)) == 2, PATIENCE)
    assert len(places(run)) == 3
    placed = [pod for pod in places(run) if pod["spec"].get("nodeName")]
    assert [pod["spec"]["nodeName"] for pod in placed] == autoscaler.nodes
    assert {pod["spec"]["priority"] for pod in places(run)} == {-10}
    run.wait("it is told", lambda: "of which 1 have one" in run.condition("ScaleUp").get("message", ""), PATIENCE)
    placing.kill_operator()
    placing.operator.wait_until_leading()
    assert not run.pods, "for the gang a node is missing as before"
    autoscaler.make(2)
    run.wait_until_running(1, PATIENCE)
    assert {pod["spec"]["nodeName"] for pod in run.pods} == set(autoscaler.nodes)
    run.wait("no placeholder is left", lambda: not places(run), PATIENCE)
    run.wait("status forgets it", lambda: "scaleUp" not in run.status, PATIENCE)
    placing.workers.finish(run.uid)
    run.wait_until_finished(PATIENCE)


@pytest.mark.nightly
@pytest.mark.usefixtures("queue")
def test_another_gang_takes_the_node_of_a_placeholder_and_nothing_outlives_the_wish(
    placing: Site, namespace: str, autoscaler: PlayedAutoscaler
) -> None:
    autoscaler.make(1)
    run = placing.apply(namespace, "asks", 4, **WANTS)
    run.wait("its placeholders are there", lambda: len(autoscaler.unschedulable(namespace)) == 3, PATIENCE)
    other = placing.apply(
        namespace, "small", 1, **{**WANTS, "queue": "default", "placement": {"nodes": autoscaler.nodes}}
    )
    other.wait_until_running(1, PATIENCE)
    run.wait("it asks for all of its nodes again", lambda: len(autoscaler.unschedulable(namespace)) == 4, PATIENCE)
    disabled = {"spec": {"scaleUp": "Disabled", "provisioningClass": None}}
    placing.cluster.api.send(Request("PATCH", f"{QUEUES}/elastic", disabled, "application/merge-patch+json"))
    run.wait("the queue asks for nothing any more", lambda: not places(run), PATIENCE)
    run.wait("status forgets it", lambda: "scaleUp" not in run.status, PATIENCE)
    run.delete()
    placing.workers.finish(other.uid)
    other.wait_until_finished(PATIENCE)
