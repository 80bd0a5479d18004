"""Changes that a run with nodes, or one that has ended, cannot take, the words that come back, and what it can."""

from __future__ import annotations

from typing import Any

import pytest

from localcluster.api import MERGE_PATCH, Request
from localcluster.cluster import LocalCluster
from localcluster.errors import ApiError
from support.bad_specs import BAD_SPECS
from support.good_specs import refusal, run, runs, saving, spec

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]

# what is wrong -> the field changed from, to; the refusal's field and words
BAD_CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "another launcher": (
        spec(),
        spec(launcher={"type": "JAX"}, suspend=True),
        "spec.launcher.type",
        "create a new run instead",
    ),
    "a tier added": (
        spec(),
        spec(checkpoint={"shared": {"claimName": "lustre"}}, suspend=True),
        "spec.checkpoint.shared",
        "create a new run instead",
    ),
    "a tier moved": (
        spec(checkpoint={"shared": {"claimName": "lustre"}}),
        spec(checkpoint={"shared": {"claimName": "gpfs"}}, suspend=True),
        "spec.checkpoint.shared",
        "create a new run instead",
    ),
    "a local tier added": (
        saving(),
        saving(local={"storage": "nvme"}) | {"suspend": True},
        "spec.checkpoint.local.storage",
        "create a new run instead",
    ),
    "a local tier taken away": (
        saving(local={"storage": "nvme"}),
        saving() | {"suspend": True},
        "spec.checkpoint.local.storage",
        "create a new run instead",
    ),
    "a local tier moved": (
        saving(local={"storage": "nvme"}),
        saving(local={"storage": "ssd"}) | {"suspend": True},
        "spec.checkpoint.local.storage",
        "create a new run instead",
    ),
    "another image while it runs": (spec(), spec(image="other"), "spec.image", "set suspend: true"),
    "more GPUs while it runs": (spec(gpusPerNode=4), spec(gpusPerNode=8), "spec.gpusPerNode", "set suspend: true"),
    "a variable while it runs": (
        spec(env=[{"name": "A", "value": "1"}]),
        spec(env=[{"name": "A", "value": "2"}]),
        "spec.env",
        "set suspend: true",
    ),
    "a pod template while it runs": (
        spec(podTemplate={"spec": {"schedulerName": "a"}}),
        spec(podTemplate={"spec": {"schedulerName": "b"}}),
        "spec.podTemplate",
        "set suspend: true",
    ),
    "a placement while it runs": (
        spec(),
        spec(placement={"gpuTypes": ["H100"]}),
        "spec.placement.gpuTypes",
        "set suspend: true",
    ),
    "a cancel taken back": (spec(cancel=True), spec(), "spec.cancel", "lockstep retry makes a new one"),
}

GOOD_CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "suspending with another image": (spec(), spec(suspend=True, image="other")),
    "resuming with another image": (spec(suspend=True), spec(image="other")),
    "cancelling": (spec(), spec(cancel=True)),
    "excluding a node": (spec(), spec(placement={"excludeNodes": ["gpu-0017"]})),
    "giving up later": (spec(), spec(recovery={"noProgressLimit": 9, "maxRestarts": 20})),
    "writing out what a group left out stands for": (spec(), spec(launcher={"type": "Plain"}, onTimeLimit={})),
    "writing out where a run with checkpoints starts": (saving(), saving(start={"mode": "Auto"})),
    "leaving out again what was written out": (saving(start={"mode": "Auto"}), saving()),
    "keeping more local checkpoints": (
        saving(local={"storage": "nvme"}),
        saving(local={"storage": "nvme", "keepLast": 5}),
    ),
    "keeping all local checkpoints": (
        saving(local={"storage": "nvme", "keepLast": 1}),
        saving(local={"storage": "nvme", "keepLast": "Disabled"}),
    ),
    "more steps": (spec(progress={"totalSteps": 10}), spec(progress={"totalSteps": 20})),
}


@pytest.mark.parametrize("change", BAD_CHANGES)
def test_a_change_that_a_running_gang_cannot_take_is_refused(
    cluster: LocalCluster, namespace: str, change: str
) -> None:
    before, after, field, remedy = BAD_CHANGES[change]
    words = changed(cluster, namespace, before, after)
    assert field in words
    assert remedy in words


@pytest.mark.parametrize("change", GOOD_CHANGES)
def test_a_change_that_costs_the_gang_nothing_is_taken(cluster: LocalCluster, namespace: str, change: str) -> None:
    assert changed(cluster, namespace, *GOOD_CHANGES[change]) == ""


BEFORE: dict[str, Any] = saving(shared={"claimName": "lustre"})
FINISHED = {"type": "Finished", "status": "True", "reason": "Cancelled", "message": ""}
ENDED = {"conditions": [FINISHED | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}


@pytest.mark.parametrize(
    ("change", "is_taken"),
    [
        ({"spec": {"image": "mended"}}, False),
        ({"spec": {"nodes": 3}}, False),
        ({"spec": {"suspend": True}}, False),
        ({"spec": {"suspend": True, "podTemplate": {"metadata": {"labels": {"a": "b"}}}}}, False),
        ({"spec": {"checkpoint": {"signal": "SIGUSR1"}}}, False),
        ({"spec": {"image": "pytorch/pytorch"}}, True),  # nothing changes
        ({"spec": {"cancel": True}}, True),
        ({"spec": {"ttlAfterFinished": "1h"}}, True),
        ({"spec": {"checkpoint": {"archive": {"uri": "s3://golden/late"}}}}, True),
        (
            {"metadata": {"labels": {"team": "nlp"}, "annotations": {"a": "b"}, "finalizers": ["example.com/kept"]}},
            True,
        ),
    ],
)
def test_a_change_of_a_run_that_has_ended_is_refused_where_it_does_nothing(
    cluster: LocalCluster, namespace: str, change: dict[str, Any], is_taken: bool
) -> None:
    path = f"{runs(namespace)}/bad"
    cluster.api.send(Request("POST", runs(namespace), run(BEFORE, namespace)))
    cluster.api.send(Request("PATCH", f"{path}/status", {"status": ENDED}, MERGE_PATCH))
    try:
        cluster.api.send(Request("PATCH", path, change, MERGE_PATCH))
        words = ""
    except ApiError as error:
        words = str(error)
    assert (not words) is is_taken, words
    if not is_taken:
        assert "lockstep retry bad -f FILE, and for a run of an array --name NAME." in words
        assert "only while the run is suspended" not in words, "of a run that has ended one thing is said"
    state = {"status": ENDED | {"state": "Cancelled"}}
    cluster.api.send(Request("PATCH", f"{path}/status", state, MERGE_PATCH))
    cluster.api.send(Request("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH))
    cluster.api.send(Request("DELETE", path))


def test_the_mistakes_are_many_enough_to_mean_something() -> None:
    assert len(BAD_SPECS) + len(BAD_CHANGES) >= 30


def changed(cluster: LocalCluster, namespace: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    """The API server's words on the change of a run that exists."""
    made = cluster.api.send(Request("POST", runs(namespace), run(before, namespace)))
    version = made["metadata"]["resourceVersion"]
    body = run(after, namespace)
    body["metadata"]["resourceVersion"] = version
    return refusal(cluster, "PUT", f"{runs(namespace)}/bad", body)
