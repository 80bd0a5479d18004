"""What is asked while a decision is made: nothing of it changes the run, and moments to come are looked at again."""

from dataclasses import FrozenInstanceError

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionReason
from lockstep.core.model.run_state import JUST_AFTER, RunContext, RunState
from support.world import world_with_gang


def context(ranks: int = 3) -> RunContext:
    w = world_with_gang(ranks)
    return RunContext(w.snapshot("one"), w.tunables, w.now)


def woken(state: RunState) -> float | None:
    """When the plan of what was asked so far would have the run looked at again."""
    builder = PlanBuilder(state.context)
    builder._wake_at = state._wake_at
    return builder.build().wake_at


@pytest.mark.parametrize(
    ("ahead", "is_reached", "wakes"),
    [(-1.0, True, None), (0.0, True, None), (0.5, False, 0.5), (60.0, False, 60.0)],
)
def test_a_moment_is_reached_when_it_comes_and_is_looked_at_again_only_before(
    ahead: float, is_reached: bool, wakes: float | None
) -> None:
    state = RunState(context())
    assert state.reached(state.now + ahead) is is_reached
    assert woken(state) == (None if wakes is None else state.now + wakes)


@pytest.mark.parametrize(
    ("ahead", "is_passed", "wakes"),
    [(-1.0, True, None), (0.0, False, JUST_AFTER), (60.0, False, 60.0 + JUST_AFTER)],
)
def test_a_moment_is_passed_only_when_it_lies_behind(ahead: float, is_passed: bool, wakes: float | None) -> None:
    state = RunState(context())
    assert state.passed(state.now + ahead) is is_passed
    assert woken(state) == (None if wakes is None else pytest.approx(state.now + wakes))


def test_of_several_moments_the_next_one_is_looked_at() -> None:
    state = RunState(context())
    assert not any(state.reached(state.now + ahead) for ahead in (30.0, 10.0, 20.0))
    assert woken(state) == state.now + 10.0


def test_the_context_of_a_decision_stays_as_it_is() -> None:
    frozen = context()
    with pytest.raises(FrozenInstanceError):
        frozen.now = 0.0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        RunState(frozen).status = frozen.snapshot.run.status  # type: ignore[misc]


def test_a_state_shows_the_status_as_decided_so_far() -> None:
    plan = PlanBuilder(context())
    assert (plan.phase, plan.world, plan.title(1)) == (Phase.RUNNING, 3, "rank 1")
    assert plan.view is plan.run
    plan.condition("Finished", True, ConditionReason.FINISHED, "")
    assert plan.phase is Phase.FINISHED
    assert plan.view.status is plan.status
    assert plan.run.status is plan.snapshot.run.status


def test_the_pod_and_the_word_of_a_slot_are_those_of_the_incarnation_decided_last() -> None:
    plan = PlanBuilder(context())
    assert [pod is not None for pod in map(plan.pod, range(4))] == [True, True, True, False]
    assert [report is not None for report in map(plan.report, range(4))] == [True, True, True, False]
    assignment = plan.status.assignment
    before = assignment.incarnations
    newer = changed(assignment, incarnations=(before[0], before[1] + 1, before[2]))
    plan.status = changed(plan.status, assignment=newer)
    assert [pod is not None for pod in map(plan.pod, range(3))] == [True, False, True]
    assert [report is not None for report in map(plan.report, range(3))] == [True, False, True]
    plan.status = changed(plan.status, assignment=assignment)
    assert plan.pod(1) is not None
