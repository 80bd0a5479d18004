"""What process nodes compute as a kubelet does: environments, pod phases, conditions, addresses."""

from __future__ import annotations

import ipaddress
import time
from pathlib import Path

import pytest

from localcluster.processnodes.environment import ConfigObjects, command_line, environment_of, expand
from localcluster.processnodes.errors import ContainerConfigError, ProcessNodesError
from localcluster.processnodes.kubeapi import ApiError
from localcluster.processnodes.network import free_subnet, uid_outside
from localcluster.processnodes.node import NodeShape, numbered
from localcluster.processnodes.podstatus import (
    ContainerState,
    Stage,
    lost_status,
    phase_of,
    pod_status,
    restarts_after,
)
from localcluster.processnodes.volumes import Disks, PodVolumes, write_whole

POD = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"b": "2", "a": '1"'}},
    "spec": {"nodeName": "proc-0", "containers": [{"name": "c"}], "restartPolicy": "Never"},
}


def state(stage: Stage, code: int = 0, **more) -> ContainerState:
    return ContainerState("c", "image", stage=stage, exit_code=code, started_at=10.0, finished_at=20.0, **more)


WAITING, RUNNING = state(Stage.WAITING), state(Stage.RUNNING)
DONE, FAILED = state(Stage.TERMINATED), state(Stage.TERMINATED, 3)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)-$(B)", "1-$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $( A)", "$A ${A} $( A)"),
        ("cost: 5$", "cost: 5$"),
    ],
)
def test_references_expand_as_in_a_kubelet(text, expanded):
    assert expand(text, {"A": "1"}) == expanded


def test_a_variable_may_refer_to_those_before_it_only():
    env = [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "b"}, {"name": "C", "value": "$(B)"}]
    values = environment_of(POD, {"env": env}, ConfigObjects(), "10.0.0.1")
    assert (values["A"], values["C"]) == ("$(B)", "b")


def test_labels_come_sorted_and_quoted():
    env = [{"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]
    assert environment_of(POD, {"env": env}, ConfigObjects(), "")["L"] == 'a="1\\""\nb="2"'


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"configMapKeyRef": {"name": "x", "key": "k"}}, 'configmap "x" not found'),
        ({"secretKeyRef": {"name": "x", "key": "k"}}, 'secret "x" not found'),
        ({"configMapKeyRef": {"name": "there", "key": "k"}}, "couldn't find key k in configMap n/there"),
        ({"fieldRef": {"fieldPath": "status.phase"}}, "fieldRef status.phase is not known"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "resourceFieldRef is not known"),
    ],
)
def test_what_a_variable_lacks_is_named(entry, words):
    config = ConfigObjects({"there": {"data": {}}}, {})
    with pytest.raises(ContainerConfigError, match=words):
        environment_of(POD, {"env": [{"name": "V", "valueFrom": entry}]}, config, "")


def test_a_container_without_a_command_is_told_that_there_is_no_image():
    with pytest.raises(ContainerConfigError, match="give the container a command"):
        command_line({"args": ["x"]}, {})


@pytest.mark.parametrize(
    ("init", "containers", "policy", "phase"),
    [
        ([], [WAITING], "Never", "Pending"),
        ([], [RUNNING], "Never", "Running"),
        ([], [DONE], "Never", "Succeeded"),
        ([], [DONE, FAILED], "Never", "Failed"),
        ([], [RUNNING, FAILED], "Never", "Running"),
        ([], [FAILED], "OnFailure", "Running"),
        ([], [state(Stage.WAITING, last=FAILED)], "OnFailure", "Running"),
        ([], [DONE], "OnFailure", "Succeeded"),
        ([], [DONE], "Always", "Running"),
        ([RUNNING], [WAITING], "Never", "Pending"),
        ([DONE], [WAITING], "Never", "Pending"),
        ([FAILED], [WAITING], "Never", "Failed"),
        ([FAILED], [WAITING], "OnFailure", "Pending"),
    ],
)
def test_the_phase_follows_from_the_containers(init, containers, policy, phase):
    assert phase_of(init, containers, policy, stopping=False) == phase


def test_a_pod_that_is_being_stopped_is_over_whatever_its_policy():
    assert phase_of([], [FAILED], "Always", stopping=True) == "Failed"


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Never", 1, False), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Always", 0, True)],
)
def test_restarts_follow_the_policy(policy, code, again):
    assert restarts_after(policy, code) is again


def test_a_condition_keeps_its_transition_time_until_it_changes():
    arguments = {"address": "10.0.0.1", "started_at": 0.0}
    first = pod_status(POD, [], [RUNNING], now=100.0, **arguments)
    seen = {c["type"]: (c["status"], c["lastTransitionTime"]) for c in first["conditions"]}
    later = {c["type"]: c for c in pod_status(POD, [], [DONE], now=200.0, previous=seen, **arguments)["conditions"]}
    assert later["Initialized"]["lastTransitionTime"] == "1970-01-01T00:01:40Z"
    assert later["Ready"]["lastTransitionTime"] == "1970-01-01T00:03:20Z"
    assert later["Ready"]["reason"] == "PodCompleted"


def test_the_schedulers_condition_is_kept():
    scheduled = {"type": "PodScheduled", "status": "True"}
    pod = POD | {"status": {"conditions": [scheduled]}}
    assert scheduled in pod_status(pod, [], [RUNNING], address="", started_at=0.0, now=0.0)["conditions"]


