"""Suspend, cancel, limits, drains and pods told to end: the gang saves first, whatever else goes wrong ends."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import Taint
from lockstep.core.model.worker_report import WorkerPhase
from support.values import not_none
from support.world import World, phase, spec, training, world

GRACE = 300.0


def saving_before_suspend() -> World:
    """A gang that stops, and whose save goes on."""
    w = training()
    w.saves_succeed = False
    w.roll_out("one", spec(2, suspend=True))
    return w


def outcome(w: World) -> str:
    save = w.status("one").checkpoint.save
    return save.outcome if save is not None else "(none)"


def saved_step(w: World) -> int:
    save = w.status("one").checkpoint.save
    return save.step if save is not None else 0


def last_cause(w: World) -> str:
    return next(entry.cause for entry in reversed(w.status("one").attempts) if entry.ended_at is not None)


@pytest.mark.parametrize(("change", "end"), [({"suspend": True}, Phase.SUSPENDED), ({"cancel": True}, Phase.FINISHED)])
def test_a_gang_saves_before_it_is_stopped(change: dict[str, bool], end: Phase) -> None:
    w = training()
    w.roll_out("one", spec(2, **change))
    assert phase(w) is end
    assert outcome(w) == "Saved"
    assert w.status("one").checkpoint.latest[0].step == saved_step(w)


def test_while_it_saves_the_run_says_so_and_its_ranks_run_on() -> None:
    w = saving_before_suspend()
    assert (w.status("one").state, w.status("one").reason) == ("Stopping", "SavingBeforeSuspend")
    assert set(w.children("one")) == {0, 1}
    orders = w.directives["uid-one"]
    assert orders.save is not None
    assert orders.stopping_at == orders.save.deadline
    w.saves_succeed = True
    w.settle()
    assert phase(w) is Phase.SUSPENDED


def test_a_resumed_run_goes_on_from_what_was_saved_for_the_stop() -> None:
    w = training()
    w.roll_out("one", spec(2, suspend=True))
    w.apply("one", spec(2))
    w.pass_time(3)
    start = not_none(w.status("one").start)
    assert start.resume is not None
    assert start.resume.step == saved_step(w) > 5


def test_a_save_that_never_comes_holds_a_stop_up_until_its_deadline_and_no_longer() -> None:
    w = saving_before_suspend()
    w.pass_time(GRACE - 10, step=10)
    assert set(w.children("one")) == {0, 1}
    w.pass_time(20, step=5)
    assert phase(w) is Phase.SUSPENDED
    assert outcome(w) == "Expired"


def test_once_the_save_is_there_the_ranks_have_as_long_to_end_as_after_any_stop() -> None:
    w = saving_before_suspend()
    w.saves_succeed = True
    w.work()
    w.reconcile("one")
    stop = not_none(w.status("one").stop)
    assert (stop.save, stop.deadline) == ("", float(int(w.now)) + w.tunables.deadlines.stop)


def test_where_nobody_listens_a_stop_begins_with_the_ranks_at_once() -> None:
    w = training()
    w.listens = False
    w.work()
    w.roll_out("one", spec(2, suspend=True))
    assert phase(w) is Phase.SUSPENDED
    assert outcome(w) == "(none)"


@pytest.mark.parametrize("failure", ["node", "process", "pod"])
def test_a_failure_during_a_graceful_stop_ends_the_wait_and_starts_nothing(failure: str) -> None:
    w = saving_before_suspend()
    if failure == "node":
        w.fail_node("n1")
    elif failure == "process":
        w.exit_child("one", 1, 1)
    else:
        w.fail_pod("one", 1)
    w.pass_time(20, step=2)
    assert outcome(w) == "Failed"
    assert w.status("one").attempt == 1
    w.pass_time(400, step=20)
    assert phase(w) is Phase.SUSPENDED


def test_training_that_ends_while_it_is_being_stopped_has_succeeded() -> None:
    w = saving_before_suspend()
    for rank in (0, 1):
        w.exit_child("one", rank, 0)
    w.settle()
    assert is_true(w.status("one"), "Succeeded")


def test_a_program_that_stops_when_it_is_told_to_has_not_finished() -> None:
    w = saving_before_suspend()
    for rank in (0, 1):
        w.exit_child("one", rank, 0)
        worker = not_none(w.worker("one", rank))
        assert worker.exit is not None
        worker.exit = replace(worker.exit, reason="StoppedOnRequest")
    w.pass_time(10)
    assert phase(w) is Phase.SUSPENDED
    assert outcome(w) == "Failed"


def test_cancel_during_a_suspend_waits_for_the_same_save() -> None:
    w = saving_before_suspend()
    stop = not_none(w.status("one").stop)
    w.roll_out("one", spec(2, suspend=True, cancel=True))
    now = not_none(w.status("one").stop)
    assert (now.reason, now.save) == ("Cancelled", stop.save)
    w.saves_succeed = True
    w.settle()
    assert phase(w) is Phase.FINISHED


@pytest.mark.parametrize("crash_after", [0, 1, 2])
def test_an_operator_that_dies_at_any_write_of_a_stop_leaves_one_that_ends(crash_after: int) -> None:
    w = training()
    w.apply("one", spec(2, suspend=True))
    for _ in range(8):
        w.reconcile("one", crash_after=crash_after)
        w.work()
    w.settle()
    assert phase(w) is Phase.SUSPENDED
    assert len(w.save_steps) <= 1


def test_a_requeue_request_saves_first_and_time_counts_anew() -> None:
    w = training(timeLimit="2h")
    w.now += 600
    w.settle()
    w.request("one", requeue_request="a")
    assert outcome(w) == "Saved"
    assert (w.status("one").held_seconds, w.status("one").last_admitted) == (0, None)
    w.pass_time(30)
    assert phase(w) is Phase.RUNNING


class TestTimeLimit:
    @pytest.mark.slow
    def test_the_save_is_asked_for_lead_time_before_the_limit(self) -> None:
        w = training(timeLimit="2h", onTimeLimit={"leadTime": "20m"})
        w.pass_time(100 * 60 - 30, step=60)
        assert phase(w) is Phase.RUNNING
        w.pass_time(60, step=10)
        assert phase(w) is Phase.FINISHED
        assert w.status("one").reason == "TimeLimit"
        assert outcome(w) == "Saved"

    @pytest.mark.slow
    def test_requeue_lets_the_run_go_on_later_from_its_save(self) -> None:
        w = training(timeLimit="1h", onTimeLimit={"action": "Requeue"}, recovery={"hangTimeout": "Disabled"})
        w.pass_time(51 * 60, step=60)
        w.pass_time(60)
        start = not_none(w.status("one").start)
        assert (start.attempt, last_cause(w), outcome(w)) == (2, "Requeued", "Saved")
        assert start.resume is not None
        assert start.resume.step == saved_step(w)

    @pytest.mark.slow
    def test_suspended_time_does_not_count_and_earlier_time_with_nodes_does(self) -> None:
        w = training(timeLimit="2h")
        w.pass_time(3600, step=60)
        w.roll_out("one", spec(2, timeLimit="2h", suspend=True))
        assert 3600 <= w.status("one").held_seconds < 3700
        w.now += 86_400
        w.apply("one", spec(2, timeLimit="2h"))
        w.pass_time(45 * 60, step=60)
        assert phase(w) is Phase.RUNNING
        w.pass_time(10 * 60, step=60)
        assert w.status("one").reason == "TimeLimit"

    def test_time_with_nodes_adds_up_over_several_suspensions(self) -> None:
        w = training(timeLimit="9h", recovery={"hangTimeout": "Disabled"})
        for _ in range(2):
            w.pass_time(600, step=60)
            w.roll_out("one", spec(2, timeLimit="9h", suspend=True))
            w.roll_out("one", spec(2, timeLimit="9h"))
        assert 1200 <= w.status("one").held_seconds < 1300

    def test_a_lead_time_longer_than_half_of_the_limit_is_half_of_it(self) -> None:
        w = training(timeLimit="10m", onTimeLimit={"leadTime": "30m"})
        w.pass_time(270, step=30)
        assert phase(w) is Phase.RUNNING
        w.pass_time(60, step=10)
        assert w.status("one").reason == "TimeLimit"

    def test_a_gang_that_gathers_has_until_its_pods_need_what_is_left_to_end(self) -> None:
        w = training(2, spare=0, timeLimit="10m")
        w.fail_node("n1")
        w.pass_time(8 * 60 + 40, step=10)
        assert phase(w) is Phase.RECOVERING
        w.pass_time(30, step=10)
        assert phase(w) in (Phase.STOPPING, Phase.FINISHED)

    @pytest.mark.slow
    def test_a_short_lead_time_is_not_all_for_the_save(self) -> None:
        """The ranks are to have ended by the limit, however long the save takes."""
        w = training(timeLimit="1h", onTimeLimit={"leadTime": "2m"}, recovery={"hangTimeout": "Disabled"})
        w.saves_succeed = False
        since = not_none(w.status("one").last_admitted)
        w.pass_time(3600 - 100, step=20)
        save = not_none(w.status("one").checkpoint.save)
        assert (save.time - since, (save.deadline or 0.0) - since) == (3480, 3540)
        w.pass_time(100, step=10)
        assert phase(w) is Phase.FINISHED
        assert w.now <= since + 3600 + 1

    def test_a_status_without_the_time_of_admission_counts_from_its_oldest_pod(self) -> None:
        w = training(timeLimit="2h")
        created = min(pod.created_at for pod in w.pods.values())
        w.runs["one"] = replace(w.runs["one"], status=changed(w.status("one"), last_admitted=None))
        w.now += 60
        w.reconcile("one")
        assert w.status("one").last_admitted == float(int(created))


class TestDrain:
    def test_a_drained_node_alone_is_left_after_a_save(self) -> None:
        w = training()
        stayed = w.worker("one", 0)
        w.drain("n1")
        w.pass_time(3)
        assert w.status("one").assignment.nodes == ("n0", "n2")
        assert (outcome(w), last_cause(w)) == ("Saved", "Drained")
        start = not_none(w.status("one").start)
        assert start.resume is not None
        assert (start.attempt, start.resume.step) == (2, saved_step(w))
        assert w.worker("one", 0) is stayed
        status = w.status("one")
        assert (status.recovery.consecutive_no_progress, status.recovery.excluded_nodes) == (0, ())
        assert not status.recovery.first_failures
        assert not status.attempts[0].charged
        assert status.goodput.failures == 0
        assert status.totals.restarts == 0

    def test_ranks_run_on_while_the_save_is_awaited(self) -> None:
        w = training()
        w.saves_succeed = False
        w.drain("n1")
        w.pass_time(GRACE - 20, step=10)
        assert set(w.children("one").values()) == {1}
        w.pass_time(40, step=5)
        assert (w.status("one").attempt, outcome(w)) == (2, "Expired")

    @pytest.mark.parametrize(("policy", "moves"), [("Ignore", False), ("Migrate", True)])
    def test_a_cordon_is_a_reason_to_leave_where_the_run_says_so(self, policy: str, moves: bool) -> None:
        w = training(recovery={"onCordon": policy})
        w.cordon("n1")
        w.pass_time(3)
        assert ("n1" not in w.status("one").assignment.nodes) is moves

    def test_a_configured_taint_is_a_reason_to_leave(self) -> None:
        w = training()
        w.tunables = replace(w.tunables, drain_taints=("maintenance",))
        w.nodes["n1"] = replace(w.nodes["n1"], taints=(Taint("maintenance", "NoSchedule"),))
        w.pass_time(3)
        assert w.status("one").assignment.nodes == ("n0", "n2")

    def test_two_nodes_drained_during_one_save_are_left_together(self) -> None:
        w = training(3, spare=2)
        w.saves_succeed = False
        w.drain("n1")
        w.settle()
        w.drain("n2")
        w.settle()
        w.saves_succeed = True
        w.pass_time(3)
        assert w.status("one").assignment.nodes == ("n0", "n3", "n4")
        assert w.status("one").attempt == 2

    def test_nobody_is_moved_while_the_cluster_looks_broken(self) -> None:
        w = world(8)
        w.breaker = True
        w.listens = True
        w.roll_out("one", spec(6))
        w.train("one", 5)
        for name in ("n3", "n4", "n5"):
            w.fail_node(name)
        w.drain("n0")
        w.pass_time(20, step=2)
        assert "n0" in w.status("one").assignment.nodes

    def test_a_gang_that_gathers_leaves_a_drained_node_at_once(self) -> None:
        w = world(3)
        w.apply("one", spec(2))
        w.directives_reach = 0
        w.settle()
        assert phase(w) is Phase.LAUNCHING
        w.drain("n1")
        w.directives_reach = None
        w.pass_time(3)
        assert w.status("one").assignment.nodes == ("n0", "n2")
        assert phase(w) is Phase.RUNNING

    def test_a_new_gang_is_not_put_on_a_node_that_is_drained(self) -> None:
        w = world(2)
        w.drain("n1")
        w.roll_out("one", spec(2))
        assert phase(w) is Phase.PENDING
        assert "being drained" in w.status("one").queue.message


class TestToldToEnd:
    def test_the_gang_saves_while_the_rank_still_can_and_then_its_slot_comes_back(self) -> None:
        w = training()
        w.saves_succeed = False
        w.tell_to_end("one", 1)
        w.settle()
        assert set(w.children("one").values()) == {1}
        w.saves_succeed = True
        w.settle()
        assert (w.status("one").attempt, outcome(w)) == (2, "Saved")
        assert last_cause(w) == "Disruption"
        assert w.status("one").recovery.consecutive_no_progress == 0

    def test_it_is_given_up_in_time_before_the_kill(self) -> None:
        w = training()
        w.saves_succeed = False
        w.tell_to_end("one", 1, grace=60.0)
        w.pass_time(50)
        assert w.status("one").attempt == 1
        w.pass_time(7)
        assert (w.status("one").attempt, outcome(w)) == (2, "Expired")

    def test_where_nobody_listens_the_slot_is_lost_at_once(self) -> None:
        w = training()
        w.listens = False
        w.work()
        w.tell_to_end("one", 1)
        w.settle()
        assert w.status("one").attempt == 2

    def test_a_pod_that_somebody_deletes_counts_as_told_before_its_worker_says_so(self) -> None:
        w = training()
        w.saves_succeed = False
        name, pod = next((name, pod) for name, pod in w.pods.items() if pod.slot == 1)
        w.pods[name] = replace(pod, deleting=True, killed_at=w.now + 60.0)
        w.reconcile("one")
        save = not_none(w.status("one").checkpoint.save)
        assert save.reason == "PodTerminated"
        assert save.deadline == float(int(w.now + 55.0))
        assert w.status("one").attempt == 1

    def test_a_rank_that_has_ended_already_is_not_waited_for(self) -> None:
        w = training()
        w.tell_to_end("one", 1)
        worker = not_none(w.worker("one", 1))
        w.exit_child("one", 1, 143)
        assert worker.phase is WorkerPhase.EXITED
        w.settle()
        assert w.status("one").attempt == 2
        assert outcome(w) == "(none)"

    def test_a_pod_evicted_from_a_cordoned_node_comes_back_on_another(self) -> None:
        w = training()
        w.cordon("n1")
        w.tell_to_end("one", 1)
        w.pass_time(3)
        assert w.status("one").assignment.nodes == ("n0", "n2")
        assert not w.status("one").recovery.first_failures

    def test_a_rank_told_to_end_during_a_stop_shortens_the_wait(self) -> None:
        w = saving_before_suspend()
        w.tell_to_end("one", 1, grace=30.0)
        w.settle()
        save = not_none(w.status("one").checkpoint.save)
        assert save.deadline is not None
        assert save.deadline <= w.now + 25.0
        w.pass_time(40, step=2)
        assert phase(w) is Phase.SUSPENDED


def test_gpu_hours_that_are_used_up_stop_the_run_after_a_save() -> None:
    w = training(budget={"gpuHours": 16, "action": "Stop"})
    w.pass_time(3700, step=60)
    assert phase(w) is Phase.FINISHED
    succeeded = not_none(find(w.status("one"), "Succeeded"))
    assert (succeeded.reason, outcome(w)) == ("BudgetSpent", "Saved")
