"""Faults of process nodes: killed, wiped, frozen, cut off and deleted, and how each comes back."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from harness.pods import wait_until
from support.process_nodes import conditions, processes_with, terminated

pytestmark = pytest.mark.nodes


PING = """
import socket, sys, time
def reach(address):
    try:
        socket.create_connection((address, 10250), timeout=0.5).close(); return 'yes'
    except OSError: return 'no'
while True:
    print(*(f'{name}={reach(address)}' for name, address in (a.split(':') for a in sys.argv[1:])), flush=True)
    time.sleep(0.2)
"""


def address_of(pods, node: str) -> str:
    return str(pods.cluster.api.get(f"/api/v1/nodes/{node}")["status"]["addresses"][0]["address"])


def node_ready(pods, node: str) -> str:
    return conditions(pods.cluster.api.get(f"/api/v1/nodes/{node}"))["Ready"]


def disk_log(process_nodes, pods, node: str, pod: str) -> str:
    """A pod's log as it lies on the machine, also while the node can't be asked."""
    [state] = [n for n in process_nodes.state()["nodes"] if n["name"] == node]
    uid = pods.get(pod)["metadata"]["uid"]
    return (Path(state["disk"]).parent / "logs" / f"{pods.namespace}_{pod}_{uid}" / "main.log").read_text()


def test_a_killed_node_is_silent_and_comes_back_without_its_processes(process_nodes, pods):
    disk = {
        "volumes": [{"name": "disk", "hostPath": {"path": "/nvme"}}],
        "container": {
            "command": ["bash", "-c", "echo kept > /disk/file; exec -a killed-node-marker sleep 600"],
            "volumeMounts": [{"name": "disk", "mountPath": "/disk"}],
        },
    }
    pods.create("victim", "", node="proc-1", **disk)
    pods.wait_for_phase("victim", "Running")
    wait_until(lambda: processes_with("killed-node-marker"))
    process_nodes.kill_node("proc-1")
    assert not processes_with("killed-node-marker")
    time.sleep(1.5)  # for a word that must not come
    assert pods.get("victim")["status"]["phase"] == "Running"
    process_nodes.return_node("proc-1")
    pod = pods.wait_for_phase("victim", "Failed")
    assert terminated(pod)["exitCode"] == 137
    assert node_ready(pods, "proc-1") == "True"
    again = {"volumes": disk["volumes"], "container": {"volumeMounts": disk["container"]["volumeMounts"]}}
    assert pods.run("heir", "cat /disk/file", node="proc-1", **again) == ["kept"]


def test_a_wiped_node_comes_back_empty(process_nodes, pods):
    disk = {"volumes": [{"name": "disk", "hostPath": {"path": "/wiped"}}]}
    mounted = {"volumeMounts": [{"name": "disk", "mountPath": "/disk"}]}
    pods.run("writer", "echo lost > /disk/file", node="proc-1", container=dict(mounted), **disk)
    process_nodes.kill_node("proc-1", wipe=True)
    process_nodes.return_node("proc-1")
    assert pods.run("reader", "ls /disk | wc -l", node="proc-1", container=dict(mounted), **disk) == ["0"]


def test_a_frozen_node_stands_still_until_thawed(process_nodes, pods):
    script = "while :; do date +%s%N; (sleep 0.05); done"
    pods.create("ticks", script, node="proc-1")
    pods.wait_for_phase("ticks", "Running")
    wait_until(lambda: disk_log(process_nodes, pods, "proc-1", "ticks"))
    process_nodes.freeze_node("proc-1")
    before = disk_log(process_nodes, pods, "proc-1", "ticks")
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/proc-1"
    renewed = pods.cluster.api.get(lease)["spec"]["renewTime"]
    time.sleep(2)
    assert disk_log(process_nodes, pods, "proc-1", "ticks") == before
    assert pods.cluster.api.get(lease)["spec"]["renewTime"] == renewed
    process_nodes.thaw_node("proc-1")
    wait_until(lambda: len(disk_log(process_nodes, pods, "proc-1", "ticks")) > len(before))
    wait_until(lambda: pods.cluster.api.get(lease)["spec"]["renewTime"] != renewed)


@pytest.mark.parametrize(
    ("targets", "operator", "peer"),
    [(["operator"], "no", "yes"), (["peers"], "yes", "no"), ([], "no", "no")],
)
def test_a_cut_node_reaches_exactly_what_it_is_not_cut_from(process_nodes, pods, targets, operator, peer):
    gateway = process_nodes.gateway
    with subprocess.Popen(
        ["python3", "-c", f"import socket, time; s = socket.create_server(('{gateway}', 10250)); time.sleep(120)"]
    ) as listener:
        try:
            arguments = [f"operator:{gateway}", f"peer:{address_of(pods, 'proc-2')}"]
            command = ["python3", "-c", PING, *arguments]
            pods.create("ping", "", node="proc-1", container={"command": command})
            pods.wait_for_phase("ping", "Running")

            def last_line() -> str:
                return disk_log(process_nodes, pods, "proc-1", "ping").rpartition("\n")[0].rpartition("\n")[2]

            wait_until(lambda: last_line() == "operator=yes peer=yes")
            process_nodes.cut_node("proc-1", *targets)
            wait_until(lambda: last_line() == f"operator={operator} peer={peer}")
            process_nodes.heal_node("proc-1")
            wait_until(lambda: last_line() == "operator=yes peer=yes")
        finally:
            process_nodes.heal_node("proc-1")
            listener.kill()


def test_a_node_cut_from_the_api_server_runs_on_what_was_deleted_meanwhile(process_nodes, pods):
    command = ["bash", "-c", "exec -a orphan-marker sleep 600"]
    pods.create("orphan", "", node="proc-1", container={"command": command}, terminationGracePeriodSeconds=1)
    pods.wait_for_phase("orphan", "Running")
    wait_until(lambda: processes_with("orphan-marker"))
    process_nodes.cut_node("proc-1", "apiserver")
    pods.delete("orphan")
    time.sleep(2)
    assert "deletionTimestamp" in pods.get("orphan")["metadata"]
    assert processes_with("orphan-marker")
    process_nodes.heal_node("proc-1")
    pods.wait_until_gone("orphan")
    assert not processes_with("orphan-marker")


def test_a_deleted_node_comes_back_when_it_is_returned(process_nodes, pods):
    pods.cluster.kubectl("delete", "node", "proc-1")
    time.sleep(1.5)
    assert "proc-1" not in pods.cluster.kubectl("get", "nodes", "-o", "name")
    process_nodes.return_node("proc-1")
    wait_until(lambda: node_ready(pods, "proc-1") == "True")
    assert pods.run("fresh", "echo here", node="proc-1") == ["here"]


def test_a_fault_of_an_unknown_node_is_refused_by_name(process_nodes):
    with pytest.raises(Exception, match="no process node proc-77; there are proc-0, proc-1"):
        process_nodes.kill_node("proc-77")
