"""A rank is often heard of before the pod that it ended for: the cause is put right while the gang gathers."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import AttemptStatus
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.snapshot import PodPhase, PodView
from support.recovering import RUN, status, train, training
from support.world import World

HUNG_UP = "RuntimeError: socket has gone"  # no sign, and no exception that is known for a complaint about a peer


def first(w: World) -> AttemptStatus:
    return status(w).attempts[0]


def pod_of(w: World, rank: int) -> PodView:
    slot, incarnation = rank, status(w).assignment.incarnations[rank]
    return next(pod for pod in w.pods.values() if (pod.slot, pod.incarnation) == (slot, incarnation))


def show_pod(w: World, pod: PodView, **changes: object) -> None:
    w.pods[pod.name] = replace(pod, **changes)  # type: ignore[arg-type]


def show_end(w: World, pod: PodView, ended_at: float | None, *, code: int = 137, **more: object) -> None:
    """The pod's status tells of its end, in whole seconds as the kubelet does."""
    told = None if ended_at is None else float(int(ended_at))
    show_pod(w, pod, phase=PodPhase.FAILED, exit_code=code, ended_at=told, **{"reason": "Error", **more})


def killed(w: World, rank: int) -> PodView:
    """The runtime kills a rank's container, worker and all, and nobody has said so yet."""
    pod = pod_of(w, rank)
    del w.workers[pod.uid]
    return pod


def peer_hangs_up(w: World, rank: int = 0, late: float = 0.0) -> None:
    """The operator hears of a survivor that ended, and decides at once."""
    w.exit_child(RUN, rank, 1, stderr=HUNG_UP, late=late)
    w.work()
    w.reconcile(RUN)


@pytest.mark.parametrize("is_dated", [True, False])
def test_a_killed_container_is_the_cause_although_its_pod_tells_later(is_dated: bool) -> None:
    w = training(step=0)
    w.now += 5.3
    pod, moment = killed(w, 1), w.now
    w.now += 0.2
    peer_hangs_up(w)
    assert (first(w).cause, first(w).rank, first(w).charged) == ("Application", 0, True)
    assert status(w).attempt == 2, "nobody waits for more before the gang is stopped"
    w.now += 0.7
    show_end(w, pod, moment if is_dated else None)
    w.settle()
    assert (first(w).cause, first(w).rank, first(w).node) == ("Unknown", 1, "n1")
    assert (first(w).exit_code, first(w).action, first(w).victims) == (137, "Replace", "0")
    assert "exit code 137" in first(w).message
    assert "at first rank 0 was named" in first(w).message
    recovery = status(w).recovery
    assert recovery.first_failures == ()
    assert [root.root for root in recovery.roots] == ["pod Error 137"]
    assert (first(w).charged, recovery.consecutive_no_progress) == (True, 1), "it is charged once"
    assert [(loss.slot, loss.count) for loss in recovery.slot_losses] == [(1, 1)], "a lost pod, and no failed launch"
    assert status(w).assignment.incarnations == (1, 2, 1)
    assert set(w.children(RUN).values()) == {2}
    assert status(w).totals.restarts == 1


def test_what_is_put_right_is_said_once_and_stays_right() -> None:
    w = training(step=0)
    w.now += 5.3
    pod, moment = killed(w, 1), w.now
    peer_hangs_up(w, late=0.1)
    show_end(w, pod, moment)
    said = [event for _ in range(3) for event in w.reconcile(RUN).events if event.reason == "CauseCorrected"]
    assert len(said) == 1
    assert "exit code 137" in said[0].note
    right = first(w)
    w.pass_time(20, step=2)
    assert first(w) == changed(right, steps_lost=first(w).steps_lost)
    assert set(w.children(RUN).values()) == {2}


@pytest.mark.parametrize("crash_after", [0, 1, 2])
@pytest.mark.parametrize("knows_nobody", [True, False])
def test_an_operator_that_dies_meanwhile_puts_the_cause_right_all_the_same(
    crash_after: int, knows_nobody: bool
) -> None:
    w = training(step=0)
    w.now += 5.3
    pod, moment = killed(w, 1), w.now
    peer_hangs_up(w, late=0.2)
    if knows_nobody:
        w.crash()
    w.now += 0.7
    show_end(w, pod, moment)
    w.reconcile(RUN, crash_after=crash_after)
    w.pass_time(20, step=1)
    assert (first(w).cause, first(w).rank, first(w).charged) == ("Unknown", 1, True)
    assert status(w).recovery.consecutive_no_progress == 1
    assert status(w).recovery.first_failures == ()
    assert set(w.children(RUN).values()) == {2}


