"""A lost slot's next incarnation: on the same node or another, and how long the run keeps off the one it left."""

import math
from dataclasses import replace as with_fields

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.failures.failure_memory import LEAST_EXCLUDED, exclude, excluded_enough
from lockstep.core.failures.recovery_record import count_lost_pods, remember_first_failure
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import is_true
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import AttemptCause, AttemptEnd, ConditionType, LossReason, StopReason
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.run.backoff import LEAST_ATTEMPTS
from lockstep.core.run.replacement import LEAST_REFUSING, replace, replace_before_start
from support.world import World, node, world_with_gang

SHORTLY, LONG = 900.0, 86_400.0


def gang() -> PlanBuilder:
    w = world_with_gang(2)
    w.tunables = with_fields(
        w.tunables, excluded_shortly_seconds=SHORTLY, excluded_node_seconds=LONG, slot_retries_on_node=1
    )
    return w.plan("one")


def loss(kind: LossKind, reason: LossReason | AttemptCause | AttemptEnd, message: str = "it broke") -> Loss:
    return Loss(1, "n1", kind, reason, message, 0.0)


STAYS = -1.0


@pytest.mark.parametrize(
    ("lost", "lost_before", "first_failures", "kept_off"),
    [
        (loss(LossKind.POD, LossReason.POD_FAILED), 0, 0, STAYS),
        (loss(LossKind.POD, LossReason.POD_FAILED), 1, 0, LONG),
        (loss(LossKind.POD, LossReason.POD_DELETED), 1, 0, STAYS),
        (loss(LossKind.POD, LossReason.POD_TERMINATED), 1, 0, STAYS),
        (loss(LossKind.POD, LossReason.NOT_SCHEDULED), 0, 0, SHORTLY),
        (loss(LossKind.POD, LossReason.NODE_CHECK_FAILED), 0, 1, LONG),
        (loss(LossKind.POD, LossReason.NODE_REFUSED), 0, 0, SHORTLY),
        (loss(LossKind.POD, LossReason.NODE_REFUSED), 1, 2, SHORTLY),
        (loss(LossKind.NODE, LossReason.NODE_DELETED), 0, 0, 0.0),
        (loss(LossKind.DRAINED, AttemptEnd.DRAINED), 0, 0, 0.0),
        (loss(LossKind.LEFT, AttemptCause.HARDWARE), 0, 1, LONG),
        (loss(LossKind.LEFT, AttemptCause.HARDWARE), 0, 2, math.inf),
        (loss(LossKind.LEFT, AttemptCause.STRAGGLER), 0, 2, LONG),
    ],
)
def test_a_slot_keeps_its_node_or_leaves_it_for_as_long_as_the_loss_tells(
    lost: Loss, lost_before: int, first_failures: int, kept_off: float
) -> None:
    plan = gang()
    before = plan.status.assignment
    if lost_before:
        plan.status = count_lost_pods(plan.status, 1, "n1", lost_before, plan.stamp)
    for _ in range(first_failures):
        plan.status = remember_first_failure(plan.status, "n1", AttemptCause.HARDWARE, plan.stamp)
    given_up = replace(plan, [lost])
    after, excluded = plan.status.assignment, plan.status.recovery.excluded_nodes
    assert after.incarnations == (before.incarnations[0], before.incarnations[1] + 1)
    assert after.nodes == ("n0", "n1" if kept_off == STAYS else "")
    assert given_up == ([lost] if kept_off > 0 else [])
    until = [math.inf if entry.until is None else entry.until - plan.stamp for entry in excluded]
    assert until == ([kept_off] if kept_off > 0 else [])
    assert plan.admission_changed is (kept_off != STAYS)
    totals = plan.status.totals
    assert (totals.pods_replaced, totals.nodes_replaced) == ((1, 0) if kept_off == STAYS else (0, 1))


@pytest.mark.parametrize(("seconds_ago", "stays"), [(0.0, False), (LONG, True)])
def test_pods_lost_a_day_ago_say_nothing_of_the_node(seconds_ago: float, stays: bool) -> None:
    plan = gang()
    plan.status = count_lost_pods(plan.status, 1, "n1", 1, plan.stamp - seconds_ago)
    replace(plan, [loss(LossKind.POD, LossReason.POD_FAILED)])
    assert (plan.status.assignment.nodes[1] == "n1") is stays


