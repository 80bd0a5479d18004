"""Whole histories of one run in the simulated world, read as stories."""

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.plan import DesiredPhase
from lockstep.core.model.tunables import Tunables
from support.world import World, node, spec, world


def running(w: World, name: str = "llama", nodes: int = 2, **fields: object) -> World:
    w.roll_out(name, spec(nodes, **fields))
    assert set(w.children(name).values()) == {w.status(name).attempt}, w.status(name)
    assert len(w.children(name)) == nodes
    return w


def test_a_run_is_admitted_placed_gathered_and_started() -> None:
    w = running(world(4, racks_of=2))
    status = w.status("llama")
    assert status.state == "Running"
    assert status.nodes_ready == "2/2"
    assert status.start is not None
    assert status.start.attempt == status.attempt == 1
    assert is_true(status, "GangReady")
    assert is_true(status, "Admitted")


def test_all_ranks_ending_with_code_0_ends_the_run_succeeded() -> None:
    w = running(world(4, racks_of=2))
    for rank in (0, 1):
        w.exit_child("llama", rank, 0)
    w.settle()
    status = w.status("llama")
    assert is_true(status, "Finished")
    assert is_true(status, "Succeeded")
    assert status.exits.succeeded == "0-1"
    assert all(pod.is_terminal for pod in w.pods.values()), "workers leave when the run is complete"


def test_a_process_that_ends_is_started_again_in_the_same_pods() -> None:
    w = running(world(4, racks_of=2))
    w.train("llama", 10)
    w.settle()
    pods = set(w.pods)
    w.end_child("llama", 1, 1)
    status = w.status("llama")
    assert set(w.pods) == pods
    assert status.attempt == 2
    assert w.children("llama") == {0: 2, 1: 2}
    assert status.start is not None
    assert status.start.resume is not None
    assert status.start.resume.step == 10
    assert status.attempts[0].cause == "Application"
    assert status.attempts[0].rank == 1


def test_a_lost_node_is_replaced_and_the_others_keep_their_pods_and_ranks() -> None:
    w = running(world(4, racks_of=2))
    w.train("llama", 10)
    w.settle()
    lost = w.status("llama").assignment.nodes[1]
    stayed = w.status("llama").assignment.nodes[0]
    w.fail_node(lost)
    w.exit_child("llama", 0, 1)
    w.pass_time(30)
    status = w.status("llama")
    assert status.assignment.nodes[0] == stayed
    assert status.assignment.nodes[1] not in ("", lost)
    assert status.assignment.incarnations == (1, 2)
    assert set(w.children("llama").values()) == {2}
    assert status.attempts[0].cause == "NodeLost"
    assert status.attempts[0].node == lost
    assert status.recovery.consecutive_no_progress == 0


def test_a_leader_that_never_heard_a_lost_node_blames_it_for_the_end_of_its_peers() -> None:
    w = running(world(4, racks_of=2))
    w.train("llama", 10)
    w.settle()
    lost = w.status("llama").assignment.nodes[1]
    w.lose_node(lost)
    w.crash()
    w.end_child("llama", 0, 1)
    assert w.status("llama").attempts[0].cause == "Application"
    w.crash()
    w.node_not_ready(lost)
    w.pass_time(30)
    status = w.status("llama")
    assert set(w.children("llama").values()) == {2}
    assert (status.attempts[0].cause, status.attempts[0].node) == ("NodeLost", lost)
    assert not status.attempts[0].charged


def test_a_pod_that_dies_comes_back_on_its_node_as_the_next_incarnation() -> None:
    w = running(world(4, racks_of=2))
    nodes = w.status("llama").assignment.nodes
    w.fail_pod("llama", 1)
    w.settle()
    status = w.status("llama")
    assert status.assignment.nodes == nodes
    assert status.assignment.incarnations == (1, 2)
    assert w.children("llama") == {0: 2, 1: 2}


def test_a_node_that_keeps_losing_the_pod_is_left() -> None:
    w = running(world(4, racks_of=2), nodes=2)
    first = w.status("llama").assignment.nodes[1]
    for _ in range(3):
        w.train("llama", 10)
        w.settle()
        w.fail_pod("llama", 1)
        w.pass_time(2)
    status = w.status("llama")
    assert status.assignment.nodes[1] != first
    assert [entry.node for entry in status.recovery.excluded_nodes] == [first]


