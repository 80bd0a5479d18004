"""How a run stops: with a save or without, for good or to queue again, and what it has to wait for."""

from dataclasses import replace

import pytest

from lockstep.api.kueue_status import KueueStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import StopReason
from lockstep.core.model.worker_report import WorkerPhase
from lockstep.core.run.stopping import REQUEUES, begin_stop, carry_out_stop, finish, stop_after_save
from support.values import not_none
from support.world import world_with_gang

NOBODY: frozenset[int] = frozenset()


def stopping(reason: StopReason, **changes: object) -> PlanBuilder:
    """A gang that was told to stop, and its time is over."""
    w = world_with_gang(2, recovery={"debugHold": "1h"}, **changes)
    plan = w.plan("one")
    begin_stop(plan, reason, "why")
    w.amend("one", stop=plan.status.stop)
    w.now += w.tunables.deadlines.stop
    return w.plan("one")


def released(reason: StopReason) -> TrainingRunStatus:
    """The status of a gang whose pods have gone after its stop."""
    w = world_with_gang(2)
    plan = w.plan("one")
    begin_stop(plan, reason, "why")
    w.amend(
        "one",
        stop=plan.status.stop,
        last_admitted=float(int(w.now)) - 100,
        held_seconds=30,
        kueue=KueueStatus(queue="q", workload="w", workload_uid="uid-w"),
    )
    w.pods.clear()
    w.now += w.tunables.deadlines.stop
    plan = w.plan("one")
    carry_out_stop(plan, NOBODY)
    assert not slots.is_held(plan.status.assignment)
    assert plan.admission_changed
    return plan.status


@pytest.mark.parametrize(
    ("reason", "warns"),
    [
        (StopReason.SUSPENDED, False),
        (StopReason.CANCELLED, False),
        (StopReason.PREEMPTED, False),
        (StopReason.NODES_LOST, False),
        (StopReason.TIME_LIMIT, True),
        (StopReason.LAUNCH_FAILED, True),
    ],
)
def test_only_a_failure_warns_and_every_stop_has_a_deadline(reason: StopReason, warns: bool) -> None:
    plan = world_with_gang(2).plan("one")
    begin_stop(plan, reason, "x" * 600)
    stop = not_none(plan.status.stop)
    assert (stop.reason, stop.deadline - stop.time) == (reason, plan.tunables.deadlines.stop)
    assert len(stop.message) == 512
    assert [event.type == "Warning" for event in plan.events] == [warns]


@pytest.mark.parametrize(
    ("listens", "grace", "within", "awaited"),
    [
        (True, "600s", None, 600.0),
        (True, "600s", 20.0, 20.0),
        (False, "600s", 20.0, 0.0),
        (True, "300d", None, 3600.0),
        (True, "2h", 7200.0, 7200.0),
    ],
)
def test_a_save_is_awaited_where_somebody_listens_and_the_ranks_end_after_it(
    listens: bool, grace: str, within: float | None, awaited: float
) -> None:
    w = world_with_gang(2, checkpoint={"shared": {"claimName": "lustre"}, "gracePeriod": grace})
    w.listens = listens
    w.work_reports_only()
    plan = w.plan("one")
    stop_after_save(plan, StopReason.SUSPENDED, "why", within=within)
    stop = not_none(plan.status.stop)
    assert bool(stop.save) is listens
    assert stop.deadline == plan.stamp + awaited + plan.tunables.deadlines.stop
    assert (stop.message == "why") is listens  # else it is said that there is no save


@pytest.mark.parametrize(("left", "goes_on"), [(0.5, False), (0.0, True)])
def test_a_stop_waits_for_its_ranks_until_its_deadline(left: float, goes_on: bool) -> None:
    w = world_with_gang(2)
    plan = w.plan("one")
    begin_stop(plan, StopReason.SUSPENDED, "why")
    w.amend("one", stop=plan.status.stop)
    w.now = plan.stamp + plan.tunables.deadlines.stop - left
    plan = w.plan("one")
    carry_out_stop(plan, NOBODY)
    assert (len(plan.deletes) == 2) is goes_on
    assert plan.phase is Phase.STOPPING


@pytest.mark.parametrize(
    ("phase", "waits"),
    [
        (WorkerPhase.RUNNING, True),
        (WorkerPhase.EXITED, False),
        (WorkerPhase.READY, False),
        (WorkerPhase.PREPARING, False),
    ],
)
def test_a_rank_whose_process_is_not_there_is_not_waited_for(phase: WorkerPhase, waits: bool) -> None:
    w = world_with_gang(2)
    plan = w.plan("one")
    begin_stop(plan, StopReason.CANCELLED, "why")
    w.amend("one", stop=plan.status.stop)
    w.reports[w.runs["one"].uid] = {
        slot: replace(report, phase=phase if slot else WorkerPhase.EXITED)
        for slot, report in w.reports[w.runs["one"].uid].items()
    }
    plan = w.plan("one")
    carry_out_stop(plan, NOBODY)
    assert (plan.phase is Phase.STOPPING) is waits


