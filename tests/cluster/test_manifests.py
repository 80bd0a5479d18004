"""The CRDs and the examples are taken by a real API server as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster.api import Request
from localcluster.cluster import LocalCluster
from lockstep.api.base.fields import ApiType, fields_of
from lockstep.api.base.schema import ApiModel, DateTime
from lockstep.api.v1alpha1 import TrainingRun, TrainingRunStatus
from lockstep.core.pods.validation import validate

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]

ROOT = Path(__file__).parents[2]
# What is made from the chart is no example: it brings its namespace with it. See tests/chart.
INSTALLING = ("install", "operator", "operator-kueue", "operator-look-up", "operator-pod-groups", "operator-scale-up")
EXAMPLES = sorted(path for path in (ROOT / "manifests").glob("*.yaml") if path.stem not in INSTALLING)


# Whole objects of kinds that are there on any cluster with Lockstep; what is shown of others' is for comparison.
GROUPS = {"lockstep.dev", "rbac.authorization.k8s.io", "scheduling.k8s.io", "v1"}


def shown_on(page: Path) -> list[dict[str, Any]]:
    blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    parsed = [document for block in blocks for document in yaml.safe_load_all(block) if isinstance(document, dict)]
    return [found for found in parsed if found.get("kind") and found["apiVersion"].partition("/")[0] in GROUPS]


PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if shown_on(page)]


def documents(manifest: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(manifest.read_text()) if document]


@pytest.mark.parametrize("manifest", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_taken_by_the_api_server_and_by_the_operator(
    cluster: LocalCluster, namespace: str, manifest: Path
) -> None:
    said = cluster.kubectl("apply", "--namespace", namespace, "--dry-run=server", "-f", str(manifest))
    assert said.count("created") == len(documents(manifest))
    for document in documents(manifest):
        if document["kind"] == "TrainingRun":
            assert validate(TrainingRun.model_validate(document).spec, {}) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_what_a_page_shows_is_taken_as_well(cluster: LocalCluster, namespace: str, page: Path, tmp_path: Path) -> None:
    shown = shown_on(page)
    for document in shown:
        document["metadata"].pop("namespace", None)
        if document["kind"] == "TrainingRun":
            assert validate(TrainingRun.model_validate(document).spec, {}) == []
    file = tmp_path / "shown.yaml"
    file.write_text(yaml.safe_dump_all(shown))
    said = cluster.kubectl("apply", "--namespace", namespace, "--dry-run=server", "-f", str(file))
    assert len(said.splitlines()) == len(shown)


def test_the_shortest_run_is_seven_lines() -> None:
    assert len((ROOT / "manifests/hello.yaml").read_text().splitlines()) == 7


def test_the_crds_fit_a_plain_kubectl_apply(cluster: LocalCluster) -> None:
    """Not server-side: the whole CRD must fit into an annotation as well."""
    for crd in sorted((ROOT / "crds").glob("*.yaml")):
        assert "customresourcedefinition" in cluster.kubectl("apply", "--dry-run=server", "-f", str(crd))


def test_a_run_is_found_by_its_queue_and_shown_in_columns(cluster: LocalCluster, namespace: str) -> None:
    cluster.kubectl("apply", "--namespace", namespace, "-f", str(ROOT / "manifests/hello.yaml"))
    found = cluster.kubectl("get", "trun", "--namespace", namespace, "--field-selector", "spec.queue=default")
    header, row = found.splitlines()
    assert header.split() == [
        "NAME", "STATE", "REASON", "NODES", "STEP", "STEP-AGE", "ATTEMPT", "QUEUE", "USER", "AGE",
    ]  # fmt: skip
    assert row.split()[0] == "hello"


def test_a_status_with_every_field_comes_back_as_it_was_written(cluster: LocalCluster, namespace: str) -> None:
    """What the schema does not know would be dropped without a word."""
    cluster.kubectl("apply", "--namespace", namespace, "-f", str(ROOT / "manifests/hello.yaml"))
    status = full(TrainingRunStatus)
    path = f"/apis/lockstep.dev/v1alpha1/namespaces/{namespace}/trainingruns/hello"
    patch = {"status": status.dump()}
    written = cluster.api.send(
        Request("PATCH", f"{path}/status?fieldValidation=Strict", patch, "application/merge-patch+json")
    )
    assert TrainingRunStatus.load(written["status"]) == status
    wide = cluster.kubectl("get", "trun", "--namespace", namespace, "-o", "wide").splitlines()
    assert wide[0].split()[-5:] == ["AGE", "LOSS", "SAVED", "RESUMED", "RANK0"]
    assert wide[1].split()[-4:] == ["word", "7", "7", "word"]


def full(model: type[ApiModel]) -> Any:
    """An instance with something in every field."""
    return model.model_validate({field.name: sample(field.type) for field in fields_of(model)})


def sample(of: ApiType) -> Any:
    if of.one(DateTime):
        return "2026-12-01T00:00:00Z"
    if of.choices:
        return of.choices[0]
    if of.model is not None:
        return full(of.model)
    if of.item is not None:
        held = sample(of.item)
        return {"a": held} if of.bare.__origin__ is dict else [held]
    return {str: "word", int: 7, bool: True}[of.bare]
