"""What a run asks of its nodes, and what the spec left open once they are chosen."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import ExcludedNode
from lockstep.api.run_status import ResolvedStatus
from lockstep.core.model.accelerators import ACCELERATORS, GpuRequest
from lockstep.core.model.node_set import EMPTY
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_fit import Requirement
from lockstep.core.placement.node_index import NodeIndex
from lockstep.core.placement.placement import ClusterNodes
from lockstep.core.pods.requirement import avoided_nodes, requirement_of, resolve, wish_of
from support.admission import RACK, node, run

GPU, AMD, GIB = "nvidia.com/gpu", "amd.com/gpu", 2**30
EVERY = tuple(ACCELERATORS)
NOW = 1_000.0


def required(view: RunView, *, held: bool = False, labels: dict[str, str] | None = None) -> Requirement:
    return requirement_of(view, labels or {}, Tunables(), NOW, held=held)


@pytest.mark.parametrize(
    ("spec", "resources", "left_open", "gpus"),
    [
        ({}, {}, ("cpu", "memory"), GpuRequest(None, EVERY)),
        ({"gpusPerNode": 8}, {}, ("cpu", "memory"), GpuRequest(8, EVERY)),
        ({"gpusPerNode": 0}, {}, ("cpu", "memory"), GpuRequest(0, EVERY)),
        ({"resourcesPerNode": {AMD: 8}}, {}, ("cpu", "memory"), GpuRequest(8, (AMD,), named=True)),
        ({"gpusPerNode": 8, "resourcesPerNode": {"cpu": 4}}, {"cpu": 4000}, ("memory",), GpuRequest(8, EVERY)),
        (
            {"gpuResource": AMD, "resourcesPerNode": {"cpu": 4, "memory": "1Gi"}},
            {"cpu": 4000, "memory": GIB},
            (),
            GpuRequest(None, (AMD,), named=True),
        ),
    ],
)
def test_what_the_spec_leaves_open_is_taken_as_it_is_found(
    spec: dict[str, Any], resources: dict[str, int], left_open: tuple[str, ...], gpus: GpuRequest
) -> None:
    found = required(run("llama", **spec))
    assert (found.resources, found.open, found.gpus) == (resources, left_open, gpus)


def test_a_gang_that_has_nodes_needs_others_like_them() -> None:
    resolved = ResolvedStatus(gpus_per_node=8, cpu="4", memory="1Gi", resources={"rdma/hca": "2"})
    found = required(run("llama", status={"resolved": resolved}), held=True)
    assert found.resources == {"rdma/hca": 2, "cpu": 4000, "memory": GIB}
    assert (found.open, found.gpus) == ((), GpuRequest(8, (GPU,), named=True))


def test_sidecars_are_requested_with_the_trainer_and_selectors_of_queue_and_template_hold_both() -> None:
    logs = {"name": "logs", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [logs], "nodeSelector": {"pool": "a"}}}
    found = required(run("llama", gpusPerNode=8, podTemplate=template), labels={"team": "nlp"})
    assert (found.resources, found.gpus.count) == ({"cpu": 1000}, 8)
    assert found.labels == (("team", "nlp"), ("pool", "a"))


@pytest.mark.parametrize(
    ("spec", "init", "asked", "gpus"),
    [
        ({"resourcesPerNode": {"memory": "64Gi"}}, {"memory": "128Gi"}, {"memory": 128 * GIB}, GpuRequest(8, EVERY)),
        ({"resourcesPerNode": {"memory": "64Gi"}}, {"memory": "32Gi"}, {"memory": 65 * GIB}, GpuRequest(8, EVERY)),
        ({}, {"memory": "128Gi"}, {"memory": 128 * GIB}, GpuRequest(8, EVERY)),
        ({}, {GPU: "2"}, {"memory": GIB}, GpuRequest(8, (GPU,))),
        ({}, {GPU: "16"}, {"memory": GIB}, GpuRequest(16, (GPU,))),
        ({"gpusPerNode": 0}, {GPU: "1"}, {"memory": GIB, GPU: 1}, GpuRequest(0, EVERY)),
    ],
)
def test_a_node_has_room_for_what_runs_before_the_trainer_too(
    spec: dict[str, Any], init: dict[str, str], asked: dict[str, int], gpus: GpuRequest
) -> None:
    template = {
        "spec": {
            "containers": [{"name": "logs", "resources": {"requests": {"memory": "1Gi"}}}],
            "initContainers": [{"name": "load", "resources": {"requests": init}}],
        }
    }
    found = required(run("llama", **{"gpusPerNode": 8, "podTemplate": template, **spec}))
    assert (found.resources, found.gpus) == (asked, gpus)


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
        ({"gpuResource": AMD}, False),
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
        ({"resourcesPerNode": {AMD: 8}}, (8_000, GIB), (8, "8", "1Gi")),
        ({"resourcesPerNode": {"nvidia.com/mig-1g.10gb": 1}}, (8_000, GIB), (0, "8", "1Gi")),
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


def test_a_sidecar_with_a_gpu_needs_it_beside_those_of_the_trainer() -> None:
    watch = {"name": "watch", "resources": {"limits": {AMD: "1"}}}
    template = {"spec": {"containers": [watch]}}
    assert required(run("llama", gpusPerNode=7, podTemplate=template)).gpus == GpuRequest(8, (AMD,))
    found = required(run("llama", podTemplate=template))
    assert (found.gpus.count, found.resources) == (None, {AMD: 1})


def test_only_who_may_get_gpus_of_another_make_tolerates_their_taints() -> None:
    def tolerated(**spec: Any) -> set[str]:
        return {toleration.key for toleration in required(run("llama", **spec)).tolerations if "/" in toleration.key}

    usual = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", GPU, AMD}
    assert tolerated() == {*usual, *EVERY}
    assert tolerated(gpusPerNode=0) == tolerated(gpuResource=AMD) == usual
    assert tolerated(resourcesPerNode={"google.com/tpu": 4}) == {*usual, "google.com/tpu"}


def of(**gpus: dict[str, int]) -> ClusterNodes:
    size = {"cpu": 8_000, "memory": GIB}
    nodes = {name: node(name, allocatable=size | number) for name, number in gpus.items()}
    return ClusterNodes(NodeIndex.from_nodes(nodes, {}, {}, {}), EMPTY)


@pytest.mark.parametrize(
    ("spec", "number", "resource"),
    [({}, 4, AMD), ({"gpusPerNode": 2}, 2, AMD), ({"gpusPerNode": 0}, 0, AMD), ({"gpuResource": AMD}, 4, AMD)],
)
def test_the_gpus_are_of_the_make_that_all_nodes_of_the_gang_offer(
    spec: dict[str, Any], number: int, resource: str
) -> None:
    found = resolve(run("llama", **spec), of(n1={AMD: 8, GPU: 1}, n2={AMD: 4}), ["n1", "n2"], "")
    assert (found.gpus_per_node, found.gpu_resource, found.resources) == (number, resource, {})


@pytest.mark.parametrize(
    ("spec", "unused"),
    [
        ({}, "8 nvidia.com/gpu on n1, n2"),
        ({"gpusPerNode": 2}, "14 nvidia.com/gpu on n1, n2, n3"),
        ({"gpusPerNode": 0}, "20 nvidia.com/gpu on n1, n2, n3"),
    ],
)
def test_gpus_that_a_gang_leaves_unused_are_counted_and_their_nodes_named(spec: dict[str, Any], unused: str) -> None:
    found = resolve(run("llama", **spec), of(n1={GPU: 8}, n2={GPU: 8}, n3={GPU: 4}), ["n1", "n2", "n3"], "")
    assert found.unused_gpus == unused


def test_of_many_nodes_with_unused_gpus_a_few_are_named() -> None:
    cluster = of(**{f"n{number}": {GPU: 8} for number in range(1, 12)})
    found = resolve(run("llama", gpusPerNode=7), cluster, [f"n{number}" for number in range(1, 12)], "")
    assert found.unused_gpus == "11 nvidia.com/gpu on n1, n2, n3, n4 and 7 more"


def test_a_gang_that_uses_all_gpus_leaves_none_and_pods_of_others_count() -> None:
    nodes = {"n1": node("n1")}
    cluster = ClusterNodes(NodeIndex.from_nodes(nodes, {"n1": {GPU: 4}}, {}, {}), EMPTY)
    assert resolve(run("llama", gpusPerNode=4), cluster, ["n1"], "").unused_gpus == ""
    assert resolve(run("llama"), of(n1={GPU: 8}), ["n1"], "").unused_gpus == ""