def test_a_pod_that_was_driven_away_leaves_its_node_without_a_bad_word() -> None:
    w = world_with_gang(2)
    for key, pod in w.pods.items():
        if pod.slot == 1:
            w.pods[key] = with_fields(pod, phase=PodPhase.FAILED, disruption="EvictionByEvictionAPI")
    plan = w.plan("one")
    assert replace(plan, [loss(LossKind.POD, LossReason.POD_FAILED)]) == []
    assert slots.lacking(plan.status.assignment)
    assert not plan.status.recovery.excluded_nodes


def test_a_run_that_excluded_enough_nodes_still_leaves_this_one_and_says_so() -> None:
    plan = gang()
    for number in range(LEAST_EXCLUDED):
        exclude(plan, f"x{number}", "bad", LONG)
    replace(plan, [loss(LossKind.LEFT, AttemptCause.STRAGGLER)])
    assert plan.status.assignment.nodes[1] == ""
    assert all(entry.node != "n1" for entry in plan.status.recovery.excluded_nodes)
    assert is_true(plan.status, ConditionType.CLUSTER_DISRUPTION)


@pytest.mark.parametrize(
    ("lost", "stop"),
    [
        (loss(LossKind.POD, LossReason.POD_FAILED, 'exec: "python3": executable file not found in $PATH'), True),
        (loss(LossKind.POD, LossReason.POD_FAILED), False),
    ],
)
def test_an_image_without_python_is_not_tried_again(lost: Loss, stop: bool) -> None:
    plan = gang()
    replace_before_start(plan, [lost])
    assert (plan.status.stop is not None) is stop
    if plan.status.stop is not None:
        assert plan.status.stop.reason == StopReason.PYTHON_NOT_FOUND


@pytest.mark.parametrize(
    ("excluded", "failed_before", "stop"), [(LEAST_EXCLUDED, 1, True), (LEAST_EXCLUDED, 0, False), (0, 1, False)]
)
def test_a_node_unfit_again_that_cannot_be_excluded_ends_the_stay(
    excluded: int, failed_before: int, stop: bool
) -> None:
    plan = gang()
    for number in range(excluded):
        exclude(plan, f"x{number}", "bad", LONG)
    for _ in range(failed_before):
        plan.status = remember_first_failure(plan.status, "n1", LossReason.NOT_SCHEDULED, plan.stamp)
    replace_before_start(plan, [loss(LossKind.POD, LossReason.NOT_SCHEDULED)])
    assert (plan.status.stop is not None and plan.status.stop.reason == StopReason.NODES_LOST) is stop


def test_what_fails_on_node_after_node_is_the_run() -> None:
    plan = gang()
    streaks = []
    for number in range(LEAST_ATTEMPTS):
        assert plan.status.stop is None
        plan.status = count_lost_pods(plan.status, 1, "n1", 1, plan.stamp)
        replace_before_start(plan, [Loss(1, "n1", LossKind.POD, LossReason.LAUNCH_DEADLINE, f"{number}", 0.0)])
        streaks.append(plan.status.recovery.consecutive_no_progress)
    assert streaks == [1, 2, 3]
    assert plan.status.stop is not None
    assert plan.status.stop.reason == StopReason.LAUNCH_FAILED


def test_what_its_nodes_refuse_is_never_the_run_and_waits_once_no_more_nodes_may_be_avoided() -> None:
    plan = gang()
    for _ in range(2 * LEAST_ATTEMPTS):
        if plan.status.stop is None:
            replace_before_start(plan, [loss(LossKind.POD, LossReason.NODE_REFUSED)])
            exclude(plan, f"x{len(plan.status.recovery.excluded_nodes)}", "bad", LONG)
    assert plan.status.recovery.consecutive_no_progress == 0
    assert plan.status.stop is not None
    assert plan.status.stop.reason == StopReason.NODES_LOST


def test_a_node_that_refuses_when_no_more_may_be_avoided_is_not_where_admission_puts_the_run_again() -> None:
    plan = gang()
    while not excluded_enough(plan):
        exclude(plan, f"x{len(plan.status.recovery.excluded_nodes)}", "bad", LONG)
    replace_before_start(plan, [loss(LossKind.POD, LossReason.NODE_REFUSED)])
    assert plan.status.stop is not None
    (refused,) = [entry for entry in plan.status.recovery.excluded_nodes if entry.node == "n1"]
    assert refused.until == plan.stamp + plan.tunables.excluded_shortly_seconds


