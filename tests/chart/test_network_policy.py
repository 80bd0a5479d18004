"""The sample NetworkPolicies, against the labels and ports that gangs, their workers and the operator really have."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from lockstep.api.base import names
from lockstep.config import OperatorConfig
from lockstep.core.pods.gang import pod_body
from lockstep.worker.node.preflight import MASTER_PORTS
from support.helm import NAMESPACE, ROOT, Helm, only
from support.pod_bodies import TUNABLES, run

Pod = tuple[str, dict[str, str]]
"""Its namespace and its labels."""
GANG_PORTS = [MASTER_PORTS.start, MASTER_PORTS.stop - 1, 41234]
SOMEBODY: Pod = ("research", {"app": "notebook"})
DNS: Pod = ("kube-system", {"k8s-app": "kube-dns"})
NODE_LOCAL_DNS: Pod = ("169.254.20.10", {})
"""On the node's network, so that it has an address alone."""
OPENSHIFT_DNS: Pod = ("openshift-dns", {"dns.operator.openshift.io/daemonset-dns": "default"})


@pytest.fixture(scope="module")
def policies() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "manifests" / "network-policy.yaml").read_text()))


@pytest.fixture(scope="module")
def gang() -> Pod:
    """As the operator makes it."""
    made_for = run(network="Pod")
    made = pod_body(made_for, made_for.status, TUNABLES, 1, 2, "gpu-7")
    return "research", dict(made["metadata"]["labels"])


@pytest.fixture(scope="module")
def operator(helm: Helm) -> Pod:
    template = only(helm.objects(), "Deployment")["spec"]["template"]
    return NAMESPACE, template["metadata"]["labels"]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    return wanted.items() <= labels.items() and all(
        each["operator"] == "Exists" and each["key"] in labels for each in selector.get("matchExpressions", ())
    )


def is_peer(peer: dict[str, Any], pod: Pod, own: str) -> bool:
    namespace, labels = pod
    if "ipBlock" in peer:
        return bool(peer["ipBlock"]["cidr"] == f"{namespace}/32")
    of_namespaces = peer.get("namespaceSelector")
    there = {"kubernetes.io/metadata.name": namespace}
    in_scope = namespace == own if of_namespaces is None else selects(of_namespaces, there)
    return in_scope and selects(peer.get("podSelector", {}), labels)


def rules(policies: list[dict[str, Any]], pod: Pod, way: str) -> Iterator[dict[str, Any]] | None:
    """Those that hold for a pod of the namespace of the policies; None: it is open."""
    chosen = [
        each["spec"]
        for each in policies
        if way in each["spec"]["policyTypes"] and pod[0] == "research" and selects(each["spec"]["podSelector"], pod[1])
    ]
    return (rule for spec in chosen for rule in spec.get(way.lower(), ())) if chosen else None


def lets(policies: list[dict[str, Any]], source: Pod, target: Pod, port: int, protocol: str = "TCP") -> bool:
    """As a network plugin judges a connection: both sides have to allow it."""
    for way, pod, other, key in (("Egress", source, target, "to"), ("Ingress", target, source, "from")):
        held = rules(policies, pod, way)
        if held is not None and not any(
            any(is_peer(peer, other, pod[0]) for peer in rule[key])
            and ("ports" not in rule or {"port": port, "protocol": protocol} in rule["ports"])
            for rule in held
        ):
            return False
    return True


@pytest.mark.parametrize("port", GANG_PORTS)
def test_workers_of_a_gang_reach_each_other_and_nobody_else_reaches_them(
    policies: list[dict[str, Any]], gang: Pod, operator: Pod, port: int
) -> None:
    assert lets(policies, gang, gang, port)
    for stranger in (SOMEBODY, DNS, operator, ("products", gang[1])):
        assert not lets(policies, stranger, gang, port)
    assert not lets(policies, gang, ("products", gang[1]), port)


def test_workers_reach_their_operator_and_names_and_no_more(
    policies: list[dict[str, Any]], gang: Pod, operator: Pod
) -> None:
    port = OperatorConfig().worker_port
    assert lets(policies, gang, operator, port)
    assert not lets(policies, gang, operator, port + 1)
    for server, at in ((DNS, 53), (NODE_LOCAL_DNS, 53), (OPENSHIFT_DNS, 5353)):
        assert lets(policies, gang, server, at, "UDP")
        assert not lets(policies, gang, server, port)
    assert not lets(policies, gang, SOMEBODY, port)


def test_the_first_alone_leaves_the_way_out_open(policies: list[dict[str, Any]], gang: Pod) -> None:
    assert lets(policies[:1], gang, SOMEBODY, 443)
    assert not lets(policies[:1], SOMEBODY, gang, 443)


def test_runs_are_told_apart_by_the_label_that_the_sample_names(gang: Pod) -> None:
    assert gang[1][names.LABEL_RUN] == "hello"
    assert f"{names.LABEL_RUN}: NAME" in (ROOT / "manifests" / "network-policy.yaml").read_text()
