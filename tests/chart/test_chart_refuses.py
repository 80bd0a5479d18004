"""Values that are wrong are refused by name, before anything is installed."""

from __future__ import annotations

import pytest
import yaml

from support.helm import CHART, Helm, HelmError


def _entries(section: object) -> list[tuple[str, object]]:
    """What a section holds, but for mappings of Kubernetes' own: null takes limits away, as it does in other charts."""
    if not isinstance(section, dict):
        return []
    return [(key, each) for key, each in section.items() if each == {} or not isinstance(each, dict)]


DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
EMPTY = {
    ".".join(path): default
    for name, section in DEFAULTS.items()
    for path, default in [((name,), section), *(((name, key), each) for key, each in _entries(section))]
}
"""What a values file may leave empty, by path, with its default."""
NOTHING = [path for path, default in EMPTY.items() if default in ("", [], {}) and path != "config"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("config.mode=Fast", "at '/config/mode': value must be one of 'Active', 'NoNewAdmissions', 'ReportOnly'"),
        ("config.brekaer.runs=3", "at '/config': additional properties 'brekaer' not allowed"),
        ("config.breaker.nodeShare=2", "at '/config/breaker/nodeShare': maximum: got 2, want 1"),
        ("config.heartbeatMax=60", "at '/config/heartbeatMax': maximum: got 60, want 15"),
        ("config.heartbeatMin=0", "at '/config/heartbeatMin': minimum: got 0, want 0.1"),
        ("config.localStorage.nvme=nvme", "at '/config/localStorage/nvme': 'nvme' does not match pattern"),
        ("config.workerUrl=http://x:8443", "at '/config/workerUrl': 'http://x:8443' does not match pattern"),
        ("config.history.path=/x", "config.history.path: nothing is mounted there; set history.claimName"),
        ("config.localStorage=/mnt/nvme", "at '/config/localStorage': got string, want object"),
        ("config.gpuTypes.H100=NVIDIA", "at '/config/gpuTypes"),
        ("config.accelerators[0].resource=gpu", "at '/config/accelerators"),
        ("config.namespace=elsewhere", "at '/config': additional properties 'namespace' not allowed"),
        ("config.workerPort=1", "at '/config': additional properties 'workerPort' not allowed"),
        ("replicas=0", "at '/replicas': minimum: got 0, want 1"),
        ("replicas=9", "at '/replicas': maximum: got 9, want 3"),
        ("image.repository=", "at '/image/repository': minLength: got 0, want 1"),
        ("image.digest=abc", "at '/image/digest': 'abc' does not match pattern"),
        ("image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of"),
        ("namespaces={Team_A}", "at '/namespaces/0': 'Team_A' does not match pattern"),
        ("namespaces={a,a}", "at '/namespaces': items at 0 and 1 are equal"),
        ("priorityClass.value=2000000000", "at '/priorityClass/value': maximum"),
        ("web.hosts={lockstep.example.com}", "web.hosts: nobody reaches the page by a name; set web.expose: true"),
        (r"podLabels.app\.kubernetes\.io/name=x", "invalid propertyName 'app.kubernetes.io/name'"),
        (r"podAnnotations.lockstep\.dev/config=x", "invalid propertyName 'lockstep.dev/config'"),
        (r"dashboards.labels.app\.kubernetes\.io/managed-by=x", "invalid propertyName 'app.kubernetes.io/managed-by'"),
        (r"serviceMonitor.labels.lockstep\.dev/service=x", "invalid propertyName 'lockstep.dev/service'"),
        (r"prometheusRule.labels.lockstep\.dev/x=x", "invalid propertyName 'lockstep.dev/x'"),
        ("networkPolicy.apiServerCidrs={10.0.0.1}", "at '/networkPolicy/apiServerCidrs/0': '10.0.0.1' does not match"),
        ("networkPolicy.apiServerCidrs={10.0.0.1/64}", "'10.0.0.1/64' does not match"),
        ("networkPolicy.apiServerCidrs={10.0.0.256/32}", "'10.0.0.256/32' does not match"),
        ("networkPolicy.metricsFrom[0].namespace=monitoring", "invalid propertyName 'namespace'"),
        ("serviceMonitor.interval=abc", "at '/serviceMonitor/interval': 'abc' does not match pattern"),
        ("serviceMonitor.interval=", "at '/serviceMonitor/interval': minLength: got 0, want 2"),
        (
            "topologySpreadConstraints[0].maxSkew=1",
            "at '/topologySpreadConstraints/0': missing properties 'topologyKey', 'whenUnsatisfiable'",
        ),
        ("tolerations[0].efect=NoSchedule", "at '/tolerations/0': additional properties 'efect' not allowed"),
        ("tolerations[0].effect=NoExec", "at '/tolerations/0/effect': value must be one of"),
        ("affinity.nodes.x=y", "invalid propertyName 'nodes'"),
        ("affinity.nodeAffinity.required=y", "invalid propertyName 'required'"),
        ("config.tracing.endpoint=http://a:99999", "at '/config/tracing/endpoint': 'http://a:99999' does not match"),
        ("config.tracing.endpoint=collector:4318", "at '/config/tracing/endpoint': 'collector:4318' does not match"),
        (
            "config.priorityClass=system-node-critical",
            "config.priorityClass: system-node-critical is Kubernetes' own, and preempts; name a class with",
        ),
        ("config.priorityClass=lockstep-placeholder", "config.priorityClass: lockstep-placeholder is the class of"),
        ("config.scaleUp.priorityClass=lockstep-gang", "config.priorityClass: lockstep-gang is the class of"),
        ("config.priorityClass=Gangs", "'Gangs' does not match pattern"),
        ("config.archive.memory=2GB", "at '/config/archive/memory': '2GB' does not match pattern"),
        ("resources.requests.cpu=half", "at '/resources/requests/cpu'"),
        ("image.repository=registry.example/operator:1.0", "at '/image/repository'"),
        ("image.tag=a b", "at '/image/tag': 'a b' does not match pattern"),
        ("podLabels.team=ml platform", "at '/podLabels/team': 'ml platform' does not match pattern"),
        ("nodeselector.pool=cpu", "additional properties 'nodeselector' not allowed"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name(helm: Helm, setting: str, words: str) -> None:
    with pytest.raises(HelmError) as refused:
        helm.template("--set", setting)
    assert words in str(refused.value)


def test_a_network_policy_names_the_ports_of_the_api_server_as_none_would_open_all(helm: Helm) -> None:
    with pytest.raises(HelmError, match="at '/networkPolicy/apiServerPorts': minItems: got 0, want 1"):
        helm.template("--set-json", "networkPolicy.apiServerPorts=[]")


@pytest.mark.parametrize(
    "setting",
    [
        "config.tracing.endpoint=http://collector.monitoring:4318",
        "config.tracing.endpoint=https://user:word@[fd00::7]/otlp",
        "config.priorityClass=gangs.example.com",
        "serviceMonitor.interval=1m30s",
        "networkPolicy.apiServerCidrs={10.0.0.1/32,fd00::/8,::1/128}",
        "image.repository=registry.example:5000/ml/lockstep-operator",
        "resources.requests.cpu=0.5",
        "resources.limits.memory=4e9",
        "tolerations[0].operator=Exists",
    ],
)
def test_a_value_that_can_be_is_taken(helm: Helm, setting: str) -> None:
    assert helm.template("--set", setting, "--set", "crds.install=false")


def test_a_chart_that_includes_this_one_may_set_globals(helm: Helm) -> None:
    assert helm.template("--set", "global.region=eu", "--set", "crds.install=false")


@pytest.mark.parametrize("path", EMPTY)
def test_what_is_left_empty_means_what_it_would_without_or_is_refused_by_its_name(helm: Helm, path: str) -> None:
    """`config:` with nothing but comments below it is null in a values file, which takes the default away as well."""
    if path in NOTHING:
        assert helm.objects("--set", f"{path}=null") == helm.objects()
    else:
        with pytest.raises(HelmError, match=f"missing property '{path.rpartition('.')[2]}'"):
            helm.template("--set", f"{path}=null")
