"""What a queue, a deadline and a time to live do to a run: limits in force, drains, ends of waits and of records."""

import pytest

from lockstep.api.run_status import StopStatus
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.reasons import StopReason
from support.values import not_none
from support.world import World, spec, world

CHECKPOINT = {"shared": {"claimName": "lustre"}}


def outcome(w: World, run: str = "one") -> tuple[str, str]:
    ended = not_none(find(w.status(run), "Finished"))
    return ended.status, ended.reason


@pytest.mark.slow
def test_the_queues_time_limit_ends_a_run_that_names_none() -> None:
    w = world(2, listens=True)
    w.queue(limits={"defaultTimeLimit": "1h"})
    w.roll_out("one", spec(2, checkpoint=CHECKPOINT, recovery={"hangTimeout": "Disabled"}))
    w.train("one", 10)
    w.pass_time(2500, step=50)
    assert not is_true(w.status("one"), "Finished")
    w.pass_time(1500, step=50)
    assert outcome(w) == ("True", "TimeLimit")
    assert "the queue's time limit of 3600 s" in find(w.status("one"), "Finished").message  # type: ignore[union-attr]


def test_a_limit_that_was_cut_holds_until_another_is_written() -> None:
    w = world(2, listens=True)
    w.roll_out("one", spec(2, timeLimit="2h", minTimeLimit="30m", recovery={"hangTimeout": "Disabled"}))
    w.grant("one", 1800, asked="2h")
    w.train("one", 10)
    w.pass_time(1100, step=50)
    assert not is_true(w.status("one"), "Finished")
    w.apply("one", spec(2, timeLimit="1h", minTimeLimit="30m", recovery={"hangTimeout": "Disabled"}))
    w.pass_time(1800, step=50)
    assert not is_true(w.status("one"), "Finished")
    w.pass_time(800, step=50)
    assert outcome(w) == ("True", "TimeLimit")


@pytest.mark.slow
def test_a_limit_that_is_lengthened_stops_at_the_queues_longest() -> None:
    w = world(2, listens=True)
    w.queue(limits={"maxTimeLimit": "1h"})
    w.roll_out("one", spec(2, timeLimit="30m", recovery={"hangTimeout": "Disabled"}))
    w.grant("one", 1800, asked="30m")
    w.train("one", 10)
    w.apply("one", spec(2, timeLimit="9h", recovery={"hangTimeout": "Disabled"}))
    w.pass_time(2900, step=50)
    assert not is_true(w.status("one"), "Finished")
    w.pass_time(400, step=50)
    assert outcome(w) == ("True", "TimeLimit")


def test_a_queue_that_is_drained_gets_its_runs_saved_and_back_in_line() -> None:
    w = world(2, listens=True)
    w.roll_out("one", spec(2, checkpoint=CHECKPOINT))
    w.train("one", 5)
    w.work()
    w.queue(stopPolicy="HoldAndDrain")
    w.pass_time(20, step=2)
    status = w.status("one")
    assert (status.state, status.reason) == ("Pending", "QueueHeld")
    assert status.attempts[-1].cause == "QueueDrained"
    assert status.checkpoint.save is not None
    assert status.checkpoint.save.outcome == "Saved"
    assert not is_true(status, "Finished")
    w.queue(stopPolicy="None")
    w.pass_time(10, step=2)
    assert w.status("one").attempt == 2
    assert w.status("one").start is not None


def test_a_run_that_can_no_longer_end_before_its_deadline_ends_its_wait() -> None:
    w = world(1, listens=True)
    w.roll_out("one", spec(2, timeLimit="2h", minTimeLimit="1h", deadline="1970-01-12T16:46:40Z"))  # in 3 h
    w.pass_time(7100, step=100)
    assert not is_true(w.status("one"), "Finished")
    w.pass_time(200, step=100)
    assert outcome(w) == ("True", StopReason.DEADLINE_UNREACHABLE)


def test_what_was_used_before_a_suspension_leaves_more_time_until_the_deadline() -> None:
    w = world(1, listens=True)
    w.roll_out("one", spec(2, timeLimit="2h", deadline="1970-01-12T16:46:40Z"))  # in 3 h
    w.amend("one", held_seconds=3600)
    w.pass_time(7100, step=100)
    assert not is_true(w.status("one"), "Finished")
    w.pass_time(200, step=100)
    assert outcome(w) == ("True", StopReason.DEADLINE_UNREACHABLE)


@pytest.mark.parametrize(
    ("depends", "ends"),
    [([{"name": "first"}], True), ([], False), ([{"name": "first", "condition": "Started"}], False)],
)
def test_only_what_the_spec_still_depends_on_ends_a_run(depends: list[dict[str, str]], ends: bool) -> None:
    w = world(1, listens=True)
    w.roll_out("one", spec(2, dependsOn=[{"name": "first"}]))
    w.admission("one", failed=("first Succeeded",))
    w.roll_out("one", spec(2, dependsOn=depends, onUnsatisfiable="Fail"))
    assert is_true(w.status("one"), "Finished") is ends


def test_a_finished_run_is_deleted_when_its_time_to_live_is_over_and_its_pods_are_gone() -> None:
    w = world(2, listens=True)
    w.roll_out("one", spec(2, ttlAfterFinished="1h"))
    for rank in range(2):
        w.exit_child("one", rank, 0)
    w.pass_time(3500, step=50)
    assert outcome(w) == ("True", "AllRanksSucceeded")
    w.crash()
    w.pass_time(200, step=50)
    assert not w.runs


def test_a_finished_run_without_a_time_to_live_stays() -> None:
    w = world(2, listens=True)
    w.roll_out("one", spec(2))
    for rank in range(2):
        w.exit_child("one", rank, 0)
    w.pass_time(90 * 86_400, step=86_400)
    assert set(w.runs) == {"one"}


@pytest.mark.parametrize(("reason", "ahead"), [("Requeued", False), ("Preempted", True), ("NodesLost", True)])
def test_only_who_lost_its_nodes_through_no_wish_of_its_user_keeps_its_age(reason: str, ahead: bool) -> None:
    w = world(2, listens=True)
    w.roll_out("one", spec(2))
    w.apply("one", spec(2, dependsOn=[{"name": "two"}]))
    w.admission("one", since=500.0, met=("two Succeeded",))
    w.queue(stopPolicy="Hold")
    w.amend("one", stop=StopStatus(reason=reason, time=w.now, deadline=w.now))
    w.pass_time(400, step=20)
    admission = w.status("one").admission
    assert (admission.since == 500.0, admission.requeued_for) == (ahead, reason if ahead else "")
    assert admission.preemptions == (reason == "Preempted")
    assert admission.met == ("two Succeeded",)


def test_a_run_that_is_suspended_while_it_waits_is_as_old_as_its_resumption() -> None:
    w = world(1, listens=True)
    w.roll_out("one", spec(2))
    created = not_none(w.status("one").admission.since)
    w.roll_out("one", spec(2, suspend=True))
    assert w.status("one").admission.since is None
    w.pass_time(600, step=60)
    w.roll_out("one", spec(2))
    resumed = not_none(w.status("one").admission.since)
    assert resumed >= created + 600
