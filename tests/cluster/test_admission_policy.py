"""The sample policies that hold runs to the rights of who makes them and of their namespaces, on a real API server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.site import Site
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.errors import KubectlError

pytestmark = pytest.mark.cluster

MANIFESTS = Path(__file__).parents[2] / "manifests"
POLICY = MANIFESTS / "admission-policy.yaml"
WRITES_NAMES = MANIFESTS / "admission-user.yaml"
RUNS = {"apiGroups": ["lockstep.dev"], "resources": ["trainingruns", "trainingrunsets"], "verbs": ["*"]}
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
ACT_AS = {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["reader"], "verbs": ["impersonate"]}
RIGHTS = {"runs-only": [RUNS], "trainer": [RUNS, PODS], "reader-too": [RUNS, PODS, ACT_AS]}
NO_PODS = "must be allowed to create pods"
NOT_THAT_ACCOUNT = "you may not act as"
OPERATOR = "system:serviceaccount:lockstep-system:lockstep-operator"
USER = "lockstep.dev/user"
KINDS = ("TrainingRun", "TrainingRunSet")


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

    def apply(
        self,
        user: str,
        name: str,
        spec: dict[str, Any],
        kind: str = "TrainingRun",
        verb: Sequence[str] = ("apply",),
        **metadata: Any,
    ) -> str:
        """As ``lockstep submit``, with the user's name; ``annotations`` go in place of that."""
        body = {"apiVersion": "lockstep.dev/v1alpha1", "kind": kind, "spec": spec}
        named = {"name": name, "namespace": self.namespace, "annotations": {USER: user}}
        body["metadata"] = named | metadata
        return self.cluster.kubectl(*verb, f"--as={user}", "-f", "-", input=json.dumps(body))

    def kubectl(self, user: str, *words: str) -> str:
        return self.cluster.kubectl(*words, f"--as={user}", "-n", self.namespace)

    def name_on(self, kind: str, name: str) -> str | None:
        """For whom it counts."""
        told = self.cluster.kubectl("get", kind, name, "-n", self.namespace, "-o", "json")
        named: str | None = json.loads(told)["metadata"].get("annotations", {}).get(USER)
        return named

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
    # It may take the API server a moment; what is made meanwhile is there, and would not be judged again.
    tries = (f"try-{number}" for number in itertools.count())

    def are_free() -> bool:
        return not _refusal(users, "runs-only", template(hostPID=True), next(tries))

    cluster.kubectl("apply", "-f", str(POLICY))
    try:
        wait_for("the policy is in force", lambda: _refusal(users, "runs-only", run(), next(tries)), seconds=60)
        wait_for(
            "and so is the other", lambda: _refusal(users, "trainer", template(hostPID=True), next(tries)), seconds=60
        )
        yield users
    finally:
        cluster.kubectl("delete", "-f", str(POLICY), "--ignore-not-found")
        # Else it would refuse the runs of the tests that follow.
        wait_for("the policies are gone", are_free, seconds=60)


@pytest.fixture
def named_users(users: Users) -> Iterator[Users]:
    """Those whose name the API server writes."""
    tries = (f"name-{number}" for number in itertools.count())

    def are_named() -> bool:
        return not _refusal(users, "trainer", run(), next(tries), annotations={})

    users.cluster.kubectl("apply", "-f", str(WRITES_NAMES))
    try:
        wait_for("names are written", are_named, seconds=60)
        yield users
    finally:
        users.cluster.kubectl("delete", "-f", str(WRITES_NAMES), "--ignore-not-found")
        wait_for("no names are written", lambda: not are_named(), seconds=60)


def run(**changes: Any) -> dict[str, Any]:
    return {"nodes": 1, "image": "i", "command": ["c"], **changes}


def _refusal(users: Users, user: str, spec: dict[str, Any], name: str = "mine", **how: Any) -> str:
    """The words of the refusal; empty when it was taken."""
    return _said_against(lambda: users.apply(user, name, spec, **how))


def _change_refused(users: Users, user: str, *words: str) -> str:
    return _said_against(lambda: users.kubectl(user, *words))


def _said_against(act: Callable[[], object]) -> str:
    try:
        act()
    except KubectlError as error:
        return str(error)
    return ""


def spec_of(kind: str, **changes: Any) -> dict[str, Any]:
    return run(**changes) if kind == "TrainingRun" else {"indices": "0-3", "template": {"spec": run()}, **changes}


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
    theirs = {"labels": {"team": "golden"}, "annotations": {USER: "trainer"}}
    assert _refusal(users, "runs-only", run(), **theirs) == ""
    assert NO_PODS in _refusal(users, "runs-only", run(suspend=True), **theirs)

    # The operator makes the runs of arrays.
    users.operator_may_make_runs()
    assert _refusal(users, OPERATOR, run(serviceAccountName="reader"), "of-an-array") == ""


