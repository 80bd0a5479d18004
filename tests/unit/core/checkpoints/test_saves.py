"""Collective saves: one step for all ranks, asked for in status first, answered by what is valid."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import SavedCheckpoint, SaveStatus
from lockstep.api.run_status import AssignmentStatus, StopStatus
from lockstep.core.checkpoints import saves
from lockstep.core.checkpoints.saves import (
    has_just_settled_for,
    is_settled_for,
    last_trained,
    listens,
    save_order,
    settle_save,
)
from lockstep.core.decide import decide
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import StopReason
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import ProgressReport, TimingReport
from lockstep.worker import agent
from support.values import not_none
from support.world import World, spec, training, world


def save_of(w: World) -> SaveStatus:
    return not_none(w.status("one").checkpoint.save)


def result_of(w: World) -> str:
    return next(r.result for r in w.status("one").requests if r.name == "checkpoint-request")


def timed(w: World, seconds: float, age: float = 0.0) -> None:
    """All workers say how long a step takes; the slowest word is ``age`` old."""
    for slot, report in w.reports["uid-one"].items():
        w.reports["uid-one"][slot] = replace(
            report, timing=TimingReport(step=seconds), received_at=w.now - (age if slot else 0.0)
        )


@pytest.mark.parametrize(
    ("step_seconds", "age", "beyond"),
    [
        (1.0, 0.0, 1 + 4),  # two heartbeats of 2 s for the delivery, and the step under way
        (0.5, 0.0, 1 + 8),
        (30.0, 0.0, 1 + 1),
        (1.0, 3.0, 1 + 7),  # what was done since the last word counts as well
        (0.0, 0.0, 1 + 5 + 2),  # not measured: the average since the start, and five more
    ],
)
def test_the_step_lies_beyond_any_that_a_rank_may_have_begun(step_seconds: float, age: float, beyond: int) -> None:
    w = training()
    started = not_none(w.status("one").attempts[-1].started_at)
    w.now = started + 10.0  # five steps in ten seconds: an average of two
    w.work()
    timed(w, step_seconds, age)
    w.annotate("one", checkpoint_request="a")
    w.reconcile("one")
    assert save_of(w).at_step == 5 + beyond


def test_a_save_is_in_status_before_any_worker_is_told() -> None:
    w = training()
    w.annotate("one", checkpoint_request="a")
    told = w.directives["uid-one"]
    w.reconcile("one", crash_after=0)
    assert w.status("one").checkpoint.save is None
    assert told.save is None
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    assert plan.status is not None
    assert plan.status.checkpoint.save is not None
    w.reconcile("one")
    w.crash()
    w.work()
    repeated = not_none(w.reconcile("one").directive)
    assert repeated.save is not None
    assert repeated.save.id == save_of(w).id


def test_a_new_leader_that_no_worker_has_reached_yet_waits_for_the_save_until_its_deadline() -> None:
    w = training()
    w.annotate("one", checkpoint_request="a")
    w.reconcile("one")
    w.crash()
    deadline = not_none(save_of(w).deadline)
    w.now += 2.0 * w.tunables.silent_after(3)
    w.reconcile("one")
    assert save_of(w).outcome == "", "who was not heard may be saving"
    w.now = deadline + 1.0
    w.reconcile("one")
    assert save_of(w).outcome == "Expired"


def test_a_request_is_answered_with_the_step_that_is_valid_on_all_ranks() -> None:
    w = training()
    w.annotate("one", checkpoint_request="a")
    w.reconcile("one")
    assert (result_of(w), save_of(w).outcome) == ("TakenUp", "")
    w.settle()
    assert save_of(w).outcome == "Saved"
    assert save_of(w).step == save_of(w).at_step
    assert result_of(w) == f"Saved step {save_of(w).step}"
    assert w.status("one").checkpoint.latest[0].step == save_of(w).step
    assert w.status("one").attempt == 1


def test_what_was_valid_before_does_not_answer_a_request() -> None:
    w = training()
    w.tell_of_save("one", 5)
    w.listens, w.saves_succeed = True, False
    w.request("one", checkpoint_request="a")
    assert save_of(w).needs_step == 6
    assert save_of(w).outcome == ""


def test_a_checkpoint_of_an_earlier_attempt_beyond_the_current_step_does_not_answer_a_request() -> None:
    w = training()
    w.tell_of_save("one", 5)
    w.saves_succeed = False
    w.annotate("one", checkpoint_request="a")
    w.reconcile("one")
    w.saved_by["uid-one", 300] = 7
    w.tell_of_save("one", 300)
    w.reconcile("one")
    assert save_of(w).outcome == ""


def test_a_checkpoint_that_does_not_say_its_attempt_answers_only_within_reach() -> None:
    w = training()
    w.tell_of_save("one", 5)
    w.saves_succeed = False
    timed(w, 1.0)
    w.annotate("one", checkpoint_request="a")
    w.reconcile("one")
    w.saved_by["uid-one", 300] = 0
    w.tell_of_save("one", 300)  # it was rolled back from
    w.reconcile("one")
    assert save_of(w).outcome == ""
    w.saved_by["uid-one", save_of(w).at_step] = 0
    w.tell_of_save("one", save_of(w).at_step)
    w.reconcile("one")
    assert save_of(w).outcome == "Saved"


def test_a_save_that_never_comes_expires_at_its_deadline_and_training_goes_on() -> None:
    w = training(checkpoint={"shared": {"claimName": "lustre"}, "gracePeriod": "1m"})
    w.saves_succeed = False
    w.request("one", checkpoint_request="a")
    w.pass_time(58, step=2)
    assert save_of(w).outcome == ""
    w.pass_time(5)
    assert (save_of(w).outcome, result_of(w)) == ("Expired", "Expired")
    assert set(w.children("one").values()) == {1}


def test_a_new_leader_hears_the_workers_before_it_calls_a_save_expired() -> None:
    w = training(checkpoint={"shared": {"claimName": "lustre"}, "gracePeriod": "1m"})
    w.saves_succeed = False
    w.request("one", checkpoint_request="a")
    w.now += 120  # nobody leads
    w.crash()
    w.reconcile("one")
    assert save_of(w).outcome == ""
    w.pass_time(10)
    assert save_of(w).outcome == "Expired"


def test_nothing_is_waited_for_where_nobody_listens() -> None:
    w = training()
    w.listens = False
    w.work()
    w.request("one", checkpoint_request="a")
    assert result_of(w) == "NobodyListens"
    assert w.status("one").checkpoint.save is None


def test_a_new_leader_that_has_heard_nobody_asks_rather_than_losing_work() -> None:
    w = training()
    w.crash()
    w.apply("one", spec(2, suspend=True))
    w.reconcile("one")
    stop = not_none(w.status("one").stop)
    assert stop.save
    w.settle()
    assert w.status("one").state == "Suspended"
    assert save_of(w).outcome == "Saved"


def test_a_save_ends_with_its_attempt() -> None:
    w = training()
    w.saved["uid-one"].clear()
    w.saves_succeed = False
    w.request("one", checkpoint_request="a")
    w.end_child("one", 1, 1)
    assert w.status("one").attempt == 2
    assert (save_of(w).outcome, result_of(w)) == ("Failed", "Failed")


def test_a_save_of_a_gang_whose_nodes_somebody_took_out_of_status_is_waited_for_by_nobody() -> None:
    w = training()
    w.saved["uid-one"].clear()
    w.saves_succeed = False
    w.request("one", checkpoint_request="a")
    snapshot = w.snapshot("one")
    save = not_none(snapshot.run.status.checkpoint.save)
    stop = StopStatus(reason=StopReason.SUSPENDED, time=w.now, deadline=w.now + 60.0, save=save.id)
    status = changed(snapshot.run.status, assignment=AssignmentStatus(), stop=stop)
    context = RunContext(replace(snapshot, run=replace(snapshot.run, status=status)), w.tunables, w.now)
    settle_save(plan := PlanBuilder(context))
    assert not_none(plan.status.checkpoint.save).outcome == "Failed"


def test_a_save_answers_no_request_for_something_else() -> None:
    w = training()
    w.saves_succeed = False
    w.request("one", checkpoint_request="a")
    (asked,) = w.status("one").requests
    assert asked.result == "TakenUp"
    other = changed(asked, name="restart-request")
    w._store(replace(w.runs["one"], status=changed(w.status("one"), requests=(asked, other))))
    w.saves_succeed = True
    w.settle()
    assert result_of(w).startswith("Saved step")
    assert [r.result for r in w.status("one").requests if r.name == "restart-request"] == ["TakenUp"]


def test_workers_are_told_of_no_save_of_an_earlier_attempt() -> None:
    w = training()
    w.saves_succeed = False
    w.annotate("one", checkpoint_request="a")
    w.reconcile("one")
    status = w.status("one")
    order = not_none(save_order(status))
    assert order.id == save_of(w).id
    assert save_order(changed(status, attempt=2)) is None


def test_a_save_that_was_settled_in_an_earlier_attempt_is_none_of_the_current_one() -> None:
    w = training()
    w.request("one", checkpoint_request="a")
    save = save_of(w)
    assert save.outcome == "Saved"
    assert is_settled_for(w.status("one"), save.reason)
    assert not is_settled_for(w.status("one"), "Drained")
    assert not is_settled_for(changed(w.status("one"), attempt=2), save.reason)


@pytest.mark.parametrize(
    ("grace", "counts_for"), [("0s", saves.FRESH_FOR), ("2m", 240.0), ("30d", 2.0 * Tunables().longest_grace)]
)
def test_what_was_saved_for_something_that_did_not_come_counts_for_a_while_whatever_the_grace_period(
    grace: str, counts_for: float
) -> None:
    w = training(checkpoint={"shared": {"claimName": "lustre"}, "gracePeriod": grace})
    w.request("one", checkpoint_request="a")
    saved = save_of(w)
    for later, counts in ((counts_for, True), (counts_for + 1.0, False)):
        w.now = not_none(saved.time) + later
        assert has_just_settled_for(w.plan("one"), saved.reason) is counts


def test_a_save_that_is_told_of_right_after_its_attempt_ended_was_made() -> None:
    w = training()
    w.saves_succeed = False
    w.request("one", checkpoint_request="a")
    at_step = save_of(w).at_step
    w.exit_child("one", 1, 0)
    w.exit_child("one", 0, 1)
    w.work_reports_only()
    w.reconcile("one")
    assert (w.status("one").state, save_of(w).outcome) == ("Recovering", "")
    w.tell_of_save("one", at_step)
    w.reconcile("one")
    assert (save_of(w).outcome, save_of(w).step) == ("Saved", at_step)


@pytest.fixture
def driven() -> World:
    """A save is asked for, and rank 0 ends, which alone listened: Ray's driver, or a batch script."""
    w = training()
    w.saves_succeed = False
    w.request("one", checkpoint_request="a")
    w.exit_child("one", 0, 0)
    w.listens = False
    w.work_reports_only()
    w.reconcile("one")
    return w


