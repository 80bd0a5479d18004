"""Whether one node can hold a pod of a run, and in which words not."""

from typing import Any

import pytest

from lockstep.core.model.accelerators import ACCELERATORS, GpuRequest
from lockstep.core.model.node_set import NodeSet
from lockstep.core.model.snapshot import NodeView, Taint
from lockstep.core.placement.node_fit import (
    Expression,
    Obstacle,
    Refusal,
    Requirement,
    Toleration,
    node_class,
    summary,
    withheld,
)
from support.placement_by_node import node_refusal

GPU = "nvidia.com/gpu"
OPEN_GPUS = GpuRequest(None, tuple(ACCELERATORS))
EIGHT_GPUS = Requirement(resources={GPU: 8})


def node(name: str, **changes: Any) -> NodeView:
    return NodeView(
        name=name,
        uid=name,
        labels=changes.pop("labels", {}),
        allocatable=changes.pop("allocatable", {"cpu": 192_000, "memory": 2**41, GPU: 8}),
        **changes,
    )


CPU_192 = Requirement(resources={"cpu": 192_000})


@pytest.mark.parametrize(
    ("view", "requirement", "foreign", "words"),
    [
        (node("n"), EIGHT_GPUS, {}, None),
        (node("n"), CPU_192, {"cpu": 200}, "short of cpu (DaemonSets and other pods leave 191.8 of 192, 192 asked)"),
        (node("n"), Requirement(resources={"rdma/hca": 8}), {}, "short of rdma/hca (it has 0, 8 asked)"),
        (
            node("n"),
            Requirement(resources={"memory": 2**41}),
            {"memory": 2**40},
            "short of memory (DaemonSets and other pods leave 1Ti of 2Ti, 2Ti asked)",
        ),
        (node("n"), Requirement(resources={}, open=("cpu",)), {"cpu": 96_000}, None),
        (
            node("n"),
            Requirement(resources={}, open=("cpu",)),
            {"cpu": 150_000},
            "short of cpu (DaemonSets and other pods leave 42 of 192)",
        ),
        (
            node("n"),
            Requirement(resources={}, gpus=OPEN_GPUS),
            {GPU: 1},
            "short of nvidia.com/gpu (DaemonSets and other pods leave 7 of 8)",
        ),
        (node("n", unschedulable=True), EIGHT_GPUS, {}, "cordoned"),
        (node("n", ready=False), EIGHT_GPUS, {}, "not Ready"),
        (node("n", drain="new firmware"), EIGHT_GPUS, {}, "being drained (new firmware)"),
        (
            node("n", taints=(Taint("leave", "NoSchedule"),)),
            Requirement(resources={}, tolerations=(Toleration("leave", "Exists"),), drain_taints=frozenset({"leave"})),
            {},
            "being drained (taint leave)",
        ),
        (node("n"), Requirement(resources={}, excluded=frozenset({"n"})), {}, "excluded by placement.excludeNodes"),
        (node("n"), Requirement(resources={}, named=frozenset({"m"})), {}, "not among placement.nodes"),
        (node("n"), Requirement(resources={}, levels=("rack",)), {}, "without the label rack"),
        (node("n", deleting=True), EIGHT_GPUS, {}, "being deleted"),
        (
            node("n", taints=(Taint("gpu", "NoSchedule", "broken"),)),
            EIGHT_GPUS,
            {},
            "tainted gpu=broken:NoSchedule",
        ),
        (node("n", taints=(Taint("gpu", "PreferNoSchedule"),)), EIGHT_GPUS, {}, None),
        (
            node("n", taints=(Taint("node.kubernetes.io/unschedulable", "NoSchedule"),), unschedulable=True),
            EIGHT_GPUS,
            {},
            "cordoned",
        ),
        (
            node("n", taints=(Taint("node.kubernetes.io/disk-pressure", "NoSchedule"),)),
            EIGHT_GPUS,
            {},
            "tainted node.kubernetes.io/disk-pressure:NoSchedule",
        ),
        (
            node("n", taints=(Taint(GPU, "NoSchedule", "present"),)),
            Requirement(resources={}, tolerations=(Toleration(GPU, "Exists"),)),
            {},
            None,
        ),
        (node("n"), Requirement(resources={}, labels=(("pool", "a"),)), {}, "outside the node selector (needs pool=a)"),
        (
            node("n"),
            Requirement(resources={}, avoided={"n": "failed twice"}),
            {},
            "avoided after failures (failed twice)",
        ),
        (
            node("n", conditions={"XidCriticalError": "GPU 3", "SomethingHarmless": ""}),
            EIGHT_GPUS,
            {},
            "with the condition XidCriticalError (GPU 3)",
        ),
        (
            node("n"),
            Requirement(resources={}, terms=((Expression("pool", "In", ("a",)),),)),
            {},
            "outside the pod template's node affinity",
        ),
    ],
)
def test_a_refused_node_says_why(
    view: NodeView, requirement: Requirement, foreign: dict[str, int], words: str | None
) -> None:
    refusal = node_refusal(view, foreign, requirement)
    assert (None if refusal is None else str(refusal)) == words


