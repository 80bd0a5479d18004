"""`lockstep logs` against pods that really run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from harness.pods import Pods
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names
from lockstep.cli.main import main

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("crds_installed")]

START = "lockstep: attempt={0} rank={1} node=n resume=none world=2 master=10.0.0.1:20001 start"
Logs = Callable[..., list[str]]


def script(rank: int, *attempts: int, then: str = "") -> str:
    """What the worker of a rank and its children would write."""
    lines = [f"echo '{START.format(n, rank)}'; echo attempt {n} of rank {rank}" for n in attempts]
    return "; ".join([*lines, *([then] if then else [])])


FINISHED = {
    "type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
    "lastTransitionTime": "2026-12-01T00:00:00Z",
}  # fmt: skip


def create_run(cluster: LocalCluster, namespace: str, name: str) -> str:
    """Its UID."""
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "metadata": {"name": name},
        "spec": {"nodes": 2, "image": "none", "command": ["true"]},
    }
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}"
    uid: str = cluster.api.send(Request("POST", path, body))["metadata"]["uid"]
    return uid


def put_status(cluster: LocalCluster, namespace: str, name: str, status: Mapping[str, Any]) -> None:
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}/{name}/status"
    cluster.api.send(Request("PATCH", path, {"status": status}, MERGE_PATCH))


@pytest.fixture
def logs(
    cluster: LocalCluster, pods: Pods, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Logs:
    """A run of two ranks; the second was replaced and is at its second incarnation. Its logs."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    uid = create_run(cluster, pods.namespace, "talks")
    assignment = {"nodes": ["proc-0", "proc-1"], "incarnations": [1, 2]}
    put_status(cluster, pods.namespace, "talks", {"attempt": 3, "assignment": assignment, "conditions": [FINISHED]})
    container = {"container": {"name": names.CONTAINER_NAME}}
    pods.create(names.pod_name("talks", uid, 0, 1), script(0, 1, 2, 3, then="sleep 1; echo late"), **container)
    pods.create(names.pod_name("talks", uid, 1, 1), script(1, 1, 2), **container)
    pods.create(names.pod_name("talks", uid, 1, 2), script(1, 3), **container)
    for slot, incarnation in ((0, 1), (1, 1), (1, 2)):
        pods.wait_for_phase(names.pod_name("talks", uid, slot, incarnation), "Running", "Succeeded")

    def read(*flags: str) -> list[str]:
        capfdbinary.readouterr()
        with pytest.raises(SystemExit, match="0"):
            main(["logs", "talks", "-n", pods.namespace, *flags])
        return capfdbinary.readouterr().out.decode().splitlines()

    return read


def test_one_rank_is_printed_as_it_is_and_several_with_their_rank(logs: Logs) -> None:
    begun = threading.active_count()
    followed = logs("--follow", "--rank", "0")
    assert followed[-2:] == ["attempt 3 of rank 0", "late"]
    assert logs("--rank", "1") == [START.format(3, 1), "attempt 3 of rank 1"]
    assert logs("--tail", "1") == ["[rank 0] late", "[rank 1] attempt 3 of rank 1"]
    together = logs("--follow")
    assert sorted(line for line in together if "attempt 3 of" in line) == [
        "[rank 0] attempt 3 of rank 0",
        "[rank 1] attempt 3 of rank 1",
    ]
    assert threading.active_count() == begun


def test_one_attempt_is_found_in_the_pods_of_each_rank_dead_ones_included(logs: Logs) -> None:
    logs("--follow")  # until both have ended
    assert logs("--attempt", "2") == [
        f"[rank 0] {START.format(2, 0)}",
        "[rank 0] attempt 2 of rank 0",
        f"[rank 1] {START.format(2, 1)}",
        "[rank 1] attempt 2 of rank 1",
    ]
    assert logs("--attempt", "3", "--rank", "0", "--tail", "1") == ["late"]


def test_following_waits_for_nodes_and_pods_and_goes_on_in_the_next_pod(
    cluster: LocalCluster, pods: Pods, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    uid = create_run(cluster, pods.namespace, "waits")
    first, second = (names.pod_name("waits", uid, 0, incarnation) for incarnation in (1, 2))

    def live() -> None:
        """What the operator does of it; each part only once the one before was printed."""
        container = {"container": {"name": names.CONTAINER_NAME}}
        put_status(cluster, pods.namespace, "waits", {"attempt": 1, "assignment": assignment(1)})
        pods.create(first, script(0, 1, then="echo last words; exit 1"), **container)
        pods.wait_for_phase(first, "Failed")
        put_status(cluster, pods.namespace, "waits", {"attempt": 2, "assignment": assignment(2)})
        pods.create(second, script(0, 2), **container)
        pods.wait_for_phase(second, "Succeeded")
        put_status(cluster, pods.namespace, "waits", {"conditions": [FINISHED]})

    def assignment(incarnation: int) -> dict[str, Any]:
        return {"nodes": ["proc-0", "proc-1"], "incarnations": [incarnation, 1]}

    living = threading.Thread(target=live)
    living.start()
    with pytest.raises(SystemExit, match="0"):
        main(["logs", "waits", "-n", pods.namespace, "--rank", "0", "--follow"])
    living.join()
    shown = capfdbinary.readouterr().out.decode().splitlines()
    assert shown == [START.format(1, 0), "attempt 1 of rank 0", "last words", START.format(2, 0), "attempt 2 of rank 0"]
