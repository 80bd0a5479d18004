"""The end of process nodes, asked for or not: nothing of them is left on the machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from harness.pods import Pods, wait_until
from localcluster.api import Request
from localcluster.processnodes import ProcessNodes
from localcluster.processnodes.daemon import Settings
from localcluster.processnodes.node import NodeShape
from support.process_nodes import processes_with

pytestmark = pytest.mark.nodes


@pytest.fixture
def own_node(cluster, namespace, tmp_path):
    """A node of this test's own, with a container that runs."""
    nodes = ProcessNodes.start(tmp_path, cluster.kubeconfig, [NodeShape("own-0")])
    try:
        pods = Pods(cluster, namespace)
        memory = [{"name": "memory", "emptyDir": {"medium": "Memory"}}]
        command = ["bash", "-c", "exec -a own-node-marker sleep 600"]
        pods.create("own", "", node="own-0", container={"command": command}, volumes=memory)
        wait_until(lambda: processes_with("own-node-marker"))
        yield nodes
    finally:
        nodes.stop()
        cluster.api.send(Request("DELETE", "/api/v1/nodes/own-0", absence_is_fine=True))


def test_stopping_leaves_no_process_no_link_no_memory_and_no_node(cluster, own_node, tmp_path):
    bridge, memory = own_node.state()["bridge"], Settings.load(tmp_path).memory
    assert memory.exists()
    own_node.stop()
    assert not processes_with("own-node-marker")
    assert not [link for link in Path("/sys/class/net").iterdir() if link.name.startswith(bridge)]
    assert not memory.exists()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert "own-0" not in cluster.kubectl("get", "nodes", "-o", "name")


def test_a_daemon_that_dies_takes_its_containers_along_and_stopping_clears_the_rest(own_node):
    state = own_node.state()
    os.kill(state["pid"], signal.SIGKILL)
    wait_until(lambda: not processes_with("own-node-marker"))
    assert not own_node.is_running()
    own_node.stop()
    assert not [link for link in Path("/sys/class/net").iterdir() if link.name.startswith(state["bridge"])]
