"""Which node and which incarnation every slot has, through the life of a gang."""

from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AssignmentStatus, TrainingRunStatus
from lockstep.core.model import assignment as slots

EMPTY = AssignmentStatus()
GANG = slots.assigned(EMPTY, ["a", "b", "c"])
WITH_SPARE = slots.filled(slots.assigned(EMPTY, ["a", "b"], spares=1), {2: "s"})


def is_new(before: AssignmentStatus, after: AssignmentStatus) -> bool:
    """Whoever waits for the assignment can tell the two apart."""
    return after.revision == before.revision + 1 and after.hash != before.hash and after.config_map == ""


@pytest.mark.parametrize(
    ("previous", "nodes", "spares", "incarnations", "vacant", "ranks"),
    [
        (EMPTY, ["a", "b"], 0, (1, 1), (), ()),
        (EMPTY, ["a", "b"], 2, (1, 1, 1, 1), (2, 3), (0, 1)),
        (slots.released(GANG), ["d", "e", "f"], 0, (2, 2, 2), (), ()),
        (slots.released(GANG), ["d"], 0, (2, 1, 1), (), ()),
        (slots.released(slots.assigned(EMPTY, ["a"])), ["b", "c"], 0, (2, 1), (), ()),
    ],
    ids=["first", "with spares", "again", "smaller", "larger"],
)
def test_a_new_gang_starts_at_incarnations_that_were_never_used(
    previous: AssignmentStatus,
    nodes: list[str],
    spares: int,
    incarnations: tuple[int, ...],
    vacant: tuple[int, ...],
    ranks: tuple[int, ...],
) -> None:
    found = slots.assigned(previous, nodes, spares=spares)
    assert found.nodes == (*nodes, *[""] * spares)
    assert (found.incarnations, found.vacant, found.rank_to_slot) == (incarnations, vacant, ranks)
    assert is_new(previous, found)
    assert not slots.damage(found)


@pytest.mark.parametrize(
    ("found", "nodes", "incarnations", "vacant"),
    [
        (slots.advanced(GANG, [1]), ("a", "b", "c"), (1, 2, 1), ()),
        (slots.vacated(GANG, [1], 5.0), ("a", "", "c"), (1, 2, 1), (1,)),
        (slots.filled(slots.vacated(GANG, [0, 1], 5.0), {1: "d"}), ("", "d", "c"), (2, 2, 1), (0,)),
        (slots.retired(GANG, [2]), ("a", "b", ""), (1, 1, 2), ()),
        (slots.released(GANG), (), (1, 1, 1), ()),
        (slots.rebuilt(changed(GANG, nodes=("a", "", "c"))), ("a", "", "c"), (1, 1, 1), (1,)),
    ],
    ids=["advanced", "vacated", "filled", "retired", "released", "rebuilt"],
)
def test_a_slot_that_changes_gets_its_next_incarnation(
    found: AssignmentStatus, nodes: tuple[str, ...], incarnations: tuple[int, ...], vacant: tuple[int, ...]
) -> None:
    assert (found.nodes, found.incarnations, found.vacant) == (nodes, incarnations, vacant)
    assert found.hash != GANG.hash
    assert slots.is_held(found) is bool(nodes)


def test_incarnations_that_were_seen_are_never_used_again() -> None:
    assert slots.assigned(slots.counted(EMPTY, [4, 1]), ["a", "b"]).incarnations == (5, 2)


def test_the_wait_for_a_vacant_slot_may_begin_later_than_it_fell_vacant() -> None:
    vacant = slots.vacated(GANG, [1], 5.0)
    status = slots.put(TrainingRunStatus(), slots.missed(vacant, 9.0))
    assert (status.assignment.vacant_since, status.assignment.hash) == (9.0, vacant.hash)


def test_ranks_move_to_a_spare_and_no_pod_is_touched() -> None:
    moved = slots.reseated(WITH_SPARE, {1: 2})
    assert slots.ranked_slots(moved) == (0, 2)
    assert (moved.nodes, moved.incarnations) == (WITH_SPARE.nodes, WITH_SPARE.incarnations)
    assert slots.slot_ranks(moved) == (0, -1, 1)
    assert [slots.slot_of_rank(moved, rank) for rank in (0, 1)] == [0, 2]
    assert slots.order(moved) == "0,2"
    assert slots.order(WITH_SPARE) == ""
    assert slots.world(moved) == 2


@pytest.mark.parametrize(
    ("seats", "ranks", "vacant"), [([0, 1, 2], (), (1,)), ([0, 2], (0, 2), ()), ([0, 1], (0, 1), (1,))]
)
def test_a_gang_of_another_size_looks_for_nodes_of_its_ranks_alone(
    seats: list[int], ranks: tuple[int, ...], vacant: tuple[int, ...]
) -> None:
    found = slots.resized(slots.vacated(GANG, [1], 5.0), seats)
    assert (found.rank_to_slot, found.vacant) == (ranks, vacant)
    assert found.vacant_since == (5.0 if vacant else None)


