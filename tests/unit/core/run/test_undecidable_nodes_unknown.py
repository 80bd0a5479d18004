"""A run whose nodes the API server does not give: what is told, and what is kept as it stops."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import ExitsStatus, StopStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.snapshot import RunSnapshot
from lockstep.core.run.undecidable import without_deciding
from support.failing_world import LONG, FailingWorld, cancel, drain_the_queue, reach_the_limit, suspend, training
from support.values import not_none


def unread(w: FailingWorld, *, pods: bool = True, stop: StopStatus | None = None) -> RunSnapshot:
    """The run of which the API server does not give the nodes, with what status says of it all the same."""
    known = w.snapshot("one")
    status = known.run.status
    named = slots.without_spilled(changed(status.assignment, config_map="one-assignment"))
    exits = ExitsStatus(attempt=status.attempt, succeeded="0")
    status = changed(status, assignment=named, exits=exits, stop=stop or status.stop)
    return replace(
        known,
        run=replace(known.run, status=status, unread=True),
        pods=known.pods if pods else (),
        reports=known.reports if pods else {},
    )


def test_a_run_whose_nodes_are_unknown_is_told_and_nothing_is_concluded_from_them() -> None:
    w = training()
    known = unread(w)
    plan = without_deciding(known, w.tunables, w.now, "it is forbidden " * 100)
    told = not_none(find(not_none(plan.status), "Undecidable"))
    assert told.reason == "NodesUnknown"
    assert len(told.message) < 1024
    assert told.message.startswith("ConfigMap one-assignment, which has its nodes, cannot be read (it is forbidden")
    assert [event.reason for event in plan.events] == ["Undecidable"]
    assert (plan.deletes, plan.directive) == ((), None), "what trains goes on"
    status = not_none(plan.status)
    assert (status.assignment, status.goodput) == (known.run.status.assignment, known.run.status.goodput)
    assert not is_true(status, "Finished"), "who else there is may not have come to its end"
    again = without_deciding(
        replace(known, run=replace(known.run, status=status)), w.tunables, w.now + LONG, "in other words"
    )
    assert (again.status, again.events) == (None, ())


@pytest.mark.parametrize("order", [cancel, suspend, reach_the_limit, drain_the_queue])
def test_a_run_whose_nodes_are_unknown_stops_with_its_pods_and_keeps_what_nobody_knows(
    order: Callable[[FailingWorld], None],
) -> None:
    w = training()
    order(w)
    stop = not_none(not_none(without_deciding(unread(w), w.tunables, w.now, "").status).stop)
    plan = without_deciding(unread(w, stop=stop), w.tunables, w.now, "")
    assert {pod.uid for pod in plan.deletes} == {pod.uid for pod in w.pods.values()}
    ended = without_deciding(unread(w, pods=False, stop=stop), w.tunables, w.now + LONG, "")
    status = not_none(ended.status)
    assert status.assignment == unread(w).run.status.assignment
    assert is_true(status, "Finished") is (order in (cancel, reach_the_limit))


def test_a_run_whose_nodes_are_unknown_gives_none_back_for_want_of_pods() -> None:
    w = training()
    known = unread(w, pods=False)
    told = not_none(without_deciding(known, w.tunables, w.now, "").status)
    later = replace(known, run=replace(known.run, status=told))
    assert without_deciding(later, w.tunables, w.now + LONG, "").status is None
