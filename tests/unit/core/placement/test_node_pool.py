"""Candidate nodes of one requirement and placement, whoever has them at the moment."""

from typing import Any

import pytest

from lockstep.api.run_spec import PlacementSpec
from lockstep.core.model.accelerators import ACCELERATORS, GpuRequest
from lockstep.core.model.snapshot import NodeView
from lockstep.core.placement.node_fit import Requirement
from lockstep.core.placement.node_index import NodeIndex
from lockstep.core.placement.node_pool import CandidateNodes
from support.two_racks import site

RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"
OPEN_GPUS = GpuRequest(None, tuple(ACCELERATORS))
LEVELS = {"rack": RACK, "zone": ZONE}
GPU_TYPES = {"H100": {"gpu": "h100"}, "H200": {"gpu": "h200"}}
EIGHT = Requirement(resources={GPU: 8})
PACKED = PlacementSpec.model_validate({"topology": [{"level": "rack", "policy": "Pack", "mode": "Required"}]})


def index_of(nodes: dict[str, NodeView]) -> NodeIndex:
    return NodeIndex.from_nodes(nodes, {}, LEVELS, GPU_TYPES)


def test_what_may_be_chosen_from_is_a_set_and_so_is_the_choice() -> None:
    index = index_of(site(n3={"unschedulable": True}))
    candidates = CandidateNodes.for_requirement(index, EIGHT, PACKED)
    (kind,) = candidates.kinds(2)
    assert index.names(kind.able) == ("n1", "n2", "n10", "n11", "n12")
    assert kind.idle == index.everything
    assert candidates.choose(kind, 2, index.mask(["n2", "n11", "n12"])) == index.mask(["n11", "n12"])
    assert candidates.choose(kind, 3, index.mask(["n1", "n2", "n11", "n12"])) is None
    assert (candidates.is_hopeless(6), candidates.is_hopeless(7)) == (False, True)


def test_every_gpu_type_that_will_do_is_a_kind_of_its_own() -> None:
    index = index_of(site(n3={"labels": {"gpu": "h200"}}))
    both = PlacementSpec.model_validate({"gpuTypes": ["H200", "H100"]})
    kinds = CandidateNodes.for_requirement(index, EIGHT, both).kinds(2)
    assert [(kind.gpu_type, kind.able.bit_count()) for kind in kinds] == [("H200", 1), ("H100", 5)]
    assert index.of_gpu_type("H200") == index.mask(["n3"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpuTypes": ["B200"]}, "GPU type B200 is not in the operator's configuration; known: H100, H200"),
        (
            {"topology": [{"level": "row"}]},
            "topology level row is not in the operator's configuration; known: rack, zone",
        ),
        ({"gpuTypes": ["H100"], "topology": [{"level": "rack"}]}, ""),
    ],
)
def test_words_that_the_configuration_does_not_have_leave_no_candidates(fields: dict[str, Any], words: str) -> None:
    found = CandidateNodes.for_requirement(index_of(site()), EIGHT, PlacementSpec.model_validate(fields))
    assert found.unknown == words
    assert bool(found.kinds(1)) is not bool(words)


@pytest.mark.parametrize(
    ("gpus", "count", "able"),
    [
        ({}, 2, [6]),
        ({"n1": 4, "n2": 4}, 2, [4, 2]),
        ({"n1": 4, "n2": 4}, 3, [4, 2]),
        ({"n1": 4, "n2": 4}, 5, [4, 2, 6]),  # none of one size has enough: the smallest sets the number
        ({"n1": 0}, 2, [5]),
    ],
)
def test_gpus_left_open_go_to_nodes_of_one_size_the_largest_first(
    gpus: dict[str, int], count: int, able: list[int]
) -> None:
    index = index_of(site(**{name: {"allocatable": {GPU: number}} for name, number in gpus.items()}))
    found = CandidateNodes.for_requirement(index, Requirement(resources={}, gpus=OPEN_GPUS), PlacementSpec())
    assert [kind.able.bit_count() for kind in found.kinds(count)] == able


def test_nodes_that_the_gang_keeps_are_no_candidates_and_are_always_chosen() -> None:
    index = index_of(site())
    found = CandidateNodes.for_requirement(index, EIGHT, PACKED, ["n1", "gone"])
    (kind,) = found.kinds(3)
    assert kind.able == index.everything & ~index.mask(["n1"])
    chosen = found.choose(kind, 3, index.everything)
    assert chosen is not None
    assert found.in_rank_order(chosen) == ("n1", "n2", "gone")


def test_the_nodes_of_a_level_are_counted_by_domain() -> None:
    index = index_of(site())
    found = CandidateNodes.for_requirement(index, EIGHT, PACKED)
    assert found.domains("rack", index.mask(["n1", "n10", "n12"])) == {"r1": 1, "r2": 2}
    assert found.domains("zone", index.everything) == {"a": 6}


def test_named_nodes_that_the_cluster_does_not_have_are_missing() -> None:
    wanted = PlacementSpec.model_validate({"nodes": ["n1", "n99"]})
    assert CandidateNodes.for_requirement(index_of(site()), EIGHT, wanted).missing_names() == ["n99"]
