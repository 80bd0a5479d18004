"""Maintenance windows as claims on nodes: nothing starts that would be in one, or run into one."""

import pytest

from lockstep.core.admission.cache.maintenance_windows import (
    MaintenanceConflict,
    clear_from,
    closing,
    nodes_of,
    overrun,
    window_claims,
)
from lockstep.core.admission.engine.jobs import NO_LIMIT, NodeClaim
from lockstep.core.model.admission_settings import MaintenanceWindow
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.placement.node_index import NodeIndex
from support.admission import node, world

NODES = [node("n0", labels={"row": "a"}), node("n1", labels={"row": "a"}), node("n2", labels={"row": "b"})]
INDEX = NodeIndex.from_nodes(world([], NODES).nodes, {}, {}, {})
HOUR, DAY = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("start", "every", "now", "starts"),
    [
        (100.0, 0.0, 0.0, [100.0]),
        (100.0, 0.0, 159.0, [100.0]),
        (100.0, 0.0, 160.0, []),
        (100.0, 200 * DAY, 0.0, [100.0, 100.0 + 200 * DAY]),
        (100.0, 200 * DAY, 159.0, [100.0, 100.0 + 200 * DAY]),
        (100.0, 200 * DAY, 160.0, [100.0 + 200 * DAY]),
        (100.0, 200 * DAY, 160.0 + 200 * DAY, [100.0 + 400 * DAY]),
        (NO_LIMIT, 200 * DAY, 0.0, [NO_LIMIT]),
        (NO_LIMIT + 1, 200 * DAY, 0.0, []),
    ],
)
def test_every_occurrence_counts_that_is_not_over_for_as_long_as_a_run_without_a_limit(
    start: float, every: float, now: float, starts: list[float]
) -> None:
    claims = window_claims((MaintenanceWindow("w", start, 60.0, every),), INDEX, now, 30.0)
    assert [claim.begins for claim in claims] == starts
    assert {(claim.end - claim.begins, claim.start - claim.begins, claim.owner) for claim in claims} <= {
        (60.0, -30.0, "window:w")
    }


def test_a_window_that_comes_often_is_looked_at_so_far_ahead_and_no_further() -> None:
    assert len(window_claims((MaintenanceWindow("w", 0.0, 60.0, HOUR),), INDEX, 0.0, 0.0)) == 64


@pytest.mark.parametrize(
    ("names", "selector", "closed"),
    [
        ((), {}, ("n0", "n1", "n2")),
        (("n0",), {}, ("n0",)),
        ((), {"row": "a"}, ("n0", "n1")),
        (("n2",), {"row": "a"}, ("n0", "n1", "n2")),
        (("gone",), {}, ()),
    ],
)
def test_a_window_is_of_nodes_by_name_and_by_label_and_else_of_all(
    names: tuple[str, ...], selector: dict[str, str], closed: tuple[str, ...]
) -> None:
    window = MaintenanceWindow("w", 0.0, 60.0, nodes=frozenset(names), node_selector=selector)
    claims = window_claims((window,), INDEX, 0.0, 0.0)
    assert INDEX.names(nodes_of(claims)) == closed
    assert bool(claims) is bool(closed)


FIRST = NodeClaim(100.0, 200.0, NodeSet(0b01), "window:first", notice=10.0)
SECOND = NodeClaim(300.0, 400.0, NodeSet(0b11), "window:second", notice=10.0)
BOTH = (FIRST, SECOND)


@pytest.mark.parametrize(
    ("start", "end", "met"),
    [
        (0.0, 100.0, ()),
        (0.0, 101.0, (FIRST,)),
        (199.0, 300.0, (FIRST,)),
        (200.0, 300.0, ()),
        (200.0, 301.0, (SECOND,)),
        (0.0, NO_LIMIT, BOTH),
    ],
)
def test_whoever_has_nodes_from_a_start_to_an_end_overruns_what_lies_between(
    start: float, end: float, met: tuple[NodeClaim, ...]
) -> None:
    assert overrun(BOTH, start, end) == met


@pytest.mark.parametrize(
    ("nodes", "start", "length", "at"),
    [
        (0b01, 0.0, 100.0, 0.0),
        (0b01, 0.0, 101.0, 400.0),
        (0b01, 0.0, 100.5, 400.0),
        (0b10, 0.0, 101.0, 0.0),
        (0b10, 0.0, 301.0, 400.0),
        (0b01, 150.0, 100.0, 200.0),
        (0b01, 999.0, 1e9, 999.0),
    ],
)
def test_nodes_are_clear_from_the_first_time_on_at_which_no_window_is_in_the_way(
    nodes: int, start: float, length: float, at: float
) -> None:
    assert clear_from(BOTH, NodeSet(nodes), start, length) == at


@pytest.mark.parametrize(
    ("now", "ends", "closed", "words", "start"),
    [
        (0.0, 110.0, 0b01, "window first from 1970-01-01T00:01:50Z on, before the run ends", 200.0),
        (120.0, 150.0, 0b01, "window first until 1970-01-01T00:03:20Z", 200.0),
        (120.0, 120.0, 0b01, "window first until 1970-01-01T00:03:20Z", 200.0),
        (0.0, 999.0, 0b11, "window first from 1970-01-01T00:01:50Z on, before the run ends", 400.0),
        (250.0, 999.0, 0b11, "window second from 1970-01-01T00:05:10Z on, before the run ends", 400.0),
    ],
)
def test_a_gang_is_told_of_the_first_window_that_closes_nodes_to_it(
    now: float, ends: float, closed: int, words: str, start: float
) -> None:
    found = closing(BOTH, now, ends)
    assert found.nodes == closed
    reason = found.reason(NodeSet(0b01))
    assert (reason.word, reason.start) == ("Window", start)
    assert reason.message.endswith(f"maintenance {words}")


def test_a_gang_that_is_past_its_end_gets_no_node_under_maintenance_either() -> None:
    found = closing(BOTH, now=120.0, ends=90.0)
    assert found.nodes == 0b01
    assert found.reason(NodeSet(0b01)).start == 200.0, "when the maintenance is over"


def test_where_there_are_no_windows_nothing_is_closed() -> None:
    assert MaintenanceConflict().nodes == EMPTY
    assert closing((), 0.0, NO_LIMIT).claims == ()