@pytest.mark.slow
def test_not_ready_alone_stops_nobody() -> None:
    w = running(world(4, racks_of=2))
    for name in w.status("llama").assignment.nodes:
        w.node_not_ready(name)
    for _ in range(20):
        w.train("llama", 1)
        w.pass_time(10, step=2)
    assert w.status("llama").attempt == 1
    assert w.children("llama") == {0: 1, 1: 1}


def test_losing_many_nodes_at_once_replaces_none_until_it_is_over() -> None:
    w = running(world(8, racks_of=2), nodes=4)
    for name in w.status("llama").assignment.nodes[:3]:
        w.fail_node(name)
    w.breaker = True
    w.pass_time(20)
    status = w.status("llama")
    assert status.assignment.vacant == ()
    assert is_true(status, "ClusterDisruption")


def test_suspending_ends_the_ranks_and_frees_the_nodes_and_resuming_goes_on() -> None:
    w = running(world(4, racks_of=2))
    w.train("llama", 10)
    w.settle()
    w.roll_out("llama", spec(2, suspend=True))
    status = w.status("llama")
    assert phase_of(status, True) is Phase.SUSPENDED
    assert not w.pods
    assert is_true(status, "Suspended")
    w.roll_out("llama", spec(2))
    status = w.status("llama")
    assert status.attempt == 2
    assert status.assignment.incarnations == (2, 2)
    assert status.start is not None
    assert status.start.resume is not None
    assert status.start.resume.step == 10


def test_cancelling_keeps_the_record_and_frees_the_nodes() -> None:
    w = running(world(4, racks_of=2))
    w.roll_out("llama", spec(2, cancel=True))
    status = w.status("llama")
    assert is_true(status, "Finished")
    assert status.state == "Cancelled"
    assert all(pod.is_terminal for pod in w.pods.values())


def test_without_a_checkpoint_tier_a_failing_program_ends_the_run() -> None:
    w = running(world(4, racks_of=2), checkpoint=None)
    w.exit_child("llama", 0, 3)
    w.pass_time(10)
    status = w.status("llama")
    assert is_true(status, "Finished")
    assert status.state == "Failed"
    succeeded = find(status, "Succeeded")
    assert succeeded is not None
    assert succeeded.reason == "ProcessFailed"
    assert "exit code 3" in succeeded.message


def test_attempts_that_save_nothing_new_end_the_run() -> None:
    w = running(world(4, racks_of=2))
    for attempt in range(6):
        w.exit_child("llama", attempt % 2, 3 + attempt)  # each time something else
        w.pass_time(400, step=20)
    status = w.status("llama")
    assert status.state == "Failed"
    assert status.reason == "NoProgress"


def test_a_run_that_does_not_fit_whole_gets_no_pod_and_says_what_lacks() -> None:
    w = world(3, racks_of=2)
    w.roll_out("large", spec(4))
    status = w.status("large")
    assert not w.pods
    assert status.state == "Pending"
    assert status.queue.message


def test_a_wiped_status_restarts_and_deletes_nothing() -> None:
    w = running(world(4, racks_of=2))
    w.train("llama", 10)
    w.settle()
    w.end_child("llama", 0, 1)
    before = w.status("llama")
    pods = dict(w.pods)
    w.wipe_status("llama")
    w.settle()
    status = w.status("llama")
    assert w.pods == pods
    assert w.children("llama") == {0: 2, 1: 2}
    assert status.attempt == before.attempt == 2
    assert status.assignment.incarnations == before.assignment.incarnations
    assert status.assignment.nodes == before.assignment.nodes
    assert before.start is not None
    assert before.start.resume is not None
    told = changed(before.start.resume, attempt=None)  # workers are not told whose it is
    assert status.start == changed(before.start, resume=told)
    assert status.state == "Running"


def test_a_status_wiped_while_the_operator_was_down_is_rebuilt_from_the_workers() -> None:
    w = running(world(4, racks_of=2))
    pods = dict(w.pods)
    w.wipe_status("llama")
    w.crash()
    w.reconcile("llama")
    assert w.pods == pods, "nothing is deleted before the workers were heard"
    w.settle()
    assert w.pods == pods
    assert w.status("llama").state == "Running"
    assert w.children("llama") == {0: 1, 1: 1}


