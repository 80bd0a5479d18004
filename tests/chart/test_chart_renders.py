"""What the chart makes of values. Goldens: run with LOCKSTEP_UPDATE_GOLDEN=1 to write them anew, then read the diff."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from lockstep.api.base import names
from lockstep.config import OperatorConfig, load
from lockstep.controller.kube.leader_endpoint import PORT_NAME
from lockstep.controller.store.usage import CONFIG_MAP
from lockstep.controller.workers.tls import SECRET_NAME
from support.helm import CHART, NAMESPACE, ROOT, VALUES, Helm, only, parsed

GOLDEN = Path(__file__).parent / "golden"
WITHOUT_CRDS = ("--set", "crds.install=false")
READS = {"get", "list", "watch"}

with_all_values = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)


def config_of(objects: list[dict[str, Any]], folder: Path) -> OperatorConfig:
    """The operator's configuration as the operator would read it."""
    file = folder / "operator.yaml"
    file.write_text(only(objects, "ConfigMap")["data"]["operator.yaml"])
    return load(str(file), {})


def rules_of(objects: list[dict[str, Any]], binding: str) -> list[dict[str, Any]]:
    """The rules of every ClusterRole that bindings of a kind give to the operator."""
    bound = [each["roleRef"] for each in objects if each["kind"] == binding]
    named = {role["name"] for role in bound if role["kind"] == "ClusterRole"}
    roles = [each for each in objects if each["kind"] == "ClusterRole" and each["metadata"]["name"] in named]
    return [rule for role in roles for rule in role["rules"]]


def test_helm_finds_nothing_to_complain_of(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, *(f"--values={path}" for path in VALUES))


@with_all_values
def test_the_objects_are_those_on_record(helm: Helm, values: Path) -> None:
    text = helm.template("--values", values, *WITHOUT_CRDS)
    golden = GOLDEN / values.name
    if os.environ.get("LOCKSTEP_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@with_all_values
def test_the_operator_takes_the_configuration(helm: Helm, values: Path, tmp_path: Path) -> None:
    given = (yaml.safe_load(values.read_text()) or {}).get("config", {})
    made = config_of(helm.objects("--values", values), tmp_path)
    dumped = made.model_dump(mode="json", by_alias=True)
    for name, value in given.items():
        if not isinstance(value, dict):
            assert dumped[name] == value
    assert made.namespace == NAMESPACE
    assert set(given.get("breaker", {}).items()) <= set(made.breaker.model_dump(by_alias=True).items())


def test_a_namespaced_install_tells_the_operator_its_namespaces(helm: Helm, tmp_path: Path) -> None:
    objects = helm.objects("--set", "namespaces={team-a,team-b}")
    assert config_of(objects, tmp_path).namespaces == ("team-a", "team-b")


def test_workers_are_sent_to_the_service_at_the_port_that_the_operator_listens_on(helm: Helm, tmp_path: Path) -> None:
    objects = helm.objects(namespace="elsewhere")
    config = config_of(objects, tmp_path)
    (service,) = [o for o in objects if o["kind"] == "Service" and o["spec"].get("clusterIP") != "None"]
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    url = urlsplit(config.worker_url)
    assert url.hostname == f"{service['metadata']['name']}.elsewhere.svc"
    assert [(p["name"], p["port"]) for p in service["spec"]["ports"]] == [(PORT_NAME, url.port)]
    assert "selector" not in service["spec"]  # or standbys would get workers: the leader's EndpointSlice says where
    assert service["metadata"]["name"] == config.worker_service
    assert ports == {"workers": config.worker_port, "metrics": config.metrics_port}


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("http://collector.monitoring:4318", 4318),
        ("http://[fd00::7]:4318/otlp", 4318),
        ("https://traces.example.com/otlp", 443),
        ("http://collector", 80),
        ("", None),
    ],
)
def test_a_network_policy_lets_traces_reach_their_collector(helm: Helm, endpoint: str, port: int | None) -> None:
    tracing = json.dumps({"endpoint": endpoint})
    objects = helm.objects("--set", "networkPolicy.enabled=true", "--set-json", f"config.tracing={tracing}")
    api_server, *more = only(objects, "NetworkPolicy")["spec"]["egress"][1:]
    assert {each["port"] for each in api_server["ports"]} == {443, 6443}
    assert [each["port"] for rule in more for each in rule["ports"]] == ([port] if port else [])


