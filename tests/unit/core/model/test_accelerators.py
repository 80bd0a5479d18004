"""Which resources count as GPUs, whatever their maker, and what a run asks of them."""

from typing import Any

import pytest

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import ResolvedStatus
from lockstep.core.model.accelerators import (
    ACCELERATORS,
    GpuRequest,
    gpu_request,
    gpus_of,
    held_gpus,
    is_part,
    remembering,
    withheld_by,
    without_gpus,
)
from lockstep.core.model.snapshot import NodeView

GPU, AMD, GAUDI = "nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi"
EVERY = tuple(ACCELERATORS)


def spec(**fields: Any) -> TrainingRunSpec:
    return TrainingRunSpec.model_validate({"nodes": 1, "image": "i", "command": ["c"], **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, GpuRequest(None, EVERY)),
        ({"gpusPerNode": 8}, GpuRequest(8, EVERY)),
        ({"gpusPerNode": 0}, GpuRequest(0, EVERY)),
        ({"gpuResource": AMD}, GpuRequest(None, (AMD,), named=True)),
        ({"gpuResource": AMD, "gpusPerNode": 4}, GpuRequest(4, (AMD,), named=True)),
        ({"gpuResource": AMD, "resourcesPerNode": {AMD: 4}}, GpuRequest(4, (AMD,), named=True)),
        ({"gpuResource": AMD, "resourcesPerNode": {GPU: 1}}, GpuRequest(None, (AMD,), named=True)),
        ({"resourcesPerNode": {GPU: "1e0"}}, GpuRequest(1, (GPU,), named=True)),
        ({"resourcesPerNode": {AMD: 8}}, GpuRequest(8, (AMD,), named=True)),
        ({"resourcesPerNode": {GAUDI: 8, "cpu": 4}}, GpuRequest(8, (GAUDI,), named=True)),
        ({"resourcesPerNode": {AMD: 8}, "gpusPerNode": 0}, GpuRequest(8, (AMD,), named=True)),
        ({"resourcesPerNode": {"rdma/hca": 8, "nvidia.com/hostdev": 8}}, GpuRequest(None, EVERY)),
        # Parts of GPUs, and those of a maker that nobody counts: there are none to be taken beside them.
        ({"resourcesPerNode": {"nvidia.com/mig-1g.10gb": 1}}, GpuRequest(0, EVERY)),
        ({"resourcesPerNode": {"nvidia.com/gpu.shared": 1}}, GpuRequest(0, EVERY)),
        ({"resourcesPerNode": {"example.com/gpu": 1}}, GpuRequest(0, EVERY)),
    ],
)
def test_a_run_asks_for_gpus_of_one_make_or_of_whichever_there_is(fields: dict[str, Any], expected: GpuRequest) -> None:
    assert gpu_request(spec(**fields), ACCELERATORS) == expected


def test_what_counts_as_gpus_is_what_the_operator_says() -> None:
    asked = spec(resourcesPerNode={"example.com/npu": 16, AMD: 1})
    assert gpu_request(asked, ("example.com/npu",)) == GpuRequest(16, ("example.com/npu",), named=True)
    assert gpu_request(spec(), (AMD, GPU)).resource == AMD


def test_gpus_stand_in_one_place_once_they_are_resolved() -> None:
    asked = {"cpu": "4", AMD: "8"}
    assert without_gpus(asked, GpuRequest(8, (AMD,), named=True)) == {"cpu": "4"}
    assert without_gpus(asked, GpuRequest(8, EVERY)) == asked
    older = ResolvedStatus.load({"gpusPerNode": 8})  # of a release that knew of no other make
    assert held_gpus(older) == GpuRequest(8, (GPU,), named=True)


@pytest.mark.parametrize(
    ("resource", "whole", "expected"),
    [
        (GPU, GPU, False),
        ("nvidia.com/gpu.shared", GPU, True),
        ("nvidia.com/mig-3g.40gb", GPU, True),
        ("nvidia.com/hostdev", GPU, False),
        ("amd.com/mig-1", GPU, False),
        ("rdma/hca", GPU, False),
    ],
)
def test_parts_of_gpus_are_known_by_their_names(resource: str, whole: str, expected: bool) -> None:
    assert is_part(resource, whole) is expected


def test_a_node_has_gpus_of_the_first_make_that_it_offers() -> None:
    assert gpus_of({GPU: 0, AMD: 8, "cpu": 4}, EVERY) == (AMD, 8)
    assert gpus_of({GPU: 2, AMD: 8}, EVERY) == (GPU, 2)
    assert gpus_of({"cpu": 4}, EVERY) == ("", 0)


def node(allocatable: dict[str, int], labels: dict[str, str] | None = None, **changes: Any) -> NodeView:
    return NodeView("n", changes.pop("uid", "u"), labels or {}, allocatable, **changes)


@pytest.mark.parametrize(
    ("view", "resource"),
    [
        (node({GPU: 8}), ""),
        (node({"cpu": 4}), ""),
        (node({GPU: 0}, withheld={GPU: 8}), GPU),
        (node({GPU: 0}, withheld={GPU: 0}), GPU),
        (node({}, {"nvidia.com/gpu.present": "true"}), GPU),
        (node({}, {"nvidia.com/gpu.present": "false"}), ""),
        (node({}, {"nvidia.com/gpu.count": "8"}), GPU),
        (node({}, {"nvidia.com/gpu.count": "0"}), ""),
        (node({}, {"feature.node.kubernetes.io/pci-10de.present": "true"}), GPU),
        (node({}, {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}), GPU),
        (node({}, {"karpenter.k8s.aws/instance-gpu-manufacturer": "amd"}), AMD),
        (node({}, {"cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice"}), "google.com/tpu"),
        (node({}, {"amd.com/gpu.family": "AI"}), AMD),
        # One of two makes is away; the GPUs are there in parts.
        (node({AMD: 8}, withheld={GPU: 8}), GPU),
        (node({"nvidia.com/mig-1g.10gb": 7}, {"nvidia.com/gpu.present": "true"}, withheld={GPU: 0}), ""),
        (node({"rdma/hca": 8}, withheld={"rdma/hca": 8}), ""),
    ],
)
def test_a_node_that_says_it_has_gpus_and_offers_none_withholds_them(view: NodeView, resource: str) -> None:
    assert withheld_by(view, ACCELERATORS) == resource


def test_a_node_that_offered_gpus_is_remembered_to_have_them() -> None:
    before = node({"cpu": 4, GPU: 8, "rdma/hca": 1})
    gone = remembering(node({"cpu": 2, "rdma/hca": 1}), before)
    assert gone.withheld == {GPU: 8}
    still = remembering(node({"cpu": 2, "rdma/hca": 1, GPU: 0}, withheld={GPU: 0}), gone)
    assert still.withheld == {GPU: 8}
    assert remembering(node({GPU: 4, "rdma/hca": 1}), still).withheld == {}
    assert remembering(node({}, uid="another"), before).withheld == {}
    assert remembering(before, None) is before
