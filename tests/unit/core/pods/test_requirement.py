"""What a run asks of its nodes, and what the spec left open once they are chosen."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import ExcludedNode
from lockstep.api.run_status import ResolvedStatus
from lockstep.core.model.node_set import EMPTY
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_fit import Requirement
from lockstep.core.placement.node_index import NodeIndex
from lockstep.core.placement.placement import ClusterNodes
from lockstep.core.pods.requirement import avoided_nodes, requirement_of, resolve, wish_of
from support.admission import RACK, node, run

GPU, GIB = "nvidia.com/gpu", 2**30
NOW = 1_000.0


def required(view: RunView, *, held: bool = False, labels: dict[str, str] | None = None) -> Requirement:
    return requirement_of(view, labels or {}, Tunables(), NOW, held=held)


@pytest.mark.parametrize(
    ("spec", "resources", "left_open", "all_gpus"),
    [
        ({}, {}, ("cpu", "memory"), True),
        ({"gpusPerNode": 8}, {GPU: 8}, ("cpu", "memory"), False),
        ({"gpusPerNode": 0}, {GPU: 0}, ("cpu", "memory"), False),
        ({"resourcesPerNode": {"amd.com/gpu": 8}}, {"amd.com/gpu": 8}, ("cpu", "memory"), False),
        ({"gpusPerNode": 8, "resourcesPerNode": {"cpu": 4}}, {"cpu": 4000, GPU: 8}, ("memory",), False),
        (
            {"gpusPerNode": 8, "resourcesPerNode": {"cpu": 4, "memory": "1Gi"}},
            {"cpu": 4000, "memory": GIB, GPU: 8},
            (),
            False,
        ),
    ],
)
def test_what_the_spec_leaves_open_is_taken_as_it_is_found(
    spec: dict[str, Any], resources: dict[str, int], left_open: tuple[str, ...], all_gpus: bool
) -> None:
    found = required(run("llama", **spec))
    assert (found.resources, found.open, found.open_gpus) == (resources, left_open, all_gpus)


def test_a_gang_that_has_nodes_needs_others_like_them() -> None:
    resolved = ResolvedStatus(gpus_per_node=8, cpu="4", memory="1Gi", resources={"rdma/hca": "2"})
    found = required(run("llama", status={"resolved": resolved}), held=True)
    assert found.resources == {"rdma/hca": 2, GPU: 8, "cpu": 4000, "memory": GIB}
    assert (found.open, found.open_gpus) == ((), False)


def test_sidecars_are_requested_with_the_trainer_and_selectors_of_queue_and_template_hold_both() -> None:
    logs = {"name": "logs", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [logs], "nodeSelector": {"pool": "a"}}}
    found = required(run("llama", gpusPerNode=8, podTemplate=template), labels={"team": "nlp"})
    assert found.resources == {GPU: 8, "cpu": 1000}
    assert found.labels == (("team", "nlp"), ("pool", "a"))


@pytest.mark.parametrize(
    ("mode", "level", "levels"), [("Required", "rack", (RACK,)), ("Preferred", "rack", ()), ("Required", "row", ())]
)
def test_nodes_need_the_label_of_a_required_level(mode: str, level: str, levels: tuple[str, ...]) -> None:
    rules = [{"level": level, "mode": mode}]
    assert required(run("llama", placement={"topology": rules})).levels == levels


@pytest.mark.parametrize(("until", "avoided"), [(None, True), (NOW + 1, True), (NOW, False), (NOW - 1, False)], ids=str)
def test_recovery_keeps_a_run_off_a_node_for_a_time_or_for_good(until: float | None, avoided: bool) -> None:
    entry = ExcludedNode(node="n1", reason="Xid 79", until=until)
    assert avoided_nodes([entry], NOW) == ([entry] if avoided else [])
    view = run("llama")
    view = replace(view, status=changed(view.status, recovery=changed(view.status.recovery, excluded_nodes=(entry,))))
    assert required(view).avoided == ({"n1": "Xid 79"} if avoided else {})


@pytest.mark.parametrize(
    ("spec", "same"),
    [
        ({}, True),
        ({"priorityClassName": "high"}, True),
        ({"nodes": 3}, False),
        ({"gpusPerNode": 4}, False),
        ({"resourcesPerNode": {"cpu": 1}}, False),
        ({"placement": {"gpuTypes": ["H100"]}}, False),
        ({"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}, False),
    ],
)
def test_runs_that_ask_the_same_of_their_nodes_are_alike(spec: dict[str, Any], same: bool) -> None:
    one = run("a", nodes=2, gpusPerNode=8).spec
    other = run("b", **{"nodes": 2, "gpusPerNode": 8, **spec}).spec
    assert one is not None
    assert other is not None
    assert (wish_of(one) == wish_of(other)) is same


def resolved(view: RunView, cpu: int, memory: int, gpus: int = 8) -> ResolvedStatus:
    """On two nodes, of which the smaller has so much."""
    free = {"cpu": cpu, "memory": memory, GPU: gpus}
    nodes = {"n1": node("n1"), "n2": node("n2", allocatable=free)}
    return resolve(view, ClusterNodes(NodeIndex.from_nodes(nodes, {}, {}, {}), EMPTY), ["n1", "n2"], "H100")


@pytest.mark.parametrize(
    ("spec", "free", "expected"),
    [
        ({}, (191_900, 10 * GIB + 5), (8, "191", "10Gi")),
        ({}, (191_900, 10 * GIB, 4), (4, "191", "10Gi")),
        ({}, (999, GIB - 1), (8, "999m", "1023Mi")),
        ({"gpusPerNode": 2}, (8_000, GIB), (2, "8", "1Gi")),
        ({"resourcesPerNode": {"amd.com/gpu": 8}}, (8_000, GIB), (0, "8", "1Gi")),
        ({"resourcesPerNode": {"cpu": "1500m", "memory": "5Gi"}}, (8_000, 9 * GIB), (8, "1500m", "5Gi")),
        ({"resourcesPerNode": {GPU: 3}}, (8_000, GIB), (3, "8", "1Gi")),
    ],
)
def test_what_was_left_open_is_what_the_smallest_node_has_in_whole_units(
    spec: dict[str, Any], free: tuple[int, ...], expected: tuple[int, str, str]
) -> None:
    found = resolved(run("llama", **spec), *free)
    assert (found.gpus_per_node, found.cpu, found.memory) == expected
    assert (found.nodes, found.gpu_type, found.generation) == (2, "H100", 1)


def test_sidecars_leave_the_trainer_less() -> None:
    logs = {"name": "logs", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    found = resolved(run("llama", podTemplate={"spec": {"containers": [logs]}}), 8_000, 4 * GIB)
    assert (found.cpu, found.memory) == ("7", "3Gi")
