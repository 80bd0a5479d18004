"""Collective saves: one step for all ranks, asked for in status first, answered by what is valid."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.decide import decide
from support.asked_saves import result_of, save_of, timed
from support.values import not_none
from support.world import spec, training


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
    w.saved_at["uid-one", save_of(w).at_step] = w.now
    w.tell_of_save("one", save_of(w).at_step)
    w.reconcile("one")
    assert save_of(w).outcome == "Saved"


@pytest.mark.parametrize(
    ("there", "committed", "trusted", "outcome"),
    [
        (None, 1.0, True, "Saved"),  # however far the file server's clock is behind
        (500.0, 500.0, True, ""),  # of one that was rolled back, in a directory of all attempts
        (500.0, 400.0, True, "Saved"),  # written anew, under the same name
        (500.0, 500.0, False, "Saved"),  # a file system that keeps no times
        (0.0, 0.0, True, "Saved"),
    ],
)
def test_a_checkpoint_that_does_not_say_its_attempt_answers_no_request_that_came_while_it_was_there(
    there: float | None, committed: float, trusted: bool, outcome: str
) -> None:
    w = training(checkpoint={"shared": {"claimName": "lustre"}, "trustTimes": trusted})
    w.tell_of_save("one", 5)
    w.saves_succeed = False
    timed(w, 1.0)
    w.saved_by["uid-one", 6] = 0
    if there is not None:
        w.saved_at["uid-one", 6] = there
        w.tell_of_save("one", 6)
    w.annotate("one", checkpoint_request="a")
    w.reconcile("one")
    assert (save_of(w).needs_step, save_of(w).outcome) == (6, "")
    w.saved_at["uid-one", 6] = committed
    w.tell_of_save("one", 6)
    w.reconcile("one")
    assert save_of(w).outcome == outcome


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