def test_a_lost_pod_is_failed_without_touching_what_had_ended():
    ended = {"name": "i", "state": {"terminated": {"exitCode": 0}}}
    running = {"name": "c", "state": {"running": {"startedAt": "1970-01-01T00:00:01Z"}}, "ready": True}
    pod = POD | {"status": {"initContainerStatuses": [ended], "containerStatuses": [running]}}
    status = lost_status(pod, 9.0)
    assert status["phase"] == "Failed"
    assert status["initContainerStatuses"] == [ended]
    [lost] = status["containerStatuses"]
    assert lost["state"]["terminated"]["exitCode"] == 137
    assert lost["ready"] is False


@pytest.mark.parametrize(
    ("uid", "uid_map", "outside"),
    [
        (0, "         0          0 4294967295\n", 0),
        (1000, "         0          0 4294967295\n", 1000),
        (0, "         0       1000          1\n", 1000),  # root in name, and root's own files are not writable
        (5, "0 1000 1\n1 100000 65536\n", 100004),
        (65534, "0 1000 1\n", 65534),
    ],
)
def test_root_of_a_user_namespace_takes_turns_with_its_own_user_and_not_with_root(
    uid: int, uid_map: str, outside: int
) -> None:
    assert uid_outside(uid, uid_map) == outside


def test_a_network_that_overlaps_no_route_is_taken():
    assert free_subnet([]) == ipaddress.ip_network("10.128.0.0/24")
    assert free_subnet(["10.128.0.0/16", "10.129.0.7"]) == ipaddress.ip_network("10.129.1.0/24")


def test_a_machine_whose_routes_take_everything_is_told_so():
    with pytest.raises(ProcessNodesError, match="no free /24"):
        free_subnet(["10.0.0.0/8"])


def test_nodes_fill_one_rack_after_the_other():
    shapes = numbered("proc", 2, 3, 2, NodeShape("", gpus=4))
    assert [(s.name, s.rack, s.gpus) for s in shapes] == [
        ("proc-2", "rack-000", 4),
        ("proc-3", "rack-000", 4),
        ("proc-4", "rack-001", 4),
    ]


def test_a_file_is_replaced_whole_with_its_mode(tmp_path):
    write_whole(tmp_path / "deep" / "token", b"old", 0o400)
    write_whole(tmp_path / "deep" / "token", b"new", 0o640)
    assert (tmp_path / "deep" / "token").read_bytes() == b"new"
    assert (tmp_path / "deep" / "token").stat().st_mode & 0o777 == 0o640
    assert len(list((tmp_path / "deep").iterdir())) == 1


class TokenServer:
    """Answers every TokenRequest with a new token."""

    def __init__(self):
        self.asked = []

    async def post(self, path, body):
        self.asked.append((path, body["spec"]))
        return {"status": {"token": f"token-{len(self.asked)}"}}


async def test_a_token_is_renewed_when_it_has_lived_four_fifths_of_its_time(tmp_path):
    server = TokenServer()
    projected = {"sources": [{"serviceAccountToken": {"path": "token", "audience": "a", "expirationSeconds": 1000}}]}
    pod = POD | {"spec": POD["spec"] | {"volumes": [{"name": "tokens", "projected": projected}]}}
    disks = Disks(tmp_path, tmp_path, tmp_path)
    volumes = PodVolumes(server, pod, "10.0.0.1", disks, tmp_path)
    await volumes.make()
    [token] = volumes.tokens
    await volumes.refresh(token.refresh_at - 1)
    assert token.file.read_text() == "token-1"
    await volumes.refresh(token.refresh_at)
    assert token.file.read_text() == "token-2"
    path, spec = server.asked[0]
    assert path == "/api/v1/namespaces/n/serviceaccounts/default/token"
    assert spec["boundObjectRef"]["uid"] == "u"
    assert (spec["audiences"], spec["expirationSeconds"]) == (["a"], 1000)


class ConfigServer:
    """Has one ConfigMap, or none."""

    def __init__(self):
        self.text = "first"

    async def get(self, path):
        assert path == "/api/v1/namespaces/n/configmaps/authorities"
        if self.text is None:
            raise ApiError(404, "NotFound", "not found")
        return {"data": {"ca.crt": self.text}}


async def test_a_projected_config_map_is_read_again_now_and_then_and_outlives_its_deletion(tmp_path):
    server = ConfigServer()
    source = {"name": "authorities", "items": [{"key": "ca.crt", "path": "ca.crt"}], "optional": True}
    projected = {"sources": [{"configMap": source}]}
    pod = POD | {"spec": POD["spec"] | {"volumes": [{"name": "trust", "projected": projected}]}}
    volumes = PodVolumes(server, pod, "10.0.0.1", Disks(tmp_path, tmp_path, tmp_path), tmp_path)
    await volumes.make()
    file = tmp_path / "volumes" / "trust" / "ca.crt"
    server.text = "second"
    await volumes.refresh(time.time())
    assert file.read_text() == "first"
    await volumes.refresh(time.time() + 60)
    assert file.read_text() == "second"
    server.text = None
    await volumes.refresh(time.time() + 120)
    assert file.read_text() == "second"


def test_a_host_path_is_the_nodes_own_unless_below_a_shared_root(tmp_path):
    disks = Disks(tmp_path, tmp_path, tmp_path, shared_roots=(Path("/data"),))
    assert disks.host_path("/mnt/nvme") == tmp_path / "mnt" / "nvme"
    assert disks.host_path("/data/text") == Path("/data/text")
    assert disks.host_path("/database") == tmp_path / "database"
