"""Who ends it early finds the machine as it was. `make e2e` runs this when its own cluster has gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from harness.waiting import wait_for
from kindcluster.cluster import NAME
from kindcluster.docker import Daemon
from localcluster.build import REPOSITORY, build_dir

IMAGES = 3600.0  # seconds; another checkout's cluster may have to end first
PUT_BACK = 600.0


def test_a_cluster_that_is_ended_while_its_nodes_start_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "said"
    path = os.pathsep.join(str(REPOSITORY / folder) for folder in ("operator", "e2e"))
    with log.open("w") as said:
        begun = subprocess.Popen(
            [sys.executable, "-m", "kindcluster", "during", "true"],
            env={**os.environ, "PYTHONPATH": path},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        made = wait_for(
            "nodes start",
            lambda: begun.poll() is not None or ("creating a kind cluster" in log.read_text() and nodes()),
            seconds=IMAGES,
            last_seen=log.read_text,
        )
        assert isinstance(made, set), log.read_text()
        os.killpg(begun.pid, signal.SIGINT)  # Ctrl-C in a terminal: the programs that it runs get it as well
        begun.send_signal(signal.SIGTERM)
        assert begun.wait(PUT_BACK) == 1, log.read_text()
    finally:
        begun.kill()
        begun.wait()
    assert "kindcluster: ended by SIG" in log.read_text()
    assert "left behind" not in log.read_text()
    assert not made & nodes()


def nodes() -> set[str]:
    """Containers of a cluster of ours, on the daemon that answers."""
    docker = Daemon(build_dir() / "kind").found()
    if docker is None:
        return set()
    return set(docker("ps", "--all", "--quiet", "--filter", f"label=io.x-k8s.kind.cluster={NAME}").split())
