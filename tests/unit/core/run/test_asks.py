"""What a batch job asks for from inside: taken up once, by the run whose worker tells it, and answered from status."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import Raw

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.run_status import AskStatus, StopStatus, TrainingRunStatus
from lockstep.core.batch.inside import mark_of, submitted_name
from lockstep.core.model.conditions import with_condition
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import AskAnswer, RefuseRun
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionReason, ConditionType, StopReason, WaitReason
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.snapshot import QueueView, RefusedCreate, RunView
from lockstep.core.model.worker_report import JobAsk
from lockstep.core.run.asks import MOST_KEPT, answers, obey_asks
from lockstep.core.run.directive import directive_for
from lockstep.core.run.handover import Handover
from support.values import not_none
from support.world import World, world_with_gang

BATCH = {"launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun x\n"}}, "command": []}
PLAIN: dict[str, object] = {}


def asking(w: World, *asks: JobAsk, slot: int = 0, **changes: object) -> World:
    told = w.reports["uid-one"]
    told[slot] = replace(told[slot], asks=asks, **changes)  # type: ignore[arg-type]
    return w


def plan_of(w: World, **status: object) -> PlanBuilder:
    snapshot = w.snapshot("one")
    run = replace(snapshot.run, status=changed(snapshot.run.status, **status))
    plan = PlanBuilder(RunContext(replace(snapshot, run=run), w.tunables, w.now))
    obey_asks(plan)
    return plan


def stopping(reason: StopReason, save: str = "save-1") -> StopStatus:
    return StopStatus(reason=reason, message="before", time=1.0, deadline=9e9, save=save)


@pytest.mark.parametrize(
    ("kind", "ok", "reason"),
    [
        ("requeue", True, StopReason.REQUEUED),
        ("cancel", True, StopReason.CANCELLED),
        ("hold", False, None),
        ("reboot", False, None),
    ],
)
def test_a_job_that_runs_is_requeued_or_cancelled_as_it_asks(kind: str, ok: bool, reason: StopReason | None) -> None:
    plan = plan_of(asking(world_with_gang(**BATCH), JobAsk("a", kind)))
    [row] = plan.status.asks
    assert (row.id, row.kind, row.ok, row.attempt) == ("a", kind, ok, 1)
    assert bool(row.words) is not ok
    assert (plan.status.stop.reason if plan.status.stop is not None else None) == reason


@pytest.mark.parametrize(
    ("kind", "before", "ok", "after"),
    [
        ("requeue", StopReason.TIME_LIMIT, True, StopReason.REQUEUED),  # its trap, for the signal before the limit
        ("requeue", StopReason.PREEMPTED, True, StopReason.PREEMPTED),
        ("requeue", StopReason.CANCELLED, False, StopReason.CANCELLED),
        ("requeue", StopReason.SUSPENDED, False, StopReason.SUSPENDED),
        ("requeue", StopReason.BUDGET_SPENT, False, StopReason.BUDGET_SPENT),
        ("cancel", StopReason.REQUEUED, True, StopReason.CANCELLED),
        ("cancel", StopReason.SUSPENDED, True, StopReason.CANCELLED),
        ("cancel", StopReason.TIME_LIMIT, True, StopReason.TIME_LIMIT),
        ("cancel", StopReason.CANCELLED, True, StopReason.CANCELLED),
    ],
)
def test_a_stop_that_has_begun_turns_as_far_as_nobody_else_wanted_it_for_good(
    kind: str, before: StopReason, ok: bool, after: StopReason
) -> None:
    plan = plan_of(asking(world_with_gang(**BATCH), JobAsk("a", kind)), stop=stopping(before))
    stop = not_none(plan.status.stop)
    assert (plan.status.asks[0].ok, stop.reason) == (ok, after)
    assert stop.save == ("save-1" if before == after else ""), "who asks has saved"


def test_the_same_request_is_one_however_often_it_is_told() -> None:
    w = asking(world_with_gang(**BATCH), JobAsk("a", "requeue"))
    w.reconcile("one")
    taken = w.status("one")
    assert taken.asks[0].ok
    w.now += 10
    asking(w, JobAsk("a", "requeue"))
    w.reconcile("one")
    assert w.status("one").asks == taken.asks
    w.crash()
    w.work_reports_only()
    asking(w, JobAsk("a", "requeue"))
    w.reconcile("one")
    assert w.status("one").asks == taken.asks


def test_a_requeued_job_runs_again_from_its_start() -> None:
    w = asking(world_with_gang(**BATCH), JobAsk("a", "requeue"))
    w.reconcile("one")
    assert w.status("one").stop is not None
    w.settle()
    w.pass_time(120, 5)
    assert w.status("one").attempt == 2
    assert w.status("one").state == "Running"


def test_the_answer_is_told_to_the_gang_of_that_attempt_alone() -> None:
    w = asking(world_with_gang(**BATCH), JobAsk("a", "hold"))
    w.reconcile("one")
    told = not_none(w.directives["uid-one"]).asked
    assert [(answer.id, answer.ok) for answer in told] == [("a", False)]
    plan = plan_of(w, attempt=2)
    assert answers(plan) == ()


def test_an_answer_is_told_while_the_gang_is_stopped() -> None:
    w = asking(world_with_gang(**BATCH), JobAsk("a", "requeue"))
    plan = plan_of(w)
    assert plan.phase is Phase.STOPPING
    assert not_none(directive_for(plan, Handover())).asked == (AskAnswer("a", True, ""),)


def test_what_an_older_attempt_or_another_kind_of_run_asks_for_is_not_heard() -> None:
    assert not plan_of(asking(world_with_gang(**BATCH), JobAsk("a", "cancel"), attempt=0)).status.asks
    assert not plan_of(asking(world_with_gang(**PLAIN), JobAsk("a", "cancel"))).status.asks


def test_of_very_many_requests_a_few_are_taken_up_at_a_time_and_kept() -> None:
    w = world_with_gang(4, **BATCH)
    for slot in range(4):
        asking(w, *(JobAsk(f"a{slot}-{number}", "hold") for number in range(4)), slot=slot)
    plan = plan_of(w, asks=(AskStatus(id="old", kind="hold", attempt=1),))
    assert len(plan.status.asks) == MOST_KEPT
    assert "old" not in {row.id for row in plan.status.asks}


OPEN = QueueView("default", TrainingQueueSpec.model_validate({"batch": {"submitFromInside": True}}))
SUBMIT = JobAsk("s-1", "submit", Raw(b'{"script": "#!/bin/sh\\nsrun x\\n", "options": ["-N", "2"]}'))


def submitting(w: World, queue: QueueView | None = OPEN, **seen: Any) -> PlanBuilder:
    snapshot = replace(asking(w, SUBMIT).snapshot("one"), queue=queue, **seen)
    plan = PlanBuilder(RunContext(snapshot, w.tunables, w.now))
    obey_asks(plan)
    return plan


def child(w: World, **changes: Any) -> dict[str, RunView]:
    one = w.runs["one"]
    name = submitted_name(one, SUBMIT)
    marks = {names.ANNOTATION_SUBMITTED_BY: mark_of(one, SUBMIT)}
    return {name: replace(one, name=name, uid="child", annotations=marks, **changes)}


@pytest.mark.parametrize(
    "queue", [None, QueueView("default", TrainingQueueSpec()), QueueView("default", changed(OPEN.spec, batch=None))]
)
def test_a_job_submits_others_only_where_its_queue_lets_it(queue: QueueView | None) -> None:
    plan = submitting(world_with_gang(**BATCH), queue)
    assert not plan.runs
    assert "submitFromInside" in plan.status.asks[0].words


def test_a_job_is_created_once_and_answered_once_it_has_its_number() -> None:
    w = world_with_gang(**BATCH)
    first = submitting(w)
    [made] = first.runs
    assert (made.name, first.status.asks) == (submitted_name(w.runs["one"], SUBMIT), ())
    assert made.body["spec"]["nodes"] == 2
    waits = submitting(w, submitted=child(w, status=TrainingRunStatus()))
    assert (waits.runs, waits.status.asks) == ([], ())
    assert not_none(waits.build().wake_at) <= w.now + 1
    there = submitting(w, submitted=child(w, status=TrainingRunStatus(job_id=44)))
    assert (there.runs, [(row.ok, row.job_id) for row in there.status.asks]) == ([], [(True, 44)])
    assert [(answer.id, answer.ok, answer.job_id) for answer in answers(there)] == [("s-1", True, 44)]


def test_a_job_whose_queue_is_yet_to_be_made_has_its_number_all_the_same() -> None:
    w = world_with_gang(**BATCH)
    waits = with_condition(
        TrainingRunStatus(job_id=44), ConditionType.ACCEPTED, False, WaitReason.QUEUE_NOT_FOUND, "no", now=1.0,
        generation=1,
    )  # fmt: skip
    there = submitting(w, submitted=child(w, status=waits))
    assert [(row.ok, row.job_id) for row in there.status.asks] == [(True, 44)]


def test_what_of_a_submission_has_no_effect_is_in_its_answer_in_a_bounded_number_of_letters() -> None:
    w = world_with_gang(**BATCH)
    there = {"submitted": child(w, status=TrainingRunStatus(job_id=44))}
    body = b'{"script": "#!/bin/sh\\n", "options": ["-o", "/dev/null", "--cpu-freq=%s"], "directory": "/scratch"}'
    for value, length in ((b"high", None), (b"x" * 1000, 512)):
        told = JobAsk(SUBMIT.id, SUBMIT.kind, Raw(body % value))
        snapshot = replace(asking(w, told).snapshot("one"), queue=OPEN, **there)
        plan = PlanBuilder(RunContext(snapshot, w.tunables, w.now))
        obey_asks(plan)
        [row] = plan.status.asks
        assert (row.ok, row.job_id) == (True, 44)
        assert row.words.startswith(f"--cpu-freq {value.decode()[:99]}")
        assert len(row.words) == length if length else len(row.words.splitlines()) == 2
        [answer] = answers(plan)
        assert (answer.ok, answer.words) == (True, row.words)


def test_a_job_that_is_refused_is_told_why() -> None:
    w = world_with_gang(**BATCH)
    refused = with_condition(
        TrainingRunStatus(), ConditionType.ACCEPTED, False, ConditionReason.INVALID_SPEC, "no", now=1.0, generation=1
    )
    name, there = submitted_name(w.runs["one"], SUBMIT), child(w, status=refused, resource_version="7")
    first = submitting(w, submitted=there)
    assert first.refused_runs == [RefuseRun("ns", name, "child", "7", "no")], "else it would start later all the same"
    assert (first.status.asks, first.runs) == ((), [])
    for submitted in (there, {}):
        plan = submitting(w, submitted=submitted, refused_creates={name: RefusedCreate(1.0, "no")})
        assert [(row.ok, row.words, row.job_id) for row in plan.status.asks] == [(False, "no", None)]
        assert not plan.runs
        assert not plan.refused_runs
    passing = RefusedCreate(1.0, "busy", is_verdict=False)
    again = submitting(w, refused_creates={submitted_name(w.runs["one"], SUBMIT): passing})
    assert len(again.runs) == 1


def test_a_job_that_has_its_number_is_submitted_whatever_is_said_of_it_since() -> None:
    w = world_with_gang(**BATCH)
    refused = with_condition(
        TrainingRunStatus(job_id=44), ConditionType.ACCEPTED, False, ConditionReason.POD_REFUSED, "no", now=1.0,
        generation=1,
    )  # fmt: skip
    there = submitting(w, submitted=child(w, status=refused))
    assert ([(row.ok, row.job_id) for row in there.status.asks], there.refused_runs) == ([(True, 44)], [])
    assert there.status.asks[0].words.splitlines()[0] == "it waits: no"


def test_a_foreign_run_in_its_way_is_named() -> None:
    w = world_with_gang(**BATCH)
    in_the_way = {name: replace(view, annotations={}) for name, view in child(w, status=TrainingRunStatus()).items()}
    assert "in its way" in submitting(w, submitted=in_the_way).status.asks[0].words


def test_jobs_are_submitted_one_at_a_time() -> None:
    w = world_with_gang(**BATCH)
    asking(w, SUBMIT, replace_id("s-2"))
    snapshot = replace(w.snapshot("one"), queue=OPEN)
    plan = PlanBuilder(RunContext(snapshot, w.tunables, w.now))
    obey_asks(plan)
    assert len(plan.runs) == 1


def replace_id(identity: str) -> JobAsk:
    return JobAsk(identity, SUBMIT.kind, SUBMIT.body)
