"""The local cluster does what tests, benchmarks and the demo expect of it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster import LocalCluster, build, processes, state
from localcluster.errors import ApiError, KubectlError, LocalClusterError
from localcluster.kwok import NodeBatch, Taint, is_ready

pytestmark = pytest.mark.cluster

COMPONENTS = ["etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok"]


@pytest.fixture(scope="module")
def disposable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster of this module's own, whose components may be stopped without hurting other tests."""
    cluster = LocalCluster.start(tmp_path_factory.mktemp("cluster"), report=print)
    try:
        yield cluster
    finally:
        cluster.stop()


def eventually(is_true: Callable[[], bool], within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not is_true():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.05)


def pod_pinned_to(node: str, name: str = "pinned") -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "hostNetwork": True,
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            },
            "tolerations": [{"operator": "Exists"}],
            "initContainers": [{"name": "prepare", "image": "none"}],
            "containers": [
                {
                    "name": "trainer",
                    "image": "none",
                    "resources": {"limits": {"nvidia.com/gpu": 8, "rdma/hca": 8, "cpu": 1, "memory": "1Gi"}},
                }
            ],
        },
    }


def get(cluster: LocalCluster, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", *what, "-o", "json"))
    return found


def test_every_component_is_healthy_and_known_by_pid(disposable: LocalCluster) -> None:
    components = disposable.status()
    assert [component.name for component in components] == COMPONENTS
    assert all(component.is_healthy and component.pid for component in components)


def test_the_server_says_the_version_it_was_built_at(disposable: LocalCluster) -> None:
    assert disposable.api.get("/version")["gitVersion"] == f"v{build.kubernetes_version()}"


def test_a_pod_pinned_to_a_simulated_node_runs_at_the_address_of_the_node(disposable: LocalCluster) -> None:
    names = disposable.add_kwok_nodes(NodeBatch(count=64, racks=4, zones=2))
    assert all(is_ready(node) for node in disposable.kwok_nodes())

    disposable.kubectl("create", "-f", "-", input=json.dumps(pod_pinned_to(names[40])))
    disposable.kubectl("wait", "pod/pinned", "--for=condition=Ready", "--timeout=60s")

    pod = get(disposable, "pod", "pinned")
    node = get(disposable, "node", names[40])
    address = node["status"]["addresses"][0]["address"]
    assert pod["spec"]["nodeName"] == names[40]
    assert (pod["status"]["podIP"], pod["status"]["hostIP"]) == (address, address)
    assert [c["state"].keys() for c in pod["status"]["containerStatuses"]] == [{"running"}]
    disposable.kubectl("delete", "pod", "pinned", "--timeout=60s")


def test_a_second_batch_continues_names_racks_and_addresses(disposable: LocalCluster) -> None:
    before = {n["status"]["addresses"][0]["address"] for n in disposable.kwok_nodes()}
    names = disposable.add_kwok_nodes(
        NodeBatch(count=2, gpu_type="H200", prefix="h200", taints=[Taint("team", "vision", "NoSchedule")])
    )
    node = get(disposable, "node", names[0])
    assert names == ["h200-0000", "h200-0001"]
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H200"
    assert {"key": "team", "value": "vision", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["addresses"][0]["address"] not in before
    disposable.remove_kwok_nodes(names)


def test_a_silent_node_is_not_ready_and_keeps_its_deleted_pod_until_it_is_back(
    disposable: LocalCluster,
) -> None:
    [node] = disposable.add_kwok_nodes(NodeBatch(count=1, prefix="silent"))
    disposable.kubectl("create", "-f", "-", input=json.dumps(pod_pinned_to(node, "held")))
    disposable.kubectl("wait", "pod/held", "--for=condition=Ready", "--timeout=60s")

    disposable.silence_kwok_nodes([node])
    eventually(lambda: "node.kubernetes.io/unreachable" in json.dumps(get(disposable, "node", node)["spec"]))
    disposable.kubectl("delete", "pod", "held", "--wait=false")
    assert get(disposable, "pod", "held")["metadata"]["deletionTimestamp"]

    disposable.restore_kwok_nodes([node])
    disposable.wait_for_kwok_nodes([node], timeout=60)
    disposable.kubectl("wait", "pod/held", "--for=delete", "--timeout=60s")
    disposable.remove_kwok_nodes([node])


def test_a_restarted_api_server_has_its_port_and_its_data(disposable: LocalCluster) -> None:
    disposable.kubectl("create", "configmap", "kept", "--from-literal=a=b")

    disposable.stop_component("kube-apiserver")
    with pytest.raises(ApiError) as refused:
        disposable.api.get("/api/v1/nodes")
    assert refused.value.status == 0

    disposable.start_component("apiserver")
    assert get(disposable, "configmap", "kept")["data"] == {"a": "b"}


def test_a_restarted_kwok_takes_over_its_nodes_at_once(disposable: LocalCluster) -> None:
    [node] = disposable.add_kwok_nodes(NodeBatch(count=1, prefix="handed-over"))
    disposable.stop_component("kwok", kill=True)
    disposable.kubectl("create", "-f", "-", input=json.dumps(pod_pinned_to(node, "waiting")))
    disposable.start_component("kwok")
    disposable.kubectl("wait", "pod/waiting", "--for=condition=Ready", "--timeout=60s")
    disposable.kubectl("delete", "pod", "waiting", "--timeout=60s")


def test_a_paused_api_server_answers_nothing_until_it_is_resumed(disposable: LocalCluster) -> None:
    disposable.pause_component("apiserver")
    try:
        assert not next(c for c in disposable.status() if c.name == "kube-apiserver").is_healthy
    finally:
        disposable.resume_component("apiserver")
    eventually(lambda: all(component.is_healthy for component in disposable.status()))


def test_a_service_account_gets_no_more_than_its_roles(disposable: LocalCluster) -> None:
    kubeconfig = disposable.kubeconfig_for_service_account("default", "default", expires_in=600)
    assert kubeconfig.stat().st_mode & 0o077 == 0
    refused = subprocess.run(
        [build.binary("kubectl"), f"--kubeconfig={kubeconfig}", "get", "nodes"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "system:serviceaccount:default:default" in refused.stderr
    with pytest.raises(ApiError, match="not found"):
        disposable.kubeconfig_for_service_account("default", "nobody")


def test_what_kubectl_says_is_in_the_error(disposable: LocalCluster) -> None:
    with pytest.raises(KubectlError, match="not found"):
        disposable.kubectl("get", "pod", "nowhere")


def test_an_unknown_component_is_answered_with_those_that_exist(disposable: LocalCluster) -> None:
    with pytest.raises(LocalClusterError, match="kube-scheduler"):
        disposable.stop_component("shceduler")


def test_a_component_that_ends_at_once_is_reported_with_its_last_words(
    disposable: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    disposable.stop_component("scheduler")
    kubeconfig = disposable.layout.kubeconfig("scheduler")
    content = kubeconfig.read_text()
    kubeconfig.write_text("not: [a kubeconfig")
    try:
        with pytest.raises(LocalClusterError, match=r"(?s)kube-scheduler ended, its log .* ends with:\n.*yaml"):
            disposable.start_component("scheduler")
    finally:
        kubeconfig.write_text(content)
        disposable.start_component("scheduler")


def test_a_stopped_cluster_leaves_no_process_and_comes_back_with_kept_data(tmp_path: Path) -> None:
    cluster = LocalCluster.start(tmp_path / "c")
    try:
        cluster.kubectl("create", "namespace", "kept")
        records = list(state.load(cluster.state_dir).processes.values())

        cluster.stop(keep_data=True)
        assert not any(processes.is_alive(record) for record in records)

        again = LocalCluster.start(cluster.state_dir)
        assert again.url == cluster.url
        assert get(again, "namespace", "kept")["metadata"]["name"] == "kept"
        records = list(state.load(cluster.state_dir).processes.values())
    finally:
        cluster.stop()
    assert not any(processes.is_alive(record) for record in records)
    assert {path.name for path in cluster.state_dir.iterdir()} <= {"logs", "lock"}