@pytest.mark.parametrize(
    ("before", "count", "nodes", "vacant"),
    [
        (GANG, 0, ("a", "b", "c"), ()),
        (GANG, 1, ("a", "b", "c", ""), (3,)),
        (slots.vacated(WITH_SPARE, [2], 5.0), 1, ("a", "b", ""), (2,)),
        (slots.vacated(WITH_SPARE, [2], 5.0), 2, ("a", "b", "", ""), (2, 3)),
        (slots.vacated(WITH_SPARE, [2], 5.0), 0, ("a", "b", ""), ()),
        (slots.vacated(WITH_SPARE, [1], 5.0), 1, ("a", "", "s", ""), (1, 3)),
    ],
)
def test_so_many_spares_are_sought_in_empty_slots_first(
    before: AssignmentStatus, count: int, nodes: tuple[str, ...], vacant: tuple[int, ...]
) -> None:
    found = slots.sought(before, count)
    assert (found.nodes, found.vacant) == (nodes, vacant)
    assert slots.sought(found, count) is found, "they are sought already"
    assert slots.world(found) == slots.world(before)


@pytest.mark.parametrize(
    ("assignment", "lacking", "since"),
    [
        (GANG, (), None),
        (slots.vacated(GANG, [1], 5.0), (1,), 5.0),
        (slots.vacated(slots.vacated(GANG, [1], 5.0), [2], 9.0), (1, 2), 5.0),
        (slots.vacated(WITH_SPARE, [2], 5.0), (), None),
        (slots.vacated(WITH_SPARE, [1, 2], 5.0), (1,), 5.0),
        (slots.filled(slots.vacated(WITH_SPARE, [1, 2], 5.0), {1: "d"}), (), None),
    ],
)
def test_the_clock_runs_while_a_rank_has_no_node_and_never_for_spares(
    assignment: AssignmentStatus, lacking: tuple[int, ...], since: float | None
) -> None:
    assert (slots.lacking(assignment), assignment.vacant_since) == (lacking, since)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"nodes": ()}, "has lost its nodes"),
        ({"nodes": (), "config_map": "big"}, ""),
        ({"nodes": (), "hash": "", "rank_to_slot": (5,)}, "has lost its nodes"),
        ({"nodes": (), "hash": "", "vacant": (0,)}, "has lost its nodes"),
        ({"incarnations": (1,)}, "has 3 nodes and 1 incarnation"),
        ({"nodes": ("a", "a", "c")}, "names a node twice"),
        ({"nodes": ("", "", "c"), "vacant": (0, 1)}, ""),
        ({"nodes": ("a", "b", ""), "vacant": (2, 2)}, "vacant names a slot twice"),
        ({"vacant": (3,)}, "vacant names a slot twice, or one that is not there"),
        ({"rank_to_slot": (0, 0, 1)}, "rankToSlot names a slot twice"),
        ({"vacant": (1,)}, "vacant names a slot that has a node"),
    ],
)
def test_what_no_operator_has_written_is_named(changes: dict[str, Any], words: str) -> None:
    assert words in slots.damage(changed(GANG, **changes))
    assert bool(slots.damage(changed(GANG, **changes))) is bool(words)


def test_a_damaged_gang_keeps_its_nodes_and_gets_no_others() -> None:
    damaged = changed(GANG, vacant=(1,), rank_to_slot=(2, 1, 0))
    assert (slots.bookable(damaged).nodes, slots.bookable(damaged).vacant) == (GANG.nodes, ())
    assert slots.bookable(GANG) is GANG
    assert slots.illegible(damaged) == AssignmentStatus(revision=GANG.revision, incarnations=GANG.incarnations)


@pytest.mark.parametrize(
    ("assignment", "members"),
    [
        (GANG, [("0-2", 1)]),
        (slots.advanced(GANG, [1]), [("0,2", 1), ("1", 2)]),
        (slots.reseated(WITH_SPARE, {1: 2}), [("0,2", 1)]),
    ],
)
def test_start_names_the_slots_of_ranks_by_incarnation(
    assignment: AssignmentStatus, members: list[tuple[str, int]]
) -> None:
    assert [(each.slots, each.incarnation) for each in slots.members(assignment)] == members


@pytest.mark.parametrize(("nodes", "apart"), [(3, False), (2000, True)])
def test_what_is_too_large_for_status_lies_in_a_config_map_and_reads_the_same(nodes: int, apart: bool) -> None:
    large = slots.reseated(slots.assigned(EMPTY, [f"node-{index:04}" for index in range(nodes)]), {0: 1, 1: 0})
    named, kept = slots.spilled(large, "ns", "llama", "uid-1")
    assert (kept is not None, bool(named.config_map)) == (apart, apart)
    if kept is None:
        return
    content = kept.body["data"][slots.ASSIGNMENT_KEY]
    assert slots.restored(slots.without_spilled(named), content) == named
    with pytest.raises(ValueError, match="does not hold the assignment"):
        slots.restored(named, content.replace("node-0001", "node-x"))
    assert slots.damage(slots.lost(named))


def test_a_gang_of_two_that_is_to_grow_to_thousands_leaves_their_slots_out_of_status() -> None:
    growing = slots.sought(slots.assigned(EMPTY, ["n0", "n1"]), 16_382)
    named, kept = slots.spilled(growing, "ns", "llama", "uid-1")
    assert kept is not None
    in_status = slots.without_spilled(named)
    assert len(str(in_status.dump())) < 1000
    assert slots.restored(in_status, kept.body["data"][slots.ASSIGNMENT_KEY]) == named
