"""Suspend, cancel, requeue and give up: in every phase, and with nodes that never answer again."""

from dataclasses import replace
from math import inf

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import QueueStatus
from lockstep.core.admission.engine_adapter import ENDING
from lockstep.core.decide import decide
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import DesiredPhase
from lockstep.core.model.ranges import parse_ranges
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.model.worker_report import WorkerPhase, WorkerReport
from support.values import not_none
from support.world import World, node, phase, running, spec, world


@pytest.mark.parametrize("change", [{"suspend": True}, {"cancel": True}])
def test_a_gang_that_has_not_started_is_stopped_without_waiting_for_anybody(change: dict[str, bool]) -> None:
    w = world(2)
    w.apply("one", spec(2))
    w.directives_reach = 1
    w.settle()
    stuck = not_none(w.worker("one", 1))
    assert (phase(w), stuck.phase) == (Phase.LAUNCHING, WorkerPhase.PREPARING)
    w.roll_out("one", spec(2, **change))
    assert phase(w) in (Phase.SUSPENDED, Phase.FINISHED)


@pytest.mark.parametrize("asked", ["end", "requeue", "cancel", "suspend", "queue", "annotation", "pause"])
def test_a_run_that_ended_well_while_nobody_looked_has_succeeded_whatever_it_is_to_be_stopped_for(asked: str) -> None:
    limit: dict[str, object] = {} if asked in ("end", "pause") else {"onTimeLimit": {"action": "Requeue"}}
    w = running(timeLimit="1h", **limit)
    w.exit_child("one", 0, 0)
    w.exit_child("one", 1, 0)
    w.work_reports_only()
    if asked in ("end", "requeue", "pause"):
        w.now += 3600.0
        w.leader_since = w.now
        w.work_reports_only()
    if asked in ("cancel", "suspend"):
        w.apply("one", spec(2, timeLimit="1h", **limit, **{asked: True}))
    if asked == "queue":
        w.queue(stopPolicy="HoldAndDrain")
    if asked == "annotation":
        w.annotate("one", requeue_request="now")
    if asked == "pause":
        w.annotate("one", paused="true")
    w.settle()
    status = w.status("one")
    assert (phase(w), status.state, status.attempt) == (Phase.FINISHED, "Succeeded", 1)


def test_a_gang_with_a_pod_stuck_on_a_dead_node_gives_its_nodes_back_when_it_is_suspended() -> None:
    w = running()
    w.apply("one", spec(2, suspend=True))
    w.fail_node("n1")
    w.pass_time(400, step=20)
    assert phase(w) is Phase.SUSPENDED
    assert [pod.node for pod in w.pods.values()] == ["n1"]
    assert not is_true(w.status("one"), "StateRegression")


def test_a_gang_whose_lost_node_is_never_replaced_queues_again_and_starts_when_there_is_room() -> None:
    w = running()
    w.train("one", 5)
    w.fail_node("n1")
    w.pass_time(700, step=20)
    assert phase(w) is Phase.PENDING
    # The dead node's pod is still there, and its node is nobody's.
    assert [pod.node for pod in w.pods.values()] == ["n1"]
    w.nodes["n2"] = node("n2")
    w.pass_time(60, step=10)
    assert phase(w) is Phase.RUNNING
    assert set(w.status("one").assignment.nodes) == {"n0", "n2"}


def test_the_worker_of_an_earlier_assignment_that_comes_back_disturbs_nobody() -> None:
    w = running()
    w.fail_node("n1")
    lost = w.reports["uid-one"][1]
    w.pass_time(700, step=20)
    assert phase(w) is Phase.PENDING
    w.reports["uid-one"][1] = replace(lost, received_at=w.now)  # cut off, not dead
    w.reconcile("one")
    w.reconcile("one")
    assert not is_true(w.status("one"), "StateRegression")