def test_the_test_of_a_release_runs_where_the_operator_may(helm: Helm) -> None:
    objects = helm.objects("--values", str(next(path for path in VALUES if path.stem == "site")))
    operator, test = only(objects, "Deployment")["spec"]["template"]["spec"], only(objects, "Pod")["spec"]
    assert operator["nodeSelector"]
    assert operator["tolerations"]
    assert [test.get(field) for field in ("nodeSelector", "tolerations")] == [
        operator[field] for field in ("nodeSelector", "tolerations")
    ]


def test_archive_jobs_use_the_operators_image_unless_told_otherwise(helm: Helm, tmp_path: Path) -> None:
    image = ("--set", "image.repository=r.example.com/op,image.tag=v7")
    assert config_of(helm.objects(*image), tmp_path).archive.image == "r.example.com/op:v7"
    other = config_of(helm.objects(*image, "--set", "config.archive.image=x:1,config.archive.parallel=2"), tmp_path)
    assert (other.archive.image, other.archive.parallel) == ("x:1", 2)


@pytest.mark.parametrize(
    ("served", "written", "is_used"),
    [
        ("kueue.x-k8s.io/v1beta2", None, True),
        ("kueue.x-k8s.io/v1beta1", None, False),
        ("apps/v1", None, False),
        ("kueue.x-k8s.io/v1beta2", "false", False),
        ("apps/v1", "true", True),
    ],
)
def test_kueue_is_used_where_its_api_is_served_unless_somebody_says_otherwise(
    helm: Helm, tmp_path: Path, served: str, written: str | None, is_used: bool
) -> None:
    settings = ("--set", f"config.kueue.enabled={written}") if written else ()
    objects = helm.objects("--api-versions", served, *settings)
    assert config_of(objects, tmp_path).kueue.enabled is is_used
    assert any("kueue" in each["metadata"]["name"] for each in objects) is is_used, "its rights come with it"


@pytest.mark.parametrize("kind", ["Disabled", "Native", "Volcano", "Auto"])
def test_rights_to_pod_groups_come_with_any_word_on_them_as_gangs_keep_what_they_were_launched_with(
    helm: Helm, kind: str
) -> None:
    def roles(*settings: str) -> list[str]:
        return [o["metadata"]["name"] for o in helm.objects(*settings) if o["kind"] == "ClusterRole"]

    assert "lockstep-operator-pod-groups-runs" in roles("--set", f"config.podGroups.kind={kind}")
    assert "lockstep-operator-pod-groups-runs" not in roles()


@pytest.mark.parametrize(
    ("served", "written", "is_used"),
    [
        ("autoscaling.x-k8s.io/v1", None, True),
        ("autoscaling.x-k8s.io/v1beta1", None, False),
        ("autoscaling.x-k8s.io/v1", "false", False),
        ("apps/v1", "true", True),
    ],
)
def test_gangs_ask_by_provisioning_requests_where_they_are_served_unless_somebody_says_otherwise(
    helm: Helm, tmp_path: Path, served: str, written: str | None, is_used: bool
) -> None:
    settings = ("--set", f"config.scaleUp.provisioningRequests={written}") if written else ()
    objects = helm.objects("--api-versions", served, "--set", "config.scaleUp.maxNodes=7", *settings)
    config = config_of(objects, tmp_path).scale_up
    assert (config.provisioning_requests, config.max_nodes) == (is_used, 7)
    assert any(each["metadata"]["name"] == "lockstep-operator-scale-up-runs" for each in objects) is is_used


