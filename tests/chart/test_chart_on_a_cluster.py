"""The chart on a real API server: what it takes, what stays when the release goes, who may do what."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml

from harness.kube import Kubectl, create_namespace, remove_definitions, wait_until_established
from harness.operator import OperatorProcess
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.build import required_version
from localcluster.kwok import NodeBatch
from support.helm import CHART, NAMESPACE, ROOT, VALUES, Helm, HelmError, only, parsed
from support.kueue_at_work import CRDS as KUEUE_CRDS

pytestmark = pytest.mark.cluster

RELEASE = ("lockstep", CHART, "--namespace", NAMESPACE)
MONITORING = Path(__file__).with_name("monitoring_crds")
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
WITHOUT_CRDS = ("--set", "crds.install=false")
CRD = "crd/trainingruns.lockstep.dev"


@pytest.fixture(scope="module")
def kubectl(bare_cluster: LocalCluster) -> Kubectl:
    kubectl = Kubectl(bare_cluster.kubeconfig)
    restricted = {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": restricted}))
    for team in ("team-a", "team-b"):
        create_namespace(kubectl, team)
    return kubectl


@pytest.fixture(scope="module")
def helm(bare_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"), bare_cluster.kubeconfig)


@pytest.fixture
def installed(helm: Helm, kubectl: Kubectl) -> Iterator[Helm]:
    """The chart with default values; gone afterwards, whatever a test did to it."""
    helm("install", *RELEASE)
    wait_until_established(kubectl, CRD, "crd/trainingqueues.lockstep.dev")
    yield helm
    helm("uninstall", "lockstep", "--namespace", NAMESPACE, "--ignore-not-found")


def hello(kubectl: Kubectl, namespace: str) -> str:
    """A run; its UID."""
    kubectl("apply", "-n", namespace, "-f", str(ROOT / "manifests" / "hello.yaml"))
    return uid(kubectl, namespace)


def uid(kubectl: Kubectl, namespace: str) -> str:
    return str(kubectl.json("get", "trun", "hello", "-n", namespace)["metadata"]["uid"])


def settings(kubectl: Kubectl) -> dict[str, Any]:
    """The operator's configuration."""
    config = kubectl.json("get", "configmap", "lockstep-operator", "-n", NAMESPACE)["data"]["operator.yaml"]
    return dict(yaml.safe_load(config))


def mode(kubectl: Kubectl) -> str:
    return str(settings(kubectl)["mode"])


