"""What a container on a process node finds: its environment, volumes, user, devices, network and API server."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from support.process_nodes import Json

pytestmark = pytest.mark.nodes


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
