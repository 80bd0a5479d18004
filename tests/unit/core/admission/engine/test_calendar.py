"""Which nodes are free when: ends of runs, and claims that take some for a while."""

from math import inf

import pytest

from lockstep.core.admission.engine.calendar import Calendar
from lockstep.core.admission.engine.jobs import OVERDUE, NodeClaim
from lockstep.core.model.node_set import NodeSet
from support.small_queues import CHOICES, EVERY

FREE = NodeSet(0b000011)


def calendar() -> Calendar:
    """Two nodes are free, two somebody's until 10, one until 20, one for good; the first is claimed from 5 to 8."""
    ends = [(10.0, NodeSet(0b001100)), (20.0, NodeSet(0b010000))]
    return Calendar(0.0, FREE, ends, [NodeClaim(5.0, 8.0, NodeSet(0b000001), "window")])


@pytest.mark.parametrize(
    ("start", "end", "nodes"),
    [
        (0.0, 5.0, 0b000011),
        (0.0, 5.1, 0b000010),
        (4.0, 9.0, 0b000010),
        (8.0, 99.0, 0b000011),
        (9.9, 99.0, 0b000011),
        (10.0, 99.0, 0b001111),
        (20.0, inf, 0b011111),
    ],
)
def test_nodes_are_free_from_the_end_of_their_run_on_and_beside_claims(start: float, end: float, nodes: int) -> None:
    assert calendar().free(start, end) == nodes


@pytest.mark.parametrize(
    ("count", "length", "after", "latest", "found"),
    [
        (2, 5.0, 0.0, inf, (0.0, 0b000011)),
        (2, 5.1, 0.0, inf, (8.0, 0b000011)),
        (1, 99.0, 0.0, inf, (0.0, 0b000010)),
        (2, 5.1, 9.0, inf, (9.0, 0b000011)),
        (4, 1.0, 0.0, 10.0, (10.0, 0b001111)),
        (4, 1.0, 0.0, 9.9, None),
        (5, 1.0, 0.0, inf, (20.0, 0b011111)),
        (6, 1.0, 0.0, inf, None),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_the_earliest_start_is_the_first_with_enough_nodes_for_long_enough(
    count: int, length: float, after: float, latest: float, found: tuple[float, int] | None, strict: bool
) -> None:
    choose = CHOICES["anywhere", count]
    assert calendar().earliest(EVERY, count, length, after, latest, choose, strict=strict) == found


def test_a_rule_on_places_is_waited_for_where_numbers_would_do() -> None:
    """Two nodes of one rack: the first rack is claimed in part, the second is free from 10 on."""
    busy = calendar()
    busy.claim(NodeClaim(0.0, 15.0, NodeSet(0b000001), "job"))
    assert busy.earliest(EVERY, 2, 1.0, 0.0, inf, CHOICES["one rack", 2], strict=True) == (10.0, 0b001100)


@pytest.mark.parametrize(
    ("claim", "free"),
    [
        (NodeClaim(-9.0, 0.0, EVERY, "past"), 0b000011),
        (NodeClaim(-9.0, 0.1, EVERY, "under way"), 0b000000),
        (NodeClaim(4.0, 9.0, NodeSet(0b000010), "later"), 0b000011),
        (NodeClaim(3.9, 9.0, NodeSet(0b000010), "soon"), 0b000001),
    ],
)
def test_a_claim_takes_its_nodes_while_it_lasts(claim: NodeClaim, free: int) -> None:
    changed = calendar()
    changed.claim(claim)
    assert changed.free(0.0, 4.0) == free
    assert changed.without(claim.owner).free(0.0, 4.0) == 0b000011


def test_a_run_past_its_end_is_gone_in_a_moment() -> None:
    late = Calendar(100.0, FREE, [(90.0, NodeSet(0b000100))])
    assert late.free(100.0, 101.0) == FREE
    assert late.free(100.0 + OVERDUE, 999.0) == 0b000111


def test_nodes_that_two_hold_are_free_when_both_have_gone() -> None:
    calendar = Calendar(
        0.0, 0b100, [(5.0, 0b011), (9.0, 0b001)], [NodeClaim(6.0, 7.0, 0b110, "w"), NodeClaim(-5, 0, 7, "past")]
    )
    assert [bin(calendar.free(at, at + 0.5)) for at in (0.0, 5.0, 6.5, 7.0, 9.0)] == [
        "0b100", "0b110", "0b0", "0b110", "0b111",
    ]  # fmt: skip
    assert calendar.moments(1.0) == [1.0, 5.0, 7.0, 9.0]
    assert calendar.free(0.0, 6.5) == 0
    assert calendar.without("w").free(6.5, 7.0) == 0b110
    anything = CHOICES["anywhere", 2]
    for strict in (True, False):
        assert calendar.earliest(0b110, 2, 1.0, 0.0, inf, anything, strict=strict) == (5.0, 0b110)
        assert calendar.earliest(0b110, 2, 1.5, 0.0, inf, anything, strict=strict) == (7.0, 0b110)
        assert calendar.earliest(0b110, 2, 1.5, 0.0, 6.0, anything, strict=strict) is None
        assert calendar.earliest(EVERY, 4, 1.0, 0.0, inf, CHOICES["anywhere", 4], strict=strict) is None
