"""Gangs without workers that lose a program, a pod or a node: the cause, the next attempt, and what it costs."""

from dataclasses import replace

import pytest

from lockstep.api.base import names
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import PodPhase, Taint
from lockstep.core.run.plain.recovery import PEERS_TELL
from support.plain_gangs import attempts_alive, condition, live, plain, running, world
from support.world import phase


def test_a_failed_program_replaces_the_whole_gang_once_every_old_pod_is_gone() -> None:
    w = running()
    node_of_1 = next(pod.node for pod in w.pods.values() if pod.slot == 1)
    w.silent_nodes.add(node_of_1)  # its kubelet takes its time
    w.end_pod("one", 0, 1, message="RuntimeError: bad luck")
    w.pass_time(PEERS_TELL)
    assert phase(w) is Phase.RECOVERING
    assert [pod.slot for pod in live(w)] == [1]
    assert "waits for pods of earlier attempts" in condition(w, "GangReady")[2]
    w.silent_nodes.clear()
    w.settle()
    assert phase(w) is Phase.RUNNING
    assert attempts_alive(w) == {2}
    assert w.status("one").assignment.incarnations == (2, 2)
    first = w.status("one").attempts[0]
    assert (first.cause, first.rank, first.exit_code, first.action) == ("Application", 0, 1, "ReplaceGang")
    assert first.charged
    assert w.status("one").totals.restarts_in_place == 0


def test_an_end_that_is_heard_of_later_may_have_come_first() -> None:
    w = running()
    w.end_pod("one", 0, 1, message="ConnectionError: peer 1 hung up")
    w.settle()
    assert phase(w) is Phase.RUNNING
    w.end_pod("one", 1, 1, message="RuntimeError: bad luck")
    pod = next(pod for pod in w.pods.values() if pod.slot == 1)
    w.pods[pod.name] = replace(pod, ended_at=w.now - 2.0)
    w.settle()
    first = w.status("one").attempts[0]
    assert (first.rank, first.message.count("bad luck")) == (1, 1)


def test_ends_within_a_second_cannot_be_told_apart() -> None:
    w = running()
    w.end_pod("one", 1, 1)
    w.now += 0.9
    w.end_pod("one", 0, 1)
    w.settle()
    assert "cannot be told" in w.status("one").attempts[0].message


def test_a_deleted_node_does_not_have_to_confirm_the_end_of_its_pods() -> None:
    w = running()
    lost = next(pod.node for pod in w.pods.values() if pod.slot == 1)
    del w.nodes[lost]
    w.settle()
    status = w.status("one")
    assert phase(w) is Phase.RUNNING
    assert status.attempt == 2
    assert lost not in status.assignment.nodes
    assert status.attempts[0].cause == "NodeLost"
    assert not status.attempts[0].charged


def test_a_node_that_is_not_ready_is_lost_only_after_long_and_holds_the_next_attempt_until_given_up() -> None:
    w = running()
    lost = next(pod.node for pod in w.pods.values() if pod.slot == 1)
    w.silent_nodes.add(lost)
    w.node_not_ready(lost)
    w.pass_time(290.0, 10.0)
    assert w.status("one").attempt == 1
    w.pass_time(30.0, 10.0)
    assert w.status("one").attempt == 2
    assert phase(w) is Phase.RECOVERING, "its pod may run on"
    assert "delete the node" in condition(w, "GangReady")[2]
    w.nodes[lost] = replace(w.nodes[lost], taints=(Taint(names.TAINT_OUT_OF_SERVICE, "NoExecute"),))
    w.settle()
    assert phase(w) is Phase.RUNNING
    assert lost not in w.status("one").assignment.nodes


def test_a_node_that_comes_back_in_time_disturbs_nobody() -> None:
    w = running()
    w.node_not_ready("n1")
    w.pass_time(200.0, 10.0)
    w.node_not_ready("n1", True)
    w.pass_time(400.0, 10.0)
    assert w.status("one").attempt == 1


def test_a_pod_that_somebody_deletes_is_no_failure_of_the_program() -> None:
    w = running()
    name = next(pod.name for pod in w.pods.values() if pod.slot == 1)
    w.pods[name] = replace(w.pods[name], deleting=True)
    w.settle()
    status = w.status("one")
    assert phase(w) is Phase.RUNNING
    assert status.attempt == 2
    assert attempts_alive(w) == {2}
    assert not status.attempts[0].charged