def reachable(operator: OperatorProcess) -> tuple[int, str]:
    """Exit code and words of what `helm test` runs."""
    script = CHART / "files" / "reachable.py"
    command = [sys.executable, str(script), operator.url, operator.metrics_url, "0"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout.strip()


def create_dry(kubectl: Kubectl, *objects: dict[str, Any]) -> str:
    """What the API server would make of objects, strictly validated. Whatever it only warns of is an error."""
    text = "---\n".join(yaml.safe_dump(each) for each in objects)
    strictly = ["--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors"]
    return kubectl("apply", *strictly, "-f", "-", text=text)


@pytest.fixture(scope="module")
def monitored(kubectl: Kubectl) -> None:
    """ServiceMonitors and PrometheusRules are served, by the CRDs of the Prometheus operator's Go module."""
    module = f"{PROMETHEUS_OPERATOR}@v{required_version((MONITORING / 'go.mod').read_text(), PROMETHEUS_OPERATOR)}"
    told = subprocess.run(
        ["go", "mod", "download", "-json", module], cwd=MONITORING, capture_output=True, text=True, check=True
    )
    folder = Path(json.loads(told.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    for kind in ("servicemonitors", "prometheusrules"):
        kubectl("apply", "--server-side", "-f", str(folder / f"monitoring.coreos.com_{kind}.yaml"))
        wait_until_established(kubectl, f"crd/{kind}.monitoring.coreos.com")


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_the_api_server_takes_every_object_as_it_is(
    helm: Helm, kubectl: Kubectl, monitored: None, values: Path
) -> None:
    objects = helm.objects("--values", values)
    assert create_dry(kubectl, *objects).count("serverside-applied") == len(objects)


def test_the_api_server_takes_the_plain_manifests_as_they_are(kubectl: Kubectl) -> None:
    manifest = ROOT / "manifests" / "install.yaml"
    said = kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(manifest))
    assert said.count("serverside-applied") == len(parsed(manifest.read_text()))


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_its_pods_are_fit_for_a_namespace_that_is_restricted(installed: Helm, kubectl: Kubectl, values: Path) -> None:
    objects = installed.objects("--values", values)
    deployed = only(objects, "Deployment")["spec"]["template"]
    deployed["metadata"] |= {"name": "operator", "namespace": NAMESPACE}
    for pod in ({"apiVersion": "v1", "kind": "Pod", **deployed}, only(objects, "Pod")):
        assert "serverside-applied" in create_dry(kubectl, pod)


def test_a_release_has_its_place_in_namespaces_that_are_called_as_numbers_are(helm: Helm, kubectl: Kubectl) -> None:
    for namespace in ("123", "null", "1e3"):
        create_namespace(kubectl, namespace)
    # What outlives a release would be another's.
    without = (*WITHOUT_CRDS, "--set", "priorityClass.create=false")
    helm("install", "1e3", CHART, "--namespace", "123", "--set-json", 'namespaces=["null","1e3"]', *without)
    try:
        bindings = kubectl.json("get", "rolebindings", "-A", "-l", "app.kubernetes.io/name=lockstep")["items"]
        assert {each["metadata"]["namespace"] for each in bindings} == {"123", "null", "1e3", "default"}
        assert {subject["namespace"] for each in bindings for subject in each["subjects"]} == {"123"}
        assert kubectl("get", "deployment", "lockstep-operator", "-n", "123", "-o", "name")
    finally:
        helm("uninstall", "1e3", "--namespace", "123")


def test_a_release_comes_changes_goes_back_and_goes_and_runs_stay(installed: Helm, kubectl: Kubectl) -> None:
    before = hello(kubectl, "team-a")
    kubectl("apply", "-f", "-", text=json.dumps(
        {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": "research"}, "spec": {}}
    ))  # fmt: skip

    installed("upgrade", *RELEASE, "--set", "config.mode=ReportOnly")
    assert (mode(kubectl), uid(kubectl, "team-a")) == ("ReportOnly", before)

    installed("rollback", "lockstep", "1", "--namespace", NAMESPACE)
    assert (mode(kubectl), uid(kubectl, "team-a")) == ("Active", before)

    installed("uninstall", "lockstep", "--namespace", NAMESPACE)
    assert (
        kubectl.json("get", "deployments,clusterroles,services", "-n", NAMESPACE, "-l", "helm.sh/chart")["items"] == []
    )
    assert uid(kubectl, "team-a") == before
    assert kubectl("get", "tqueue", "research", "-o", "name")

    installed("install", *RELEASE)
    assert uid(kubectl, "team-a") == before


def test_the_class_of_gang_pods_stays_as_the_next_pod_of_a_gang_needs_it(installed: Helm, kubectl: Kubectl) -> None:
    installed("upgrade", *RELEASE, "--set", "priorityClass.create=false")
    assert kubectl("get", "priorityclass", "lockstep-gang", "-o", "name")
    installed("uninstall", "lockstep", "--namespace", NAMESPACE)
    assert kubectl("get", "priorityclass", "lockstep-gang", "-o", "name")
    installed("install", *RELEASE)


def test_an_upgrade_has_kueue_used_once_its_api_is_served_and_as_long_as_it_is(
    installed: Helm, kubectl: Kubectl
) -> None:
    def is_used() -> bool:
        roles = kubectl.json("get", "clusterroles", "-l", "app.kubernetes.io/name=lockstep")["items"]
        granted = any(each["metadata"]["name"] == "lockstep-operator-kueue" for each in roles)
        assert settings(kubectl)["kueue"]["enabled"] is granted
        return granted

    assert not is_used()
    kubectl("apply", "--server-side", "-f", str(KUEUE_CRDS))
    try:
        wait_until_established(kubectl, "-f", str(KUEUE_CRDS))
        for _ in range(2):
            installed("upgrade", *RELEASE, "--reset-then-reuse-values")
            assert is_used()
    finally:
        remove_definitions(kubectl, KUEUE_CRDS)
    wait_for("Kueue is gone", lambda: "kueue.x-k8s.io" not in kubectl("api-versions"), seconds=60)
    installed("upgrade", *RELEASE, "--reset-then-reuse-values")
    assert not is_used()


def test_an_upgrade_brings_newer_crds_and_a_rollback_the_older_ones(
    installed: Helm, kubectl: Kubectl, tmp_path: Path
) -> None:
    def short_names() -> list[str]:
        return list(kubectl.json("get", CRD)["spec"]["names"]["shortNames"])

    newer = Path(copytree(CHART, tmp_path / "lockstep"))
    crd = newer / "templates" / "crds" / "lockstep.dev_trainingruns.yaml"
    crd.write_text(crd.read_text().replace("    - trun\n", "    - trun\n    - newer\n", 1))
    installed("upgrade", "lockstep", newer, "--namespace", NAMESPACE)
    assert "newer" in short_names()
    installed("rollback", "lockstep", "1", "--namespace", NAMESPACE)
    assert "newer" not in short_names()


def test_a_rollback_hides_fields_of_newer_crds_and_the_next_write_of_an_object_loses_them(
    installed: Helm, kubectl: Kubectl, tmp_path: Path
) -> None:
    newer = Path(copytree(CHART, tmp_path / "lockstep"))
    crd = newer / "templates" / "crds" / "lockstep.dev_trainingruns.yaml"
    nodes = "            properties:\n              nodes:\n"
    assert nodes in crd.read_text()
    tomorrow = "            properties:\n              tomorrow:\n                type: string\n              nodes:\n"
    crd.write_text(crd.read_text().replace(nodes, tomorrow, 1))

    def has_field(name: str) -> bool:
        spec = {"nodes": 1, "image": "trainer", "command": ["train"], "suspend": True, "tomorrow": "yes"}
        body = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRun", "metadata": {"name": name}, "spec": spec}
        if name not in kubectl("get", "trun", "-n", "team-a", "-o", "name"):
            kubectl("create", "-n", "team-a", "--validate=ignore", "-f", "-", text=json.dumps(body))
        return "tomorrow" in kubectl.json("get", "trun", name, "-n", "team-a")["spec"]

    def upgrade() -> None:
        installed("upgrade", "lockstep", newer, "--namespace", NAMESPACE)
        names = (f"new-{number}" for number in itertools.count())
        wait_for("the newer CRDs are served", lambda: has_field(next(names)), seconds=60)
        kubectl("delete", "trun", "-n", "team-a", "--field-selector=metadata.name!=kept")

    def roll_back() -> None:
        installed("rollback", "lockstep", "1", "--namespace", NAMESPACE)
        wait_for("the field is hidden", lambda: not has_field("kept"), seconds=60)

    upgrade()
    assert has_field("kept")
    roll_back()
    upgrade()
    assert has_field("kept"), "nobody wrote it meanwhile"
    roll_back()
    status = json.dumps({"status": {"attempt": 1}})
    kubectl("patch", "trun", "kept", "-n", "team-a", "--subresource=status", "--type=merge", "-p", status)
    upgrade()
    assert not has_field("kept")
    kubectl("delete", "trun", "kept", "-n", "team-a")


@pytest.mark.parametrize("how", [(), ("--set", "namespaces={team-b}"), ("--take-ownership", "--force-conflicts")])
def test_a_second_operator_for_the_same_cluster_is_refused(
    installed: Helm, kubectl: Kubectl, how: tuple[str, ...]
) -> None:
    words = f"one operator serves a cluster.* has the release lockstep in namespace {NAMESPACE}.* or suspend its runs"
    with pytest.raises(HelmError, match=words):
        installed("install", "another", CHART, "--namespace", "team-b", *how)
    role = kubectl.json("get", "clusterrole", "lockstep-operator")
    assert role["metadata"]["annotations"]["meta.helm.sh/release-namespace"] == NAMESPACE


def test_an_operator_of_the_plain_manifests_is_the_one_too(helm: Helm, kubectl: Kubectl) -> None:
    manifest = str(ROOT / "manifests" / "install.yaml")
    kubectl("apply", "--server-side", "-f", manifest)
    try:
        words = f"one operator serves a cluster.* has the plain manifests in namespace {NAMESPACE}"
        with pytest.raises(HelmError, match=words):
            helm("install", "another", CHART, "--namespace", "team-b", "--take-ownership", "--force-conflicts")
        (subject,) = kubectl.json("get", "clusterrolebinding", "lockstep-operator")["subjects"]
        assert subject["namespace"] == NAMESPACE
    finally:
        kubectl("delete", "--ignore-not-found", "-f", manifest, "-l", "app.kubernetes.io/name=lockstep")
        helm("uninstall", "another", "--namespace", "team-b", "--ignore-not-found")


def test_a_second_release_in_the_same_namespace_is_refused(installed: Helm, kubectl: Kubectl) -> None:
    with pytest.raises(HelmError, match="exists and cannot be imported into the current release"):
        installed("install", "another", CHART, "--namespace", NAMESPACE)


def test_what_a_removed_operator_left_may_be_taken_by_the_next(installed: Helm, kubectl: Kubectl) -> None:
    kubectl("delete", "deployment", "lockstep-operator", "-n", NAMESPACE)
    installed("install", "another", CHART, "--namespace", "team-b", "--take-ownership", "--force-conflicts")
    try:
        assert kubectl("get", "deployment", "lockstep-operator", "-n", "team-b", "-o", "name")
    finally:
        installed("uninstall", "another", "--namespace", "team-b")


def test_crds_that_were_applied_by_hand_are_taken_over_when_asked_to(helm: Helm, kubectl: Kubectl) -> None:
    kubectl("delete", "-f", str(ROOT / "crds"), "--ignore-not-found")
    kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    with pytest.raises(HelmError, match="cannot be imported"):
        helm("install", *RELEASE)
    helm("install", *RELEASE, "--take-ownership", "--force-conflicts")
    helm("uninstall", "lockstep", "--namespace", NAMESPACE)
    assert kubectl("get", CRD, "-o", "name")


def test_a_namespaced_install_acts_in_its_namespaces_alone_and_lacks_no_right(
    installed: Helm, kubectl: Kubectl, bare_cluster: LocalCluster, tmp_path: Path
) -> None:
    installed("upgrade", *RELEASE, "--set", "namespaces={team-a}")
    made = settings(kubectl)
    bare_cluster.add_kwok_nodes(NodeBatch(count=2), wait=60)
    for team in ("team-a", "team-b"):
        kubectl("delete", "trun", "hello", "-n", team, "--ignore-not-found")
        hello(kubectl, team)

    def gang(team: str) -> int:
        return len(kubectl.json("get", "pods", "-n", team)["items"])

    operator = OperatorProcess.start(kubectl, tmp_path / "operator", settings={"namespaces": made["namespaces"]})
    try:
        wait_for("the gang has its pods", lambda: gang("team-a") == 2, seconds=60, last_seen=operator.log_tail)
        assert reachable(operator) == (0, "the operator leads, and workers reach it")
        kubectl("delete", "trun", "hello", "-n", "team-a")
        wait_for("its pods are gone", lambda: not gang("team-a"), seconds=60, last_seen=operator.log_tail)
        requests = operator.metrics()["lockstep_api_requests_total"]
        assert [labels for labels in requests if ("code", "403") in labels] == []
        assert gang("team-b") == 0
        assert "status" not in kubectl.json("get", "trun", "hello", "-n", "team-b")
    finally:
        operator.stop()
    code, said = reachable(operator)
    assert (code, "not reachable" in said) == (1, True)