def later(w: World, seconds: float) -> str:
    """What has become of the save by then."""
    w.now += seconds
    w.work_reports_only()
    w.reconcile("one")
    return save_of(w).outcome


def test_who_listened_and_has_ended_may_have_saved_while_the_others_go_on(driven: World) -> None:
    assert save_of(driven).outcome == ""
    driven.tell_of_save("one", save_of(driven).at_step)
    driven.reconcile("one")
    assert (save_of(driven).outcome, save_of(driven).step) == ("Saved", save_of(driven).at_step)


def test_who_listened_and_has_ended_without_a_save_is_waited_for_until_its_worker_has_looked(driven: World) -> None:
    assert later(driven, 3.9) == ""
    assert later(driven, 0.1) == "Failed"


def test_what_only_the_worker_of_who_has_ended_sees_waits_for_the_next_look_of_the_others(driven: World) -> None:
    driven.tell_of_save("one", save_of(driven).at_step)
    not_none(driven.worker("one", 1)).inventory = ()
    assert later(driven, 8.9) == ""
    assert later(driven, 0.1) == "Failed"


def test_workers_look_for_saves_as_often_as_the_operator_counts_on() -> None:
    assert (saves.WATCH_SECONDS, saves.WATCH_BEATS) == (agent.WATCH_SECONDS, agent.WATCH_BEATS)


