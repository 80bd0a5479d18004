"""How a save ends: at its deadline, with its attempt, or by who listened and has ended."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AssignmentStatus, StopStatus
from lockstep.core.checkpoints import saves
from lockstep.core.checkpoints.saves import has_just_settled_for, is_settled_for, save_order, settle_save
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import StopReason
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.tunables import Tunables
from lockstep.worker import agent
from support.asked_saves import result_of, save_of
from support.values import not_none
from support.world import World, training


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
