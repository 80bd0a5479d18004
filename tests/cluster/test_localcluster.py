"""The local cluster does what tests, benchmarks and the demo expect of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localcluster import LocalCluster, processes, state

pytestmark = pytest.mark.cluster


def get(cluster: LocalCluster, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", *what, "-o", "json"))
    return found


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
