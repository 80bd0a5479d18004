"""What the Node objects of simulated nodes hold."""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localcluster.kwok import (
    NODES_AT_MOST,
    RACK_LABEL,
    ZONE_LABEL,
    NodeBatch,
    Numbering,
    Taint,
    is_ready,
    next_numbering,
    node_objects,
    silent_status,
)

NOW = "2026-01-01T00:00:00Z"


FIRST = Numbering()


def made(batch: NodeBatch, start: Numbering = FIRST) -> list[dict[str, Any]]:
    return node_objects(batch, start, NOW)


def label(node: dict[str, Any], key: str) -> str:
    value: str = node["metadata"]["labels"][key]
    return value


def address(node: dict[str, Any]) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(node["status"]["addresses"][0]["address"])


def test_a_node_has_the_labels_and_devices_of_a_gpu_node() -> None:
    [node] = made(NodeBatch(count=1, gpu_type="H100", gpus=8, rdma=8, cpu="192", memory="2Ti"))
    assert node["metadata"]["name"] == "gpu-0000"
    assert label(node, "kubernetes.io/hostname") == "gpu-0000"
    assert label(node, "nvidia.com/gpu.product") == "NVIDIA-H100-80GB-HBM3"
    assert node["status"]["allocatable"] == {
        "cpu": "192",
        "memory": "2Ti",
        "ephemeral-storage": "3Ti",
        "hugepages-2Mi": "64Gi",
        "nvidia.com/gpu": "8",
        "rdma/hca": "8",
        "pods": "110",
    }


def test_a_node_without_devices_is_a_cpu_node() -> None:
    [node] = made(NodeBatch(count=1, gpus=0, rdma=0, prefix="cpu"))
    assert not [key for key in node["metadata"]["labels"] if key.startswith("nvidia.com/")]
    assert not {"nvidia.com/gpu", "rdma/hca"} & node["status"]["capacity"].keys()


def test_a_gpu_type_nobody_knows_is_the_product_itself() -> None:
    [node] = made(NodeBatch(count=1, gpu_type="ACME-X1"))
    assert label(node, "nvidia.com/gpu.product") == "ACME-X1"


@settings(max_examples=40)
@given(st.data())
def test_racks_are_even_and_in_order_and_lie_whole_in_a_zone(data: st.DataObject) -> None:
    zones = data.draw(st.integers(1, 5))
    racks = data.draw(st.integers(zones, 40))
    count = data.draw(st.integers(racks, 200))
    nodes = made(NodeBatch(count=count, racks=racks, zones=zones))

    rack_of_each = [label(node, RACK_LABEL) for node in nodes]
    assert rack_of_each == sorted(rack_of_each)
    sizes = Counter(rack_of_each).values()
    assert len(sizes) == racks
    assert max(sizes) - min(sizes) <= 1
    zones_of_rack = {(label(node, RACK_LABEL), label(node, ZONE_LABEL)) for node in nodes}
    assert len(zones_of_rack) == racks
    assert len({zone for _, zone in zones_of_rack}) == zones


@settings(max_examples=25)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=5))
def test_batch_after_batch_no_name_rack_address_or_pod_range_is_used_twice(counts: list[int]) -> None:
    nodes: list[dict[str, Any]] = []
    for count in counts:
        batch = NodeBatch(count=count)
        nodes += made(batch, next_numbering(nodes, batch.prefix))

    for unique in (
        {node["metadata"]["name"] for node in nodes},
        {address(node) for node in nodes},
        {node["spec"]["podCIDR"] for node in nodes},
    ):
        assert len(unique) == len(nodes)
    assert all(address(node).is_loopback for node in nodes)
    assert len({label(node, RACK_LABEL) for node in nodes}) == len(counts)


def test_the_last_possible_node_has_a_whole_pod_range() -> None:
    [node] = made(NodeBatch(count=1), Numbering(address=NODES_AT_MOST - 1))
    assert ipaddress.IPv4Network(node["spec"]["podCIDR"]) == ipaddress.IPv4Network("100.127.255.0/24")
    with pytest.raises(ValueError, match="at most"):
        made(NodeBatch(count=1), Numbering(address=NODES_AT_MOST))


@pytest.mark.parametrize(
    ("count", "racks", "zones"), [(0, 1, 1), (4, 5, 1), (4, 1, 2), (4, 0, 0), (NODES_AT_MOST + 1, 1, 1)]
)
def test_a_batch_that_leaves_a_rack_or_zone_empty_is_refused(count: int, racks: int, zones: int) -> None:
    with pytest.raises(ValueError, match="at least one zone"):
        NodeBatch(count=count, racks=racks, zones=zones)


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("nvidia.com/gpu=present:NoSchedule", Taint("nvidia.com/gpu", "present", "NoSchedule")),
        ("maintenance:NoExecute", Taint("maintenance", "", "NoExecute")),
        ("a=:PreferNoSchedule", Taint("a", "", "PreferNoSchedule")),
    ],
)
def test_a_taint_is_written_as_for_kubectl(text: str, taint: Taint) -> None:
    assert Taint.parse(text) == taint


@pytest.mark.parametrize("text", ["", "a", "a=b", "a=b:Never", ":NoSchedule", "a b:NoSchedule"])
def test_what_is_no_taint_is_answered_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match="write key=value:Effect"):
        Taint.parse(text)


def test_a_new_node_is_ready_unless_its_health_taints_it() -> None:
    [node] = made(NodeBatch(count=1, taints=[Taint("team", "vision", "NoSchedule")]))
    assert is_ready(node)
    node["spec"]["taints"].append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    assert not is_ready(node)


def test_a_silent_node_is_not_ready() -> None:
    [node] = made(NodeBatch(count=1))
    node["status"] |= silent_status(node, "2026-01-01T01:00:00Z")
    [ready] = node["status"]["conditions"]
    assert not is_ready(node)
    assert (ready["status"], ready["lastTransitionTime"]) == ("Unknown", "2026-01-01T01:00:00Z")
    assert ready["lastHeartbeatTime"] == NOW
