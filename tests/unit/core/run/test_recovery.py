"""What ends an attempt, and with what the next one starts; the causes and actions have tables of their own."""

from dataclasses import replace

import pytest

from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.model.conditions import is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ActionWord, AttemptCause, ConditionType, LossReason
from lockstep.core.model.snapshot import Leadership
from lockstep.core.run.handover import Handover
from lockstep.core.run.recovery import hold_back_nodes, recover, report_steps_lost
from support.world import failed, world_with_gang

NOBODY = Handover()


def test_while_nothing_is_wrong_nothing_is_done() -> None:
    plan = world_with_gang(2).plan("one")
    assert recover(plan, NOBODY) == Handover()
    assert plan.build().status is None


@pytest.mark.parametrize(
    ("code", "limit", "attempt", "stops"),
    [(1, 2, 2, False), (137, 2, 2, False), (0, 1, 1, False), (1, 1, 1, True)],
)
def test_a_bad_exit_begins_the_next_attempt_in_place_until_trying_is_pointless(
    code: int, limit: int, attempt: int, stops: bool
) -> None:
    w = failed(world_with_gang(2, recovery={"noProgressLimit": limit}), code=code)
    plan = w.plan("one")
    recover(plan, NOBODY)
    assert plan.status.attempt == attempt
    assert (plan.status.stop is not None) is stops
    if attempt == 2:
        entry = plan.attempt(1)
        assert (entry.rank, entry.node, entry.exit_code, entry.charged) == (1, "n1", code, True)
        assert plan.status.totals.restarts_in_place == plan.status.totals.restarts == 1
        assert plan.status.assignment == w.status("one").assignment


def test_a_lost_node_ends_the_attempt_and_is_replaced_without_a_charge() -> None:
    w = world_with_gang(2)
    w.lose_node("n1")
    w.nodes.pop("n1", None)
    plan = w.plan("one")
    recover(plan, NOBODY)
    assert (plan.status.attempt, plan.phase) == (2, Phase.RECOVERING)
    entry = plan.attempt(1)
    assert (entry.cause, entry.action, entry.charged) == (AttemptCause.NODE_LOST, ActionWord.REPLACE, False)
    assert plan.status.assignment.nodes == ("n0", "")
    assert plan.status.totals.restarts_in_place == 0


@pytest.mark.parametrize(
    ("kind", "disruption", "left"),
    [
        (LossKind.NODE, "", 1),
        (LossKind.NODE, "3 of 4 nodes are NotReady", 0),
        (LossKind.POD, "3 of 4 nodes are NotReady", 1),
    ],
)
def test_while_the_cluster_looks_broken_no_node_is_replaced(kind: LossKind, disruption: str, left: int) -> None:
    w = world_with_gang(2)
    plan = w.plan("one")
    snapshot = replace(plan.snapshot, leadership=Leadership(w.leader_since, disruption))
    plan = type(plan)(replace(plan.context, snapshot=snapshot))
    lost = [Loss(1, "n1", kind, LossReason.NODE_DELETED, "gone", w.now)]
    assert len(hold_back_nodes(plan, lost)) == left
    assert is_true(plan.status, ConditionType.CLUSTER_DISRUPTION) is (left == 0)


@pytest.mark.parametrize(("resumed", "lost"), [(0, 5), (3, 2), (5, 0), (9, 0)])
def test_what_the_end_cost_is_known_once_it_is_known_where_the_next_begins(resumed: int, lost: int) -> None:
    w = world_with_gang(2)
    w.train("one", 5)
    w.work_reports_only()
    failed(w).reconcile("one")
    plan = w.plan("one")
    report_steps_lost(plan, resumed)
    assert plan.attempt(1).steps_lost == lost


@pytest.mark.parametrize(("resumed", "saved_by", "last"), [(9, 1, 9), (9, 0, 5), (3, 1, 5), (0, 0, 5)])
def test_a_save_that_is_heard_of_at_the_barrier_was_trained_by_the_attempt_that_made_it(
    resumed: int, saved_by: int, last: int
) -> None:
    w = world_with_gang(2)
    w.train("one", 5)
    w.work_reports_only()
    failed(w).reconcile("one")
    plan = w.plan("one")
    report_steps_lost(plan, resumed, saved_by)
    assert plan.attempt(1).last_step == last
