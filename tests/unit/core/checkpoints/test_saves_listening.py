"""Whether anybody listens, and so whether a save is asked for and waited for."""

import pytest

from lockstep.core.checkpoints.saves import listens
from support.asked_saves import result_of, save_of
from support.values import not_none
from support.world import spec, training, world


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


def test_without_a_tier_a_request_is_answered_at_once() -> None:
    w = training(checkpoint=None)
    w.request("one", checkpoint_request="a")
    assert result_of(w) == "NobodyListens"


def test_a_run_that_does_not_train_says_so() -> None:
    w = world(1)
    w.apply("one", spec(2))
    w.request("one", checkpoint_request="a")
    assert result_of(w) in ("NotRunning", "")


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