def test_an_operator_killed_between_releases_releases_the_rest_with_the_same_record() -> None:
    w = world(4, racks_of=2)
    w.apply("llama", spec(2))
    while w.reconcile("llama") and w.status("llama").start is None:
        w.admit()
        w.kubelets()
        w.work()
        w.now += 0.01
    w.directives_reach = 1
    w.work()
    assert len(w.children("llama")) == 1
    w.directives_reach = None
    w.crash()
    w.settle()
    assert w.children("llama") == {0: 1, 1: 1}


def test_a_finished_run_stays_finished_whatever_happens_to_its_pods() -> None:
    w = running(world(4, racks_of=2))
    for rank in (0, 1):
        w.exit_child("llama", rank, 0)
    w.settle()
    w.pods.clear()
    w.workers.clear()
    w.roll_out("llama", spec(2, suspend=True))
    assert w.status("llama").state == "Succeeded"
    assert w.directives[w.runs["llama"].uid].phase is DesiredPhase.COMPLETE
    assert not w.pods


def test_a_checkpoint_heard_of_only_after_the_attempts_end_was_progress_all_the_same() -> None:
    w = running(world(4, racks_of=2))
    for _ in range(4):
        w.train("llama", 10)  # saved, and the process is gone before anybody told of it
        w.exit_child("llama", 0, 1)
        w.pass_time(60, step=5)
    status = w.status("llama")
    assert status.attempt == 5
    assert status.recovery.consecutive_no_progress == 0
    assert status.recovery.best_step == 40


def test_a_wiped_status_does_not_make_the_run_forget_that_something_was_saved() -> None:
    w = running(world(4, racks_of=2))
    w.train("llama", 10)
    w.end_child("llama", 0, 1)
    assert w.children("llama") == {0: 2, 1: 2}
    for worker in w.workers.values():
        worker.inventory = ()  # what is left to go by is the START record
    w.wipe_status("llama")
    w.crash()
    w.settle()
    assert [saved.step for saved in w.status("llama").checkpoint.latest] == [10]
    w.saved.clear()  # the shared tier shows nothing for a while
    w.exit_child("llama", 0, 1)
    w.pass_time(30)
    assert not w.children("llama"), "it waits rather than start at step 0"
    w.pass_time(400, step=20)
    status = w.status("llama")
    assert (status.state, status.reason) == ("Failed", "NoValidCheckpoint")


def test_the_last_save_is_told_of_after_the_exits_and_still_counts() -> None:
    w = running(world(4, racks_of=2))
    for rank in (0, 1):
        w.exit_child("llama", rank, 0)
    w.work()
    while not is_true(w.status("llama"), "Finished"):
        w.reconcile("llama")
        w.work_reports_only()
    w.tell_of_save("llama", 30)
    w.reconcile("llama")
    status = w.status("llama")
    assert status.state == "Succeeded"
    assert [saved.step for saved in status.checkpoint.latest] == [30]


@pytest.mark.parametrize(
    ("wish", "reason"),
    [({"cancel": True}, "Cancelled"), ({"suspend": False, "deadline": 1_000.0}, "DeadlineUnreachable")],
)
def test_a_run_that_saved_on_its_nodes_ends_without_them_as_asked(wish: dict[str, object], reason: str) -> None:
    w = World(
        {f"n{i}": node(f"n{i}") for i in range(2)},
        tunables=Tunables(gang=GangSettings(local_storages={"nvme": "/mnt/nvme"})),
        listens=True,
    )
    running(w, checkpoint={"shared": {"claimName": "lustre"}, "local": {"storage": "nvme"}})
    w.train("llama", 10)
    suspended = changed(w.runs["llama"].spec, suspend=True)
    w.apply("llama", suspended)
    w.pass_time(400, step=20)
    status = w.status("llama")
    assert phase_of(status, True) is Phase.SUSPENDED
    assert {saved.tier for saved in status.checkpoint.latest} == {"local", "shared"}
    w.apply("llama", changed(suspended, **wish))
    for _ in range(2):  # the pod of another generation is put to the API server first
        w.reconcile("llama")
    ended = find(w.status("llama"), "Finished")
    assert ended is not None
    assert (ended.status, ended.reason) == ("True", reason)
