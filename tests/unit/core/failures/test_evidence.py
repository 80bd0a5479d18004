"""What counts as a loss, and what does not."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.times import to_rfc3339
from lockstep.api.kueue_status import KueueStatus, KueueToleration
from lockstep.core.failures.evidence import LossKind, half_finished, is_silent, losses
from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType, LossReason
from lockstep.core.model.snapshot import Lag, PodPhase, Taint
from lockstep.core.model.worker_report import ExitReport, WorkerPhase
from support.values import not_none
from support.world import World, phase, running, spec, world, world_with_gang


def end_child(w: World, rank: int, code: int, reason: str) -> None:
    worker = not_none(w.worker("one", rank))
    worker.phase, worker.since = WorkerPhase.EXITED, w.now
    worker.exit = ExitReport(code=code, at=w.now, reason=reason)


def only_beats(w: World, seconds: float) -> None:
    """Time goes by in small steps; whoever can reports."""
    for _ in range(int(seconds)):
        w.now += 1.0
        w.settle(rounds=4)


@pytest.mark.parametrize("reason", ["WorkerTerminated", "StoppedOnRequest", "StoppedForRestart", "Fenced"])
def test_a_process_that_was_made_to_end_with_code_0_has_not_finished_its_training(reason: str) -> None:
    w = running(1, spare=2)
    end_child(w, 0, 0, reason)
    w.settle()
    assert phase(w) is not Phase.FINISHED


def test_a_pod_told_to_leave_is_lost_and_not_the_programs_failure() -> None:
    # Without a checkpoint tier a failing program would end the run for good.
    w = running(2, 2, checkpoint=None)
    end_child(w, 1, 143, "WorkerTerminated")
    w.settle()
    status = w.status("one")
    assert status.stop is None
    assert phase(w) is not Phase.FINISHED
    assert status.attempts[0].cause == "Disruption"
    assert not status.attempts[0].charged
    assert status.recovery.consecutive_no_progress == 0


def test_a_silent_worker_of_a_run_that_reports_no_steps_is_not_lost_while_its_node_is_ready() -> None:
    w = running(spare=2)
    w.silent_nodes.add("n1")
    only_beats(w, 120)
    assert w.status("one").attempt == 1
    assert phase(w) is Phase.RUNNING


def test_a_silent_worker_is_lost_once_the_steps_of_the_others_stop() -> None:
    w = running(spare=2)
    w.train("one", 5)
    only_beats(w, 10)
    w.train("one", 5)
    w.lose_node("n1")
    only_beats(w, 120)
    assert w.status("one").attempts[0].cause == "NodeLost"


@pytest.mark.slow
def test_long_steps_are_not_taken_for_stopped_ones() -> None:
    w = running(spare=2)
    for _ in range(3):
        only_beats(w, 100)
        w.train("one", 1)
    w.silent_nodes.add("n1")
    only_beats(w, 90)
    assert w.status("one").attempt == 1


def test_a_worker_never_heard_by_a_new_leader_is_lost_once_it_had_time_to_register() -> None:
    w = running(spare=2)
    w.lose_node("n1")
    w.exit_child("one", 0, 0)  # and the other has nothing left to do
    w.crash()
    only_beats(w, 50)
    assert w.status("one").attempt == 1
    only_beats(w, 60)
    assert w.status("one").attempt == 2


def test_those_a_new_leader_has_not_heard_are_waited_for_while_others_still_find_it() -> None:
    w = running(24, spare=8)
    w.train("one", 5)
    only_beats(w, 10)
    away = [w.status("one").assignment.nodes[rank] for rank in range(1, 24)]
    w.silent_nodes |= {*away}
    w.crash()
    for name in away[1:]:  # the API server takes its time to say whose the tokens are
        only_beats(w, 10)
        assert w.status("one").attempt == 1
        w.silent_nodes -= {name}
    only_beats(w, 20)
    assert w.status("one").attempt == 1
    only_beats(w, 30)
    assert w.status("one").attempt == 2, "the one that does not come is lost"
    assert w.status("one").attempts[0].cause == "NodeLost"


def test_a_rank_that_does_not_acknowledge_start_is_replaced() -> None:
    w = running(spare=2)
    stuck = not_none(w.worker("one", 1))
    stuck.phase, stuck.attempt, stuck.ready_for = WorkerPhase.PREPARING, 0, 0
    only_beats(w, 50)
    assert w.status("one").attempt == 1
    only_beats(w, 20)
    assert w.status("one").attempts[0].cause == "Unknown"
    assert w.status("one").assignment.incarnations == (1, 2)


def forget_start(w: World, ranks: int) -> None:
    """The workers of the first ``ranks`` report, and have not begun the attempt."""
    for rank in range(ranks):
        worker = not_none(w.worker("one", rank))
        worker.phase, worker.attempt, worker.ready_for = WorkerPhase.PREPARING, 0, 0


@pytest.mark.parametrize(
    ("leads", "lost"),
    [
        ((100,), True),
        ((40, 40), True),  # half a minute is left to those that only the new leader has released
        ((40, 25), False),
        ((40, 25, 25, 25), False),
        ((25, 25, 35), True),
    ],
)
def test_a_new_leader_goes_on_counting_until_a_rank_should_have_begun(leads: tuple[int, ...], lost: bool) -> None:
    w = running(3, spare=2)
    forget_start(w, 1)
    for number, seconds in enumerate(leads):
        if number:
            w.crash()
        only_beats(w, seconds)
    assert (w.status("one").attempt == 2) is lost


def test_where_a_new_leader_is_the_first_to_release_all_have_their_whole_time() -> None:
    w = running(3, spare=2)
    forget_start(w, 3)
    only_beats(w, 40)
    w.crash()
    only_beats(w, 55)
    assert w.status("one").attempt == 1
    only_beats(w, 300)
    assert w.status("one").attempt == 2


@pytest.mark.parametrize(("ranks", "held"), [(2, False), (3, True), (9, True)])
def test_many_that_do_not_begin_an_attempt_at_once_are_slow_for_five_times_its_limit(ranks: int, held: bool) -> None:
    w = running(10, spare=10)
    forget_start(w, ranks)
    only_beats(w, 80)
    assert (w.status("one").attempt == 1) is held
    assert (w.status("one").reason == "ClusterSlow") is held
    told = find(w.status("one"), ConditionType.CLUSTER_DISRUPTION)
    assert (told is not None and f"{ranks} of 10 ranks are late together: START is not" in told.message) is held
    only_beats(w, 250)
    assert w.status("one").attempt == 2


def never_began(w: World, rank: int) -> None:
    """The rank's worker falls silent at the barrier, as START is written."""
    worker = not_none(w.worker("one", rank))
    worker.phase, worker.attempt = WorkerPhase.READY, 0
    w.directives_reach = rank
    w.settle(rounds=4)
    w.directives_reach = None
    w.silent_nodes.add(f"n{rank}")


