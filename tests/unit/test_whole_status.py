"""What others are shown of a run whose ConfigMaps cannot be read."""

from dataclasses import replace

from lockstep.api.base.changes import changed
from lockstep.controller.store.whole_status import held_by_pods
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
