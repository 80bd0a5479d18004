"""Simulated workers stand in for real ones, on KWOK nodes, with real tokens."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.fake_operator import FakeOperator
from harness.pods import wait_until
from localcluster import LocalCluster
from localcluster.kwok import NodeBatch

pytestmark = pytest.mark.cluster
E2E = Path(__file__).resolve().parents[2] / "e2e"


def gang_pod(slot: int, node: str) -> dict[str, Any]:
    labels = {"run": "sim", "run-uid": "0a1b2c", "slot": str(slot), "incarnation": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"sim-{slot}",
            "labels": {f"lockstep.dev/{key}": value for key, value in labels.items()},
        },
        "spec": {
            "hostNetwork": True,
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "trainer", "image": "none"}],
        },
    }


def test_workers_register_with_their_pods_tokens_train_and_leave(
    cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    nodes = cluster.add_kwok_nodes(NodeBatch(count=2, prefix="sim"))
    operator = FakeOperator(tmp_path)
    operator.desire("Prepare", 1)
    command = [sys.executable, "-m", "localcluster.simworkers", "--kubeconfig", str(cluster.kubeconfig)]
    options = ["--operator-url", operator.url, "--ca-file", str(operator.ca_file), "--step-seconds", "0.05"]
    environment = os.environ | {"PYTHONPATH": str(E2E)}
    with subprocess.Popen(
        [*command, *options, "--total-steps", "10"], env=environment, stdout=subprocess.PIPE, text=True
    ) as workers:
        try:
            for slot, node in enumerate(nodes):
                pod = json.dumps(gang_pod(slot, node))
                cluster.kubectl("-n", namespace, "apply", "-f", "-", input=pod)
            for slot in (0, 1):
                operator.wait_for(lambda s, slot=slot: s["slot"] == slot and s.get("readyFor") == 1)
            operator.run(1)
            for slot in (0, 1):
                ended = operator.wait_for(lambda s, slot=slot: s["slot"] == slot and s.get("exit"))
                assert (ended["exit"]["code"], ended["progress"]["step"]) == (0, 10)
            operator.desire("Complete", 1)
            phases = f"/api/v1/namespaces/{namespace}/pods"
            wait_until(lambda: {pod["status"]["phase"] for pod in cluster.api.get(phases)["items"]} == {"Succeeded"})
        finally:
            workers.send_signal(signal.SIGTERM)
            output, _ = workers.communicate(timeout=60)
            operator.close()
            cluster.remove_kwok_nodes(nodes)
    stats = json.loads(output.splitlines()[-1])
    assert (stats["workers"], stats["registered"], stats["errors"]) == (2, 2, {})
    assert stats["runs"]["0a1b2c"]["attempts"]["1"]["released"] == 2
    path, token, body = operator.requests[0]
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert path == "/v1/register"
    assert claims["aud"] == ["lockstep"]
    assert claims["kubernetes.io"]["pod"]["uid"] == body["podUid"]