def test_a_pod_evicted_before_its_peer_hung_up_costs_nothing() -> None:
    w = training(step=0)
    w.now += 5.3
    pod, moment = killed(w, 1), w.now
    peer_hangs_up(w, late=0.2)
    assert status(w).recovery.consecutive_no_progress == 1
    w.now += 1.2
    show_end(w, pod, moment + 0.9, reason="Evicted", disruption="TerminationByKubelet")
    w.settle()
    assert (first(w).cause, first(w).rank, first(w).charged) == ("Disruption", 1, False)
    assert "TerminationByKubelet" in first(w).message
    assert (status(w).recovery.consecutive_no_progress, status(w).recovery.roots) == (0, ())


@pytest.mark.parametrize("notice", ["SIGTERM", "Terminating", "DisruptionTarget"])
def test_a_pod_known_to_leave_is_the_cause_at_once_when_a_peer_hangs_up(notice: str) -> None:
    w = training(step=0)
    w.listens = True
    w.train(RUN, 3)
    w.work()
    w.now += 5.0
    pod = pod_of(w, 1)
    if notice == "SIGTERM":
        w.tell_to_end(RUN, 1, grace=300.0)
    elif notice == "Terminating":
        show_pod(w, pod, deleting=True, killed_at=w.now + 300.0)
    else:
        show_pod(w, pod, disruption="EvictionByEvictionAPI")
    w.saves_succeed = False
    w.work()
    w.reconcile(RUN)
    assert phase_of(status(w), False) is Phase.RUNNING, "the ranks may still save"
    w.now += 2.0
    del w.workers[pod.uid]
    peer_hangs_up(w)
    assert (first(w).cause, first(w).rank, first(w).charged, first(w).victims) == ("Disruption", 1, False, "0")
    assert status(w).recovery.consecutive_no_progress == 0
    assert status(w).recovery.first_failures == ()
    show_end(w, w.pods[pod.name], w.now, reason="Evicted")
    w.pass_time(30, step=2)
    assert (first(w).cause, first(w).rank) == ("Disruption", 1)
    assert set(w.children(RUN).values()) == {2}


@pytest.mark.slow
@pytest.mark.parametrize("is_dated", [True, False])
@pytest.mark.parametrize("is_heard_again", [True, False])
@pytest.mark.parametrize("disruption", ["", "EvictionByEvictionAPI"])
def test_a_rank_that_was_really_first_stays_blamed_when_another_pod_dies_of_it(
    is_dated: bool, is_heard_again: bool, disruption: str
) -> None:
    w = training(step=0)
    w.now += 5.3
    peer_hangs_up(w)
    before = first(w)
    if not is_heard_again:
        w.crash()
    w.now += 3.0
    if is_heard_again:
        w.work()
    pod = killed(w, 1)
    show_end(w, pod, w.now if is_dated else None, disruption=disruption)
    w.settle()
    assert changed(first(w), steps_lost=before.steps_lost, victims="") == before
    assert (first(w).cause, first(w).rank, first(w).node, first(w).charged) == ("Application", 0, "n0", True)
    assert [one.node for one in status(w).recovery.first_failures] == ["n0"]
    w.pass_time(20, step=1)
    assert set(w.children(RUN).values()) == {2}


def test_a_pod_that_died_after_another_ranks_error_is_no_cause_when_both_are_heard_of_at_once() -> None:
    w = training(step=0)
    w.now += 5.3
    pod = killed(w, 1)
    show_end(w, pod, w.now + 3.0)
    w.now += 4.0
    peer_hangs_up(w, late=-4.0)
    assert (first(w).cause, first(w).rank, first(w).victims) == ("Application", 0, "1")


def test_a_pod_that_the_end_was_put_down_to_stays_the_cause_when_another_turns_out_to_be_lost() -> None:
    w = training(step=0)
    w.now += 5.3
    pods, moment = [killed(w, rank) for rank in (1, 2)], w.now
    show_end(w, pods[0], moment)
    peer_hangs_up(w, late=0.2)
    before = first(w)
    assert (before.rank, before.cause) == (1, "Unknown")
    show_end(w, pods[1], moment)
    w.reconcile(RUN)
    assert first(w) == before
    w.pass_time(20, step=1)
    assert set(w.children(RUN).values()) == {2}


def test_a_pod_made_anew_for_the_next_attempt_did_not_end_the_last_one_whatever_its_clock_says() -> None:
    w = training(step=0)
    w.now += 5.3
    peer_hangs_up(w)
    w.now += 3.0
    show_end(w, killed(w, 1), w.now)
    w.reconcile(RUN)
    w.reconcile(RUN)
    again = pod_of(w, 1)
    assert again.incarnation == 2
    show_end(w, replace(again, bound=True), w.now - 600.0)
    w.reconcile(RUN)
    assert (first(w).cause, first(w).rank) == ("Application", 0)
    assert status(w).assignment.incarnations == (1, 3, 1)