def test_a_pod_whose_creation_was_answered_too_late_is_deleted_and_not_taken_for_a_gang() -> None:
    w = running()
    late = next(iter(w.pods.values()))
    w.roll_out("one", spec(2, suspend=True))
    assert phase(w) is Phase.SUSPENDED
    w.pods[late.name] = replace(late, uid="late", bound=False, phase=PodPhase.PENDING, started_at=None)
    w.reports.clear()
    w.settle()
    assert not w.pods
    assert not is_true(w.status("one"), "StateRegression")


def test_a_smaller_gang_is_not_held_up_by_a_stuck_pod_of_a_slot_it_no_longer_has() -> None:
    w = running(3, spare=1)
    w.apply("one", spec(2, suspend=True))
    w.fail_node("n2")
    w.pass_time(400, step=20)
    assert phase(w) is Phase.SUSPENDED
    w.apply("one", spec(2))
    w.pass_time(5)
    assert phase(w) is Phase.RUNNING
    assert len(w.status("one").assignment.nodes) == 2


def test_a_run_succeeds_when_every_rank_of_its_gang_has_and_not_when_as_many_as_the_spec_says_now() -> None:
    w = running(2)
    w.runs["one"] = replace(w.runs["one"], spec=spec(1))
    w.end_child("one", 0, 0)
    assert phase(w) is Phase.RUNNING
    assert parse_ranges(w.status("one").exits.succeeded) == {0}


def test_a_spec_that_cannot_be_read_any_more_leaves_the_gang_alone_and_is_said() -> None:
    w = running()
    w.runs["one"] = replace(w.runs["one"], spec=None, spec_error="spec.nodes: Field required")
    plan = w.reconcile("one")
    assert (plan.deletes, plan.creates) == ((), ())
    accepted = not_none(find(w.status("one"), "Accepted"))
    assert accepted.status == "False"
    assert phase(w) is Phase.RUNNING
    assert plan.directive is not None


@pytest.mark.parametrize("attempt_known", [True, False])
def test_a_wiped_status_of_a_run_whose_pods_have_ended_starts_nothing(attempt_known: bool) -> None:
    w = running()
    w.train("one", 5)
    for rank in (0, 1):
        w.exit_child("one", rank, 0)
    w.settle()
    assert phase(w) is Phase.FINISHED
    w.wipe_status("one")
    if not attempt_known:
        w.crash()
    w.settle()
    assert is_true(w.status("one"), "StateRegression")
    assert len(w.pods) == 2


def test_nothing_is_made_in_the_moment_a_launch_is_given_up() -> None:
    w = running()
    w.fail_node("n1")
    w.pass_time(20, step=5)
    w.now += 700
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    assert plan.status is not None
    assert plan.status.stop is not None
    assert not plan.creates


def test_a_run_that_ends_while_the_cluster_is_disrupted_does_not_say_so_for_ever() -> None:
    w = world(5)
    w.breaker = True
    w.roll_out("one", spec(4))
    for name in ("n0", "n1", "n2"):
        w.fail_node(name)
    w.pass_time(20, step=2)
    assert is_true(w.status("one"), "ClusterDisruption")
    w.apply("one", spec(4, cancel=True))
    w.pass_time(400, step=50)
    assert phase(w) is Phase.FINISHED
    assert find(w.status("one"), "ClusterDisruption") is None


def test_workers_of_a_run_that_is_being_deleted_are_told_to_stop_while_their_pods_go() -> None:
    w = running()
    w.runs["one"] = replace(w.runs["one"], deleting=True)
    directive = not_none(decide(w.snapshot("one"), w.tunables, w.now).directive)
    assert (directive.phase, directive.attempt) == (DesiredPhase.STOP, 1)


def test_a_container_beside_the_trainer_keeps_a_finished_runs_node_for_no_longer_than_the_grace() -> None:
    w = running(2)
    for rank in (0, 1):
        w.end_child("one", rank, 0)
    assert phase(w) is Phase.FINISHED
    w.workers.clear()
    lingering, silent = sorted(w.pods)
    ended = replace(w.pods[lingering], phase=PodPhase.RUNNING, exit_code=0, ended_at=w.now)
    w.pods |= {lingering: ended, silent: replace(w.pods[silent], phase=PodPhase.RUNNING, exit_code=None)}
    w.pass_time(25, step=5)
    assert lingering in w.pods, "it may be that the kubelet is about to tell of its end"
    w.pass_time(10, step=5)
    assert lingering not in w.pods
    assert silent in w.pods, "its worker may have something to tell yet"


