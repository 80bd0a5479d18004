"""A gang that is behind its status obeys whoever may stop it; no owner can help that, nor put it on hold."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from lockstep.core.decide import decide
from lockstep.core.model.conditions import is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from lockstep.core.run.regression import LONGEST_HOLD
from support.stop_orders import (
    CLASS,
    DOUBTS,
    ORDERS,
    a_bound_pod_that_never_reports,
    a_status_that_is_gone_with_a_pod,
    forged,
    is_held,
    let_forged_pods_end,
    limit,
    phase,
    preempt,
    spend,
    stopped,
    suspend,
    training,
)
from support.world import World, node, spec
from support.world import training as gang_that_saves

# What a run used, and which nodes it has, went with its status: there the hold itself ends.
NEED_STATUS = (limit, spend, preempt)
CASES = [(o, d) for o in ORDERS for d in DOUBTS if o not in NEED_STATUS or d is not a_status_that_is_gone_with_a_pod]


@pytest.mark.parametrize(("order", "doubt"), CASES)
def test_a_gang_on_hold_obeys(order: Callable[[World], None], doubt: Callable[[World], None]) -> None:
    w = training()
    doubt(w)
    w.reconcile("one")
    assert is_held(w)
    order(w)
    assert stopped(w, 450)
    w.pass_time(20, step=10)
    assert not is_held(w) or phase(w) is Phase.FINISHED
    if order is preempt:
        assert w.status("urgent").start is not None


@pytest.mark.parametrize("doubt", DOUBTS)
def test_nothing_is_deleted_on_hold_and_the_hold_ends(doubt: Callable[[World], None]) -> None:
    w = training()
    doubt(w)
    before = {pod.uid for pod in w.pods.values()}
    w.pass_time(LONGEST_HOLD - 30, step=10)
    assert is_held(w)
    assert {pod.uid for pod in w.pods.values() if not pod.deleting} == before
    for _ in range(20):
        w.pass_time(10, step=5)
        let_forged_pods_end(w)
    assert not before & {pod.uid for pod in w.pods.values()}
    assert phase(w) is Phase.RUNNING, "it queued again, and there is room"


def test_nodes_stay_booked_until_the_pods_of_a_gang_that_was_on_hold_are_gone() -> None:
    w = training()
    a_bound_pod_that_never_reports(w)
    w.reconcile("one")
    suspend(w)
    w.nodes["elsewhere"] = node("elsewhere")
    w.silent_nodes.add("elsewhere")  # whose kubelet is slow to end what is deleted
    w.pass_time(200, step=10)
    assert [(pod.uid, pod.deleting) for pod in w.pods.values()] == [("forged", True)]
    assert phase(w) is Phase.STOPPING
    assert w.status("one").assignment.nodes
    w.pods.clear()
    w.pass_time(10, step=5)
    assert phase(w) is Phase.SUSPENDED
    assert not w.status("one").assignment.nodes


def test_a_run_that_was_stopped_on_hold_comes_to_rest_although_a_pod_of_it_never_goes() -> None:
    w = training()
    a_bound_pod_that_never_reports(w)  # on a node that is gone
    w.reconcile("one")
    suspend(w)
    w.pass_time(200, step=10)
    assert (phase(w), is_held(w)) == (Phase.SUSPENDED, False)
    version = w.version
    w.pass_time(60, step=10)
    assert w.version == version


def a_pod_that_nobody_bound(w: World) -> None:
    pod = forged(w, bound=False, node="", resolved="")
    w.pods[pod.name] = pod


def one_worker_that_lies(w: World) -> None:
    lie(w, {0: 1})


def workers_that_lie_each_in_its_own_way(w: World) -> None:
    lie(w, {0: 1, 1: 2})


def lie(w: World, ports: dict[int, int]) -> None:
    reports = w.reports[w.runs["one"].uid]
    for slot, port in ports.items():
        start = reports[slot].start
        assert start is not None
        reports[slot] = replace(reports[slot], start=structs.replace(start, attempt=99, master_port=port))


@pytest.mark.parametrize("claim", [a_pod_that_nobody_bound, one_worker_that_lies, workers_that_lie_each_in_its_own_way])
def test_what_only_its_owner_says_puts_no_gang_on_hold(claim: Callable[[World], None]) -> None:
    w = training()
    claim(w)
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    status = plan.status or w.status("one")
    assert not is_true(status, "StateRegression")
    assert status.attempt == 1
    w.apply("one", spec(2, suspend=True, **CLASS))
    assert stopped(w, 450)


def test_one_worker_that_lies_does_not_keep_the_status_from_being_rebuilt_as_the_others_have_it() -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(3)})
    w.apply("one", spec(3))
    w.settle()
    before = w.status("one")
    w.amend("one", start=None)
    lie(w, {2: 1})
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    assert plan.status is not None
    assert (plan.status.attempt, plan.status.start) == (before.attempt, before.start)
    assert not is_true(plan.status, "StateRegression")


def test_what_most_ranks_were_started_with_is_believed_over_status() -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(3)})
    w.apply("one", spec(3))
    w.settle()
    lie(w, {0: 1, 1: 1})
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    assert plan.status is not None
    assert plan.status.start is not None
    assert plan.status.start.attempt == 99


def on_hold_with_ranks_that_listen() -> World:
    """Everybody trains, and somebody's pod in the gang's name is bound in a slot that it does not have."""
    w = gang_that_saves(2, 1)
    w.saves_succeed = False
    first = next(iter(w.pods.values()))
    w.pods["stray"] = replace(first, name="stray", uid="stray", slot=5, node="n2")
    w.settle()
    assert is_held(w)
    return w


@pytest.mark.parametrize("wish", [{"cancel": True}, {"suspend": True}])
def test_a_stop_on_hold_waits_for_its_save_no_longer_than_any_other(wish: dict[str, bool]) -> None:
    w = on_hold_with_ranks_that_listen()
    w.apply("one", spec(2, **wish))
    w.pass_time(900, step=20)
    save = w.status("one").checkpoint.save
    assert save is not None
    assert save.outcome
    assert phase(w) in (Phase.FINISHED, Phase.SUSPENDED)


def test_the_end_of_a_hold_lets_the_ranks_save_first() -> None:
    w = on_hold_with_ranks_that_listen()
    w.saves_succeed = True
    w.pass_time(LONGEST_HOLD + 120, step=20)
    save = w.status("one").checkpoint.save
    assert save is not None
    assert save.outcome == "Saved"


def test_a_new_leader_hears_the_workers_before_it_ends_a_hold() -> None:
    w = gang_that_saves(2, 1)
    w.work_reports_only()
    w.wipe_status("one")
    w.crash()
    w.reconcile("one")
    w.now += LONGEST_HOLD + 60
    w.crash()
    w.reconcile("one")
    assert w.status("one").stop is None
    w.work()
    w.reconcile("one")
    assert not is_held(w)


def test_a_run_whose_status_is_gone_and_of_which_a_failed_pod_is_left_queues_again_and_starts() -> None:
    w = training()
    for rank in (0, 1):
        w.fail_pod("one", rank)
    w.reports.clear()
    w.workers.clear()
    w.wipe_status("one")
    w.reconcile("one")
    assert is_held(w)
    left = set(w.pods)
    w.pass_time(LONGEST_HOLD - 30, step=10)
    assert is_held(w)
    assert set(w.pods) == left
    w.pass_time(120, step=10)
    assert not is_held(w)
    assert phase(w) is Phase.RUNNING
    assert all(pod.incarnation == 2 for pod in w.pods.values() if not pod.is_terminal)


@pytest.mark.parametrize("mode", ["Auto", "Fresh"])
@pytest.mark.parametrize("alive", [True, False], ids=["one pod is left", "its pods have failed"])
def test_a_run_whose_status_is_gone_takes_what_it_saved_in_the_one_directory_for_its_own(
    mode: str, alive: bool
) -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(2)})
    start = {"mode": mode}
    w.apply("one", spec(2, checkpoint={"shared": {"claimName": "lustre"}, "layout": "Shared", "start": start}))
    w.settle()
    w.foreign = (
        CheckpointReport("shared", 50, "/shared-checkpoints/ns/one/step-50", Verdict.VALID, "", format="TorchDCP"),
    )
    if alive:  # and stopped in the end, as a pod is gone; with the status the number of the attempt is lost
        w.starts.clear()
        del w.pods[next(name for name, pod in w.pods.items() if pod.slot == 1)]
    else:
        for rank in (0, 1):
            w.fail_pod("one", rank)
        w.reports.clear()
        w.workers.clear()
    w.wipe_status("one")
    w.pass_time(2 * LONGEST_HOLD, step=10)
    begun = w.status("one").start
    assert begun is not None
    assert begun.resume is not None
    assert begun.resume.step == 50


def test_one_whose_pods_have_all_ended_well_waits_for_a_person() -> None:
    w = training()
    for rank in (0, 1):
        w.end_pod("one", rank, 0)
    w.reports.clear()
    w.workers.clear()
    w.wipe_status("one")
    w.pass_time(2 * LONGEST_HOLD, step=30)
    assert is_held(w)
