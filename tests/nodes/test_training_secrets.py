"""What a program knows and prints stays out of everything that others than its namespace's readers of logs can see."""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

import pytest

from harness.kube import OPERATOR_NAMESPACE
from harness.site import TLS_SECRET
from harness.training import NAMESPACE, TrainingRun, TrainingSite
from localcluster.api import Request

pytestmark = pytest.mark.nodes
CANARY = "hf_tHeCanaryThatSingsWhenItGetsOut"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets"
PRINTS_IT = "import os, sys; sys.exit(f'cannot log in with {os.environ[\"HF_TOKEN\"]}')"
KINDS = ("trainingruns", "events.events.k8s.io", "pods", "configmaps", "nodes", "leases")


def printing(site: TrainingSite, name: str, canary: str, **spec: Any) -> TrainingRun:
    """A run whose program prints a token that it has from a Secret, and fails."""
    secret = {"metadata": {"name": name}, "stringData": {"token": canary}}
    site.world.cluster.api.send(Request("POST", SECRET, {"apiVersion": "v1", "kind": "Secret", **secret}))
    reference = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}}}
    run = site.apply(name, 2, ["python3", "-c", PRINTS_IT], env=[reference], **spec)
    run.wait_until_finished()
    return run


def test_a_token_that_a_failing_program_prints_is_in_no_object_no_metric_and_no_log_of_the_operator(
    site: TrainingSite,
) -> None:
    api, kubectl = site.world.cluster.api, site.world.kubectl
    run = printing(site, "prints-it", CANARY)
    assert CANARY in run.log(0), "it was not printed, so that nothing is shown here"
    assert "cannot log in with" in json.dumps(run.status), "the end of its output is told"
    # Nobody looks through the output of plain pods before it is told.
    plain = printing(site, "prints-it-plainly", CANARY, worker="Disabled")
    assert plain.attempts[0]["exitCode"] == 1
    assert "cannot log in with" not in json.dumps(plain.status)

    private = base64.b64decode(api.get(TLS_SECRET)["data"]["ca.key"]).decode().splitlines()[1]
    for kind in KINDS:
        for namespace in (NAMESPACE, OPERATOR_NAMESPACE, "default"):
            told = kubectl("get", kind, "-n", namespace, "-o", "json")
            assert CANARY not in told, f"{kind} in {namespace}"
            assert private not in told, f"{kind} in {namespace}"
    log = site.world.operator.log.read_text(errors="replace")
    metrics = urllib.request.urlopen(f"{site.world.operator.metrics_url}/metrics", timeout=30).read().decode()
    for told in (log, metrics):
        assert CANARY not in told
        assert private not in told
        assert "PRIVATE KEY" not in told
        assert "eyJhbGciOi" not in told, "a service account's token"


def test_the_end_of_a_plain_pods_log_is_told_all_the_same_where_its_user_says_so(site: TrainingSite) -> None:
    trainer = {"name": "trainer", "terminationMessagePolicy": "FallbackToLogsOnError"}
    template = {"spec": {"containers": [trainer]}}
    run = printing(site, "prints-on-purpose", "hf_sung", worker="Disabled", podTemplate=template)
    assert "cannot log in with hf_sung" in json.dumps(run.status)
