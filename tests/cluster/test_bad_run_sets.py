"""What users get wrong about arrays, and the words they get back from the API server."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import ApiError
from lockstep.api.base import names

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]

Json = dict[str, Any]
RUN: Json = {"nodes": 1, "image": "trainer", "command": ["train"]}
SHARED = {"layout": "Shared", "shared": {"claimName": "lustre", "path": "team/sweep"}}


def template(metadata: Json | None = None, **spec: Any) -> Json:
    return {"template": {"metadata": metadata or {}, "spec": RUN | spec}}


BAD: dict[str, tuple[Json, str, str]] = {
    "Slurm's width in the indices": ({"indices": "0-99%8"}, "spec.indices", "the %8 of Slurm is maxRunning: 8"),
    "no index at all": ({"indices": ""}, "spec.indices", "at least 1 chars"),
    "an index that is none": ({"indices": "0-9,x"}, "spec.indices", "write indices as 0-99"),
    "a range that goes down": ({"indices": "9-0"}, "spec.indices", "a range goes up"),
    "an index that is too high": ({"indices": "0,100000"}, "spec.indices", "of five digits at most"),
    "more indices than a set has": ({"indices": "0-10000"}, "spec.indices", "more than 10000 indices"),
    "a step of none": ({"indices": "0-9:0"}, "spec.indices", "write indices as 0-99"),
    "no template": ({"template": None}, "spec.template", "Required value"),
    "a run without nodes": (template(nodes=0), "spec.template.spec.nodes", "greater than or equal to 1"),
    "a misspelt field of the run": (template(gpuPerNode=8), "spec.template.spec.gpuPerNode", "unknown field"),
    "torchrun twice": (
        template(command=["torchrun", "t.py"], launcher={"type": "Torchrun"}),
        "spec.template.spec.command",
        "starts torchrun itself",
    ),
    "a suspended template": (template(suspend=True), "spec.template.spec", "is the set's to say"),
    "a cancelled template": (template(cancel=True), "spec.template.spec", "is the set's to say"),
    "one directory for all": (template(checkpoint=SHARED), "spec.template.spec.checkpoint", "$(LOCKSTEP_ARRAY_INDEX)"),
    "a label of ours": (
        template({"labels": {names.LABEL_INDEX: "7"}}),
        "spec.template.metadata.labels",
        "are Lockstep's to set",
    ),
    "an annotation of ours": (
        template({"annotations": {names.ANNOTATION_TEST_ONLY: "true"}}),
        "spec.template.metadata.annotations",
        "are Lockstep's to set",
    ),
    "after itself": ({"afterCorr": "sweep"}, "", "a set cannot come after itself"),
    "no failure at all": ({"stopOnFailure": {"failures": 0}}, "spec.stopOnFailure.failures", "greater than or equal"),
    "indices to cancel that are none": ({"cancelIndices": "some"}, "spec.cancelIndices", "write indices as 0-99"),
    "a duration in seconds": ({"ttlAfterFinished": "600"}, "spec.ttlAfterFinished", "write a duration as 90s"),
}
BAD_CHANGES: dict[str, tuple[Json, str, str]] = {
    "other indices": ({"indices": "0-9"}, "spec.indices", "never changes after creation"),
    "cancel taken back": ({"cancel": False}, "spec.cancel", "cancel is one-way"),
}
GOOD_CHANGES: dict[str, Json] = {
    "a width": {"maxRunning": 3},
    "no width": {"maxRunning": None},
    "another image for those to come": template(image="trainer:2", nodes=2),
    "a dependency": {"afterCorr": "before"},
    "suspended": {"suspend": True},
    "indices to cancel": {"cancelIndices": "3,5-7"},
}


def path(namespace: str, name: str = "") -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUN_SETS}" + (f"/{name}" if name else "")


def run_set(name: str = "sweep", **spec: Any) -> Json:
    written = deepcopy({"indices": "0-99:2,7", **template()} | spec)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_SET_KIND,
        "metadata": {"name": name},
        "spec": {field: value for field, value in written.items() if value is not None},
    }


def refusal(cluster: LocalCluster, request: Request) -> str:
    """The API server's words, empty when it agrees."""
    try:
        cluster.api.send(request)
    except ApiError as error:
        return str(error)
    return ""


def create(namespace: str, body: Json) -> Request:
    return Request("POST", f"{path(namespace)}?fieldValidation=Strict", body)


@pytest.mark.parametrize("mistake", BAD)
def test_a_bad_array_is_refused_with_field_and_remedy(cluster: LocalCluster, namespace: str, mistake: str) -> None:
    spec, field, remedy = BAD[mistake]
    words = refusal(cluster, create(namespace, run_set(**spec)))
    assert field in words
    assert remedy in words


@pytest.mark.parametrize("name", ["a" * 35, "Sweep", "sweep.1"])
def test_a_name_that_runs_cannot_be_named_after_is_refused(cluster: LocalCluster, namespace: str, name: str) -> None:
    words = refusal(cluster, create(namespace, run_set(name)))
    assert "at most 34 lower case letters" in words or "RFC 1123" in words


@pytest.mark.parametrize("indices", ["0", "0-9999", "99999", "0-99999:10", "1,3,7-9", "00-09", "5-5"])
def test_indices_are_taken_as_slurm_writes_them(cluster: LocalCluster, namespace: str, indices: str) -> None:
    assert refusal(cluster, create(namespace, run_set(indices=indices))) == ""


@pytest.mark.parametrize("change", BAD_CHANGES)
def test_a_change_that_an_array_cannot_take_is_refused(cluster: LocalCluster, namespace: str, change: str) -> None:
    patch, field, remedy = BAD_CHANGES[change]
    cluster.api.send(create(namespace, run_set(cancel=True)))
    words = refusal(cluster, Request("PATCH", path(namespace, "sweep"), {"spec": patch}, MERGE_PATCH))
    assert field in words
    assert remedy in words


@pytest.mark.parametrize("change", GOOD_CHANGES)
def test_a_change_that_counts_from_then_on_is_taken(cluster: LocalCluster, namespace: str, change: str) -> None:
    cluster.api.send(create(namespace, run_set()))
    patch = Request("PATCH", path(namespace, "sweep"), {"spec": GOOD_CHANGES[change]}, MERGE_PATCH)
    assert refusal(cluster, patch) == ""


def test_a_directory_for_each_index_may_be_shared_by_all_attempts(cluster: LocalCluster, namespace: str) -> None:
    shared = {"claimName": "lustre", "path": "team/sweep/$(LOCKSTEP_ARRAY_INDEX)"}
    body = run_set(**template(checkpoint={"layout": "Shared", "shared": shared}))
    assert refusal(cluster, create(namespace, body)) == ""