def over_its_limit(w: World) -> PlanBuilder:
    for key, pod in w.pods.items():
        if pod.slot == 1:
            message = 'Usage of EmptyDir volume "cache" exceeds the limit "10Gi". '
            w.pods[key] = with_fields(pod, phase=PodPhase.FAILED, reason="Evicted", message=message)
    return w.plan("one")


def test_a_limit_of_its_own_that_a_pod_exceeds_before_the_start_ends_the_run_the_second_time() -> None:
    w = world_with_gang(2)
    plan = over_its_limit(w)
    lost = loss(LossKind.POD, LossReason.POD_FAILED, 'EmptyDir volume "cache" exceeds the limit "10Gi"')
    replace_before_start(plan, [lost])
    assert plan.status.assignment.nodes == ("n0", "n1")
    assert plan.status.recovery.consecutive_no_progress == 1
    assert plan.status.stop is None
    w.amend("one", recovery=plan.status.recovery)
    again = over_its_limit(w)
    replace_before_start(again, [lost])
    assert again.status.stop is not None
    assert again.status.stop.reason == StopReason.LIMIT_EXCEEDED
    assert "cache" in again.status.stop.message
    assert "sizeLimit" in again.status.stop.message


@pytest.mark.parametrize(
    ("world_size", "pool", "enough"), [(1, 20, 3), (2, 20, 3), (2, 2, 2), (1, 1, 1), (60, 80, 6), (600, 700, 32)]
)
def test_a_gang_that_so_many_nodes_refuse_gives_them_back_and_waits(world_size: int, pool: int, enough: int) -> None:
    plan = gang()
    nodes = {f"n{number}": node(f"n{number}") for number in range(pool)}
    held = slots.assigned(changed(plan.status.assignment, nodes=(), rank_to_slot=()), list(nodes)[:world_size])
    plan = PlanBuilder(with_fields(plan.context, snapshot=with_fields(plan.snapshot, nodes=nodes)))
    plan.status = changed(plan.status, assignment=held)
    refused = []
    while plan.status.stop is None:
        refused.append(f"r{len(refused)}")
        replace(plan, [Loss(0, refused[-1], LossKind.POD, LossReason.NODE_REFUSED, "OutOfcpu: no room", 0.0)])
    assert len(refused) == enough
    assert plan.status.stop.reason == StopReason.NODES_LOST
    assert "OutOfcpu" in plan.status.stop.message
    assert refused[-1] in plan.status.stop.message
    refusals = plan.status.recovery.refusals
    assert refusals is not None
    assert (refusals.nodes, refusals.waits) == (tuple(refused), True)


def test_a_node_that_refuses_again_and_again_is_one_node() -> None:
    plan = gang()
    nodes = {f"n{number}": node(f"n{number}") for number in range(20)}
    plan = PlanBuilder(with_fields(plan.context, snapshot=with_fields(plan.snapshot, nodes=nodes)))
    for _ in range(9):
        replace(plan, [loss(LossKind.POD, LossReason.NODE_REFUSED)])
    refusals = plan.status.recovery.refusals
    assert refusals is not None
    assert (refusals.nodes, refusals.waits, plan.status.stop) == (("n1",), False, None)


def test_what_a_spare_is_refused_stops_nobody() -> None:
    w = world_with_gang(2, spareNodes=1)
    plan = w.plan("one")
    for number in range(9):
        replace(plan, [Loss(2, f"r{number}", LossKind.POD, LossReason.NODE_REFUSED, "OutOfcpu", 0.0)])
    assert plan.status.recovery.refusals is None
    assert plan.status.stop is None


@pytest.mark.parametrize(("least", "stops"), [(1, False), (2, True)])
def test_an_elastic_gang_that_may_go_on_without_what_is_refused_keeps_its_nodes(least: int, stops: bool) -> None:
    w = world_with_gang(2, 20, elastic={"min": least})
    plan = w.plan("one")
    for number in range(LEAST_REFUSING):
        replace(plan, [Loss(1, f"r{number}", LossKind.POD, LossReason.NODE_REFUSED, "OutOfcpu", 0.0)])
    assert (plan.status.stop is not None) is stops
