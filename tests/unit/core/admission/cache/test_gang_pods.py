"""Pods of gangs by run and by node, counted on from one cycle to the next."""

from dataclasses import replace

import pytest

from lockstep.core.admission.cache.gang_pods import GangPodIndex
from lockstep.core.model.snapshot import PodPhase, PodView
from lockstep.core.placement.node_index import NodeIndex
from support.admission import pod, run, world

A, B = run("a", 2), run("b")
ON_0, ON_1, OF_B = pod(A, 0, "n0"), pod(A, 1, "n1"), pod(B, 0, "n2")
LEAVES = replace(OF_B, deleting=True)
INDEX = NodeIndex.from_nodes(world([]).nodes, {}, {}, {})


def nodes(book: GangPodIndex) -> list[tuple[str, ...]]:
    return [INDEX.names(found) for found in book.nodes(INDEX)]


@pytest.mark.parametrize(
    ("pods", "live", "staying"),
    [
        ([], (), ()),
        ([ON_0, ON_1, OF_B], ("n0", "n1", "n2"), ("n0", "n1", "n2")),
        ([ON_0, LEAVES], ("n0", "n2"), ("n0",)),
        ([ON_0, replace(pod(B, 0, "n0"), deleting=True)], ("n0",), ("n0",)),
        ([replace(ON_0, phase=PodPhase.SUCCEEDED), replace(ON_1, phase=PodPhase.FAILED)], (), ()),
        ([replace(ON_0, phase=PodPhase.PENDING)], ("n0",), ("n0",)),
        ([replace(ON_0, node="no such node")], (), ()),
    ],
)
def test_a_pod_holds_its_node_until_it_has_ended_and_stays_unless_it_is_deleted(
    pods: list[PodView], live: tuple[str, ...], staying: tuple[str, ...]
) -> None:
    book = GangPodIndex()
    book.update(pods)
    assert nodes(book) == [live, staying]
    for steps in ([ON_0, ON_1], [OF_B], pods):  # whatever was seen before
        book.update(steps)
        nodes(book)
    assert nodes(book) == [live, staying]


@pytest.mark.parametrize(
    ("pods", "by_run"),
    [
        ([], {}),
        ([ON_0, ON_1, OF_B], {"uid-a": {"a-0-1", "a-1-1"}, "uid-b": {"b-0-1"}}),
        ([replace(ON_0, owner_uid="uid-of-an-earlier-a")], {}),
    ],
)
def test_a_run_has_the_pods_that_it_owns(pods: list[PodView], by_run: dict[str, set[str]]) -> None:
    book = GangPodIndex()
    for seen in ([LEAVES, ON_1], pods):
        book.update(seen)
    assert {uid: {pod.name for pod in owned} for uid, owned in book.by_run.items()} == by_run


def test_nodes_that_are_numbered_anew_are_counted_anew() -> None:
    book, fewer = GangPodIndex(), NodeIndex.from_nodes({"n1": INDEX.view("n1")}, {}, {}, {})
    book.update([ON_0, ON_1])
    nodes(book)
    assert [fewer.names(found) for found in book.nodes(fewer)] == [("n1",), ("n1",)]
