"""docs/security.md on a real API server: which level of Pod Security lets which run pass, and what it says else."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.site import Run, Site
from harness.waiting import wait_for
from lockstep.api.base import names

pytestmark = pytest.mark.cluster

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "security.md").read_text()
RUNBOOKS = (DOCS / "runbooks.md").read_text()
PATIENCE = 120.0
BARE: dict[str, Any] = {"checkpoint": None}
ON_PODS = BARE | {"network": "Pod"}
LOCAL = {"network": "Pod", "checkpoint": {"local": {"storage": "nvme"}}}


def of_the_page() -> dict[str, Any]:
    """The example for `restricted`."""
    example = re.search(r"For `restricted`:\n\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    spec: dict[str, Any] = yaml.safe_load(example[1])["spec"]
    return BARE | spec


def asked(site: Site, namespace: str, name: str, **spec: Any) -> tuple[str, str]:
    """Status and message of Accepted; pods are made of what is accepted."""
    run = site.apply(namespace, name, 1, **spec)
    answer = run.wait("it is answered", lambda: answered(run), PATIENCE)
    if answer["status"] == "True":
        run.wait("its pod is made", lambda: run.pods, PATIENCE)
    else:
        assert run.pods == []
    run.delete()
    return answer["reason"], answer["message"]


def answered(run: Run) -> dict[str, Any]:
    answer = run.condition("Accepted")
    return answer if answer.get("status") in ("True", "False") else {}


def enforce(site: Site, namespace: str, level: str) -> None:
    site.cluster.kubectl("label", "--overwrite", "namespace", namespace, f"{names.LABEL_POD_SECURITY}={level}")


def test_a_run_needs_the_level_that_the_page_says(site: Site, namespace: str) -> None:
    enforce(site, namespace, "restricted")
    reason, words = asked(site, namespace, "r-pod", **ON_PODS)
    assert reason == "PodRefused"
    assert "violates PodSecurity" in words
    assert asked(site, namespace, "r-example", **of_the_page())[0] == "Accepted"

    enforce(site, namespace, "baseline")
    assert asked(site, namespace, "b-pod", **ON_PODS)[0] == "Accepted"
    reason, words = asked(site, namespace, "b-host", **BARE)
    assert (reason, "set spec.network: Pod" in words) == ("PodRefused", True)
    reason, words = asked(site, namespace, "b-local", **LOCAL)
    assert (reason, "leave out spec.checkpoint.local" in words) == ("PodRefused", True)

    enforce(site, namespace, "privileged")
    assert asked(site, namespace, "p-host", **BARE)[0] == "Accepted"
    assert asked(site, namespace, "p-local", **LOCAL)[0] == "Accepted"


def forbidden(site: Site, verb: str) -> float:
    """Pods that the API server did not let the operator create, which LockstepMayNot counts, or refused to try."""
    labels = (("code", "403"), ("resource", "pods"), ("verb", verb))
    return site.operator.metrics().get("lockstep_api_requests_total", {}).get(labels, 0.0)


def create(site: Site, namespace: str, body: dict[str, Any]) -> None:
    body = {"apiVersion": "v1", "metadata": {"name": "of-the-test", "namespace": namespace}, **body}
    site.cluster.kubectl("create", "-f", "-", input=json.dumps(body))


def test_what_a_namespace_refuses_is_in_the_runbook_and_rings_nobody_where_it_is_only_tried(
    site: Site, namespace: str
) -> None:
    (section,) = re.findall(r"^## LockstepMayNot\n(.*?)^## ", RUNBOOKS, re.MULTILINE | re.DOTALL)
    known = re.findall(r"`([^`]+)`", "".join(line.split("|")[1] for line in section.splitlines() if "| `" in line))

    def refused(name: str, **spec: Any) -> str:
        created, tried = forbidden(site, "create"), forbidden(site, "try")
        reason, words = asked(site, namespace, name, **spec)
        assert forbidden(site, "create") == created
        assert forbidden(site, "try") > tried
        if reason == "ServiceAccountNotFound":  # in words of our own
            return words
        assert reason == "PodRefused"
        assert [phrase for phrase in known if phrase in words], words
        return words

    enforce(site, namespace, "baseline")
    assert "violates PodSecurity" in refused("levels", **BARE)
    account = {"podTemplate": {"spec": {"serviceAccountName": "nobody"}}}
    assert "there is no ServiceAccount nobody" in refused("accounts", **account, **ON_PODS)
    limits = {"kind": "LimitRange", "spec": {"limits": [{"type": "Container", "min": {"memory": "1Ti"}}]}}
    create(site, namespace, limits)
    tries = (f"limits-{number}" for number in itertools.count())  # until the API server's view of them is new
    wait_for(
        "the limits count",
        lambda: asked(site, namespace, next(tries), **ON_PODS)[0] == "PodRefused",
        seconds=PATIENCE,
    )
    assert "per Container" in refused("limits", **ON_PODS)


def test_what_the_api_server_would_let_the_operator_do_is_refused_to_its_user(site: Site, namespace: str) -> None:
    root = {"name": "root", "hostPath": {"path": "/"}}
    init = {"name": "i", "image": "i", "command": ["c"], "securityContext": {"privileged": True}}
    template = {"spec": {"initContainers": [init], "volumes": [root]}}
    reason, words = asked(site, namespace, "deputy", podTemplate=template, **ON_PODS)
    assert reason == "InvalidSpec"
    assert "spec.podTemplate.spec.volumes[0].hostPath: a path of the node needs a namespace labelled" in words
    assert "spec.podTemplate.spec.initContainers[0].securityContext.privileged: a privileged container" in words

    site.cluster.kubectl("label", "namespace", namespace, f"{names.LABEL_ALLOW_PRIVILEGED}=true")
    tries = (f"opened-{number}" for number in itertools.count())  # until the operator has heard of the label
    wait_for(
        "the label counts",
        lambda: asked(site, namespace, next(tries), podTemplate=template, **ON_PODS)[0] == "Accepted",
        seconds=PATIENCE,
    )
