"""What ends the wait of a run without nodes, and who gives nodes back for somebody else."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import ArchiveJobStatus, ArchiveStatus
from lockstep.api.preemption_status import PreemptionStatus
from lockstep.core.model.conditions import find
from lockstep.core.model.reasons import ConditionType, StopReason
from lockstep.core.model.snapshot import JobPhase, JobView
from lockstep.core.run.undecidable import without_deciding
from lockstep.core.run.waiting import (
    forget_when_due,
    give_up_waiting,
    leave_drained_queue,
    over_at,
    stop_for_preemption,
)
from support.values import not_none
from support.world import World, running, spec, world, world_with_gang

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("fields", "ahead", "ends"),
    [
        ({}, None, False),
        ({}, 0.0, False),
        ({}, -1.0, True),
        ({"timeLimit": "1h"}, 3600.0, False),
        ({"timeLimit": "1h"}, 3599.0, True),
        ({"timeLimit": "1h", "minTimeLimit": "10m"}, 600.0, False),
        ({"timeLimit": "1h", "minTimeLimit": "10m"}, 599.0, True),
    ],
)
def test_a_start_that_could_not_end_before_the_deadline_is_not_waited_for(
    fields: dict[str, Any], ahead: float | None, ends: bool
) -> None:
    w = world(1)
    w.apply("one", replace_deadline(fields, ahead))
    plan = w.plan("one")
    assert give_up_waiting(plan) is ends
    end = find(plan.status, "Finished")
    assert (end is not None and end.reason == StopReason.DEADLINE_UNREACHABLE) is ends


@pytest.mark.parametrize(
    ("attempt", "words"), [(0, "it never got nodes in time"), (2, "got no nodes again in time after attempt 2")]
)
def test_whether_it_ever_had_nodes_is_told_when_it_is_too_late(attempt: int, words: str) -> None:
    w = world(1)
    w.apply("one", replace_deadline({}, -1.0))
    w.amend("one", attempt=attempt)
    plan = w.plan("one")
    assert give_up_waiting(plan)
    end = find(plan.status, "Finished")
    assert end is not None
    assert words in end.message
    assert words in told_undecided(w)


def told_undecided(w: World) -> str:
    """What an operator says that cannot decide about the run."""
    status = not_none(without_deciding(w.snapshot("one"), w.tunables, w.now, "ValueError").status)
    return not_none(find(status, ConditionType.FINISHED)).message


def replace_deadline(fields: dict[str, Any], ahead: float | None) -> Any:
    made = spec(2, **fields)
    return made if ahead is None else changed(made, deadline=NOW + ahead)


@pytest.mark.parametrize(("policy", "stops"), [("HoldAndDrain", True), ("Hold", False), ("None", False), (None, False)])
def test_a_drained_queue_gets_its_nodes_back(policy: str | None, stops: bool) -> None:
    w = world_with_gang(2)
    if policy is not None:
        w.queue("default", stopPolicy=policy)
    plan = w.plan("one")
    assert leave_drained_queue(plan) is stops
    assert (plan.status.stop is not None) is stops


@pytest.mark.parametrize(
    ("noticed", "by", "asks_again"), [(False, "", False), (True, "uid-gone", True), (True, "uid-two", True)]
)
def test_a_notice_takes_effect_only_while_nodes_are_kept_for_it(noticed: bool, by: str, asks_again: bool) -> None:
    w = world_with_gang(2)
    w.apply("two", spec(2))
    if noticed:
        w.amend("one", preemption=PreemptionStatus(by=by, notice_time=NOW, deadline=NOW))
    plan = w.plan("one")
    assert not stop_for_preemption(plan)
    assert plan.admission_changed is asks_again
    assert plan.status.stop is None


@pytest.mark.parametrize(("ttl", "over"), [(None, None), ("0s", 5.0), ("1h", 3605.0)])
def test_the_record_of_a_run_is_kept_for_so_long(ttl: str | None, over: float | None) -> None:
    run = world_with_gang(1, **({} if ttl is None else {"ttlAfterFinished": ttl})).runs["one"]
    assert over_at(run, 5.0) == over


@pytest.mark.parametrize(
    ("ago", "has_pods", "recorded", "deleted"),
    [
        (3600.0, False, True, True),
        (3599.0, False, True, False),
        (3600.0, True, True, False),
        (3600.0, False, False, False),
    ],
)
def test_it_is_forgotten_once_it_is_due_and_on_record_and_no_pod_is_left(
    ago: float, has_pods: bool, recorded: bool, deleted: bool
) -> None:
    w = world_with_gang(1, ttlAfterFinished="1h")
    if not has_pods:
        w.pods.clear()
    plan = w.plan("one")
    plan = type(plan)(replace(plan.context, snapshot=replace(plan.snapshot, recorded=recorded)))
    forget_when_due(plan, plan.now - ago)
    assert plan.delete_run is deleted


@pytest.mark.parametrize(
    ("fields", "written", "job", "deleted", "told"),
    [
        ({"spec": None}, "1h", None, True, False),
        ({}, "1h", None, True, False),
        ({"spec": None}, None, None, False, False),
        ({"spec": None}, "", None, False, True),
        ({"spec": None}, "1h", JobPhase.ACTIVE, False, False),
        ({"spec": None}, "1h", JobPhase.COMPLETE, True, False),
    ],
    ids=["nothing else is known", "a part is", "it is kept", "nor is that", "it archives", "it has archived"],
)
def test_one_whose_spec_cannot_be_read_is_forgotten_by_what_can_or_told_why_not(
    fields: dict[str, Any], written: str | None, job: JobPhase | None, deleted: bool, told: bool
) -> None:
    w = running(2)
    for rank in range(2):
        w.end_child("one", rank, 0)
    w.settle()
    w.pods.clear()
    w.runs["one"] = replace(w.runs["one"], spec_error="spec.nodes: no number", ttl_written=written, **fields)
    if job is not None:
        archive = ArchiveStatus(job=ArchiveJobStatus(name="j", action="Upload"))
        w.amend("one", checkpoint=changed(w.status("one").checkpoint, archive=archive))
        w.jobs["one"] = (JobView("ns", "j", "job-1", "uid-one", job),)
    w.now += 7200
    plan = w.reconcile("one")
    assert plan.delete_run is deleted
    accepted = find(plan.status, ConditionType.ACCEPTED) if plan.status is not None else None
    assert (accepted is not None and "cannot be read for how long" in accepted.message) is told


def test_one_that_is_paused_is_not_forgotten() -> None:
    w = world_with_gang(1, ttlAfterFinished="1h")
    w.pods.clear()
    w.runs["one"] = replace(w.runs["one"], annotations={names.ANNOTATION_PAUSED: "true"})
    plan = w.plan("one")
    forget_when_due(plan, plan.now - 1e6)
    assert not plan.delete_run
