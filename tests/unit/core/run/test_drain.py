"""Which nodes are to be left, and when the slots on them move."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.decide import decide
from lockstep.core.model.reasons import AttemptEnd
from lockstep.core.model.snapshot import Taint
from lockstep.core.run.drain import leave_drained_nodes
from support.values import not_none
from support.world import training, world_with_gang


@pytest.mark.parametrize(
    ("fields", "on_cordon", "is_left"),
    [
        ({}, "Migrate", False),
        ({"drain": "firmware"}, "Ignore", True),
        ({"unschedulable": True}, "Migrate", True),
        ({"unschedulable": True}, "Ignore", False),
        ({"taints": (Taint("maintenance", "NoSchedule"),)}, "Ignore", True),
        ({"taints": (Taint("other", "NoSchedule"),)}, "Migrate", False),
    ],
)
def test_a_node_is_left_for_what_speaks_for_it(fields: dict[str, Any], on_cordon: str, is_left: bool) -> None:
    w = world_with_gang(2, recovery={"onCordon": on_cordon})
    w.tunables = replace(w.tunables, drain_taints=("maintenance",))
    w.nodes["n1"] = replace(w.nodes["n1"], **fields)
    plan = w.plan("one")
    leave_drained_nodes(plan)
    assert plan.status.assignment.nodes == ("n0", "" if is_left else "n1")
    assert plan.status.attempt == (2 if is_left else 1)
    if is_left:
        entry = plan.attempt(1)
        assert (entry.cause, entry.node, entry.rank, entry.charged) == (AttemptEnd.DRAINED, "n1", None, False)


@pytest.mark.parametrize(("listens", "waits"), [(True, True), (False, False)])
def test_a_gang_that_trains_saves_first_where_it_can(listens: bool, waits: bool) -> None:
    w = world_with_gang(2)
    w.listens = listens
    w.work_reports_only()
    w.drain("n1")
    plan = w.plan("one")
    leave_drained_nodes(plan)
    assert (plan.status.checkpoint.save is not None) is waits
    assert (plan.status.assignment.nodes[1] == "n1") is waits


@pytest.mark.parametrize(("comes", "outcome"), [(True, "Saved"), (False, "Expired")])
def test_what_was_saved_for_a_drain_that_was_taken_back_does_not_do_for_a_later_one(comes: bool, outcome: str) -> None:
    w = training(checkpoint={"shared": {"claimName": "lustre"}, "gracePeriod": "2m"})
    w.saves_succeed = False
    w.drain("n1")
    w.reconcile("one")
    first = not_none(w.status("one").checkpoint.save)
    w.drain("n1", "")
    w.saves_succeed = comes
    w.pass_time(150, step=5)
    assert not_none(w.status("one").checkpoint.save).outcome == outcome
    w.pass_time(200, step=5)
    w.train("one", 90)
    w.work()
    assert w.status("one").attempt == 1
    w.saves_succeed = True
    w.drain("n0")
    w.settle()
    status = w.status("one")
    again = not_none(status.checkpoint.save)
    assert (again.id != first.id, again.outcome, status.attempt) == (True, "Saved", 2)
    assert not_none(not_none(status.start).resume).step == again.step > 90


@pytest.mark.parametrize("grace", ["0s", "1s"])
def test_a_save_that_took_longer_than_a_short_grace_period_is_not_asked_for_again_and_again(grace: str) -> None:
    w = training(checkpoint={"shared": {"claimName": "lustre"}, "gracePeriod": grace})
    w.saves_succeed = False
    w.drain("n1")
    w.reconcile("one")
    w.now += 20.0  # nobody was there to settle it
    w.settle()
    assert w.status("one").attempt == 2


@pytest.mark.parametrize("looks_broken", [False, True])
def test_what_is_kept_for_debugging_leaves_a_drained_node_and_stays_on_the_others(looks_broken: bool) -> None:
    w = world_with_gang(2, checkpoint=None, recovery={"debugHold": "30m"})
    w.end_child("one", 1, 1)
    w.pass_time(60, step=10)
    w.drain("n1")
    snapshot = w.snapshot("one")
    leadership = replace(snapshot.leadership, disruption="most nodes are NotReady" if looks_broken else "")
    plan = decide(replace(snapshot, leadership=leadership), w.tunables, w.now)
    gone = {each.uid for each in plan.deletes}
    assert [pod.node for pod in snapshot.pods if pod.uid in gone] == ([] if looks_broken else ["n1"])
    w.pass_time(60, step=10)
    assert {pod.node for pod in w.pods.values() if not pod.is_terminal} == {"n0"}
    assert w.status("one").leaving == changed(not_none(snapshot.run.status.leaving), nodes=1)


def test_while_the_cluster_looks_broken_nobody_gives_up_a_node_that_works() -> None:
    w = world_with_gang(2)
    w.drain("n1")
    plan = w.plan("one")
    leadership = replace(plan.snapshot.leadership, disruption="most nodes are NotReady")
    plan = type(plan)(replace(plan.context, snapshot=replace(plan.snapshot, leadership=leadership)))
    leave_drained_nodes(plan)
    assert plan.build().status is None
