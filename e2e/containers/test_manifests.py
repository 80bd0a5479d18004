"""Every file of manifests/ can be applied as it is, and the operator takes it in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from containers.site import KindSite
from harness.kube import create_namespace
from harness.waiting import wait_for
from localcluster.build import REPOSITORY

pytestmark = pytest.mark.containers
SECONDS = 240.0
MANIFESTS = sorted((REPOSITORY / "manifests").glob("*.yaml"))
INSTALLED = ("install", "operator")  # by the chart here, as the same objects
NAMESPACE = "examples"
RUN_KINDS = ("TrainingRun", "TrainingRunSet")


@pytest.fixture(scope="module", autouse=True)
def namespace(training_site: KindSite) -> Iterator[None]:
    """One of their own, gone afterwards with all that is in it."""
    create_namespace(training_site.world.kubectl, NAMESPACE)
    yield
    training_site.world.kubectl("delete", "namespace", NAMESPACE, "--timeout=300s")


@pytest.mark.parametrize("manifest", [path for path in MANIFESTS if path.stem not in INSTALLED], ids=lambda p: p.stem)
def test_an_example_is_applied_and_taken_in(site: KindSite, manifest: Path) -> None:
    kubectl = site.world.kubectl
    documents = [document for document in yaml.safe_load_all(manifest.read_text()) if document]
    applied = kubectl("apply", "-n", NAMESPACE, "-f", str(manifest))
    assert len(applied.splitlines()) == len(documents)
    try:
        for document in documents:
            if document["kind"] in RUN_KINDS:
                wait_for(
                    f"{manifest.name} is taken in",
                    lambda which=document: status(site, which),
                    seconds=SECONDS,
                    last_seen=lambda: site.world.operator.log_tail(5),
                )
    finally:
        kubectl("delete", "-n", NAMESPACE, "--ignore-not-found", "--timeout=180s", "-f", str(manifest))


def status(site: KindSite, document: dict[str, Any]) -> dict[str, Any]:
    """What the operator has written about one of its objects."""
    name = document["metadata"]["name"]
    found = site.world.kubectl.json("get", document["kind"].lower(), name, "-n", NAMESPACE)
    return dict(found.get("status", {}))


@pytest.mark.parametrize("name", INSTALLED)
def test_what_installs_the_operator_without_helm_is_taken_as_it_is(site: KindSite, name: str) -> None:
    manifest = str(REPOSITORY / "manifests" / f"{name}.yaml")
    said = site.world.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", manifest)
    assert "serverside-applied" in said
