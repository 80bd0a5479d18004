"""Launches of large gangs where everything takes longer than its deadline: nobody is replaced for it, but the dead."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import Lag
from support.examples import examples
from support.world import World, phase, spec, world

WAVES = 8
NEVER = 1e9
PLACED, STARTED, REGISTERED, READY = range(4)
USUAL = (1.0, 5.0, 2.0, 2.0)
STAGES = [(PLACED, 240.0, 60.0), (STARTED, 900.0, 90.0), (REGISTERED, 120.0, 15.0), (READY, 300.0, 40.0)]
"""What is slow, its deadline, and how often somebody looks. Five times the first is twice as long as a scheduler may
take that says nothing."""


def launched(stage: int, longest: float, *, ranks: int = 256, dead: frozenset[int] = frozenset()) -> World:
    """One part of the launch takes ``longest`` for the last wave. ``dead``: slots that never get through it where they
    are first."""
    w = world(ranks + 4)

    def delays(slot: int) -> tuple[float, float, float, float]:
        seconds = list(USUAL)
        seconds[stage] = longest * (0.65 + 0.05 * (slot * WAVES // ranks))
        if slot in dead and w.status("one").assignment.incarnations[slot] == 1:
            seconds[stage] = NEVER
        return seconds[0], seconds[1], seconds[2], seconds[3]

    w.delays = delays
    w.apply("one", spec(ranks))
    return w


def follow(w: World, seconds: float, step: float) -> set[str]:
    """Time goes by until the gang trains; the reasons that its state had."""
    end, reasons = w.now + seconds, set()
    while w.now < end and phase(w) is not Phase.RUNNING:
        w.now += step
        w.settle(8)
        reasons.add(w.status("one").reason)
    return reasons


def replaced(w: World) -> set[int]:
    return {slot for slot, count in enumerate(w.status("one").assignment.incarnations) if count > 1}


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "deadline", "step"), STAGES)
def test_a_launch_that_takes_five_times_the_deadline_in_waves_starts_in_its_first_attempt(
    stage: int, deadline: float, step: float
) -> None:
    w = launched(stage, 5 * deadline)
    reasons = follow(w, 8 * deadline, step)
    status = w.status("one")
    assert phase(w) is Phase.RUNNING
    assert status.attempt == 1
    assert status.totals.nodes_replaced == status.totals.pods_replaced == 0
    assert "ClusterSlow" in reasons
    assert find(status, "ClusterDisruption") is None, "it is over"


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "deadline", "step"), STAGES[1:])
def test_in_a_slow_launch_the_few_that_are_dead_are_replaced_once_all_others_are_there(
    stage: int, deadline: float, step: float
) -> None:
    dead = frozenset({3, 100, 255})
    w = launched(stage, 2 * deadline, dead=dead)
    follow(w, 10 * deadline, 2 * step)
    assert phase(w) is Phase.RUNNING
    assert w.status("one").attempt == 1
    assert replaced(w) == dead
    assert w.status("one").totals.nodes_replaced + w.status("one").totals.pods_replaced == len(dead)


@pytest.mark.parametrize("stage", [STARTED, REGISTERED, READY])
def test_where_nothing_is_slow_the_dead_are_replaced_at_their_deadline(stage: int) -> None:
    dead = frozenset({3, 30})
    w = launched(stage, USUAL[stage], ranks=40, dead=dead)
    follow(w, 30.0, 5.0)
    limits = w.tunables.deadlines
    pod = next(pod for pod in w.pods.values() if pod.slot == 3)
    due = {
        STARTED: pod.created_at + limits.scheduled + limits.started,
        REGISTERED: (pod.started_at or 0.0) + limits.registered,
        READY: (pod.started_at or 0.0) + limits.registered + limits.ready,
    }[stage]
    w.now = due - 1.0
    w.settle(2)
    assert not replaced(w)
    w.now = due + 6.0  # they did not start in one moment
    w.settle(2)
    assert replaced(w) == dead


@pytest.mark.slow
def test_many_that_never_come_are_replaced_in_the_end() -> None:
    dead = frozenset(range(10))
    w = launched(REGISTERED, 60.0, ranks=40, dead=dead)
    assert "ClusterSlow" in follow(w, 600, 20.0)
    assert not replaced(w)
    follow(w, 300, 20.0)
    assert replaced(w) == dead


def test_a_new_leader_does_not_begin_to_count_anew() -> None:
    w = launched(REGISTERED, 2.0, ranks=16, dead=frozenset({7}))
    for _ in range(3):
        follow(w, 70.0, 5.0)
        if replaced(w):
            break
        w.crash()
    assert replaced(w) == {7}


@pytest.mark.slow
@settings(max_examples=examples(5), deadline=None)
@given(
    st.sampled_from(STAGES),
    st.floats(0.1, 3.0),
    st.sets(st.integers(0, 39), max_size=3),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_whatever_is_slow_and_whoever_leads_only_the_dead_are_replaced(
    slow: tuple[int, float, float], times: float, dead: set[int], takeovers: list[int]
) -> None:
    stage, deadline, step = slow
    if stage == PLACED:
        dead = set()  # what the scheduler does not look at is nobody's fault
    w = launched(stage, times * deadline, ranks=40, dead=frozenset(dead))
    for look in range(150):
        if look in takeovers:
            w.crash()
        follow(w, step, step)
        assert replaced(w) <= dead
        if phase(w) is Phase.RUNNING:
            break
    assert phase(w) is Phase.RUNNING
    assert replaced(w) == dead


@pytest.mark.parametrize("placing", [0.0, 12.0])
def test_where_kube_scheduler_is_slow_a_single_pod_that_it_has_not_placed_is_waited_for_as_much_longer(
    placing: float,
) -> None:
    w = launched(PLACED, 1.0, ranks=16, dead=frozenset({7}))
    w.lag = Lag(placing=placing)
    follow(w, 20.0, 5.0)
    name, pod = next((name, pod) for name, pod in w.pods.items() if pod.slot == 7)
    assert not pod.bound
    w.pods[name] = replace(pod, reason="Unschedulable")
    due = pod.created_at + w.tunables.deadlines.scheduled + 10 * placing
    w.now = due - 1.0
    w.settle(2)
    assert not replaced(w)
    w.now = due + 1.0
    w.settle(2)
    assert replaced(w) == {7}
