"""When a gang that Kueue admitted has to leave, and what its Workload is told."""

from dataclasses import replace

import pytest

from lockstep.core.model.conditions import find
from lockstep.core.model.kueue.installation import Presence
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.run_state import RunContext
from lockstep.core.run.kueue_follow import leave_for_kueue
from support.kueue_world import KueueWorld, running


def plan_of(w: KueueWorld, presence: Presence = Presence.PRESENT) -> PlanBuilder:
    snapshot = w.snapshot("run")
    snapshot = replace(snapshot, kueue=replace(snapshot.kueue, presence=presence))
    return PlanBuilder(RunContext(snapshot, w.tunables, w.now))


@pytest.mark.parametrize(
    ("presence", "status", "reason"),
    [
        (Presence.PRESENT, "True", "Admitted"),
        (Presence.ABSENT, "Unknown", "KueueNotInstalled"),
        (Presence.DISABLED, "Unknown", "KueueDisabled"),
        (Presence.UNKNOWN, "True", "Admitted"),
    ],
)
def test_a_gang_goes_on_where_nobody_can_want_its_nodes_back(presence: Presence, status: str, reason: str) -> None:
    plan = plan_of(running(), presence)
    assert not leave_for_kueue(plan)
    said = find(plan.status, ConditionType.KUEUE_RESERVATION)
    assert said is not None
    assert (said.status, said.reason) == (status, reason)


def test_a_lost_reservation_is_said_first_and_an_eviction_acted_on_at_once() -> None:
    w = running()
    w.lose_workload()
    plan = plan_of(w)
    assert not leave_for_kueue(plan)
    said = find(plan.status, ConditionType.KUEUE_RESERVATION)
    assert said is not None
    assert said.status == "False"
    w = running()
    w.evict("Preempted")
    assert leave_for_kueue(plan_of(w))