@pytest.mark.parametrize(
    ("expression", "accepted"),
    [
        (Expression("pool", "In", ("a", "b")), True),
        (Expression("pool", "NotIn", ("a",)), False),
        (Expression("other", "NotIn", ("a",)), True),
        (Expression("pool", "Exists"), True),
        (Expression("pool", "DoesNotExist"), False),
        (Expression("generation", "Gt", ("3",)), True),
        (Expression("generation", "Lt", ("4",)), False),
        (Expression("pool", "Gt", ("4",)), False),
        (Expression("metadata.name", "In", ("n",)), True),
        (Expression("pool", "Near", ("a",)), False),
    ],
)
def test_node_affinity_is_read_as_kubernetes_reads_it(expression: Expression, accepted: bool) -> None:
    assert expression.accepts(node("n", labels={"pool": "a", "generation": "4"})) is accepted


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("gpu", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("gpu", "Exists", effect="NoExecute"), False),
        (Toleration("other", "Exists"), False),
    ],
)
def test_taints_are_tolerated_as_kubernetes_does(toleration: Toleration, tolerated: bool) -> None:
    assert toleration.tolerates(Taint("gpu", "NoSchedule", "yes")) is tolerated


CORDONED = Refusal(Obstacle.CORDONED, "cordoned", lasting=False)
NAMES = ("n1", "n2", "n3", "n4", "n5")


def named(nodes: NodeSet) -> list[str]:
    return [name for bit, name in enumerate(NAMES) if int(nodes) >> bit & 1]


@pytest.mark.parametrize(
    ("refused", "line"),
    [
        ([], ""),
        ([(CORDONED, 0b0)], ""),
        ([(CORDONED, 0b111)], "3 cordoned (n1, n2, n3)"),
        ([(CORDONED, 0b1111)], "4 cordoned"),
        ([(Refusal(Obstacle.BOOKED, "booked by runs"), 0b1)], "1 booked by runs"),
        (
            [(CORDONED, 0b1), (Refusal(Obstacle.BOOKED, "booked by runs"), 0b110)],
            "2 booked by runs, 1 cordoned (n1)",
        ),
        (
            [(Refusal(Obstacle.SHORT, "short of cpu", "4 of 8"), 0b1), (Refusal(Obstacle.SHORT, "short of cpu"), 0b10)],
            "2 short of cpu (n1, n2)",
        ),
        ([(Refusal(Obstacle.SHORT, "short of cpu", "4 of 8"), 0b11111)], "5 short of cpu (4 of 8)"),
    ],
)
def test_refusals_are_counted_and_the_few_are_named(refused: list[tuple[Refusal, Any]], line: str) -> None:
    assert summary(refused, named) == line


@pytest.mark.parametrize(
    ("changes", "foreign", "alike"),
    [
        ({}, {}, True),
        ({"labels": {"a": "b"}}, {}, True),
        ({"conditions": {"SomethingHarmless": ""}}, {}, True),
        ({"conditions": {"XidCriticalError": "GPU 3"}}, {}, False),
        ({"ready": False}, {}, False),
        ({"unschedulable": True}, {}, False),
        ({"drain": "asked for"}, {}, False),
        ({"taints": (Taint("gpu", "NoSchedule"),)}, {}, False),
        ({"allocatable": {GPU: 4}}, {}, False),
        ({}, {"cpu": 1}, False),
    ],
)
def test_nodes_in_one_state_are_judged_once(changes: dict[str, Any], foreign: dict[str, int], alike: bool) -> None:
    assert (node_class(node("m", **changes), foreign) == node_class(node("n"), {})) is alike


@pytest.mark.parametrize(
    ("view", "requirement", "lasting"),
    [
        (node("n", unschedulable=True), EIGHT_GPUS, False),
        (node("n", unschedulable=True, allocatable={GPU: 4}), EIGHT_GPUS, True),
        (node("n", allocatable={GPU: 4}), Requirement(resources={GPU: 8}, avoided={"n": "failed"}), True),
        (node("n", unschedulable=True), Requirement(resources={GPU: 8}, avoided={"n": "failed"}), False),
        (node("n", taints=(Taint("node.kubernetes.io/disk-pressure", "NoSchedule"),)), EIGHT_GPUS, False),
        (node("n", drain="asked for", taints=(Taint("gpu", "NoSchedule"),)), EIGHT_GPUS, True),
    ],
)
def test_what_lasts_is_said_before_what_passes_by_itself(
    view: NodeView, requirement: Requirement, lasting: bool
) -> None:
    refusal = node_refusal(view, {}, requirement)
    assert refusal is not None
    assert refusal.lasting is lasting


@pytest.mark.parametrize(
    ("number", "shown"), [(1, "n0"), (4, "n0, n1, n2, n3"), (9, "n0, n1, n2, n3, n4, n5, n6, n7, …")]
)
def test_nodes_that_somebody_has_to_look_at_are_named_even_where_they_are_several(number: int, shown: str) -> None:
    nodes = [f"n{bit}" for bit in range(number)]
    line = summary([(withheld("amd.com/gpu"), NodeSet(2**number - 1))], lambda _: nodes)
    assert line == f"{number} offering no amd.com/gpu now ({shown}: its device plugin or driver is away)"
