"""Each promise of the process nodes, kept by real pods through a real API server and scheduler."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from harness.pods import Pods, wait_until
from localcluster.api import Request
from localcluster.processnodes import ProcessNodes
from localcluster.processnodes.daemon import Settings
from localcluster.processnodes.node import NodeShape

pytestmark = pytest.mark.nodes
Json = dict[str, Any]


def terminated(pod: Json) -> Json:
    ended: Json = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return ended


def waiting(pod: Json) -> Json:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return (statuses[0].get("state") or {}).get("waiting") or {}


def conditions(body: Json) -> dict[str, str]:
    return {c["type"]: c["status"] for c in body["status"]["conditions"]}


def processes_with(word: str) -> list[int]:
    """PIDs on this machine whose command line has ``word`` in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


# Containers


def test_the_environment_is_what_a_kubelet_would_make(pods):
    pods.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings"},
            "data": {"COLOUR": "red"},
        },
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"TOKEN": "s3"}},
    )

    def from_field(path: str) -> Json:
        return {"fieldRef": {"fieldPath": path}}

    env = [
        {"name": "POD", "valueFrom": from_field("metadata.name")},
        {"name": "LABEL", "valueFrom": from_field("metadata.labels['test']")},
        {"name": "NODE", "valueFrom": from_field("spec.nodeName")},
        {"name": "HOST_IP", "valueFrom": from_field("status.hostIP")},
        {"name": "COLOUR_OF", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "COLOUR"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "TOKEN"}}},
        {"name": "ABSENT", "valueFrom": {"secretKeyRef": {"name": "no", "key": "no", "optional": True}}},
        {"name": "JOINED", "value": "$(POD) $$(POD) $(UNKNOWN)"},
    ]
    container = {
        "command": ["sh", "-c", "env; echo argument=$0", "$(JOINED)"],
        "env": env,
        "envFrom": [{"prefix": "MY_", "configMapRef": {"name": "settings"}}],
    }
    lines = pods.run("env", "", container=container)
    pod = pods.get("env")
    assert "POD=env" in lines
    assert "LABEL=env" in lines
    assert f"NODE={pod['spec']['nodeName']}" in lines
    assert f"HOST_IP={pod['status']['hostIP']}" in lines
    assert "COLOUR_OF=red" in lines
    assert "MY_COLOUR=red" in lines
    assert "SECRET=s3" in lines
    assert "JOINED=env $(POD) $(UNKNOWN)" in lines
    assert "argument=env $(POD) $(UNKNOWN)" in lines
    assert not [line for line in lines if line.startswith("ABSENT")]


def test_volumes_are_mounted_where_the_pod_says(pods):
    pods.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "files"},
            "data": {"a": "A", "b": "B"},
        },
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"}, "stringData": {"key": "K"}},
    )
    script = """
        cat /deep/er/settings/renamed; ls /deep/er/settings; cat /secret/key; grep test /info/labels
        cat /projected/cm/a /projected/name; echo
        echo x > /scratch/x && cat /sub/x; df --output=fstype /dev/shm | tail -1
        touch /secret/key 2>/dev/null || echo read-only
        test -e /absent && ls /absent | wc -l
    """
    volumes = [
        {"name": "settings", "configMap": {"name": "files", "items": [{"key": "a", "path": "renamed"}]}},
        {"name": "secret", "secret": {"secretName": "hidden", "defaultMode": 0o400}},
        {
            "name": "info",
            "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
        },
        {
            "name": "projected",
            "projected": {
                "sources": [
                    {"configMap": {"name": "files", "items": [{"key": "a", "path": "cm/a"}]}},
                    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]
            },
        },
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "absent", "configMap": {"name": "nowhere", "optional": True}},
    ]
    mounts = [
        {"name": "settings", "mountPath": "/deep/er/settings"},
        {"name": "secret", "mountPath": "/secret", "readOnly": True},
        {"name": "info", "mountPath": "/info"},
        {"name": "projected", "mountPath": "/projected"},
        {"name": "scratch", "mountPath": "/scratch", "subPath": "inner"},
        {"name": "scratch", "mountPath": "/sub", "subPath": "inner"},
        {"name": "memory", "mountPath": "/dev/shm"},
        {"name": "absent", "mountPath": "/absent"},
    ]
    lines = pods.run("volumes", script, volumes=volumes, container={"volumeMounts": mounts})
    assert lines == ["Arenamed", 'Ktest="volumes"', "Avolumes", "x", "tmpfs", "read-only", "0"]
    assert not Path("/deep").exists()
    assert not Path("/projected").exists()


