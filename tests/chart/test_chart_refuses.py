"""Values that are wrong are refused by name, before anything is installed."""

from __future__ import annotations

import pytest

from support.helm import Helm, HelmError


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("config.mode=Fast", "at '/config/mode': value must be one of 'Active', 'NoNewAdmissions', 'ReportOnly'"),
        ("config.brekaer.runs=3", "at '/config': additional properties 'brekaer' not allowed"),
        ("config.breaker.nodeShare=2", "at '/config/breaker/nodeShare': maximum: got 2, want 1"),
        ("config.localStorage.nvme=nvme", "at '/config/localStorage/nvme': 'nvme' does not match pattern"),
        ("config.workerUrl=http://x:8443", "at '/config/workerUrl': 'http://x:8443' does not match pattern"),
        ("config.history.path=/x", "config.history.path: nothing is mounted there; set history.claimName"),
        ("config.localStorage=/mnt/nvme", "at '/config/localStorage': got string, want object"),
        ("config.gpuTypes.H100=NVIDIA", "at '/config/gpuTypes"),
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
        ("networkPolicy.apiServerCidrs={10.0.0.1}", "at '/networkPolicy/apiServerCidrs/0': '10.0.0.1' does not match"),
        ("nodeselector.pool=cpu", "additional properties 'nodeselector' not allowed"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name(helm: Helm, setting: str, words: str) -> None:
    with pytest.raises(HelmError) as refused:
        helm.template("--set", setting)
    assert words in str(refused.value)


def test_a_chart_that_includes_this_one_may_set_globals(helm: Helm) -> None:
    assert helm.template("--set", "global.region=eu", "--set", "crds.install=false")
