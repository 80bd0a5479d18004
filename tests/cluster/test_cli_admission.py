"""The verbs about the order, as users who may edit one namespace each, beside an operator at work."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.site import Run, Site
from harness.waiting import wait_for
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names
from support.cli_user import User

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
QUEUE = "private"
QUEUE_PATH = f"/apis/{names.API_VERSION}/{names.QUEUES}"
RUN = ("--image", "registry.example/train:1", "--queue", QUEUE)
COMMAND = ("--", "python", "train.py")


@pytest.fixture
def other_namespace(site: Site) -> Iterator[str]:
    """Of another tenant."""
    name = f"rival-{secrets.token_hex(4)}"
    kubectl = site.cluster.kubectl
    kubectl("create", "namespace", name)
    accounts = ("-n", name, "get", "serviceaccount", "-o", "name")
    wait_for("its service account", lambda: "default" in kubectl(*accounts), seconds=60.0, every=0.1)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def created(site: Site, namespace: str, name: str) -> Run:
    """A run that was submitted."""
    found: dict[str, Any] = site.cluster.api.get(f"{runs_path(namespace)}/{name}")
    return Run(site, namespace, name, found["metadata"]["uid"])


def runs_path(namespace: str) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}"


@pytest.fixture
def private_queue(site: Site) -> Iterator[None]:
    """A queue whose runs are told nothing of other namespaces."""
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.QUEUE_KIND,
        "metadata": {"name": QUEUE},
        "spec": {"visibility": "OwnNamespace"},
    }
    site.cluster.api.send(Request("POST", QUEUE_PATH, body))
    yield
    site.cluster.api.send(Request("DELETE", f"{QUEUE_PATH}/{QUEUE}"))


@pytest.fixture
def administrator(site: Site, namespace: str) -> Iterator[Path]:
    """Who has no rights but those of the role for them."""
    kubectl, account = site.cluster.kubectl, f"--serviceaccount={namespace}:queues"
    kubectl("-n", namespace, "create", "serviceaccount", "queues")
    kubectl("create", "clusterrolebinding", namespace, "--clusterrole=lockstep-queue-admin", account)
    yield site.cluster.kubeconfig_for_service_account(namespace, "queues")
    kubectl("delete", "clusterrolebinding", namespace)


def test_every_verb_works_with_rights_in_one_namespace_and_tells_nothing_of_others(
    site: Site,
    namespace: str,
    other_namespace: str,
    private_queue: None,
    administrator: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api = site.cluster.api
    rival, user = User(site, other_namespace, capsys), User(site, namespace, capsys)
    rival.types("submit", "--name", "hush", "--nodes", "6", "-t", "2h", *RUN, *COMMAND)
    secret = created(site, other_namespace, "hush")
    secret.wait_until_running(1)
    annotations = api.get(secret.path)["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_USER] == f"system:serviceaccount:{other_namespace}:user"

    said = user.types("submit", "--nodes", "2", "--name", "later", *RUN, "-t", "1h", "--test-only", *COMMAND)
    assert "later would start in " in said
    assert "if every run uses its whole time limit" in said
    assert api.get(runs_path(namespace))["items"] == [], "the question is gone"
    user.types("submit", "--nodes", "60", *RUN, "--test-only", *COMMAND, code=1)
    assert "would not start: Placement: needs 60 nodes" in user.notes

    user.types("submit", "--name", "first", "--nodes", "2", "-t", "1h", "--nice", "3", *RUN, *COMMAND)
    user.types("submit", "--name", "second", "--hold", "--dependency", "afterok:first", *RUN, *COMMAND)
    first, second = created(site, namespace, "first"), created(site, namespace, "second")
    first.wait("it is told when it starts", lambda: "estimatedStart" in first.status.get("queue", {}))
    second.wait("it is held", lambda: first.is_true("Accepted") and second.is_true("Suspended"))
    told = [user.types("queue", "-o", "wide"), user.types("queue", "--start"), user.types("prio")]
    told += [user.types(verb, "first") for verb in ("info", "explain", "events", "prio")]
    assert "in " in told[0]
    assert json.loads(user.types("queue", "--start", "-o", "json"))["items"][0]["status"]["queue"]["position"] == 1
    assert "-3" in told[2].split()
    assert "Starts:" in told[3]
    assert "It is expected to start in " in told[4]
    assert "you may not read the nodes" in told[4]
    everything = "\n".join(told) + user.types("queue", "-o", "json")
    assert "hush" not in everything
    assert other_namespace not in everything

    user.types("release", "second")
    second.wait("it waits for the first", lambda: second.status.get("queue", {}).get("reason") == "Dependency")
    user.types("hold", "first")
    first.wait("it is held", lambda: first.is_true("Suspended"))
    user.types("release", "first")
    assert user.types("hold", "nope", code=1) == ""
    for words in (("queues",), ("queue", "-A"), ("prio", "-A"), ("hold", "first", "--queue")):
        user.types(*words, code=1)
        assert "forbidden" in user.notes
        assert "hush" not in user.notes

    assert "hush" in user.types("nodes", kubeconfig=administrator)
    user.types("hold", "first", "-n", namespace, "--queue", kubeconfig=administrator)
    first.wait("it is held back", lambda: first.status.get("queue", {}).get("reason") == "HeldByAdministrator")
    user.types("release", "first", code=1)
    assert "an administrator holds first back" in user.notes
    user.types("release", "first", "-n", namespace, "--queue", kubeconfig=administrator)
    assert QUEUE in user.types("queues", kubeconfig=administrator)
    assert "other" not in user.types("prio", "first", "-n", namespace, kubeconfig=administrator)

    rival.types("hold", "hush", code=1)
    assert "it is Running: hold would stop it" in rival.notes
    rival.types("cancel", "hush")
    first.wait_until_running(1)
    assert "Its time: 1h, until " in user.types("explain", "first")
    user.types("requeue", "first")
    first.wait("it queues again", lambda: first.status["attempt"] > 1 or not first.pods, 60.0)
    for name in ("second", "first"):
        user.types("cancel", name)
    for run in (first, second, secret):
        run.wait_until_finished()


def test_a_question_that_nobody_takes_away_is_answered_and_gets_nothing(site: Site, namespace: str) -> None:
    other = site.apply(namespace, "other", nodes=1)
    other.wait_until_running(1)  # now the operator has seen the nodes
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "metadata": {"name": "asked", "annotations": {names.ANNOTATION_TEST_ONLY: "true"}},
        "spec": {"nodes": 2, "image": "trainer", "command": ["train"]},
    }
    site.cluster.api.send(Request("POST", runs_path(namespace), body))
    asked = created(site, namespace, "asked")
    asked.wait("it is answered", lambda: "testOnly" in asked.status)
    answer = asked.status["testOnly"]
    assert len(answer["nodes"]) == 2
    assert answer["start"] == answer["at"]
    assert asked.pods == []
    assert asked.status["state"] == "Pending"
    asked.wait("the column says so", lambda: asked.status["reason"] == "TestOnly")
    patch = {"metadata": {"annotations": {names.ANNOTATION_TEST_ONLY: None}}}
    site.cluster.api.send(Request("PATCH", asked.path, patch, MERGE_PATCH))
    asked.wait_until_running(1)
    for run in (asked, other):
        run.delete()