def test_a_projected_token_is_bound_to_the_pod_and_its_audience(pods):
    token = {"serviceAccountToken": {"path": "token", "audience": "lockstep", "expirationSeconds": 3600}}
    [line] = pods.run(
        "token",
        "cat /tokens/token; echo",
        volumes=[{"name": "tokens", "projected": {"sources": [token]}}],
        container={"volumeMounts": [{"name": "tokens", "mountPath": "/tokens"}]},
    )
    payload = line.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["aud"] == ["lockstep"]
    assert claims["kubernetes.io"]["pod"]["uid"] == pods.get("token")["metadata"]["uid"]
    assert claims["exp"] - claims["iat"] >= 3600


def test_a_claim_is_one_folder_for_all_nodes(pods):
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "lustre"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    pods.apply(claim)
    shared = {
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "lustre"}}],
        "container": {"volumeMounts": [{"name": "shared", "mountPath": "/shared-checkpoints"}]},
    }
    pods.run("writer", "echo step-100 > /shared-checkpoints/latest", node="proc-0", **json.loads(json.dumps(shared)))
    lines = pods.run("reader", "cat /shared-checkpoints/latest", node="proc-3", **shared)
    assert lines == ["step-100"]


def test_a_host_path_belongs_to_its_node(pods):
    disk = {
        "volumes": [{"name": "disk", "hostPath": {"path": "/nvme", "type": "DirectoryOrCreate"}}],
        "container": {"volumeMounts": [{"name": "disk", "mountPath": "/local-checkpoints"}]},
    }
    again = json.loads(json.dumps(disk))
    other = json.loads(json.dumps(disk))
    pods.run("writer", "echo 7 > /local-checkpoints/step", node="proc-0", **disk)
    assert pods.run("same-node", "cat /local-checkpoints/step", node="proc-0", **again) == ["7"]
    assert pods.run("other-node", "ls /local-checkpoints | wc -l", node="proc-1", **other) == ["0"]
    assert not Path("/nvme").exists()


def test_init_containers_run_in_order_before_the_others(pods):
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/work-dir"}]}
    init = [
        {"name": name, "image": "none", "command": ["sh", "-c", f"sleep {pause}; echo {name} >> /work-dir/log"]} | mount
        for name, pause in (("first", 0.3), ("second", 0))
    ]
    spec = {"volumes": [{"name": "work", "emptyDir": {}}], "initContainers": init, "container": mount}
    assert pods.run("ordered", "cat /work-dir/log", **spec) == ["first", "second"]
    assert all(status["ready"] for status in pods.get("ordered")["status"]["initContainerStatuses"])


def test_a_failing_init_container_fails_the_pod(pods):
    init = [{"name": "broken", "image": "none", "command": ["sh", "-c", "exit 4"]}]
    pods.create("stuck", "echo never", initContainers=init)
    pod = pods.wait_for_phase("stuck", "Failed")
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert "terminated" not in pod["status"]["containerStatuses"][0]["state"]


def test_a_container_is_pid_1_on_a_node_with_its_own_name_and_address(pods):
    script = "echo $$$$; hostname; hostname -I; ls -d /proc/[0-9]* | wc -l; getent hosts proc-1 | cut -d' ' -f1"
    lines = pods.run("alone", script, node="proc-2", hostNetwork=True)
    pod = pods.get("alone")
    assert lines[:2] == ["1", "proc-2"]
    assert lines[2].split() == [pod["status"]["hostIP"]] == [pod["status"]["podIP"]]
    assert int(lines[3]) <= 5
    peer = pods.cluster.api.get("/api/v1/nodes/proc-1")["status"]["addresses"][0]["address"]
    assert lines[4] == peer


def test_writes_to_the_image_stay_in_the_container(pods):
    marker = "/var/tmp/process-node-marker"  # a folder where every user may write
    assert pods.run("writer", f"echo hers > {marker}; cat {marker}") == ["hers"]
    assert not Path(marker).exists()


def test_a_read_only_root_leaves_only_the_volumes_writable(pods):
    script = "touch /usr/x /x /tmp/x 2>/dev/null || echo sealed; touch /run/lockstep/x && echo scratch"
    lines = pods.run(
        "sealed",
        script,
        volumes=[{"name": "scratch", "emptyDir": {}}],
        container={
            "securityContext": {"readOnlyRootFilesystem": True},
            "volumeMounts": [{"name": "scratch", "mountPath": "/run/lockstep"}],
        },
    )
    assert lines == ["sealed", "scratch"]


def test_a_container_sees_the_gpus_it_asked_for(pods):
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has GPUs of its own")
    limits = {"resources": {"limits": {"nvidia.com/gpu": "3"}}}
    lines = pods.run("devices", "ls /dev | grep -c '^nvidia[0-9]'", container=limits)
    assert lines == ["3"]
    assert not Path("/dev/nvidia0").exists()