@pytest.mark.parametrize(
    ("reason", "finished", "held"),
    [
        (StopReason.CANCELLED, True, False),
        (StopReason.TIME_LIMIT, True, False),
        (StopReason.BUDGET_SPENT, True, False),
        (StopReason.LAUNCH_FAILED, True, True),
        (StopReason.SUSPENDED, False, False),
        (StopReason.REQUEUED, False, False),
    ],
)
def test_a_stop_ends_the_run_or_clears_its_nodes_and_only_a_failure_is_held_for_a_look(
    reason: StopReason, finished: bool, held: bool
) -> None:
    plan = stopping(reason)
    carry_out_stop(plan, NOBODY)
    assert (plan.phase is Phase.FINISHED) is finished
    assert (len(plan.deletes) == 2) is not finished
    assert (plan.status.recovery.debug_until is not None) is held
    entry = plan.status.attempts[-1]
    assert (entry.cause, entry.ended_at) == (reason, plan.stamp)


@pytest.mark.parametrize("reason", [StopReason.SUSPENDED, StopReason.REQUEUED, StopReason.PREEMPTED])
def test_who_is_cancelled_meanwhile_does_not_come_back(reason: StopReason) -> None:
    plan = stopping(reason, cancel=True)
    carry_out_stop(plan, NOBODY)
    end = not_none(find(plan.status, "Finished"))
    assert (end.reason, end.message) == (StopReason.CANCELLED, "cancel: true")


@pytest.mark.parametrize(
    ("reason", "ahead", "backs_off", "held_seconds"),
    [
        (StopReason.SUSPENDED, False, False, 430),
        (StopReason.REQUEUED, False, True, 0),
        (StopReason.NODES_LOST, True, True, 0),
        (StopReason.PREEMPTED, True, False, 0),
        (StopReason.QUEUE_DRAINED, False, False, 0),
        (StopReason.RESERVATION_LOST, True, False, 0),
    ],
)
def test_what_a_run_takes_along_into_the_queue(
    reason: StopReason, ahead: bool, backs_off: bool, held_seconds: int
) -> None:
    status = released(reason)
    assert (status.admission.requeued_for == reason) is ahead
    assert (status.recovery.not_before is not None, status.recovery.requeues) == (backs_off, int(backs_off))
    assert status.held_seconds == held_seconds
    assert (status.admission.preemptions == 1) is (reason == StopReason.PREEMPTED)
    assert (status.start, status.stop, status.last_admitted) == (None, None, None)


@pytest.mark.parametrize(
    ("reason", "kept", "given_up"),
    [(StopReason.EVICTED_BY_KUEUE, "uid-w", ""), (StopReason.RESERVATION_LOST, "", "uid-w")],
)
def test_kueue_hears_of_every_end_but_its_own_evictions(reason: StopReason, kept: str, given_up: str) -> None:
    kueue = not_none(released(reason).kueue)
    assert (kueue.queue, kueue.workload_uid, kueue.given_up) == ("q", kept, given_up)


@pytest.mark.parametrize("succeeded", [True, False])
def test_the_end_stands_in_two_conditions(succeeded: bool) -> None:
    plan = world_with_gang(2).plan("one")
    finish(plan, succeeded, StopReason.CANCELLED, "over")
    assert is_true(plan.status, "Finished")
    assert is_true(plan.status, "Succeeded") is succeeded
    assert [event.type for event in plan.events] == ["Normal" if succeeded else "Warning"]
    assert plan.admission_changed


NO_FAILURES = {StopReason.SUSPENDED, StopReason.CANCELLED, StopReason.ALL_RANKS_SUCCEEDED, *REQUEUES}


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize("of_array", [False, True], ids=["run", "array"])
@pytest.mark.parametrize("reason", [reason for reason in StopReason if reason not in NO_FAILURES])
def test_every_end_by_failure_names_the_command_that_goes_on_and_whole(
    reason: StopReason, of_array: bool, long: bool
) -> None:
    w = world_with_gang(2, checkpoint={"shared": {"claimName": "lustre"}})
    w.runs["one"] = replace(w.runs["one"], set_uid="uid-of-the-array" if of_array else "")
    plan = w.plan("one")
    finish(plan, False, reason, "why" * (1000 if long else 1))
    command = "lockstep retry one --name NAME" if of_array else "lockstep retry one"
    said = not_none(find(plan.status, "Succeeded")).message
    assert said.startswith("why")
    assert f": {command}" in said
    assert not_none(find(plan.status, "Finished")).message == said
    (event,) = [event for event in plan.events if event.reason == reason]
    assert event.note == said, "an event takes all of it"


def test_what_was_cancelled_is_told_of_no_command_to_undo_that() -> None:
    plan = world_with_gang(2).plan("one")
    finish(plan, False, StopReason.CANCELLED, "cancel: true")
    assert not_none(find(plan.status, "Succeeded")).message == "cancel: true"
