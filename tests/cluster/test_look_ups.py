"""What a run names is there before it gets nodes, on a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from harness.site import Run, Site
from localcluster import LocalCluster
from localcluster.api import Request
from lockstep.api.base.times import to_rfc3339
from lockstep.controller.reconcile.look_ups import THERE_SECONDS

pytestmark = pytest.mark.cluster
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@pytest.fixture(scope="module")
def running_site(
    cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    settings = {"lookUp": {"secrets": True}}
    with Site.started(cluster, tmp_path_factory.mktemp("site"), settings) as site:
        yield site


def make(site: Site, namespace: str, plural: str, kind: str, name: str) -> None:
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
    site.cluster.api.send(Request("POST", f"/api/v1/namespaces/{namespace}/{plural}", body))


def refused(run: Run, reason: str) -> str:
    """The words, once it is refused for that."""
    run.wait(f"it is refused: {reason}", lambda: run.condition("Accepted").get("reason") == reason)
    assert run.condition("Accepted")["status"] == "False"
    return str(run.condition("Accepted")["message"])


def test_a_run_that_names_what_is_not_there_books_no_node_and_goes_on_by_itself_once_all_of_it_is(
    site: Site, namespace: str
) -> None:
    site.make_claim(namespace, "lustre")
    run = site.apply(
        namespace,
        "llama",
        nodes=2,
        serviceAccountName="trainer",
        checkpoint={"shared": {"claimName": "lustr"}},
        volumes=[{"name": "code", "mountPath": "/code", "configMap": {"name": "code"}}],
        envFrom=[{"secretRef": {"name": "keys"}}, {"secretRef": {"name": "maybe", "optional": True}}],
    )
    words = refused(run, "ServiceAccountNotFound")
    for told in (
        f"spec.serviceAccountName: there is no ServiceAccount trainer in namespace {namespace}; create it",
        "spec.checkpoint.shared.claimName: there is no PersistentVolumeClaim lustr",
        "did you mean lustre?",
        "spec.volumes[0].configMap.name: there is no ConfigMap code",
        "spec.envFrom[0].secretRef.name: there is no Secret keys",
    ):
        assert told in words
    assert "maybe" not in words
    make(site, namespace, "serviceaccounts", "ServiceAccount", "trainer")
    assert "ServiceAccount" not in refused(run, "SecretNotFound")
    make(site, namespace, "configmaps", "ConfigMap", "code")
    make(site, namespace, "secrets", "Secret", "keys")
    run.wait("the claim alone is missing", lambda: "ConfigMap" not in run.condition("Accepted")["message"])
    refused(run, "ClaimNotFound")
    assert run.pods == []
    assert not run.status.get("assignment")
    site.make_claim(namespace, "lustr")
    run.wait_until_running(1)
    assert run.condition("Accepted")["status"] == "True"
    run.delete()


def test_a_run_that_wants_an_entry_which_its_config_map_lacks_waits_for_it_without_nodes(
    site: Site, namespace: str
) -> None:
    code = f"/api/v1/namespaces/{namespace}/configmaps/code"
    make(site, namespace, "configmaps", "ConfigMap", "code")
    patch = partial(Request, "PATCH", code, content_type="application/merge-patch+json")
    site.cluster.api.send(patch({"data": {"train.py": "print(1)"}}))
    items = [{"key": "trian.py", "path": "train.py"}]
    code_volume = {"name": "code", "mountPath": "/code", "configMap": {"name": "code", "items": items}}
    run = site.apply(namespace, "llama", nodes=1, volumes=[code_volume])
    words = refused(run, "ConfigMapKeyNotFound")
    assert "spec.volumes[0].configMap.items[0].key" in words
    assert f"ConfigMap code in namespace {namespace} has no key trian.py; did you mean train.py?" in words
    assert run.pods == []
    site.cluster.api.send(patch({"data": {"trian.py": "print(1)"}}))
    run.wait_until_running(1)
    run.delete()


def test_a_claim_that_goes_away_while_its_run_waits_is_missed_before_the_run_gets_nodes(
    site: Site, namespace: str
) -> None:
    site.make_claim(namespace, "lustre")
    run = site.apply(
        namespace,
        "llama",
        nodes=1,
        notBefore=to_rfc3339(time.time() + THERE_SECONDS + 5),
        checkpoint={"shared": {"claimName": "lustre"}},
    )
    run.wait("it is accepted", lambda: run.condition("Accepted").get("status") == "True")
    site.cluster.api.send(Request("DELETE", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/lustre"))
    assert "there is no PersistentVolumeClaim lustre" in refused(run, "ClaimNotFound")
    assert run.pods == []
    assert not run.status.get("assignment")
    run.delete()


def test_the_class_of_an_ephemeral_claim_is_looked_up_too(site: Site, namespace: str) -> None:
    classes = [f"{namespace}-fast", f"{namespace}-fsat"]
    body: dict[str, Any] = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "provisioner": "example.com/none",
    }
    site.cluster.api.send(Request("POST", CLASSES, body | {"metadata": {"name": classes[0]}}))
    try:
        asked = {"storageClassName": classes[1], "accessModes": ["ReadWriteOnce"]}
        asked["resources"] = {"requests": {"storage": "1Gi"}}
        volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": asked}}}
        run = site.apply(namespace, "llama", nodes=1, suspend=True, podTemplate={"spec": {"volumes": [volume]}})
        words = refused(run, "StorageClassNotFound")
        assert f"there is no StorageClass {classes[1]}; did you mean {classes[0]}?" in words
        site.cluster.api.send(Request("POST", CLASSES, body | {"metadata": {"name": classes[1]}}))
        run.wait("it is accepted", lambda: run.condition("Accepted")["status"] == "True")
        run.delete()
    finally:
        for name in classes:
            site.cluster.api.send(Request("DELETE", f"{CLASSES}/{name}", absence_is_fine=True))
