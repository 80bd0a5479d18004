"""Kubernetes' own quotas hold how many runs and arrays a namespace may have, on a real API server."""

from __future__ import annotations

import itertools
import json

import pytest

from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.errors import KubectlError
from lockstep.api.base import names

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]

RUN = {"nodes": 1, "image": "i", "command": ["c"], "suspend": True}
SPECS = {"TrainingRun": RUN, "TrainingRunSet": {"indices": "0", "template": {"spec": {**RUN, "suspend": False}}}}
PLURALS = {"TrainingRun": names.RUNS, "TrainingRunSet": names.RUN_SETS}
COUNTED = {f"count/{plural}.{names.GROUP}": "2" for plural in PLURALS.values()}


def refusal(cluster: LocalCluster, namespace: str, kind: str, name: str) -> str:
    """The words of the API server; empty when it was taken."""
    body = {"apiVersion": f"{names.GROUP}/{names.VERSION}", "kind": kind, "spec": SPECS[kind]}
    body["metadata"] = {"name": name, "namespace": namespace}
    try:
        cluster.kubectl("create", "-f", "-", input=json.dumps(body))
    except KubectlError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", SPECS)
def test_a_namespace_that_may_have_two_gets_no_third(cluster: LocalCluster, namespace: str, kind: str) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": COUNTED}}
    quota["metadata"] = {"name": "runs", "namespace": namespace}
    cluster.kubectl("create", "-f", "-", input=json.dumps(quota))
    # Kubernetes' own controller writes this too, about a minute after it has heard of a new kind.
    counted = json.dumps({"status": {"hard": COUNTED, "used": dict.fromkeys(COUNTED, "0")}})
    cluster.kubectl("patch", "quota", "runs", "-n", namespace, "--subresource=status", "--type=merge", "-p", counted)
    # The API server's view of quotas is a cache, and where it is empty it counts nothing.
    tries = (f"try-{number}" for number in itertools.count())
    wait_for("the quota counts", lambda: refusal(cluster, namespace, kind, next(tries)), seconds=60)
    used = cluster.kubectl("get", "quota", "runs", "-n", namespace, "-o", "jsonpath={.status.used}")
    assert int(json.loads(used)[f"count/{PLURALS[kind]}.{names.GROUP}"]) >= 2
    assert "exceeded quota: runs" in refusal(cluster, namespace, kind, "one-more")