@pytest.mark.parametrize("kind", KINDS)
def test_training_counts_for_who_asks_for_it(users: Users, kind: str) -> None:
    spec, held = spec_of(kind), spec_of(kind, suspend=True)
    for said in ({}, {"note": "x"}, {USER: ""}, {USER: "reader-too"}, {USER: "trainer2"}):
        assert f"annotations[{USER}]: write trainer" in _refusal(users, "trainer", spec, kind=kind, annotations=said)
    assert _refusal(users, "trainer", spec, kind=kind) == ""

    # Nor does what is there stop to, or come to count for somebody who did not ask for that.
    mine = f"{kind}/mine"
    for user in ("trainer", "reader-too"):
        for change in (f"{USER}-", f"{USER}=", f"{USER}=runs-only"):
            assert "or leave it as it was" in _change_refused(users, user, "annotate", "--overwrite", mine, change)
        without = _refusal(users, user, held, kind=kind, verb=("replace",), annotations={})
        assert f"write {user}, or leave it as it was" in without
    assert users.name_on(kind, "mine") == "trainer"

    # It is looked after by whoever may, and counts as before; or for them, if they say so.
    assert _refusal(users, "reader-too", held, kind=kind, annotations={USER: "trainer"}) == ""
    assert _change_refused(users, "reader-too", "label", mine, "team=golden") == ""
    assert users.name_on(kind, "mine") == "trainer"
    assert _change_refused(users, "reader-too", "annotate", "--overwrite", mine, f"{USER}=reader-too") == ""
    assert _change_refused(users, "trainer", "delete", mine, "--wait=false") == ""


@pytest.mark.parametrize("kind", KINDS)
def test_what_counted_for_nobody_before_the_policy_can_still_be_looked_after(users: Users, kind: str) -> None:
    made_before(users, kind)
    old = f"{kind}/old"
    hold = ("patch", old, "--type=merge", "-p")
    assert _change_refused(users, "trainer", *hold, '{"spec": {"suspend": true}}') == ""
    assert _change_refused(users, "trainer", *hold, '{"metadata": {"finalizers": ["golden/kept"]}}') == ""
    assert _change_refused(users, "trainer", "delete", old, "--wait=false") == ""
    assert _change_refused(users, "trainer", *hold, '{"metadata": {"finalizers": null}}') == ""

    made_before(users, kind)
    assert "write trainer" in _change_refused(users, "trainer", "annotate", old, f"{USER}=reader-too")
    assert _change_refused(users, "trainer", "annotate", old, f"{USER}=trainer") == ""
    assert "or leave it as it was" in _change_refused(users, "trainer", "annotate", old, f"{USER}-")


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_is_left_out_is_written_by_the_api_server(named_users: Users, kind: str) -> None:
    users, spec, held = named_users, spec_of(kind), spec_of(kind, suspend=True)
    apply, create, replace, server_side = ("apply",), ("create",), ("replace",), ("apply", "--server-side")
    # What is applied gets an annotation of kubectl, what is created none. Who applies it again changes nobody's share.
    ways = [
        (apply, {}, apply, "reader-too"),
        (apply, {"note": "x"}, replace, "reader-too"),
        (apply, {USER: ""}, apply, "reader-too"),
        (create, {}, replace, "trainer"),
        (server_side, {}, server_side, "trainer"),
    ]
    for number, (verb, said, again, by) in enumerate(ways):
        name, how = f"by-{number}", {"kind": kind, "annotations": said}
        assert _refusal(users, "trainer", spec, name, verb=verb, **how) == ""
        assert users.name_on(kind, name) == "trainer"
        assert _refusal(users, by, held, name, verb=again, **how) == ""
        assert users.name_on(kind, name) == "trainer"
    assert "write trainer" in _refusal(users, "trainer", spec, kind=kind, annotations={USER: "reader-too"})
    first = f"{kind}/by-0"
    assert _change_refused(users, "trainer", "annotate", first, f"{USER}-") == ""
    assert users.name_on(kind, "by-0") == "trainer"
    assert "write reader-too" in _change_refused(users, "reader-too", "annotate", "--overwrite", first, f"{USER}=x")


def test_no_name_is_written_on_what_others_made_or_what_was_there_before(named_users: Users) -> None:
    for kind in KINDS:
        made_before(named_users, kind)
        assert _change_refused(named_users, "trainer", "label", f"{kind}/old", "team=golden") == ""
        assert named_users.name_on(kind, "old") is None
    # The operator copies the name of the array into its runs.
    assert _refusal(named_users, OPERATOR, run(), "old-0", annotations={USER: "trainer"}) == ""
    assert named_users.name_on("TrainingRun", "old-0") == "trainer"


def test_the_runs_of_an_array_count_for_who_applied_it(named_users: Users, site: Site) -> None:
    users = named_users
    assert _refusal(users, "trainer", spec_of("TrainingRunSet"), "sweep", kind="TrainingRunSet", annotations={}) == ""

    def are_made() -> bool:
        return "sweep-3" in users.kubectl("trainer", "get", "trainingruns", "-o", "name")

    wait_for("the operator makes its runs", are_made, seconds=240)
    assert {users.name_on("TrainingRun", f"sweep-{index}") for index in range(4)} == {"trainer"}
    users.kubectl("trainer", "patch", "trainingrunset/sweep", "--type=merge", "-p", '{"spec": {"cancel": true}}')
    users.kubectl("trainer", "wait", "--for=condition=Finished", "trainingrunset/sweep", "--timeout=240s")


def made_before(users: Users, kind: str) -> None:
    """There is one of the kind that says nothing of its user: the operator is not judged."""
    users.operator_may_make_runs()
    wait_for(
        "it may be made",
        lambda: not _refusal(users, OPERATOR, spec_of(kind), "old", kind=kind, annotations={}),
        seconds=60,
    )