def test_a_container_runs_as_the_user_the_pod_names(pods):
    assert pods.run("user", "id -u; id -g", securityContext={"runAsUser": 1234, "runAsGroup": 99}) == ["1234", "99"]


@pytest.mark.parametrize(
    ("script", "code", "phase"),
    [("exit 0", 0, "Succeeded"), ("exit 42", 42, "Failed"), ("python3 -c 'import os; os.abort()'", 134, "Failed")],
)
def test_the_exit_code_is_told(pods, script, code, phase):
    pods.create("ends", script)
    pod = pods.wait_for_phase("ends", "Succeeded", "Failed")
    assert pod["status"]["phase"] == phase
    assert terminated(pod)["exitCode"] == code
    assert conditions(pod)["Ready"] == "False"


def test_the_termination_message_is_told(pods):
    pods.create("speaks", "echo out of memory > /dev/termination-log; exit 1")
    assert terminated(pods.wait_for_phase("speaks", "Failed"))["message"] == "out of memory\n"


def test_a_command_that_does_not_exist_is_a_start_error(pods):
    pods.create("nothing", "", container={"command": ["no-such-program"]})
    ended = terminated(pods.wait_for_phase("nothing", "Failed"))
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert "executable file not found" in ended["message"]


def test_a_missing_config_map_is_a_config_error_until_it_is_there(pods):
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "a"}}}]
    pods.create("patient", "echo $A", container={"env": env})
    wait_until(lambda: waiting(pods.get("patient")).get("reason") == "CreateContainerConfigError")
    assert 'configmap "late" not found' in waiting(pods.get("patient"))["message"]
    pods.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}, "data": {"a": "now"}})
    pods.wait_for_phase("patient", "Succeeded")
    assert pods.logs("patient") == "now\n"


def test_a_failing_container_is_restarted_when_its_policy_says_so(pods):
    mount = {"volumeMounts": [{"name": "count", "mountPath": "/count"}]}
    spec = {"volumes": [{"name": "count", "emptyDir": {}}], "container": mount, "restartPolicy": "OnFailure"}
    pods.create("again", "test -e /count/x && exit 0; touch /count/x; echo first; exit 1", **spec)
    pod = pods.wait_for_phase("again", "Succeeded")
    status = pod["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert pods.logs("again", "--previous") == "first\n"


def test_logs_hold_both_streams_and_can_be_followed_and_cut(pods):
    pods.create("talks", "for i in 1 2 3; do echo out $i; echo err $i >&2; sleep 0.3; done")
    pods.wait_for_phase("talks", "Running", "Succeeded")
    followed = pods.logs("talks", "--follow").splitlines()
    assert followed == [f"{stream} {i}" for i in (1, 2, 3) for stream in ("out", "err")]
    assert pods.logs("talks", "--tail=2").splitlines() == ["out 3", "err 3"]


def test_deletion_asks_then_waits_then_kills(pods):
    stubborn = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done"
    pods.create("stubborn", stubborn, terminationGracePeriodSeconds=2)
    pods.wait_for_phase("stubborn", "Running")
    wait_until(lambda: "ready" in pods.logs("stubborn"))
    asked_at = time.monotonic()
    pods.delete("stubborn")
    wait_until(lambda: "asked" in pods.logs("stubborn"))
    pods.wait_until_gone("stubborn")
    assert time.monotonic() - asked_at >= 1.5


def test_a_container_that_heeds_sigterm_is_gone_at_once(pods):
    pods.create(
        "polite", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done", terminationGracePeriodSeconds=60
    )
    pods.wait_for_phase("polite", "Running")
    wait_until(lambda: "ready" in pods.logs("polite"))
    pods.delete("polite")
    pods.wait_until_gone("polite")


def test_forced_deletion_kills_at_once(pods):
    pods.create(
        "doomed",
        "exec -a forced-deletion-marker sleep 600",
        container={"command": ["bash", "-c", "exec -a forced-deletion-marker sleep 600"]},
    )
    pods.wait_for_phase("doomed", "Running")
    wait_until(lambda: processes_with("forced-deletion-marker"))
    pods.delete("doomed", "--grace-period=0", "--force")
    wait_until(lambda: not processes_with("forced-deletion-marker"))


def test_the_api_server_can_be_reached_from_a_pod_with_its_own_token(pods):
    script = """
        cd /var/run/secrets/kubernetes.io/serviceaccount
        url=https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/x/pods
        python3 -c "import ssl, sys, urllib.request as u
r = u.Request('$url', headers={'Authorization': 'Bearer ' + open('token').read()})
try: u.urlopen(r, context=ssl.create_default_context(cafile='ca.crt'))
except u.HTTPError as e: print(e.code, 'system:serviceaccount:' in e.read().decode())"
    """
    assert pods.run("client", script) == ["403 True"]


# Faults

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


# The end


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
