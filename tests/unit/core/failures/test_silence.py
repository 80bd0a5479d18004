"""Who is silent, and for how long that proves nothing."""

import pytest

from lockstep.core.failures.silence import is_silent
from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import Lag
from lockstep.core.model.worker_report import WorkerPhase
from support.values import not_none
from support.world import World, phase, running, spec, world


def only_beats(w: World, seconds: float) -> None:
    """Time goes by in small steps; whoever can reports."""
    for _ in range(int(seconds)):
        w.now += 1.0
        w.settle(rounds=4)


def test_a_silent_worker_of_a_run_that_reports_no_steps_is_not_lost_while_its_node_is_ready() -> None:
    w = running(spare=2)
    w.silent_nodes.add("n1")
    only_beats(w, 120)
    assert w.status("one").attempt == 1
    assert phase(w) is Phase.RUNNING


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_where_a_new_leader_is_the_first_to_release_all_have_their_whole_time() -> None:
    w = running(3, spare=2)
    forget_start(w, 3)
    only_beats(w, 40)
    w.crash()
    only_beats(w, 55)
    assert w.status("one").attempt == 1
    only_beats(w, 300)
    assert w.status("one").attempt == 2


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_the_end_of_an_attempt_makes_no_loss_of_a_silence_that_was_none_before() -> None:
    w = running(3, spare=1)
    w.silent_nodes.add("n0")
    only_beats(w, 40)
    w.fail_pod("one", 1)
    w.reconcile("one")
    again = w.reconcile("one")
    assert again.status is None
    assert w.status("one").assignment.vacant == ()


def fall_silent(w: World, ranks: int, seconds: float) -> None:
    """The workers of the first ``ranks`` are not heard any more, on nodes that are Ready."""
    w.silent_nodes |= set(w.status("one").assignment.nodes[:ranks])
    only_beats(w, seconds)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
