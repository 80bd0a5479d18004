"""The sample policies that hold runs to the rights of who makes them and of their namespaces, on a real API server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.errors import KubectlError

pytestmark = pytest.mark.cluster

POLICY = Path(__file__).parents[2] / "manifests" / "admission-policy.yaml"
RUNS = {"apiGroups": ["lockstep.dev"], "resources": ["trainingruns", "trainingrunsets"], "verbs": ["*"]}
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
ACT_AS = {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["reader"], "verbs": ["impersonate"]}
RIGHTS = {"runs-only": [RUNS], "trainer": [RUNS, PODS], "reader-too": [RUNS, PODS, ACT_AS]}
NO_PODS = "must be allowed to create pods"
NOT_THAT_ACCOUNT = "you may not act as"
OPERATOR = "system:serviceaccount:lockstep-system:lockstep-operator"


class Users:
    """People with rights in one namespace."""

    def __init__(self, cluster: LocalCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        meta = {"namespace": namespace}
        group = "rbac.authorization.k8s.io"
        for user, rules in RIGHTS.items():
            named = meta | {"name": user}
            self._apply({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": named, "rules": rules})
            self._bind(user, {"kind": "User", "name": user, "apiGroup": group})

    def operator_may_make_runs(self) -> None:
        name = OPERATOR.rpartition(":")[2]
        self._bind("runs-only", {"kind": "ServiceAccount", "name": name, "namespace": "lockstep-system"}, "operator")

    def apply(self, user: str, name: str, spec: dict[str, Any], kind: str = "TrainingRun", **metadata: Any) -> str:
        body = {"apiVersion": "lockstep.dev/v1alpha1", "kind": kind, "spec": spec}
        body["metadata"] = {"name": name, "namespace": self.namespace, **metadata}
        return self.cluster.kubectl("apply", f"--as={user}", "-f", "-", input=json.dumps(body))

    def _bind(self, role: str, subject: dict[str, Any], name: str = "") -> None:
        self._apply({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name or role, "namespace": self.namespace}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        })  # fmt: skip

    def _apply(self, body: dict[str, Any]) -> None:
        self.cluster.kubectl("apply", "-f", "-", input=json.dumps(body))


@pytest.fixture
def users(cluster: LocalCluster, crds_installed: None, namespace: str) -> Iterator[Users]:
    users = Users(cluster, namespace)
    cluster.kubectl("apply", "-f", str(POLICY))
    try:
        # It may take the API server a moment; what is made meanwhile is there, and would not be judged again.
        tries = (f"try-{number}" for number in itertools.count())
        wait_for("the policy is in force", lambda: _refusal(users, "runs-only", run(), next(tries)), seconds=60)
        wait_for(
            "and so is the other", lambda: _refusal(users, "trainer", template(hostPID=True), next(tries)), seconds=60
        )
        yield users
    finally:
        cluster.kubectl("delete", "-f", str(POLICY), "--ignore-not-found")


def run(**changes: Any) -> dict[str, Any]:
    return {"nodes": 1, "image": "i", "command": ["c"], **changes}


def _refusal(users: Users, user: str, spec: dict[str, Any], name: str = "mine", **how: Any) -> str:
    """The words of the refusal; empty when it was taken."""
    try:
        users.apply(user, name, spec, **how)
    except KubectlError as error:
        return str(error)
    return ""


def template(**pod: Any) -> dict[str, Any]:
    return run(podTemplate={"spec": pod})


def trainer(**container: Any) -> dict[str, Any]:
    return template(containers=[{"name": "trainer", **container}])


def before(**container: Any) -> dict[str, Any]:
    return template(initContainers=[{"name": "before", "image": "i", "command": ["c"], **container}])


ROOT = {"name": "root", "hostPath": {"path": "/"}}
POWERS = {
    "hostPID": (template(hostPID=True), "hostPID or hostIPC needs a namespace labelled"),
    "hostIPC": (template(hostIPC=True), "hostPID or hostIPC needs"),
    "host-path": (template(volumes=[{"name": "ok", "emptyDir": {}}, ROOT]), "hostPath / needs a namespace labelled"),
    "host-path-of-the-run": (run(volumes=[ROOT | {"mountPath": "/host"}]), "hostPath / needs"),
    "privileged": (trainer(securityContext={"privileged": True}), "a privileged container needs"),
    "privileged-before": (before(securityContext={"privileged": True}), "a privileged container needs"),
    "capability": (trainer(securityContext={"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}}), "capability needs"),
    "capability-before": (before(securityContext={"capabilities": {"add": ["ALL"]}}), "an added capability needs"),
    "host-port": (trainer(ports=[{"containerPort": 22, "hostPort": 22}]), "a hostPort needs"),
}
HARMLESS = {
    "nothing": run(),
    "a-template-without-a-spec": run(podTemplate={"metadata": {"labels": {"team": "golden"}}}),
    "a-sidecar": template(containers=[{"name": "logs", "image": "i", "ports": [{"containerPort": 80}]}]),
    "fewer-capabilities": trainer(securityContext={"privileged": False, "capabilities": {"drop": ["ALL"]}}),
    "a-capability-of-baseline": trainer(securityContext={"capabilities": {"add": ["CHOWN"]}}),
    "a-volume": template(volumes=[{"name": "scratch", "emptyDir": {}}]),
}


def test_powers_over_nodes_are_refused_at_apply_time_where_the_namespace_is_not_open_to_them(users: Users) -> None:
    def array(spec: dict[str, Any]) -> dict[str, Any]:
        return {"indices": "0-3", "template": {"spec": spec}}

    for name, spec in HARMLESS.items():
        assert _refusal(users, "trainer", spec, name) == ""
    for name, (spec, words) in POWERS.items():
        assert words in _refusal(users, "trainer", spec, name.lower())
        assert words in _refusal(users, "trainer", array(spec), name.lower(), kind="TrainingRunSet")

    users.cluster.kubectl("label", "namespace", users.namespace, "lockstep.dev/allow-privileged=true")
    wait_for("the label counts", lambda: not _refusal(users, "trainer", POWERS["hostIPC"][0], "hostipc"), seconds=60)
    for name, (spec, _) in POWERS.items():
        assert _refusal(users, "trainer", spec, name.lower()) == ""

    # What has been allowed can be looked after when it is no more, and asks for nothing new.
    users.cluster.kubectl("label", "namespace", users.namespace, "lockstep.dev/allow-privileged-")
    more = POWERS["privileged"][0] | {"suspend": True}
    wait_for("that counts", lambda: _refusal(users, "trainer", POWERS["hostIPC"][0], "another"), seconds=60)
    assert _refusal(users, "trainer", more, "privileged") == ""
    changed = trainer(securityContext={"privileged": True}, env=[{"name": "A", "value": "b"}])
    assert "a privileged container needs" in _refusal(users, "trainer", changed | {"suspend": True}, "privileged")


def test_nobody_gains_by_a_run_what_they_could_not_have_by_a_pod(users: Users) -> None:
    array = {"indices": "0-3", "template": {"spec": run()}}
    assert NO_PODS in _refusal(users, "runs-only", run())
    assert NO_PODS in _refusal(users, "runs-only", array, kind="TrainingRunSet")
    assert _refusal(users, "trainer", run()) == ""
    assert _refusal(users, "trainer", array, kind="TrainingRunSet") == ""

    archive = {"uri": "s3://bucket/prefix", "serviceAccountName": "reader"}
    asked = [run(serviceAccountName="reader"), template(serviceAccountName="reader"), template(serviceAccount="reader")]
    asked.append(run(checkpoint={"shared": {"claimName": "lustre"}, "archive": archive}))
    for number, spec in enumerate(asked):
        assert NOT_THAT_ACCOUNT in _refusal(users, "trainer", spec, f"as-{number}")
        assert _refusal(users, "reader-too", spec, f"as-{number}") == ""
    within = {"indices": "0-3", "template": {"spec": asked[0]}}
    assert NOT_THAT_ACCOUNT in _refusal(users, "trainer", within, "as-array", kind="TrainingRunSet")
    assert NOT_THAT_ACCOUNT in _refusal(users, "reader-too", run(serviceAccountName="other"), "other")

    # What is there may be looked after by who could not make it, but for what it asks for.
    assert _refusal(users, "runs-only", run(), labels={"team": "golden"}) == ""
    assert NO_PODS in _refusal(users, "runs-only", run(suspend=True), labels={"team": "golden"})

    # Nobody's training counts as somebody else's.
    other = {"annotations": {"lockstep.dev/user": "trainer"}}
    assert "write reader-too" in _refusal(users, "reader-too", run(), "share", **other)
    assert _refusal(users, "trainer", run(), "share", **other) == ""
    assert _refusal(users, "reader-too", run(suspend=True), "share", **other) == ""

    # The operator makes the runs of arrays.
    users.operator_may_make_runs()
    assert _refusal(users, OPERATOR, run(serviceAccountName="reader"), "of-an-array") == ""
