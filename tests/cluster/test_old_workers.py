"""The workers of earlier versions go by the commands of the documentation, and those that a pod mounts stay."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.kube import ROOT
from localcluster import LocalCluster, build
from lockstep.api.base import names
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.pods.gang import worker_config_map

pytestmark = pytest.mark.cluster
PAGE = ROOT / "docs" / "upgrade.md"


def typed(cluster: LocalCluster, folder: Path) -> str:
    """What is said to the block of the page that deletes."""
    (block,) = re.findall(r"```console\n((?:(?!```).)*delete configmap.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    script = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    path = f"{build.binary('kubectl').parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_workers_that_no_pod_mounts_are_removed_and_no_other(
    cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    old, running = (GangSettings(worker_archive=archive) for archive in (b"old", b"running"))
    for settings in (old, running):
        made = worker_config_map(namespace, settings)
        cluster.kubectl("create", "-f", "-", input=json.dumps(made.body))
    cluster.kubectl("-n", namespace, "create", "configmap", "of-somebody-else")
    volume = {"name": "lockstep-worker", "configMap": {"name": running.worker_config_map}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "rank", "namespace": namespace, "labels": {names.LABEL_RUN_UID: "u1"}},
        "spec": {"volumes": [{"name": "first", "emptyDir": {}}, volume], "containers": [{"name": "c", "image": "i"}]},
    }
    cluster.kubectl("create", "-f", "-", input=json.dumps(pod))
    said = typed(cluster, tmp_path)
    left = cluster.kubectl("-n", namespace, "get", "configmaps", "-o", "name")
    assert old.worker_config_map in said
    assert f"configmap/{running.worker_config_map}" in left
    assert "of-somebody-else" in left
    assert old.worker_config_map not in left
    assert "deleted" not in typed(cluster, tmp_path), "and nothing is left to remove"