def test_an_id_is_never_used_again_even_within_a_second_and_after_status_was_lost() -> None:
    w = training()
    seen, begin = set(), w.now
    for token in ("a", "b", "c"):
        w.now = begin  # the next leader's clock may be behind
        w.request("one", checkpoint_request=token)
        assert save_of(w).outcome == "Saved"
        seen.add(save_of(w).id)
    w.wipe_status("one")
    w.now += 1
    w.settle()
    w.request("one", checkpoint_request="d")
    seen.add(save_of(w).id)
    assert len(seen) == 4


def test_a_second_reason_joins_the_save_that_is_awaited() -> None:
    w = training()
    w.saves_succeed = False
    w.request("one", checkpoint_request="a")
    first = save_of(w)
    w.pass_time(10)
    w.roll_out("one", spec(2, suspend=True))
    assert save_of(w).id == first.id
    assert save_of(w).reason == "Requested, Suspended"
    assert save_of(w).deadline == first.deadline
    w.saves_succeed = True
    w.settle()
    assert w.status("one").state == "Suspended"
    assert result_of(w).startswith("Saved step")


def test_without_a_tier_a_request_is_answered_at_once() -> None:
    w = training(checkpoint=None)
    w.request("one", checkpoint_request="a")
    assert result_of(w) == "NobodyListens"