def test_a_worker_that_fell_silent_at_the_barrier_and_never_began_is_lost_while_nobody_steps() -> None:
    w = running(spare=2)
    never_began(w, 1)
    only_beats(w, 28)
    assert w.status("one").attempt == 1
    only_beats(w, 10)
    entry = w.status("one").attempts[0]
    assert (entry.cause, entry.charged) == ("NodeLost", False)
    assert w.status("one").assignment.nodes[1] != "n1"


def test_one_that_is_not_heard_to_have_begun_is_left_alone_while_the_gang_steps() -> None:
    w = running(spare=2)
    never_began(w, 1)
    worker = not_none(w.worker("one", 1))
    worker.phase, worker.attempt = WorkerPhase.RUNNING, 1  # it did begin, and is cut off from the operator
    for _ in range(12):
        w.train("one", 5)
        only_beats(w, 10)
    assert w.status("one").attempt == 1


def test_a_new_leader_waits_as_long_for_one_that_never_began() -> None:
    w = running(spare=2)
    never_began(w, 1)
    only_beats(w, 20)
    w.crash()
    only_beats(w, 28)
    assert w.status("one").attempt == 1


def test_a_run_that_ended_well_while_no_operator_looked_on_has_succeeded() -> None:
    w = running(spare=2)
    w.train("one", 5)
    w.crash()
    for name, pod in list(w.pods.items()):
        w.workers.pop(pod.uid)
        w.pods[name] = replace(pod, phase=PodPhase.SUCCEEDED, exit_code=0)
    w.settle()
    assert phase(w) is Phase.FINISHED
    assert w.status("one").state == "Succeeded"