def test_a_clock_that_is_ahead_puts_no_pod_before_or_behind_its_peer() -> None:
    w = training(step=0)
    w.now += 5.3
    slot = status(w).assignment.nodes.index("n1")
    uid = w.runs[RUN].uid
    w.reports[uid][slot] = replace(w.reports[uid][slot], clock_skew=40.0)
    pod, moment = killed(w, 1), w.now
    peer_hangs_up(w, late=0.2)
    w.now += 1.7
    show_end(w, pod, moment + 40.0)
    w.reconcile(RUN)
    assert (first(w).rank, first(w).exit_code) == (1, 137)


def test_a_node_is_told_of_a_first_failure_only_once_nothing_can_clear_it_any_more() -> None:
    w = training(step=0)
    w.now += 5.3
    w.exit_child(RUN, 0, 1, stderr=HUNG_UP)
    w.work()
    assert w.reconcile(RUN).node_failures == ()
    assert [one.node for one in status(w).recovery.first_failures] == ["n0"]
    w.pass_time(5)
    assert set(w.children(RUN).values()) == {2}
    assert [told.node for told in w.reconcile(RUN).node_failures] == ["n0"]


@pytest.mark.parametrize("is_dated", [True, False])
def test_a_node_left_for_a_failure_that_was_not_its_own_is_kept_off_no_longer(is_dated: bool) -> None:
    w = training(step=0)
    w.now += 5.3
    peer_hangs_up(w)
    w.pass_time(20, step=1)
    train(w, 5)
    w.now = float(int(w.now)) + 5.7
    w.work()
    pod, moment = killed(w, 1), w.now
    peer_hangs_up(w, late=0.2)
    assert [entry.node for entry in status(w).recovery.excluded_nodes] == ["n0"], "first to fail twice in a day"
    w.now += 0.7
    show_end(w, pod, moment if is_dated else None)
    assert w.reconcile(RUN).admission_changed, "others may want that node"
    w.settle()
    second = status(w).attempts[1]
    assert (second.cause, second.rank, second.node) == ("Unknown", 1, "n1")
    assert status(w).recovery.excluded_nodes == ()
    assert len(status(w).recovery.first_failures) == 1
    assert set(w.children(RUN).values()) == {3}


def test_a_wait_before_the_next_attempt_is_kept_where_the_charge_is() -> None:
    w = training(step=0)
    for _ in range(2):
        w.now += 5.3
        pod, moment = killed(w, 1), w.now
        peer_hangs_up(w, late=0.2)
        not_before = status(w).recovery.not_before
        show_end(w, pod, moment)
        w.reconcile(RUN)
        assert status(w).recovery.not_before == not_before
        w.pass_time(30, step=1)
    assert not_before is not None, "the second restart without progress waits"
    assert status(w).recovery.consecutive_no_progress == 2
    assert set(w.children(RUN).values()) == {3}


@pytest.mark.parametrize(("reason", "cause"), [("Evicted", "Disruption"), ("Error", "Application")])
def test_a_ranks_own_word_counts_more_than_its_pods_unless_that_was_driven_away(reason: str, cause: str) -> None:
    w = training(step=0)
    w.now += 5.3
    pod, moment = pod_of(w, 0), w.now
    peer_hangs_up(w, 0, late=0.2)
    del w.workers[pod.uid]
    w.now += 0.5
    show_end(w, pod, moment, reason=reason)
    w.pass_time(20, step=1)
    assert (first(w).cause, first(w).rank, first(w).charged) == (cause, 0, cause == "Application")
    assert ("at first its own program was blamed" in first(w).message) is (cause == "Disruption")
    assert first(w).victims == ""
    assert set(w.children(RUN).values()) == {2}


def test_a_restart_is_held_against_its_limit_once() -> None:
    w = training(step=0, recovery={"maxRestarts": 1})
    w.now += 5.3
    pod, moment = killed(w, 1), w.now
    peer_hangs_up(w, late=0.2)
    show_end(w, pod, moment)
    w.pass_time(20, step=1)
    assert first(w).rank == 1
    assert set(w.children(RUN).values()) == {2}


def test_a_pod_that_ran_out_of_memory_before_its_first_step_ends_the_run_after_all() -> None:
    w = training(step=0)
    w.now += 5.3
    pod, moment = killed(w, 1), w.now
    peer_hangs_up(w, late=0.2)
    show_end(w, pod, moment, reason="OOMKilled")
    show_end(w, killed(w, 2), moment + 60.0)
    w.pass_time(20, step=1)
    assert status(w).totals.pods_replaced == 0, "nothing is made anew for a run that ends"
    assert (first(w).cause, first(w).action, status(w).reason) == ("OutOfMemory", "Stop", "OutOfMemory")