def test_a_run_that_does_not_train_says_so() -> None:
    w = world(1)
    w.apply("one", spec(2))
    w.request("one", checkpoint_request="a")
    assert result_of(w) in ("NotRunning", "")


def batch(**fields: object) -> World:
    """A batch job that trains, on nodes without a tier."""
    script = {"script": "#!/bin/sh\nsrun x\n", **fields}
    w = world(2)
    made = spec(2, launcher={"type": "Slurm", "batch": script}, command=[], **LIMITED)
    w.roll_out("one", changed(made, checkpoint=None))
    return w


LIMITED = {"timeLimit": "1h", "onTimeLimit": {"leadTime": "2m"}}


def test_a_batch_script_that_wants_a_signal_before_its_limit_gets_it_without_any_tier() -> None:
    w = batch(signal="SIGUSR1")
    began = not_none(w.status("one").last_admitted)
    w.now = began + 3600 - 125
    w.settle()
    assert w.status("one").checkpoint.save is None
    w.now = began + 3600 - 115
    w.settle()
    assert save_of(w).outcome == ""
    assert not_none(w.directives["uid-one"].save).id == save_of(w).id
    stop = not_none(w.status("one").stop)
    assert (stop.reason, stop.save) == (StopReason.TIME_LIMIT, save_of(w).id)


def test_a_batch_script_that_wants_none_is_only_stopped() -> None:
    w = batch()
    w.now = not_none(w.status("one").last_admitted) + 3600 - 60
    w.settle()
    assert w.status("one").checkpoint.save is None
    assert w.status("one").reason == StopReason.TIME_LIMIT


def test_a_batch_script_that_is_to_go_gets_its_signal_as_long_before_as_it_asked_for() -> None:
    w = batch(signal="SIGTERM")
    w.apply("one", changed(not_none(w.runs["one"].spec), cancel=True))
    w.reconcile("one")
    assert not_none(save_of(w).deadline) == int(w.now) + 120


def saved_at(w: World, step: int) -> list[str]:
    """The awaited save is answered by a checkpoint of that step, while the last report is an older one."""
    w.tell_of_save("one", step)
    plan = w.reconcile("one")
    return [event.note for event in plan.events if event.reason == "SaveCompleted"]


@pytest.mark.parametrize(
    ("before", "words", "trained"),
    [
        (0, "checkpoint-request: step {step} is saved on all ranks", "asked"),
        (
            2,
            (
                "checkpoint-request: step {step} is saved on all ranks; the program's own save came before step "
                "{asked}, which was asked for, and will do"
            ),
            "saved",
        ),
    ],
)
def test_a_save_before_the_step_asked_for_is_explained_and_what_is_saved_has_been_trained(
    before: int, words: str, trained: str
) -> None:
    w = training()
    w.saves_succeed = False
    w.annotate("one", checkpoint_request="a")
    w.reconcile("one")
    asked = save_of(w).at_step
    step = asked - before
    (note,) = saved_at(w, step)
    assert note.endswith(words.format(step=step, asked=asked).partition(": ")[2])
    assert last_trained(w.plan("one")) == step
    w.pass_time(w.tunables.progress_write_interval + 1)
    assert w.status("one").progress.step >= step
    assert w.status("one").progress.summary == str(w.status("one").progress.step)


