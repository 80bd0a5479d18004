"""What counts as a loss, and what does not."""

from dataclasses import replace

import pytest

from lockstep.core.failures.evidence import is_silent
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import ExitReport, Lag, PodPhase, WorkerPhase
from support.values import not_none
from support.world import World, phase, running, spec, world


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
    only_beats(w, 60)
    assert w.status("one").attempt == 1
    only_beats(w, 120)
    assert w.status("one").attempt == 2


def test_a_rank_that_does_not_acknowledge_start_is_replaced() -> None:
    w = running(spare=2)
    stuck = not_none(w.worker("one", 1))
    stuck.phase, stuck.attempt, stuck.ready_for = WorkerPhase.PREPARING, 0, 0
    only_beats(w, 50)
    assert w.status("one").attempt == 1
    only_beats(w, 20)
    assert w.status("one").attempts[0].cause == "Unknown"
    assert w.status("one").assignment.incarnations == (1, 2)


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
