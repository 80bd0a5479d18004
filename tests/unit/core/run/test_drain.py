"""Which nodes are to be left, and when the slots on them move."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.model.reasons import AttemptEnd
from lockstep.core.model.snapshot import Taint
from lockstep.core.run.drain import leave_drained_nodes
from support.world import world_with_gang


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


def test_while_the_cluster_looks_broken_nobody_gives_up_a_node_that_works() -> None:
    w = world_with_gang(2)
    w.drain("n1")
    plan = w.plan("one")
    leadership = replace(plan.snapshot.leadership, disruption="most nodes are NotReady")
    plan = type(plan)(replace(plan.context, snapshot=replace(plan.snapshot, leadership=leadership)))
    leave_drained_nodes(plan)
    assert plan.build().status is None
