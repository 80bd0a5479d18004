"""What is nested deeper than Python counts to, in the hands of an operator and of everybody else's command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.site import Site
from harness.waiting import wait_for
from lockstep.api.base import names
from lockstep.api.base.nesting import TOO_DEEP
from support.cli_user import User

pytestmark = pytest.mark.cluster

RUN: dict[str, Any] = {"nodes": 1, "image": "trainer", "command": ["train"]}
LEVELS = 9_000  # of the 10,000 that the API server takes


FIELDS = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": "DEEP"}
POD = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "deep", "labels": {names.LABEL_RUN_UID: "somebody-elses"}, "managedFields": [FIELDS]},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
    }
).replace('"DEEP"', '{"f:a":' * LEVELS + "{}" + "}" * LEVELS)
"""Of a core kind, too, the API server keeps who is said to have written which field."""


def manifest(kind: str, name: str, spec: dict[str, Any]) -> str:
    """``DEEP`` in the spec stands for what goes down and down."""
    body = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return json.dumps(body).replace('"DEEP"', '{"a":' * LEVELS + "1" + "}" * LEVELS)


def test_nobody_stops_the_operator_or_the_command_line_by_how_deep_an_object_is_nested(
    site: Site, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl, deep = site.cluster.kubectl, RUN | {"podTemplate": "DEEP"}
    process = site.operator.pid

    def create(kind: str, name: str, spec: dict[str, Any]) -> None:
        kubectl("-n", namespace, "create", "-f", "-", input=manifest(kind, name, spec))

    def accepted(resource: str, name: str) -> str:
        words = '{.status.conditions[?(@.type=="Accepted")].message}'
        return kubectl("-n", namespace, "get", resource, name, "-o", f"jsonpath={words}")

    try:
        kubectl("-n", namespace, "create", "-f", "-", input=POD)
        create(names.RUN_KIND, "deep", deep)
        create(names.RUN_SET_KIND, "deeper", {"indices": "0-3", "template": {"spec": deep}})
        wait_for("the run is told", lambda: accepted(names.RUNS, "deep") == f"spec.podTemplate: {TOO_DEEP}", seconds=90)
        told = f"spec.template.spec.podTemplate: {TOO_DEEP}"
        wait_for("the array is told", lambda: accepted(names.RUN_SETS, "deeper") == told, seconds=90)
        create(names.RUN_SET_KIND, "plain", {"indices": "0-1", "template": {"spec": RUN}})
        wait_for("another is taken", lambda: accepted(names.RUN_SETS, "plain") == "the spec is valid", seconds=90)
        assert site.operator.pid == process
        user = User(site, namespace, capsys)

        def listed() -> set[str]:
            return {line.split()[0] for line in user.types("queue").splitlines()}

        wait_for("its runs are made", lambda: {"deep", "plain-0", "plain-1"} <= listed(), seconds=90, last_seen=listed)
        user.types("status", "deeper")
        kept = kubectl("-n", namespace, "get", "pod", "deep", "--show-managed-fields", "-o", "json")
        assert kept.count('"f:a"') == LEVELS
    finally:
        for resource in (names.RUNS, names.RUN_SETS, "pods"):
            kubectl("-n", namespace, "delete", resource, "--all")