def test_the_word_of_an_earlier_pod_of_the_same_name_says_nothing_of_the_one_there_now() -> None:
    """Somebody force-deletes a pod of a gathering gang: it is made again under its name."""
    w = world(3)
    w.apply("one", spec(2))
    w.directives_reach = 1  # rank 1 never comes to the barrier
    w.settle()
    assert phase(w) is Phase.LAUNCHING
    first = not_none(w.worker("one", 1))
    (name,) = [name for name, pod in w.pods.items() if pod.uid == first.pod_uid]
    del w.pods[name], w.workers[first.pod_uid]
    w.now += 30
    w.reports["uid-one"][0] = replace(w.reports["uid-one"][0], received_at=w.now)
    w.reconcile("one")
    w.reconcile("one")
    assert w.status("one").assignment.nodes == ("n0", "n1")


def test_an_attempt_that_ended_keeps_the_exit_code_of_the_first_to_fail() -> None:
    w = running(spare=2)
    w.end_child("one", 1, 3)
    assert w.status("one").attempts[0].exit_code == 3


def test_the_end_of_an_attempt_makes_no_loss_of_a_silence_that_was_none_before() -> None:
    w = running(3, spare=1)
    w.silent_nodes.add("n0")
    only_beats(w, 40)
    w.fail_pod("one", 1)
    w.reconcile("one")
    again = w.reconcile("one")
    assert again.status is None
    assert w.status("one").assignment.vacant == ()


def test_a_pod_that_ended_on_a_node_that_is_not_ready_comes_back_on_another() -> None:
    w = running(spare=2)
    w.node_not_ready("n1")
    w.fail_pod("one", 1)
    w.reconcile("one")
    assert w.status("one").assignment.vacant == (1,)
    assert w.status("one").attempts[0].cause == "NodeLost"


