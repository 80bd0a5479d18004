"""The web page in the chart: not there, on the loopback address alone, or over TLS behind a Service."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from lockstep.config import EVERYWHERE, OperatorConfig, WebConfig
from support.helm import Helm, HelmError, only

ENABLED = ("--set", "web.enabled=true")
EXPOSED = (*ENABLED, "--set", "web.expose=true", "--set", "web.hosts={lockstep.example.com}")
REVIEWS = ["subjectaccessreviews"]


def web_of(objects: list[dict[str, Any]]) -> WebConfig:
    text = next(o for o in objects if o["kind"] == "ConfigMap" and "operator.yaml" in o["data"])["data"][
        "operator.yaml"
    ]
    return OperatorConfig.model_validate(yaml.safe_load(text)).web


def ports_of(objects: list[dict[str, Any]]) -> dict[str, int]:
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def services_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    found = {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == "Service"}
    return {name: spec for name, spec in found.items() if name.endswith("-web")}


def may_review(objects: list[dict[str, Any]]) -> bool:
    rules = [rule for o in objects if o["kind"] == "ClusterRole" for rule in o["rules"]]
    return any(rule["resources"] == REVIEWS and rule["verbs"] == ["create"] for rule in rules)


def test_nobody_has_a_page_who_did_not_ask_for_one(helm: Helm) -> None:
    objects = helm.objects()
    assert not web_of(objects).enabled
    assert not may_review(objects)
    assert not services_of(objects)
    assert "web" not in ports_of(objects)


def test_a_page_that_is_not_exposed_is_reached_by_port_forward_alone(helm: Helm) -> None:
    objects = helm.objects(*ENABLED)
    web = web_of(objects)
    assert (web.enabled, web.is_local) == (True, True)
    assert may_review(objects)
    assert not services_of(objects)
    assert "web" not in ports_of(objects)


def test_an_exposed_page_speaks_tls_under_the_names_it_is_known_by(helm: Helm) -> None:
    objects = helm.objects(*EXPOSED, "--set", "networkPolicy.enabled=true", namespace="elsewhere")
    web = web_of(objects)
    assert not web.is_local  # the operator then serves nothing but TLS
    assert web.listen == EVERYWHERE, "pods may have IPv6 alone"
    assert web.hosts == ("lockstep-operator-web.elsewhere.svc", "lockstep.example.com")
    assert ports_of(objects)["web"] == web.port
    (service,) = services_of(objects).values()
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(443, "web")]
    opened = [port["port"] for rule in only(objects, "NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]]
    assert "web" in opened


def test_nothing_is_exposed_that_is_not_there(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"set web\.enabled: true"):
        helm.objects("--set", "web.expose=true")


def test_the_page_is_set_by_values_of_its_own(helm: Helm) -> None:
    with pytest.raises(HelmError, match="additional properties 'web' not allowed"):
        helm.objects("--set", "config.web.enabled=true")