def test_rights_to_provisioning_requests_come_with_the_setting_and_the_class_of_placeholders_always(helm: Helm) -> None:
    plain, given = helm.objects(), helm.objects("--set", "config.scaleUp.provisioningRequests=true")
    more = {(each["kind"], each["metadata"]["name"]) for each in given if each not in plain}
    name = "lockstep-operator-scale-up-runs"
    assert {("ClusterRole", name), ("ClusterRoleBinding", name)} <= more
    assert {kind for kind, _ in more} == {"ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment"}
    renamed = helm.objects(
        "--set", "config.scaleUp.priorityClass=low", "--set", "config.scaleUp.provisioningRequests=false"
    )
    classes = {each["metadata"]["name"]: each for each in renamed if each["kind"] == "PriorityClass"}
    assert (classes["low"]["value"], classes["low"]["preemptionPolicy"]) == (-10, "Never")
    assert not any("scale-up" in each["metadata"]["name"] for each in renamed)


def test_only_a_change_of_the_mode_keeps_the_operators_pod(helm: Helm) -> None:
    def pod(setting: str) -> Any:
        return only(helm.objects("--set", setting), "Deployment")["spec"]["template"]

    assert pod("config.mode=ReportOnly") == pod("logLevel=INFO")
    assert pod("config.stopGrace=60") != pod("logLevel=INFO")


@with_all_values
def test_the_whole_cluster_is_only_read_but_for_what_has_no_namespace(helm: Helm, values: Path) -> None:
    objects = helm.objects("--values", values, "--set", "namespaces={team-a}")
    writes = {
        (group, resource, verb)
        for rule in rules_of(objects, "ClusterRoleBinding")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in set(rule["verbs"]) - READS
    }
    assert writes == {
        ("lockstep.dev", "trainingqueues/status", "patch"),
        ("", "nodes", "patch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
    }
    # "default" for the events of nodes alone.
    assert {o["metadata"]["namespace"] for o in objects if o["kind"] == "RoleBinding"} == {
        "team-a",
        "default",
        NAMESPACE,
    }


def test_a_namespaced_install_writes_events_of_nodes_where_kubernetes_puts_them_and_nothing_else(helm: Helm) -> None:
    def roles(namespaces: str) -> list[Any]:
        objects = helm.objects("--set", f"namespaces={{{namespaces}}}")
        return [o["rules"] for o in objects if o["kind"] == "Role" and o["metadata"]["namespace"] == "default"]

    events = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}
    assert roles("team-a") == [[events]]
    assert roles("team-a,default") == [], "its runs' rights are enough"


def test_an_install_for_all_namespaces_has_the_rights_of_a_namespaced_one_everywhere(helm: Helm) -> None:
    confined = helm.objects("--set", "namespaces={team-a}")
    everywhere = rules_of(helm.objects(), "ClusterRoleBinding")
    assert everywhere == rules_of(confined, "ClusterRoleBinding") + rules_of(confined, "RoleBinding")


