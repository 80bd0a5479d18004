"""A field that there is not: which one was meant, and where it belongs, in words."""

from __future__ import annotations

import pytest

from lockstep.api.run_set import TrainingRunSetSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.cli.submission.near_fields import no_such_field
from lockstep.cli.submission.object_words import object_problems

HERE, ELSEWHERE = "unknown field; write {}", "unknown field here; write it as {}"
NOWHERE = "unknown field; kubectl explain {} and docs/api.md list those there are"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("spec.gpuPerNode", HERE.format("gpusPerNode")),
        ("spec.gpus_per_node", HERE.format("gpusPerNode")),
        ("spec.GPUsPerNode", HERE.format("gpusPerNode")),
        ("spec.env[0].nam", HERE.format("name")),
        ("spec.checkpoint.shared.claim", HERE.format("claimName")),
        ("spec.checkpoint.shared.name", HERE.format("claimName")),
        ("spec.checkpoint.claimName", ELSEWHERE.format("spec.checkpoint.shared.claimName")),
        (
            "spec.claimName",
            ELSEWHERE.format("spec.volumes[].persistentVolumeClaim.claimName or spec.checkpoint.shared.claimName"),
        ),
        ("spec.nprocPerNode", ELSEWHERE.format("spec.launcher.torchrun.nprocPerNode")),
        ("spec.type", ELSEWHERE.format("spec.launcher.type")),
        ("spec.name", NOWHERE.format("trainingrun.spec")),
        ("spec.resources", HERE.format("resourcesPerNode, or gpusPerNode for GPUs alone")),
        ("spec.resource", HERE.format("resourcesPerNode, or gpusPerNode for GPUs alone")),
        ("spec.gpus", HERE.format("gpusPerNode")),
        ("spec.replicas", HERE.format("nodes")),
        ("spec.zzz", NOWHERE.format("trainingrun.spec")),
        ("spec.launcher.zzz", NOWHERE.format("trainingrun.spec.launcher")),
        ("spec.zzz.name", NOWHERE.format("trainingrun.spec")),
        ("spec." + "x" * 10_000, NOWHERE.format("trainingrun.spec")),
    ],
)
def test_the_field_that_was_meant_is_named_with_its_place(field: str, words: str) -> None:
    assert no_such_field(field, TrainingRunSpec) == words


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("spec.nodes", ELSEWHERE.format("spec.template.spec.nodes")),
        ("spec.maxRuning", HERE.format("maxRunning")),
        ("spec.resources", ELSEWHERE.format("spec.template.spec.resourcesPerNode")),
        ("spec.template.spec.resources", HERE.format("resourcesPerNode, or gpusPerNode for GPUs alone")),
        ("spec.template.spec.gpuPerNode", HERE.format("gpusPerNode")),
        ("spec.template.spec.zzz", NOWHERE.format("trainingrunset.spec.template.spec")),
    ],
)
def test_of_an_array_the_place_is_in_its_template(field: str, words: str) -> None:
    assert no_such_field(field, TrainingRunSetSpec) == words


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("nodes", ELSEWHERE.format("spec.nodes")),
        ("metdata", HERE.format("metadata")),
        ("zzz", "unknown field; move it below spec"),
    ],
)
def test_what_stands_beside_the_spec_belongs_into_it(part: str, words: str) -> None:
    manifest = {"metadata": {"name": "a"}, "spec": {}, part: 1}
    assert list(object_problems(manifest, TrainingRunSpec)) == [(part, words)]
