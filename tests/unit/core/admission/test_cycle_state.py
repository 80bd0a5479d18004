"""Nodes while one cycle gives them away: who has them, which are to be had, and who may hear of whom."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.run_status import AssignmentStatus
from lockstep.core.admission.cache.entry import Entry
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.model.assignment import advanced, assigned, vacated
from lockstep.core.model.node_set import EMPTY
from lockstep.core.model.snapshot import ClusterSnapshot, NodeFailure, NodeView, PodPhase, PodView, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.placement import Placed
from support.admission import NOW, held, node, pod, run, world

A = run("a", 2)
GONE = run("gone")


def cycle(snapshot: ClusterSnapshot) -> CycleState:
    return CycleState(snapshot, Tunables(), NOW, CycleMemory())


def entry(view: RunView) -> Entry:
    return Entry(view, view.status)


def failing(name: str) -> NodeView:
    """A node on which ranks of two runs failed first of late."""
    failures = tuple(NodeFailure(f"team/{ago}", NOW - ago, "XidError") for ago in (20, 10))
    return node(name, failures=failures, suspect="yes")


def away(name: str, since: float) -> NodeView:
    return node(name, ready=False, ready_changed_at=since)


def test_a_run_does_not_start_beside_pods_that_its_status_has_never_had_and_repeats_none_of_their_names() -> None:
    state = cycle(replace(world([A]), doubtful_pods=(pod(A, 1, "n0", incarnation=7),)))
    assert state.has_live_pods(A)
    assert state.seen_incarnations(entry(A)) == (0, 7)
    assert not state.cluster.booked


@pytest.mark.parametrize(
    ("count", "nodes", "closed", "reserved", "urgent", "placed"),
    [
        (2, 4, (), (), False, ("n0", "n1")),
        (5, 4, (), (), False, None),
        (2, 4, ("n0",), (), False, ("n1", "n2")),
        (2, 4, ("n0",), ("n1",), False, ("n2", "n3")),
        (3, 4, ("n0",), ("n1",), False, None),
        (3, 4, ("n0",), ("n1",), True, ("n1", "n2", "n3")),
        (2, 4, (), ("n0",), True, ("n1", "n2")),
        (1, [failing("n0"), node("n1")], (), (), False, ("n1",)),
        (2, [failing("n0"), node("n1")], (), (), False, ("n0", "n1")),
        (1, [away("n0", NOW - 1), node("n1")], (), (), False, ("n1",)),
    ],
)
def test_nodes_are_found_that_nobody_has_and_of_those_kept_for_others_only_for_the_urgent(
    count: int,
    nodes: int | list[NodeView],
    closed: Sequence[str],
    reserved: Sequence[str],
    urgent: bool,
    placed: tuple[str, ...] | None,
) -> None:
    state = cycle(world([A], nodes))
    state.reserved = state.index.mask(reserved)
    found = state.place(entry(A), count, state.index.mask(closed), urgent=urgent)
    assert (found.nodes if isinstance(found, Placed) else None) == placed


def test_what_was_booked_in_a_cycle_is_gone_for_those_that_come_later() -> None:
    state, first = cycle(world([A, run("b")], 3)), entry(A)
    state.book(first, ["n0", "n1"])
    later = state.place(entry(run("b")), 1)
    assert isinstance(later, Placed)
    assert (later.nodes, first.nodes) == (("n2",), {"n0", "n1"})


@pytest.mark.parametrize(
    ("since", "returns"), [(NOW, {NOW + 900}), (NOW - 899, {NOW + 1}), (NOW - 900, set()), (NOW - 5000, set())]
)
def test_a_node_that_went_away_a_moment_ago_is_expected_back(since: float, returns: set[float]) -> None:
    state = cycle(world([], [away("n0", since), node("n1")]))
    assert set(state.returning) == returns
    assert {state.index.names(nodes) for nodes in state.returning.values()} == ({("n0",)} if returns else set())


@pytest.mark.parametrize(
    ("racks", "gang", "new", "by_slot"),
    [
        ("aabb", ("n0", "", "n2"), ("n3", "n1"), {1: "n3"}),
        ("aabb", ("", "n1", "n2"), ("n3", "n0"), {0: "n0"}),
        ("abcb", ("n0", "n1", ""), ("n2", "n3"), {2: "n3"}),
        ("abcb", ("", "n1", "n0"), ("n2", "n3"), {0: "n3"}),
        ("abcd", ("n0", "", "n2"), ("n3", "n1"), {1: "n3"}),
        ("aabb", ("n0", "", "", "n3"), ("n1", "n2"), {1: "n1", 2: "n2"}),
        ("aabb", ("n0", "", "", "n3"), ("n2", "n1"), {1: "n1", 2: "n2"}),
        ("aabb", ("n0", "", "n2"), ("n0", "n2"), {}),
    ],
)
def test_a_lost_node_is_replaced_in_the_rack_of_a_neighbouring_rank(
    racks: str, gang: tuple[str, ...], new: tuple[str, ...], by_slot: dict[int, str]
) -> None:
    nodes = [node(f"n{number}", rack=rack) for number, rack in enumerate(racks)]
    full = assigned(AssignmentStatus(), [name or f"lost-{at}" for at, name in enumerate(gang)])
    vacant = [at for at, name in enumerate(gang) if not name]
    assert cycle(world([], nodes)).by_slot(vacated(full, vacant, NOW), vacant, new) == by_slot


@pytest.mark.parametrize(
    ("pods", "live"),
    [
        ([], False),
        ([pod(A, 0, "n0")], True),
        ([pod(GONE, 0, "n0")], False),
        ([pod(A, 0, "n0", PodPhase.FAILED)], False),
        ([pod(A, 0, "n0", deleting=True)], True),
        ([pod(A, 0, "dead", deleting=True)], False),
        ([pod(A, 0, "dead")], True),
    ],
)
def test_the_next_gang_waits_for_pods_whose_end_somebody_can_confirm(pods: list[PodView], live: bool) -> None:
    nodes = [node("n0"), replace(node("dead"), ready=False)]
    assert cycle(world([A], nodes, pods=pods)).has_live_pods(A) is live


@pytest.mark.parametrize(
    ("incarnations", "pods", "seen"),
    [
        (0, [], ()),
        (1, [], (1, 1)),
        (2, [], (2, 2)),
        (1, [pod(A, 1, "n1", incarnation=5)], (1, 5)),
        (2, [pod(A, 1, "n1", incarnation=1)], (2, 2)),
        (0, [pod(A, 2, "n1", incarnation=3)], (0, 0, 3)),
    ],
)
def test_incarnations_seen_are_those_of_status_and_of_pods(
    incarnations: int, pods: list[PodView], seen: tuple[int, ...]
) -> None:
    """Status may have been set back: an incarnation is never used again."""
    assignment = AssignmentStatus()
    for time in range(incarnations):
        assignment = assigned(assignment, ["n0", "n1"]) if time == 0 else advanced(assignment, [0, 1])
    view = run("a", 2, status={"assignment": assignment})
    assert cycle(world([view], pods=pods)).seen_incarnations(entry(view)) == seen


@pytest.mark.parametrize(
    ("view", "more", "decided"),
    [
        (A, {}, True),
        (A, {"in_flight": {"uid-a": frozenset({"n0"})}}, False),
        (A, {"in_flight": {"uid-a": frozenset()}}, True),
        (replace(A, annotations={"lockstep.dev/test-only": "true"}), {}, False),
    ],
)
def test_a_cycle_decides_of_no_run_whose_admission_is_written_or_that_only_asks(
    view: RunView, more: dict[str, Any], decided: bool
) -> None:
    state = cycle(world([view], **more))
    assert (state.entry_of("uid-a") is not None) is decided
    assert state.entry_of("unknown") is None


def test_the_nodes_of_a_run_are_those_of_its_assignment_as_the_cycle_has_it() -> None:
    view = run("a", status=held("n0"))
    state = cycle(world([view]))
    moved = replace(view, status=run("a", status=held("n1", "n2")).status)
    assert [state.index.names(state.held(each)) for each in (view, moved)] == [("n0",), ("n1", "n2")]
    assert state.held(A) == EMPTY


@pytest.mark.parametrize(("visibility", "named"), [("Full", True), ("OwnNamespace", False)])
def test_a_run_hears_of_other_namespaces_as_the_queues_allow(visibility: str, named: bool) -> None:
    other = replace(run("x"), namespace="other")
    state = cycle(world([A, other], queues={"default": {"visibility": visibility}}))
    names = state.names_for(entry(A))
    assert names.get("uid-a", "") == "team/a"
    assert names.get("uid-x", "") == ("other/x" if named else "")