def test_no_right_is_given_twice(helm: Helm) -> None:
    for role in helm.objects():
        if role["kind"] in ("Role", "ClusterRole"):
            rights = [
                (group, resource, verb, tuple(rule.get("resourceNames", ())))
                for rule in role["rules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            ]
            assert [right for right in rights if rights.count(right) > 1] == [], role["metadata"]["name"]


def test_no_rule_names_everything(helm: Helm) -> None:
    for role in helm.objects():
        if role["kind"] in ("Role", "ClusterRole"):
            for rule in role["rules"]:
                assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_objects_of_the_operators_namespace_are_opened_by_name_alone(helm: Helm) -> None:
    for rule in only(helm.objects(), "Role")["rules"]:
        assert rule["verbs"] == ["create"] or rule["resourceNames"] in (
            [OperatorConfig().lease_name],
            [OperatorConfig().worker_service],
            [f"{OperatorConfig().worker_service}-{family}" for family in ("ipv4", "ipv6")],
            [SECRET_NAME],
            [names.JOB_IDS_CONFIG_MAP, CONFIG_MAP],
        )


def test_the_operators_token_is_in_its_own_pod_and_in_no_other(helm: Helm) -> None:
    objects = helm.objects()
    pods = {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == "Pod"}
    pods |= {o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment"}
    assert [name for name, pod in pods.items() if pod["automountServiceAccountToken"]] == ["lockstep-operator"]
    assert len(pods) > 1
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False


def test_the_crds_are_those_of_the_repository_and_outlive_the_release(helm: Helm) -> None:
    kept = {"helm.sh/resource-policy": "keep"}
    of_chart = [o for o in parsed(helm.template()) if o["kind"] == "CustomResourceDefinition"]
    assert all(crd["metadata"].pop("annotations") == kept for crd in of_chart)
    of_repository = [crd for path in (ROOT / "crds").glob("*.yaml") for crd in parsed(path.read_text())]
    assert {crd["metadata"]["name"]: crd for crd in of_chart} == {crd["metadata"]["name"]: crd for crd in of_repository}


def test_an_upgrade_ends_the_old_operator_first_only_where_they_share_a_volume(helm: Helm) -> None:
    def strategy(*settings: str) -> str:
        return str(only(helm.objects(*settings), "Deployment")["spec"]["strategy"]["type"])

    assert strategy() == "RollingUpdate"
    assert strategy("--set", "history.claimName=h") == "Recreate"


def test_two_operators_run_where_no_file_is_theirs_alone(helm: Helm) -> None:
    def replicas(*settings: str) -> int:
        objects = helm.objects(*settings)
        count = int(only(objects, "Deployment")["spec"]["replicas"])
        budgets = [each for each in objects if each["kind"] == "PodDisruptionBudget"]
        assert len(budgets) == (count > 1)
        return count

    assert replicas() == 2
    assert replicas("--set", "replicas=1") == 1
    assert replicas("--set", "history.claimName=h") == 1


EVERYTHING = (
    "serviceMonitor.enabled=true,prometheusRule.enabled=true,prometheusRule.gpus=true,dashboards.enabled=true,"
    "networkPolicy.enabled=true,priorityAndFairness.enabled=true,web.enabled=true,web.expose=true"
)
MINE = {"app.kubernetes.io/name": "mine", "app.kubernetes.io/version": "", "helm.sh/chart": "mine", "team": "ml"}


@pytest.mark.parametrize(
    ("section", "kinds"),
    [
        ("serviceMonitor", {"ServiceMonitor"}),
        ("prometheusRule", {"PrometheusRule"}),
        ("dashboards", {"ConfigMap"}),
    ],
)
def test_a_label_that_the_user_writes_comes_in_place_of_the_charts(helm: Helm, section: str, kinds: set[str]) -> None:
    mine = MINE | {"grafana_dashboard": "2"}
    objects = helm.objects("--set", EVERYTHING, "--set-json", f"{section}.labels={json.dumps(mine)}")
    labelled = [o for o in objects if o["metadata"].get("labels", {}).get("team") == "ml"]
    assert {o["kind"] for o in labelled} == kinds
    for each in labelled:
        labels = each["metadata"]["labels"]
        assert labels == mine | {"app.kubernetes.io/component": "operator", "app.kubernetes.io/managed-by": "Helm"}


def test_what_the_operators_pods_are_known_by_stays_whatever_the_user_writes(helm: Helm) -> None:
    theirs = {"app.kubernetes.io/name": "mine", "team": "ml"}
    written = ("--set-json", f"podLabels={json.dumps(theirs)}")
    noted = ("--set-json", 'podAnnotations={"lockstep.dev/config":"mine","owner":"ml"}')
    deployment = only(helm.objects(*written, *noted, "--skip-schema-validation"), "Deployment")
    pod = deployment["spec"]["template"]["metadata"]
    assert pod["labels"] == {**deployment["spec"]["selector"]["matchLabels"], "team": "ml"}
    assert pod["annotations"]["owner"] == "ml"
    assert re.fullmatch("[0-9a-f]{64}", pod["annotations"]["lockstep.dev/config"])


def test_an_annotation_of_the_service_account_is_the_users(helm: Helm) -> None:
    objects = helm.objects("--set-json", 'serviceAccount.annotations={"a":"1","on":"null"}')
    assert only(objects, "ServiceAccount")["metadata"]["annotations"] == {"a": "1", "on": "null"}


def named_throughout(helm: Helm, name: str) -> Any:
    """All objects of a release where everything that the user may name is called so."""
    texts = {
        "namespaces": [name],
        "config": {"priorityClass": name, "archive": {"nodeSelector": {"pool": name}}},
        "history": {"claimName": name},
        "priorityClassName": name,
        "imagePullSecrets": [{"name": name}],
        "image": {"repository": name, "tag": name},
        "nodeSelector": {"pool": name},
        "tolerations": [{"key": name, "value": name}],
        "podLabels": {"team": name},
        "podAnnotations": {"team": name},
        "serviceAccount": {"annotations": {"team": name}},
        **{section: {"labels": {"team": name}} for section in ("serviceMonitor", "prometheusRule", "dashboards")},
    }
    given = [part for key, value in texts.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]
    text = helm(
        "template", name, CHART, "--namespace", name, *given, "--set", f"{EVERYTHING},replicas=2", *WITHOUT_CRDS
    )
    objects = parsed(text)
    settings = next(o for o in objects if o["kind"] == "ConfigMap" and "operator.yaml" in o["data"])["data"]
    settings["operator.yaml"] = parsed(settings["operator.yaml"])
    only(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"].pop("lockstep.dev/config")
    return objects


@pytest.mark.parametrize("name", ["123", "null", "true", "on", "y", "1e3", "0x1f", "0o17", "2026-12-01"])
def test_a_name_that_yaml_takes_for_something_else_is_a_name_wherever_it_is_written(helm: Helm, name: str) -> None:
    plain = json.dumps(named_throughout(helm, "a-plain-name"))
    assert named_throughout(helm, name) == json.loads(plain.replace("a-plain-name", name))


def test_the_operator_reads_such_names_as_names(helm: Helm, tmp_path: Path) -> None:
    objects = helm.objects("--set-json", 'namespaces=["456","null","1e3"]', namespace="123")
    config = config_of(objects, tmp_path)
    assert (config.namespace, config.namespaces) == ("123", ("456", "null", "1e3"))


def test_a_large_priority_is_written_as_the_whole_number_that_it_is(helm: Helm, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("priorityClass: {value: 1000000000}\n")
    classes = [each for each in helm.objects("--values", values) if each["kind"] == "PriorityClass"]
    assert {each["metadata"]["name"]: repr(each["value"]) for each in classes} == {
        "lockstep-gang": "1000000000",
        "lockstep-placeholder": "-10",
    }


def test_nobody_has_to_guess_what_comes_after_the_installation(helm: Helm) -> None:
    said = helm("install", "lockstep", CHART, "--dry-run=client", "--namespace", "ml")
    assert "helm -n ml test lockstep" in said
    manifest = re.search(r"<<'EOF'\n(.*?)\n *EOF", said, re.DOTALL)
    assert manifest is not None
    assert yaml.safe_load(manifest[1]) == yaml.safe_load((ROOT / "manifests/hello.yaml").read_text())


def test_alerts_rest_on_metrics_that_exist_and_have_a_runbook(helm: Helm) -> None:
    known = set(re.findall(r"^\| `(lockstep_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    runbooks = set(re.findall(r"^## (\w+)$", (ROOT / "docs/runbooks.md").read_text(), re.MULTILINE))
    rule = only(
        helm.objects("--set", "prometheusRule.enabled=true,prometheusRule.gpus=true,prometheusRule.runbooks=https://r"),
        "PrometheusRule",
    )
    alerts = [rule for group in rule["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    for alert in alerts:
        assert set(re.findall(r"\blockstep_\w+", alert["expr"])) <= known, alert["alert"]
        assert alert["annotations"]["runbook_url"] == f"https://r#{alert['alert'].lower()}"
    assert {alert["alert"] for alert in alerts} == runbooks


def test_the_generated_files_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "charts" / "generate.py"), "--check"]
    path = os.pathsep.join([str(ROOT / "operator"), str(ROOT / "e2e")])
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
