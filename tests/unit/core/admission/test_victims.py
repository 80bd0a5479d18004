"""Who could be preempted and what that would cost, and who gives its nodes back anyway."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import CheckpointStatus, SavedCheckpoint
from lockstep.api.preemption_status import PreemptionStatus
from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import Condition, KueueStatus, ProgressStatus, StopStatus, TrainingRunStatus
from lockstep.core.admission.engine.jobs import RunningJob
from lockstep.core.admission.victims import (
    RESTART,
    class_value,
    goes_anyway,
    is_leaving,
    newest_step,
    notice_seconds,
    unsaved_seconds,
    victim_of,
)
from lockstep.core.model.node_set import NodeSet
from lockstep.core.model.settings import Deadlines
from lockstep.core.model.snapshot import PodView, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, pod, run
from support.preempting import CHECKPOINT, CLASSES, HOUR, training

QUEUE = TrainingQueueSpec.model_validate({"preemption": {"minRuntime": "10m"}})
HELD = RunningJob("uid-a", "default", "H100", NodeSet(0b11), 2, NOW + HOUR)
STOPS = StopStatus(reason="Cancelled", time=NOW - 10, deadline=NOW + 20)
NOTICE = PreemptionStatus(by="uid-b", notice_time=NOW, deadline=NOW)
REGRESSED = Condition(type="StateRegression", status="True", reason="x", last_transition_time=0)
PAUSED = {"lockstep.dev/paused": "true"}


def trains(saved: float | None = None, since: float = NOW - HOUR, **spec: Any) -> RunView:
    return training("a", "n0", "n1", since=since, saved=saved, **spec)


def with_status(**changes: Any) -> RunView:
    view = trains()
    return replace(view, status=changed(view.status, **changes))


@pytest.mark.parametrize(
    ("view", "would_go"),
    [
        (trains(), True),
        (replace(trains(), spec=None), False),
        (replace(trains(), deleting=True), False),
        (replace(trains(), annotations=PAUSED), True),
        (replace(trains(), unread=True), False),
        (trains(suspend=True), False),
        (trains(cancel=True), False),
        (with_status(stop=STOPS), False),
        (with_status(preemption=NOTICE), False),
        (with_status(conditions=(REGRESSED,)), True),
        (with_status(kueue=KueueStatus(queue="q")), False),
    ],
)
def test_only_who_would_answer_a_notice_can_be_preempted(view: RunView, would_go: bool) -> None:
    assert (victim_of(view, HELD, QUEUE, CLASSES, NOW) is not None) is would_go


@pytest.mark.parametrize(
    ("view", "lost"),
    [
        (trains(), 2 * (HOUR + RESTART)),
        (trains(saved=NOW - 60), 2 * (60 + RESTART)),
        (trains(saved=NOW - 2 * HOUR), 2 * (HOUR + RESTART)),
        (trains(saved=NOW + 60), 2 * RESTART),
        (with_status(progress=ProgressStatus(longest_init=40)), 2 * (HOUR + 40)),
        (with_status(attempt=7), 2 * RESTART),
    ],
)
def test_preemption_costs_what_was_not_saved_and_the_next_start_on_every_node(view: RunView, lost: float) -> None:
    victim = victim_of(view, HELD, QUEUE, CLASSES, NOW)
    assert victim is not None
    assert victim.lost == lost


def test_a_run_keeps_its_nodes_for_the_shortest_time_of_its_queue() -> None:
    victims = [
        victim_of(view, HELD, QUEUE, CLASSES, NOW)
        for view in (trains(since=NOW - 5), replace(with_status(last_admitted=None), created_at=NOW - 7))
    ]
    assert [victim and victim.protected_until for victim in victims] == [NOW + 595, NOW + 593]


@pytest.mark.parametrize(
    ("name", "value", "as_victim"),
    [(None, 0, 0), ("low", 10, 10), ("below", 0, 0), ("gone", None, sys.maxsize)],
)
def test_a_class_that_nobody_knows_is_lower_than_none(name: str | None, value: int | None, as_victim: int) -> None:
    view, classes = trains(of_class=name), {**CLASSES, "below": -5}
    assert view.spec is not None
    victim = victim_of(view, HELD, QUEUE, classes, NOW)
    assert victim is not None
    assert (class_value(view.spec, classes), victim.class_value) == (value, as_victim)


SIGNALLED = {"launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\n", "signal": "SIGUSR1"}}}


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 300.0),
        ({"checkpoint": CHECKPOINT}, 420.0),
        (SIGNALLED, 900.0),  # as long as before its time limit
        ({**SIGNALLED, "onTimeLimit": {"leadTime": "2m"}}, 420.0),
        ({**SIGNALLED, "checkpoint": CHECKPOINT}, 420.0),
        ({"checkpoint": {**CHECKPOINT, "gracePeriod": "300d"}}, 3900.0),
    ],
)
def test_a_notice_leaves_time_for_the_save_and_the_stop(spec: dict[str, Any], seconds: float) -> None:
    view = run("a", **spec)
    assert view.spec is not None
    assert notice_seconds(view.spec, Tunables(deadlines=Deadlines(stop=300.0))) == seconds


def test_the_newest_step_is_that_of_any_tier() -> None:
    saved = tuple(SavedCheckpoint(tier=tier, step=step) for tier, step in (("local", 9), ("shared", 7)))
    assert newest_step(TrainingRunStatus(checkpoint=CheckpointStatus(latest=saved))) == 9
    assert newest_step(TrainingRunStatus()) is None


def test_nothing_is_unsaved_before_an_attempt_has_begun() -> None:
    assert unsaved_seconds(TrainingRunStatus(attempt=1), NOW) == 0.0
    planned = TrainingRunStatus(attempt=1, attempts=(AttemptStatus(number=1),))
    assert unsaved_seconds(planned, NOW) == 0.0


ENDS, STUCK = ({"deleting": True, "killed_at": at} for at in (NOW - 59, NOW - 60))


@pytest.mark.parametrize(
    ("view", "pods", "leaving", "goes"),
    [
        (trains(), [], False, False),
        (trains(cancel=True), [], True, True),
        (trains(suspend=True), [], True, True),
        (replace(trains(suspend=True), annotations=PAUSED), [], True, True),
        (replace(trains(suspend=True), unread=True), [], True, False),
        (with_status(stop=changed(STOPS, deadline=NOW - 59)), [], True, True),
        (with_status(stop=changed(STOPS, deadline=NOW - 60)), [], True, False),
        (replace(trains(), deleting=True), [], True, True),
        (replace(trains(), deleting=True), [pod(trains(), 0, "n0", **ENDS)], True, True),
        (replace(trains(), deleting=True), [pod(trains(), 0, "n0", **STUCK)], True, False),
        (replace(trains(), deleting=True), [pod(trains(), 0, "n0")], True, False),
    ],
)
def test_who_leaves_is_counted_on_until_it_is_long_overdue(
    view: RunView, pods: list[PodView], leaving: bool, goes: bool
) -> None:
    assert (is_leaving(view), goes_anyway(view, pods, NOW)) == (leaving, goes)
