"""What runs that are gone have left on a node, with the rights that the documentation gives to whoever removes it."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
import yaml

from harness.kube import ROOT
from localcluster.api import Request
from localcluster.cluster import LocalCluster
from lockstep.api.base import names
from lockstep.cli.actions import leftovers
from lockstep.cli.main import main
from support.checkpoint_layouts import written

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]
GONE = "0d8f5f6e-1111-2222-3333-000000000001"
PAGE = ROOT / "docs" / "checkpoints.md"


def shown() -> list[dict[str, object]]:
    """The objects of the page's manifest."""
    (text,) = re.findall(
        r"```yaml\n((?:(?!```).)*lockstep-leftovers.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    return list(yaml.safe_load_all(text))


def test_an_administrator_removes_what_no_run_owns_by_the_rights_that_the_page_shows(
    cluster: LocalCluster, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = cluster.api
    run = {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "metadata": {"name": "llama", "namespace": namespace},
        "spec": {"nodes": 1, "image": "none", "command": ["true"]},
    }
    made = api.send(Request("POST", f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}", run))
    living = made["metadata"]["uid"]
    node = {"metadata": {"name": f"node-of-{namespace}"}}
    api.send(Request("POST", "/api/v1/nodes", node))
    status = {"status": {"nodeInfo": _node_info(leftovers.BOOT_ID.read_text().strip())}}
    node_path = f"/api/v1/nodes/{node['metadata']['name']}"
    api.send(Request("PATCH", f"{node_path}/status", status, "application/merge-patch+json"))
    objects = tmp_path / "rights.yaml"
    objects.write_text(yaml.safe_dump_all(each for each in shown() if each["kind"] != "Job"))
    cluster.kubectl("apply", "-f", str(objects))
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump_all(each for each in shown() if each["kind"] == "Job"))
    cluster.kubectl("apply", "--dry-run=server", "-f", str(job))  # its image is nowhere to be had
    kubeconfig = cluster.kubeconfig_for_service_account("kube-system", "lockstep-leftovers")
    last_week = time.time() - 8 * 86_400
    for uid in (living, GONE):
        shard = written(tmp_path / "nvme" / namespace / "llama" / uid / "a1/step-100/rank-0/weights.bin", b"w")
        os.utime(shard, (last_week, last_week))
    asked = ["checkpoint", "leftovers", str(tmp_path / "nvme"), "--kubeconfig", str(kubeconfig)]
    try:
        assert typed(*asked) == 0
        assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [[f"{namespace}/llama", GONE]]
        assert typed(*asked, "--older-than", "1000d", "--remove") == 0
        assert typed(*asked, "--older-than", "yesterday", "--remove") == 2
        assert len(list((tmp_path / "nvme").glob("*/*/*"))) == 2
        assert typed(*asked, "--remove") == 0
        assert [path.name for path in (tmp_path / "nvme").glob("*/*/*")] == [living]
    finally:
        cluster.kubectl("delete", "-f", str(objects))
        api.send(Request("DELETE", node_path))


def typed(*words: str) -> int:
    """The exit code of `lockstep WORDS`."""
    with pytest.raises(SystemExit) as end:
        main([*words])
    return int(end.value.code or 0)


def _node_info(boot_id: str) -> dict[str, str]:
    others = ("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion")
    more = ("kubeProxyVersion", "operatingSystem", "architecture")
    return dict.fromkeys((*others, *more), "") | {"bootID": boot_id}
