"""Which nodes are taken, and by whom: by assignments, by writes under way, and by pods that have not ended."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import AssignmentStatus, StartMembers, StartRecord
from lockstep.core.admission.cache.ledger import Ledger, held, is_of_its_run, taken, with_strangers
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.model.assignment import released, vacated
from lockstep.core.model.snapshot import PodPhase, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_index import NodeIndex
from support.admission import ACCEPTED, FINISHED, NOW, pod, run, world
from support.admission import held as holding
from support.values import not_none

A = run("a", 2, status=holding("n0", "n1"))
DONE = run("a", 2, status=holding("n0", "n1") | {"conditions": (ACCEPTED, FINISHED)})
LOST = run("a", 2, status={"assignment": vacated(A.status.assignment, [1], NOW)})
WAITS = run("b")


PAUSED = {names.ANNOTATION_PAUSED: "true"}
SMALLER = run("a", status={"assignment": AssignmentStatus(nodes=("n0",), incarnations=(1, 3))})
GAVE_BACK = run("a", 2, status={"assignment": released(A.status.assignment)})
SPILLED = changed(A.status.assignment, nodes=(), incarnations=(), vacant=(), revision=3, config_map="x")
UNREAD = run("a", 2, status={"assignment": SPILLED})
STARTED = StartRecord(
    attempt=2,
    assignment_hash="h",
    master_address="m",
    master_port=1,
    members=(StartMembers(slots="0-1", incarnation=4), StartMembers(slots="3", incarnation=1)),
)
UNREAD_STARTED = run("a", 2, status={"assignment": SPILLED, "start": STARTED})
UNREAD_REPLACED = run("a", 2, status={"assignment": changed(SPILLED, revision=6), "start": STARTED})


@pytest.mark.parametrize(
    ("owner", "change", "gone", "counts"),
    [
        (A, {}, False, True),
        (A, {"bound": False}, False, True),
        (replace(A, annotations=PAUSED), {"bound": False}, False, True),
        (replace(WAITS, annotations=PAUSED), {"owner_uid": "uid-b", "run_uid": "uid-b", "bound": True}, False, False),
        (replace(WAITS, spec=None), {"owner_uid": "uid-b", "run_uid": "uid-b", "bound": True}, False, False),
        (A, {"bound": False, "deleting": True}, False, False),
        (A, {"node": "n5"}, False, False),
        (A, {"node": "n5", "bound": False}, False, False),
        (A, {"incarnation": 0}, False, True),
        (A, {"incarnation": 0, "node": "n5"}, False, True),
        (A, {"incarnation": 0, "node": "n5", "bound": False}, False, False),
        (A, {"incarnation": 0, "node": "n1", "bound": False}, False, False),
        (LOST, {"slot": 1, "incarnation": 2, "node": "n5"}, False, False),
        (LOST, {"slot": 1, "incarnation": 2, "node": "", "bound": False}, False, False),
        (LOST, {"slot": 1, "node": "n1"}, False, True),
        (SMALLER, {"slot": 1, "incarnation": 3, "node": "n5"}, False, True),
        (SMALLER, {"slot": 1, "incarnation": 3, "node": "n5", "bound": False}, False, False),
        (GAVE_BACK, {"node": "n5"}, False, True),
        (GAVE_BACK, {"bound": False}, False, True),
        (GAVE_BACK, {"incarnation": 0}, False, True),
        (GAVE_BACK, {"incarnation": 0, "bound": False}, False, False),
        (A, {"incarnation": 2}, False, False),
        (A, {"slot": 2}, False, False),
        (A, {"namespace": "elsewhere"}, False, False),
        (A, {"owner_uid": "uid-b"}, False, False),
        (WAITS, {"owner_uid": "uid-b", "run_uid": "uid-b", "bound": False}, False, False),
        (WAITS, {"owner_uid": "uid-b", "run_uid": "uid-b"}, False, True),
        (UNREAD, {}, False, True),
        (UNREAD, {"bound": False}, False, True),
        (None, {}, False, False),
        (None, {}, True, True),
    ],
    ids=[
        "its own",
        "that nobody has bound yet",
        "the same, while the run is paused",
        "of a paused run that holds nothing",
        "of a run that nobody can read and that holds nothing",
        "that nobody will bind any more",
        "in its slot, on another node",
        "in its slot, pinned to another node",
        "an earlier one",
        "an earlier one on the node that the slot had before",
        "an earlier one that nobody has bound, pinned elsewhere",
        "the same, pinned to the node of another slot",
        "of a slot that has no node",
        "the same, pinned to none",
        "the one before that, on the node that the slot had",
        "of a slot that the gang has given up",
        "the same, that nobody has bound",
        "of a gang that gave its nodes back, until it has ended",
        "the same, before anybody has bound it",
        "an earlier one of such a gang",
        "the same, that nobody has bound",
        "one that it never asked for",
        "of a slot that it never had",
        "of another namespace",
        "of another run",
        "that nobody has bound, of a run that never had nodes",
        "of a run that may have lost its status",
        "of a run whose nodes cannot be read",
        "the same before it is bound",
        "of a run that nobody knows",
        "of a run that is gone",
    ],
)
def test_a_pod_takes_the_node_that_it_is_pinned_to_only_where_its_run_vouches_for_it(
    owner: RunView | None, change: dict[str, Any], gone: bool, counts: bool
) -> None:
    assert is_of_its_run(replace(pod(A, 0, "n0"), **change), owner, gone=gone) is counts


@pytest.mark.parametrize(
    ("owner", "counts"),
    [
        (UNREAD, {(0, 1), (0, 3), (1, 2)}),
        (replace(UNREAD, spec=not_none(run("a", 2, spareNodes=2).spec)), {(0, 1), (0, 3), (1, 2), (2, 1), (3, 1)}),
        (run("a", 2, status={"assignment": changed(SPILLED, vacant=(1,))}), {(0, 1), (0, 3)}),
        (UNREAD_STARTED, {(0, 4), (0, 5), (3, 1)}),
        (UNREAD_REPLACED, {(0, 4), (0, 5), (0, 6), (3, 1)}),
        (replace(UNREAD_STARTED, spec=None), {(0, 4), (0, 5), (3, 1)}),
    ],
    ids=[
        "as many slots as nodes",
        "and as spares",
        "but vacant ones",
        "as it started",
        "replaced since",
        "whatever its spec says",
    ],
)
@pytest.mark.parametrize("bound", [True, False])
def test_a_run_whose_nodes_cannot_be_read_vouches_for_no_more_pods_than_its_status_has(
    owner: RunView, counts: set[tuple[int, int]], bound: bool
) -> None:
    made = [(0, 1), (0, 3), (0, 4), (0, 5), (0, 6), (1, 2), (2, 1), (3, 1), (4, 1), (700, 1)]
    pods = [replace(pod(A, slot, "n9"), incarnation=incarnation, bound=bound) for slot, incarnation in made]
    assert {(each.slot, each.incarnation) for each in pods if is_of_its_run(each, owner, gone=False)} == counts


def test_a_pod_that_is_bound_takes_no_node_for_a_run_that_is_known_to_have_had_none() -> None:
    bound = replace(pod(A, 0, "n0"), owner_uid="uid-b", run_uid="uid-b")
    assert is_of_its_run(bound, WAITS, gone=False)
    assert not is_of_its_run(bound, WAITS, gone=False, new=True)


def test_strangers_take_what_they_request_where_they_are_bound_and_no_more() -> None:
    stranger = replace(pod(A, 0, "n0"), requests={"cpu": 100, "pods": 1}, bound=True)
    foreign = {"n0": {"cpu": 50, "memory": 7}, "n1": {"cpu": 1}}
    many = [stranger, stranger, replace(stranger, bound=False), replace(stranger, phase=PodPhase.FAILED)]
    assert with_strangers(foreign, many) == {"n0": {"cpu": 250, "memory": 7, "pods": 2}, "n1": {"cpu": 1}}
    assert foreign["n0"] == {"cpu": 50, "memory": 7}
    assert with_strangers(foreign, many[2:]) is foreign


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