def test_a_stop_tells_no_fewer_steps_than_its_save_has() -> None:
    w = training()
    w.saves_succeed = False
    w.roll_out("one", spec(2, suspend=True))
    step = save_of(w).at_step
    w.tell_of_save("one", step)
    w.settle()
    status = w.status("one")
    assert (save_of(w).outcome, save_of(w).step) == ("Saved", step)
    assert (status.progress.step, status.attempts[-1].last_step) == (step, step)


@pytest.mark.parametrize(
    ("saved", "attempt", "since", "trained"),
    [
        (11, 1, 0.0, 5),  # nothing says that there was time for it
        (11, 1, 10.0, 11),
        (11, None, 10.0, 11),  # its format does not say whose it is
        (11, 2, 10.0, 5),
        (4, 1, 10.0, 5),
        (400, 1, 10.0, 5),  # counted in other steps
        (400, 1, 1e308, 400),  # a clock that cannot be is a day behind at most
        (10**6, 1, 1e308, 5),
    ],
)
def test_a_save_of_the_program_s_own_has_been_trained_where_there_was_time_for_it(
    saved: int, attempt: int | None, since: float, trained: int
) -> None:
    w = training()
    w.now += 20.0
    for slot, report in w.reports["uid-one"].items():
        progress = ProgressReport(5, w.now - since)
        timing = TimingReport(step=1.0)
        w.reports["uid-one"][slot] = replace(report, progress=progress, timing=timing, received_at=w.now)
    latest = (SavedCheckpoint(tier="shared", step=saved, path="/shared/x", attempt=attempt),)
    assert last_trained(w.plan("one"), latest) == trained
    w.amend("one", checkpoint=changed(w.status("one").checkpoint, latest=latest))
    assert last_trained(w.plan("one")) == trained


@pytest.mark.parametrize(("attempt", "trained"), [(1, 11), (None, None), (2, None)])
def test_where_nothing_was_reported_a_save_of_the_attempt_is_what_is_known(
    attempt: int | None, trained: int | None
) -> None:
    w = training()
    for slot, report in w.reports["uid-one"].items():
        w.reports["uid-one"][slot] = replace(report, progress=None)
    latest = (SavedCheckpoint(tier="shared", step=11, path="/shared/x", attempt=attempt),)
    assert last_trained(w.plan("one"), latest) == trained


def test_progress_shows_no_fewer_steps_than_are_saved() -> None:
    w = training()
    w.now += w.tunables.progress_write_interval + 1
    for worker in w.workers.values():
        worker.step, worker.steps_since = 20, w.now - 5
    w.tell_of_save("one", 23)
    w.reconcile("one")
    status = w.status("one")
    assert [saved.step for saved in status.checkpoint.latest] == [23]
    assert (status.progress.step, status.progress.summary) == (23, "23")


def test_a_checkpoint_that_counts_other_steps_than_the_reports_says_nothing_of_what_was_trained() -> None:
    w = training()
    w.amend(
        "one",
        checkpoint=changed(
            w.status("one").checkpoint,
            save=SaveStatus(
                id="save-1", at_step=10, attempt=1, needs_step=6, reason="x", time=1.0, outcome="Saved", step=10_000
            ),
        ),
    )
    assert last_trained(w.plan("one")) == 5


@pytest.mark.parametrize(
    ("asks", "heard", "known"), [(True, True, True), (False, True, False), (True, False, None), (False, False, None)]
)
def test_whether_anybody_listens_is_known_once_all_were_heard(asks: bool, heard: bool, known: bool | None) -> None:
    w = world(2, listens=asks)
    w.roll_out("one", spec(2))
    w.work()
    if not heard:
        w.crash()
    assert listens(w.plan("one")) is known
    w.now += w.plan("one").silent_after + 1
    assert bool(listens(w.plan("one"))) is (asks and heard)
