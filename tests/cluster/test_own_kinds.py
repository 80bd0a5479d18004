"""Our own kinds watched by kopf on a real API server: by hostile owners, and without a trace on anybody's object."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from harness.site import Site
from harness.waiting import wait_for
from localcluster.errors import KubectlError
from lockstep.api.base import names
from lockstep.api.base.nesting import TOO_DEEP, UNREADABLE

pytestmark = pytest.mark.cluster
AT_MOST = 20.0
"""Seconds until somebody else's run is accepted; one on a machine with nothing else to do."""


def manifest(name: str, template: str, command: str = "train") -> bytes:
    """Bytes, as no library writes what is here."""
    spec = {"nodes": 1, "image": "trainer", "command": ["COMMAND"], "podTemplate": "TEMPLATE"}
    body = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {"name": name}, "spec": spec}
    text = json.dumps(body).encode().replace(b'"TEMPLATE"', template.encode())
    return text.replace(b"COMMAND", command.encode("latin-1"))


def test_a_queue_that_nobody_can_read_says_so_and_admits_nothing(site: Site, namespace: str, tmp_path: Path) -> None:
    kubectl, name = site.cluster.kubectl, f"deep-{namespace}"
    volume = {"name": "deep", "mountPath": "/deep", "projected": "DEEP"}
    body = {"apiVersion": names.API_VERSION, "kind": names.QUEUE_KIND, "metadata": {"name": name}}
    text = json.dumps(body | {"spec": {"batch": {"volumes": [volume]}}})
    file = tmp_path / name
    file.write_text(text.replace('"DEEP"', '{"sources":' + "[" * 9_000 + "]" * 9_000 + "}"))
    kubectl("create", "--raw", f"/apis/{names.API_VERSION}/{names.QUEUES}", "-f", str(file))

    def told(kind: str) -> str:
        path = f'{{.status.conditions[?(@.type=="{kind}")]'
        return kubectl("get", names.QUEUES, name, "-o", f"jsonpath={path}.reason}} {path}.message}}")

    words = f"InvalidSpec spec.batch.volumes.0.projected: {TOO_DEEP}; until it is corrected, nothing is admitted"
    wait_for("the queue says so", lambda: told("Valid") == words, seconds=60, last_seen=site.operator.log_tail)
    assert told("Active").startswith("InvalidSpec ")
    merge = json.dumps({"spec": {"batch": None}})
    kubectl("patch", names.QUEUES, name, "--type=merge", "-p", merge)
    wait_for("it is mended", lambda: told("Valid").strip() == "Valid", seconds=60, last_seen=site.operator.log_tail)
    kubectl("delete", names.QUEUES, name)


def test_hostile_runs_neither_end_the_operator_nor_hold_up_others(site: Site, namespace: str, tmp_path: Path) -> None:
    kubectl = site.cluster.kubectl
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}"

    def create(name: str, *details: str) -> bool:
        """Whether the API server takes it."""
        file = tmp_path / name
        file.write_bytes(manifest(name, *details))
        try:
            kubectl("create", "--raw", path, "-f", str(file))
        except KubectlError:
            return False
        return True

    def read(name: str, template: str) -> str:
        """By kubectl, as Python counts to 1,000 levels."""
        return kubectl("-n", namespace, "get", names.RUNS, name, "-o", f"jsonpath={template}")

    def accepted(name: str) -> list[str]:
        """Status, reason and message of the condition; empty before there is one."""
        found = '.status.conditions[?(@.type=="Accepted")]'
        words = read(name, "|".join(f"{{{found}.{field}}}" for field in ("status", "reason", "message")))
        return words.split("|", 2) if words != "||" else []

    process, starts = site.operator.pid, site.operator.starts
    big = json.dumps({"spec": {"unheardOf": "x" * 2**20}})
    assert create("deep", '{"a":' * 9_000 + "1" + "}" * 9_000)
    assert create("big", big)
    takes_no_text = create("no-text", "{}", "\xff\xfe")
    begun = time.monotonic()
    assert create("plain", "{}")
    wait_for("another is accepted", lambda: accepted("plain")[:1] == ["True"], seconds=AT_MOST, every=0.1)
    print(f"another was accepted after {time.monotonic() - begun:.1f} s")

    told = ["False", "InvalidSpec", f"spec.podTemplate: {TOO_DEEP}"]
    wait_for("the deep one is told", lambda: accepted("deep") == told, seconds=60, last_seen=site.operator.log_tail)
    wait_for("the big one is told", lambda: accepted("big"), seconds=60, last_seen=site.operator.log_tail)
    if takes_no_text:  # some put other letters in the place of what is no text
        wait_for("the other one is told", lambda: accepted("no-text"), seconds=60, last_seen=site.operator.log_tail)
        stored = read("no-text", "{.spec.command[0]}")
        assert "\N{REPLACEMENT CHARACTER}" in stored or accepted("no-text")[2] == f"spec: {UNREADABLE}"
    assert (site.operator.pid, site.operator.starts) == (process, starts)

    for name in ("deep", "big", "plain"):
        assert read(name, "{.metadata.finalizers}{.metadata.annotations}") == ""
    events = site.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    assert "kopf" not in json.dumps(events)
    kubectl("-n", namespace, "delete", names.RUNS, "--all")