NO_SCHEDULE = Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule", "1764000000")
TOLERATING = {"podTemplate": {"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}}}


@pytest.mark.parametrize(
    ("view", "closed"),
    [
        ({}, ""),
        ({"unschedulable": True}, "cordoned"),
        ({"drain": "new firmware"}, "drained"),
        ({"deleting": True}, "deleted"),
        ({"taints": (NO_SCHEDULE,)}, "ToBeDeletedByClusterAutoscaler"),
        ({"taints": (Taint("karpenter.sh/disrupted", "NoSchedule"),)}, "karpenter.sh/disrupted"),
        ({"taints": (Taint("maintenance", "NoExecute"),)}, "maintenance"),
        ({"taints": (Taint("node.kubernetes.io/disk-pressure", "NoSchedule"),)}, "disk-pressure"),
        ({"taints": (Taint("slow", "PreferNoSchedule"),)}, ""),
        ({"taints": (Taint("team", "NoSchedule", "b"),)}, ""),
        ({"taints": (Taint("nvidia.com/gpu", "NoSchedule", "present"),)}, ""),
        ({"taints": (Taint("flavor", "NoSchedule", "tas"),)}, ""),
        ({"taints": (Taint("flavor", "NoSchedule", "other"),)}, "flavor"),
    ],
)
def test_a_node_that_takes_no_new_pod_of_the_run_is_left_with_the_next_pod_that_is_lost_there(
    view: dict[str, Any], closed: str
) -> None:
    w = running(spare=2, **TOLERATING)
    w.amend("one", kueue=KueueStatus(queue="q", tolerations=(KueueToleration(key="flavor", value="tas"),)))
    w.nodes["n1"] = replace(w.nodes["n1"], **view)
    assert losses(w.plan("one"), frozenset()) == [], "what runs goes on"
    for key, pod in w.pods.items():
        if pod.slot == 1:
            w.pods[key] = replace(pod, deleting=True)
    (lost,) = losses(w.plan("one"), frozenset())
    expected = (LossKind.DRAINED, LossReason.NODE_CORDONED) if closed else (LossKind.POD, LossReason.POD_DELETED)
    assert (lost.kind, lost.reason) == expected
    assert closed in lost.message


@pytest.mark.parametrize("worker", ["Enabled", "Disabled"])
def test_a_pod_that_is_not_bound_yet_does_not_wait_for_a_node_that_has_closed_to_it(worker: str) -> None:
    w = world(4)
    w.apply("one", spec(2, worker=worker))
    for _ in range(3):
        w.reconcile("one")
        w.admit()
    w.reconcile("one")
    assert [pod.bound for pod in w.pods.values()] == [False, False]
    w.nodes["n1"] = replace(w.nodes["n1"], taints=(NO_SCHEDULE,))
    w.reconcile("one")  # before the scheduler of this world, which knows no taints
    w.settle()
    assert phase(w) is Phase.RUNNING
    assert "n1" not in w.status("one").assignment.nodes
    assert not w.status("one").recovery.excluded_nodes


def test_a_gang_made_again_whole_leaves_nodes_that_take_no_new_pods() -> None:
    w = world_with_gang(2, 4, worker="Disabled")
    w.nodes["n1"] = replace(w.nodes["n1"], taints=(NO_SCHEDULE,))
    w.end_pod("one", 0, 1)
    w.pass_time(120)
    assert phase(w) is Phase.RUNNING
    assert w.status("one").attempt == 2
    assert "n1" not in w.status("one").assignment.nodes


def half_done(ranks: int = 4, done: tuple[int, ...] = (1,), **fields: object) -> World:
    w = running(ranks, **fields)
    w.train("one", 14)
    w.work_reports_only()
    for number, rank in enumerate(done):
        w.now += number
        end_child(w, rank, 0, "Completed")
    w.work_reports_only()
    w.reconcile("one")
    return w


def test_a_rank_that_ended_while_others_go_on_is_said_at_once_with_time_and_step() -> None:
    w = half_done()
    told = find(w.status("one"), ConditionType.PROGRESSING)
    assert told is not None
    at = to_rfc3339(w.now)
    assert f"rank 1 ended with code 0 at {at} (after step 14); the other 3 still run" in told.message


def test_what_was_first_to_end_outlives_the_operator_and_the_ranks_that_follow_it() -> None:
    w = half_done(done=(2, 0))
    at = to_rfc3339(w.now - 1)
    expected = f"2 ranks (0,2) ended with code 0, the first was rank 2 at {at} (after step 14); the other 2 still run"
    w.crash()
    w.now += 60
    w.reconcile("one")
    assert half_finished(w.plan("one")) == expected


@pytest.mark.parametrize("done", [(), (0, 1, 2, 3)])
def test_a_gang_that_runs_or_has_ended_whole_is_not_half_finished(done: tuple[int, ...]) -> None:
    assert half_finished(half_done(done=done).plan("one")) == ""


def test_the_pods_of_plain_ranks_tell_the_same() -> None:
    w = world_with_gang(3, worker="Disabled")
    w.end_pod("one", 1, 0)
    w.reconcile("one")
    told = find(w.status("one"), ConditionType.PROGRESSING)
    assert told is not None
    assert f"rank 1 ended with code 0 at {to_rfc3339(w.now)}; the other 2 still run" in told.message


def test_an_attempt_begins_without_the_ends_of_the_one_before() -> None:
    w = half_done()
    end_child(w, 0, 1, "Error")
    w.pass_time(60)
    assert w.status("one").attempt == 2
    assert half_finished(w.plan("one")) == ""
    told = find(w.status("one"), ConditionType.PROGRESSING)
    assert told is not None
    assert "ended with code 0" not in told.message


def fall_silent(w: World, ranks: int, seconds: float) -> None:
    """The workers of the first ``ranks`` are not heard any more, on nodes that are Ready."""
    w.silent_nodes |= set(w.status("one").assignment.nodes[:ranks])
    only_beats(w, seconds)


@pytest.mark.parametrize(("ranks", "held"), [(2, False), (3, True), (9, True)])
def test_many_workers_on_ready_nodes_that_are_silent_at_once_are_slow_for_a_while(ranks: int, held: bool) -> None:
    w = running(10, spare=10)
    w.train("one", 5)
    fall_silent(w, ranks, 60)
    status = w.status("one")
    assert (status.attempt == 1) is held
    assert (status.reason == "ClusterSlow") is held
    only_beats(w, 150)
    assert w.status("one").attempt == 2, "whoever is still silent was dead"


@pytest.mark.parametrize(
    ("deaf", "silent"), [((), True), (((0.0, 15.0),), False), (((-4.0, 3.0),), False), (((-60.0, 15.0),), True)]
)
def test_the_time_in_which_nobody_listened_is_not_counted_against_a_worker(
    deaf: tuple[tuple[float, float], ...], silent: bool
) -> None:
    w = running(2)
    w.now += w.tunables.silent_after(0) + 1.0
    w.lag = Lag(deaf=tuple((w.now + until, seconds) for until, seconds in deaf))
    state = w.plan("one")
    assert is_silent(state, state.report(0)) is silent


def test_a_loop_that_stands_still_again_and_again_hides_no_dead_worker() -> None:
    w = running(2)
    for _ in range(40):
        w.now += 2.0
        w.lag = Lag(deaf=(*w.lag.deaf, (w.now, 1.0)))
    state = w.plan("one")
    assert is_silent(state, state.report(0))


def test_leaders_that_follow_each_other_do_not_wait_for_silent_workers_without_end() -> None:
    w = running(10, spare=10)
    w.train("one", 5)
    fall_silent(w, 9, 60)
    assert w.status("one").reason == "ClusterSlow"
    for _ in range(4):
        w.crash()
        only_beats(w, 80)
    assert w.status("one").attempt == 2


def gathering(ranks: int = 10) -> World:
    """All have registered but the last one, which prepares for long."""
    w = world(ranks + 5)
    w.delays = lambda slot: (0.0, 0.0, 0.0, 200.0 if slot == ranks - 1 else 0.0)
    w.apply("one", spec(ranks))
    only_beats(w, 10)
    assert phase(w) is Phase.LAUNCHING
    return w


def is_replaced(w: World) -> bool:
    assignment = w.status("one").assignment
    return bool(assignment.vacant) or set(assignment.incarnations) != {1}


@pytest.mark.parametrize(("lag", "after"), [(Lag(), 20), (Lag(write=2.0), 40)])
def test_a_worker_that_is_silent_in_a_launch_has_as_much_longer_as_its_deadlines(lag: Lag, after: int) -> None:
    w = gathering()
    w.lag = lag
    fall_silent(w, 1, after - 14)
    assert not is_replaced(w)
    only_beats(w, 14)
    assert is_replaced(w)


def test_a_silent_worker_on_a_node_that_is_not_ready_has_no_longer_for_it() -> None:
    w = gathering()
    w.lag = Lag(write=2.0)
    w.lose_node("n0")
    w.node_not_ready("n0")
    only_beats(w, 20)
    assert is_replaced(w)


def test_the_few_that_are_left_of_many_silent_workers_are_waited_for_as_well() -> None:
    w = gathering()
    fall_silent(w, 9, 20)
    assert w.status("one").reason == "ClusterSlow"
    w.silent_nodes = {w.status("one").assignment.nodes[0]}
    only_beats(w, 60)
    assert not is_replaced(w)
    assert w.status("one").reason == "ClusterSlow"
    w.silent_nodes.clear()
    only_beats(w, 10)
    assert w.status("one").reason != "ClusterSlow"


@pytest.mark.parametrize(("unheard", "held"), [(1, False), (3, True)])
def test_silent_workers_and_those_not_heard_yet_are_late_together(unheard: int, held: bool) -> None:
    w = world(20)
    w.delays = lambda slot: (0.0, 0.0, 100.0 if slot < unheard else 0.0, 0.0)
    w.apply("one", spec(12))
    only_beats(w, 10)
    w.silent_nodes |= {w.status("one").assignment.nodes[11]}
    only_beats(w, 15)
    assert is_replaced(w) is not held
    assert (w.status("one").reason == "ClusterSlow") is held
