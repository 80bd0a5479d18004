"""What gathering returns: what the gang is asked to do, and what a complete one still waits for."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.plan import VerifyRequest
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.worker_report import CheckpointReport, Verdict, WorkerPhase
from lockstep.core.run.barrier import gather
from lockstep.core.run.handover import Gathering
from lockstep.core.run.launching import SlotStage, Stage, stages_of_ranks
from support.world import world_with_gang

EXPECTED = VerifyRequest("shared", "/shared/100", 100)


def at_the_barrier(amend: Callable[[TrainingRunStatus], TrainingRunStatus]) -> PlanBuilder:
    """A gang of two that has saved step 100, failed once, and is complete again."""
    w = world_with_gang(2, checkpoint={"shared": {"claimName": "lustre"}})
    w.train("one", 100)
    w.tell_of_save("one", 100)
    w.settle()
    w.exit_child("one", 1, 1)
    for _ in range(5):
        plan = PlanBuilder(RunContext(w.snapshot("one"), w.tunables, w.now))
        if w.status("one").attempt == 2 and all(at.stage is Stage.READY for at in stages_of_ranks(plan)):
            break
        w.reconcile("one")
        w.work()
    assert w.status("one").attempt == 2
    plan = PlanBuilder(RunContext(w.snapshot("one"), w.tunables, w.now))
    plan.status = amend(plan.status)
    return plan


def waits_a_minute(status: TrainingRunStatus) -> TrainingRunStatus:
    return changed(status, recovery=changed(status.recovery, not_before=9e9))


def as_it_is(status: TrainingRunStatus) -> TrainingRunStatus:
    return status


def test_while_a_rank_is_missing_the_others_read_what_is_likely_to_be_chosen() -> None:
    plan = at_the_barrier(as_it_is)
    assert gather(plan, [SlotStage(0, Stage.READY, None), SlotStage(1, Stage.PREPARING, None)]).verify == EXPECTED
    assert plan.status.start is not None
    assert plan.status.start.attempt == 1


@pytest.mark.parametrize(
    ("amend", "words"),
    [
        (waits_a_minute, "waits before the next attempt, as the last ones made no progress"),
        (as_it_is, "reads step 100 of attempt 1 (shared) before resuming from it"),
    ],
)
def test_a_complete_gang_says_what_it_waits_for(
    amend: Callable[[TrainingRunStatus], TrainingRunStatus], words: str
) -> None:
    plan = at_the_barrier(amend)
    assert gather(plan, stages_of_ranks(plan)) == Gathering(verify=EXPECTED, waiting_for=words)
    assert plan.status.start is not None
    assert plan.status.start.attempt == 1


def test_workers_that_are_asked_for_another_attempt_have_their_time_to_get_ready_for_it() -> None:
    w = world_with_gang(2)
    snapshot, now = w.snapshot("one"), w.now + 3600.0
    leftover = CheckpointReport("shared", 9, "/shared/a7/9", Verdict.VALID, attempt=7, run_uid=snapshot.run.uid)
    reports = {
        slot: replace(report, phase=WorkerPhase.READY, ready_for=2, polling=True, inventory=(leftover,))
        for slot, report in snapshot.reports.items()
    }
    run = replace(snapshot.run, status=changed(w.status("one"), attempt=2))
    plan = PlanBuilder(RunContext(replace(snapshot, run=run, reports=reports), w.tunables, now))
    gather(plan, stages_of_ranks(plan))
    assert plan.status.attempt == 8
    asked = stages_of_ranks(plan)
    assert {at.stage for at in asked} == {Stage.PREPARING}
    assert all(at.deadline is not None and at.deadline > now + 60.0 for at in asked)


def test_a_complete_gang_that_waits_for_nothing_gets_its_start() -> None:
    w = world_with_gang(2)
    before = changed(w.status("one"), attempt=2)  # nothing to resume from, and everybody still stands there
    snapshot = w.snapshot("one")
    reports = {
        slot: replace(report, phase=WorkerPhase.READY, ready_for=2, polling=True)
        for slot, report in snapshot.reports.items()
    }
    run = replace(snapshot.run, status=before)
    plan = PlanBuilder(RunContext(replace(snapshot, run=run, reports=reports), w.tunables, w.now))
    assert gather(plan, stages_of_ranks(plan)) == Gathering()
    assert plan.status.start is not None
    assert plan.status.start.attempt == 2
