"""Which nodes are taken, and by whom: by assignments, by writes under way, and by pods that have not ended."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.admission.cache.ledger import Ledger, held, taken
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.model.assignment import vacated
from lockstep.core.model.snapshot import PodPhase, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_index import NodeIndex
from support.admission import ACCEPTED, FINISHED, NOW, pod, run, world
from support.admission import held as holding

A = run("a", 2, status=holding("n0", "n1"))
DONE = run("a", 2, status=holding("n0", "n1") | {"conditions": (ACCEPTED, FINISHED)})
LOST = run("a", 2, status={"assignment": vacated(A.status.assignment, [1], NOW)})
WAITS = run("b")


@pytest.mark.parametrize(
    ("runs", "more", "by_node", "ending"),
    [
        ([WAITS], {}, {}, set()),
        ([A], {}, {"n0": {"uid-a"}, "n1": {"uid-a"}}, set()),
        ([DONE], {}, {}, set()),
        ([LOST], {}, {"n0": {"uid-a"}}, set()),
        ([WAITS], {"in_flight": {"uid-b": frozenset({"n2"})}}, {"n2": {"uid-b"}}, set()),
        ([DONE], {"pods": [pod(DONE, 0, "n0")]}, {"n0": {"uid-a"}}, set()),
        ([], {"pods": [pod(DONE, 0, "n0")]}, {"n0": {"uid-a"}}, set()),
        ([], {"pods": [pod(DONE, 0, "n0", deleting=True)]}, {"n0": {"uid-a"}}, {"n0"}),
        ([A], {"pods": [pod(WAITS, 0, "n0", deleting=True)]}, {"n0": {"uid-a", "uid-b"}, "n1": {"uid-a"}}, set()),
        ([], {"pods": [pod(DONE, 0, "n0", PodPhase.SUCCEEDED, deleting=True)]}, {}, set()),
    ],
)
def test_a_node_is_taken_by_whoever_has_it_gets_it_or_has_not_left_it(
    runs: list[RunView], more: dict[str, Any], by_node: dict[str, set[str]], ending: set[str]
) -> None:
    snapshot = world(runs, **more)
    ledger = Ledger.from_snapshot(snapshot)
    assert ledger.by_node == by_node
    assert ledger.booked_nodes == by_node.keys()
    assert ledger.ending == ending
    memory, index = CycleMemory(), NodeIndex.from_nodes(snapshot.nodes, {}, {}, {})
    sets = taken(snapshot, memory.observe(snapshot, Tunables(), NOW), index, memory.pods)
    assert [set(index.names(nodes)) for nodes in sets] == [set(by_node), ending]


def test_holders_are_named_by_namespace_and_name_also_when_they_are_gone() -> None:
    of_gone = pod(run("gone"), 0, "n0")
    ledger = Ledger.from_snapshot(world([A], pods=[of_gone], in_flight={"uid-unknown": frozenset({"n0"})}))
    assert ledger.holders("n0") == ("team/a", "team/gone", "uid-unknown")
    assert ledger.holders("n3") == ()


def test_the_nodes_of_a_run_are_found_anew_where_nodes_are_numbered_anew() -> None:
    row = RunRow(LOST)
    everything = NodeIndex.from_nodes(world([]).nodes, {}, {}, {})
    fewer = NodeIndex.from_nodes({"n0": replace(everything.view("n0"))}, {}, {}, {})
    assert everything.names(held(row, everything)) == ("n0",)
    assert fewer.names(held(row, fewer)) == ("n0",)
    assert not held(row, NodeIndex.from_nodes({}, {}, {}, {}))
