"""What a run's podTemplate may not say."""

from typing import Any

import pytest

from lockstep.core.model.settings import PodPolicy
from lockstep.core.pods.pod_policy import AllowedPowers
from lockstep.core.pods.template_rules import template_problems
from support.admission import run

POD = "spec.podTemplate.spec"
TRAINER = f"{POD}.containers[0]"


def fields(template: dict[str, Any], **spec: Any) -> list[str]:
    """Of what is refused."""
    view = run("llama", podTemplate=template, **spec)
    assert view.spec is not None
    return [problem.field for problem in template_problems(view.spec, AllowedPowers.for_namespace(PodPolicy(), {}))]


def trainer(**said: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer", **said}]}}


@pytest.mark.parametrize(
    "name",
    [
        "restartPolicy",
        "nodeName",
        "hostNetwork",
        "shareProcessNamespace",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
        "activeDeadlineSeconds",
        "schedulingGroup",
        "schedulingGates",
        "topologySpreadConstraints",
        "resources",
    ],
)
def test_what_lockstep_decides_for_a_pod_is_nobody_elses(name: str) -> None:
    assert fields({"spec": {name: 7}}) == [f"{POD}.{name}"]


@pytest.mark.parametrize("name", ["image", "command", "args", "resources", "restartPolicy"])
def test_what_the_spec_says_of_the_trainer_is_not_said_again(name: str) -> None:
    assert fields(trainer(**{name: 7})) == [f"{TRAINER}.{name}"]
    assert fields({"spec": {"containers": [{"name": "logs", name: 7}]}}) == []


@pytest.mark.parametrize(
    ("template", "refused"),
    [
        ({}, []),
        ({"metadata": None, "spec": None}, []),
        ({"kind": "Pod"}, ["spec.podTemplate.kind"]),
        ({"spec": []}, ["spec.podTemplate"]),
        ({"metadata": {"name": "x"}}, ["spec.podTemplate.metadata.name"]),
        ({"metadata": {"labels": {"team": "a"}}}, []),
        ({"metadata": {"labels": {"lockstep.dev/run": "a"}}}, ["spec.podTemplate.metadata.labels[lockstep.dev/run]"]),
        (
            {"metadata": {"annotations": {"kueue.x-k8s.io/workload": "a"}}},
            ["spec.podTemplate.metadata.annotations[kueue.x-k8s.io/workload]"],
        ),
        ({"spec": {"volumes": {"name": "a"}}}, [f"{POD}.volumes"]),
        ({"spec": {"volumes": ["a"]}}, [f"{POD}.volumes"]),
        ({"spec": {"volumes": [{"name": ["a"]}]}}, [f"{POD}.volumes[0].name"]),
        ({"spec": {"volumes": [{"name": "lockstep-x", "emptyDir": {}}]}}, [f"{POD}.volumes[0].name"]),
        ({"spec": {"affinity": {"podAffinity": {}, "nodeAffinity": {}}}}, [f"{POD}.affinity.podAffinity"]),
        ({"spec": {"containers": [{"image": "x"}]}}, [f"{TRAINER}.name"]),
        ({"spec": {"volumes": [{"emptyDir": {}}]}}, [f"{POD}.volumes[0].name"]),
        ({"spec": {"imagePullSecrets": [None]}}, [f"{POD}.imagePullSecrets[0].name"]),
        ({"spec": {"initContainers": [{"name": None, "image": "i"}]}}, [f"{POD}.initContainers[0].name"]),
        ({"spec": {"nodeSelector": ["a"]}}, [f"{POD}.nodeSelector"]),
        (trainer(env="x"), [f"{TRAINER}.env"]),
        (trainer(env=[{"name": None, "value": "x"}]), [f"{TRAINER}.env[0].name"]),
        (trainer(volumeMounts=[{"mountPath": "/a"}]), [f"{TRAINER}.volumeMounts[0].name"]),
        (trainer(volumeMounts=[{"name": "a"}]), [f"{TRAINER}.volumeMounts[0].mountPath"]),
        (trainer(volumeMounts=[{"name": ["a"], "mountPath": "/a"}]), [f"{TRAINER}.volumeMounts[0].name"]),
        (trainer(env=[{"name": "MASTER_ADDR", "value": "x"}]), [f"{TRAINER}.env[0]"]),
        (trainer(env=[{"name": "SEED", "value": "1"}]), []),
        (trainer(volumeMounts=[{"name": "a", "mountPath": "/dev/shm/"}]), [f"{TRAINER}.volumeMounts[0].mountPath"]),
        (
            {"spec": {"initContainers": [{"name": "i", "resources": {"limits": {"cpu": "many"}}}]}},
            [f"{POD}.initContainers[0].resources.limits[cpu]"],
        ),
    ],
)
def test_a_template_is_refused_by_field(template: dict[str, Any], refused: list[str]) -> None:
    assert fields(template) == refused


@pytest.mark.parametrize(
    ("template", "spec", "refused"),
    [
        ({"spec": {"serviceAccountName": "a"}}, {"serviceAccountName": "b"}, f"{POD}.serviceAccountName"),
        ({"spec": {"dnsPolicy": "Default"}}, {"network": "Host"}, f"{POD}.dnsPolicy"),
        (trainer(workingDir="/a"), {"workingDir": "/b"}, f"{TRAINER}.workingDir"),
        (trainer(env=[{"name": "A"}]), {"env": [{"name": "A", "value": "1"}]}, f"{TRAINER}.env[0]"),
        (
            {"spec": {"imagePullSecrets": [{"name": "a"}]}},
            {"imagePullSecrets": [{"name": "a"}]},
            f"{POD}.imagePullSecrets[0]",
        ),
        (
            {"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}},
            {"volumes": [{"name": "a", "mountPath": "/a", "emptyDir": {}}]},
            f"{POD}.volumes[0]",
        ),
        (
            trainer(volumeMounts=[{"name": "b", "mountPath": "/a"}]),
            {"volumes": [{"name": "a", "mountPath": "/a/", "emptyDir": {}}]},
            f"{TRAINER}.volumeMounts[0].mountPath",
        ),
    ],
)
def test_a_value_in_two_places_is_an_error_and_never_a_silent_winner(
    template: dict[str, Any], spec: dict[str, Any], refused: str
) -> None:
    assert fields(template, **spec) == [refused]
    assert refused not in fields(template, network="Pod")
