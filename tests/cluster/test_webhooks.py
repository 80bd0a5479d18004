"""An admission webhook that does not answer, on a real API server: its words reach whoever waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.site import Site
from localcluster.api import Request

pytestmark = pytest.mark.cluster
PATIENCE = 120.0
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@pytest.fixture
def webhook(site: Site, namespace: str) -> Iterator[str]:
    """The name of one that is yet to be installed, and is gone afterwards."""
    name = f"down-{namespace}"
    yield name
    site.cluster.kubectl("delete", "validatingwebhookconfiguration", name, "--ignore-not-found")


def install(site: Site, name: str, namespace: str) -> None:
    """Have it asked for the pods of the namespace. Nobody listens where it should."""
    hook = {
        "name": "down.lockstep.example",
        "clientConfig": {"url": "https://127.0.0.1:9/validate"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    site.cluster.api.send(Request("POST", HOOKS, {**kind, "metadata": {"name": name}, "webhooks": [hook]}))


def test_a_webhook_that_is_down_is_told_to_new_runs_and_to_gangs_that_train(
    site: Site, namespace: str, webhook: str
) -> None:
    trains = site.apply(namespace, "llama", nodes=2)
    trains.wait_until_running(1, PATIENCE)
    install(site, webhook, namespace)
    waits = site.apply(namespace, "new", nodes=1)

    def is_told() -> bool:
        found = next((each for each in waits.status.get("conditions", []) if each["type"] == "Accepted"), {})
        return (found.get("status"), found.get("reason")) == ("Unknown", "PodNotJudged") and webhook_words(found)

    waits.wait("the new run says who does not answer", is_told, PATIENCE)
    site.cluster.kubectl("-n", namespace, "delete", "pod", trains.pod_name(1, 1), "--wait=false")

    def gang_is_told() -> bool:
        found = next((each for each in trains.status.get("conditions", []) if each["type"] == "GangReady"), {})
        return "its pod is refused" in found.get("message", "") and webhook_words(found)

    trains.wait("the gang says why its pod is not made", gang_is_told, PATIENCE)
    site.cluster.kubectl("delete", "validatingwebhookconfiguration", webhook)
    trains.wait_until_running(2, PATIENCE)
    waits.wait_until_running(1, PATIENCE)
    trains.delete()
    waits.delete()


def webhook_words(condition: dict[str, str]) -> bool:
    """The message has the API server's own."""
    return "failed calling webhook" in condition["message"]