def test_a_pod_that_vanishes_after_all_were_seen_is_not_made_again_within_the_attempt() -> None:
    w = running()
    name = next(pod.name for pod in w.pods.values() if pod.slot == 1)
    del w.pods[name]
    w.settle()
    assert w.status("one").attempt == 2
    assert name not in w.pods


@pytest.mark.slow
def test_short_attempts_count_towards_the_limit_and_long_ones_do_not() -> None:
    w = running()
    for _ in range(5):
        w.pass_time(1000.0, 100.0)
        w.end_pod("one", 0, 1, message="RuntimeError: now and then")
        w.settle()
        w.pass_time(5.0)
        assert phase(w) is Phase.RUNNING
    for _ in range(4):
        w.end_pod("one", 0, 1)
        w.pass_time(400.0, 20.0)
    assert condition(w, "Finished")[:2] == ("True", "NoProgress")
    assert not live(w)


def test_without_a_checkpoint_tier_a_failing_program_ends_the_run_unless_a_node_turns_out_to_be_the_cause() -> None:
    w = running(checkpoint=None)
    w.end_pod("one", 0, 1)
    w.settle()
    assert phase(w) is Phase.RUNNING, "a machine that died just now is not known yet"
    w.pass_time(61.0, 5.0)
    assert condition(w, "Finished")[:2] == ("True", "ProcessFailed")
    w = running(checkpoint=None)
    lost = next(pod.node for pod in w.pods.values() if pod.slot == 1)
    w.end_pod("one", 0, 1)
    w.pass_time(10.0, 5.0)
    del w.nodes[lost]
    w.settle()
    assert w.status("one").attempts[0].cause == "NodeLost"
    assert phase(w) is Phase.RUNNING
    assert w.status("one").attempt == 2


def test_a_command_that_does_not_exist_is_not_tried_again() -> None:
    w = running()
    words = 'exec: "trian.py": executable file not found in $PATH'
    for rank in (0, 1):
        w.end_pod("one", rank, 128, reason="StartError", message=words)
    w.settle()
    assert condition(w, "Finished")[:2] == ("True", "CommandNotFound")


def test_an_eviction_is_free_of_charge() -> None:
    w = running()
    pod = next(pod for pod in w.pods.values() if pod.slot == 0)
    w.pods[pod.name] = replace(pod, phase=PodPhase.FAILED, reason="Evicted", disruption="EvictionByEvictionAPI")
    w.settle()
    first = w.status("one").attempts[0]
    assert (first.cause, first.charged) == ("Disruption", False)
    assert phase(w) is Phase.RUNNING
    assert attempts_alive(w) == {2}


def test_a_pod_that_does_not_come_up_in_time_ends_the_attempt() -> None:
    w = world()
    w.silent_nodes.add("n2")
    w.roll_out("one", plain())
    name = next(pod.name for pod in w.pods.values() if pod.slot == 1)
    w.pods[name] = replace(w.pods[name], reason="Unschedulable", message="no port")
    w.pass_time(70.0, 5.0)
    status = w.status("one")
    assert status.attempts[0].cause == "LaunchDeadline"
    assert phase(w) is Phase.RUNNING
    assert "n2" not in status.assignment.nodes
    assert attempts_alive(w) == {status.attempt}


def test_a_few_pods_that_do_not_come_up_do_not_cost_the_gang_its_nodes() -> None:
    w = world(8)
    w.silent_nodes |= {"n2", "n3"}
    w.roll_out("one", plain(8))
    for name, pod in w.pods.items():
        if pod.node in w.silent_nodes:
            w.pods[name] = replace(pod, bound=True, reason="ImagePullBackOff", message="no such image")
    w.pass_time(1000.0, 20.0)
    status = w.status("one")
    assert (status.stop, status.attempt, status.attempts[0].cause) == (None, 2, "LaunchDeadline")
    assert {(loss.node, loss.count) for loss in status.recovery.slot_losses} == {("n2", 1), ("n3", 1)}