def creating() -> World:
    """A gang whose containers never come up, as what they mount is not there, and a run that waits for its nodes."""
    w = world(2)
    w.delays = lambda _: (0.0, inf, 0.0, 0.0)
    w.apply("one", spec(2))
    w.pass_time(5)
    w.apply("two", spec(2))
    w.pass_time(2)
    assert (phase(w), phase(w, "two")) == (Phase.LAUNCHING, Phase.PENDING)
    assert {pod.phase for pod in w.pods.values()} == {PodPhase.PENDING}
    return w


def test_a_run_whose_pods_never_started_gives_its_nodes_back_as_soon_as_it_is_cancelled() -> None:
    w = creating()
    w.apply("one", spec(2, cancel=True))
    deleted = [gone for _ in range(3) for gone in w.reconcile("one").deletes]
    assert phase(w) is Phase.FINISHED
    assert [(gone.grace, gone.reason) for gone in deleted] == [
        (None, "the run has finished, and nothing of this pod ever ran")  # with the grace of the pod
    ] * 2
    assert not_none(w.status("one").leaving).nodes == 2
    w.delays = None
    w.pass_time(2)
    assert w.status("one").leaving is None
    assert phase(w, "two") is Phase.RUNNING


@pytest.mark.parametrize("known", ["its status", "its worker"])
def test_a_pod_that_has_started_as_anybody_says_is_left_to_end_by_itself(known: str) -> None:
    w = creating()
    name, pod = next(iter(w.pods.items()))
    if known == "its status":
        w.pods[name] = replace(pod, started_at=w.now)
    else:  # the cache has an old version of the pod
        word = WorkerReport(pod.slot, pod.incarnation, pod.uid, pod.node, WorkerPhase.PREPARING, w.now)
        w.reports.setdefault("uid-one", {})[pod.slot] = word
    w.apply("one", spec(2, cancel=True))
    deleted = [gone.name for _ in range(3) for gone in w.reconcile("one").deletes]
    assert phase(w) is Phase.FINISHED
    assert deleted == [other.name for other in w.pods.values() if other.name != name]


def test_a_run_that_is_kept_for_debugging_keeps_pods_that_never_started_too() -> None:
    w = creating()
    w.amend("one", recovery=changed(w.status("one").recovery, debug_until=w.now + 60))
    w.apply("one", spec(2, cancel=True))
    while phase(w) is not Phase.FINISHED:
        assert not w.reconcile("one").deletes
    w.apply("one", spec(2))  # or that would end it
    assert not [gone for _ in range(3) for gone in w.reconcile("one").deletes]
    assert not_none(w.status("one").leaving).until >= w.now + 59
    w.now += 61
    assert len(w.reconcile("one").deletes) == 2


def test_who_waits_is_told_that_a_run_which_has_ended_holds_its_nodes_and_until_when() -> None:
    w = running()
    w.apply("two", spec(2))
    w.apply("one", spec(2, cancel=True))
    w.reconcile("one")
    w.now += w.tunables.deadlines.stop  # its workers hear nothing, and stay
    for _ in range(4):
        w.reconcile("one")
        w.reconcile("two")
        w.admit()
    leaving = not_none(w.status("one").leaving)
    assert (phase(w), leaving.nodes) == (Phase.FINISHED, 2)
    told = w.status("two").queue
    assert told.blocked_by == ("ns/one",)
    assert told.estimated_start == leaving.until + ENDING


def test_a_run_that_ended_while_it_waited_has_no_place_in_any_line() -> None:
    w = running()
    w.roll_out("two", spec(2))
    assert w.status("two").queue.position == 1
    w.roll_out("two", spec(2, cancel=True))
    assert (phase(w, "two"), w.status("two").queue) == (Phase.FINISHED, QueueStatus())
