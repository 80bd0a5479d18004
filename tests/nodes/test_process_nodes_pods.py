"""The life of a pod on a process node: its init containers, ends, errors, restarts, logs and deletion."""

from __future__ import annotations

import time

import pytest

from harness.pods import wait_until
from support.process_nodes import conditions, processes_with, terminated, waiting

pytestmark = pytest.mark.nodes


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
