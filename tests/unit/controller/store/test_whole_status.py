"""What others are shown of a run whose ConfigMaps cannot be read."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.controller.store.whole_status import held_by_pods, is_known_by_pods
from lockstep.core.model.snapshot import RunView
from support.admission import held, pod, run

GANG = run("a", 2, status=held("n0", "n1"))
UNREAD = replace(
    GANG, status=changed(GANG.status, assignment=changed(GANG.status.assignment, nodes=(), config_map="nodes"))
)


def test_a_gang_holds_what_its_pods_are_on_and_is_asked_for_nothing() -> None:
    view = held_by_pods(UNREAD, [pod(GANG, 0, "n0"), pod(GANG, 1, "n1")])
    assert view.status.assignment.nodes == ("n0", "n1")
    assert view.unread, "its notice could not be written"


def test_a_run_that_holds_nothing_asks_for_nothing() -> None:
    """What it were given could not be written, and nobody else would get it."""
    assert held_by_pods(run("b"), ()).spec is None


def asks(nodes: int, **changes: object) -> RunView:
    """The gang of two, of which the spec asks for so many now."""
    resolved = changed(UNREAD.status.resolved, nodes=2)
    asked = run("a", nodes, status={"assignment": UNREAD.status.assignment, "resolved": resolved})
    return replace(asked, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "slots", "known"),
    [
        (asks(2), (0, 1), True),
        (asks(2), (1,), False),
        (asks(1), (1,), False),  # its user has made it smaller, and it still has the nodes of before
        (asks(1), (0, 1), True),
        (asks(2, spec_error="spec.spareNodes: no"), (0, 1), False),  # nobody knows how many there are
        (asks(2, spec=None), (0, 1), False),
    ],
)
def test_the_nodes_of_a_gang_are_known_by_pods_where_no_slot_is_without(
    view: RunView, slots: tuple[int, ...], known: bool
) -> None:
    assert is_known_by_pods(view, [pod(GANG, slot, f"n{slot}") for slot in slots]) is known
