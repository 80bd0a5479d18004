"""Runs that Kueue admits, from the first word to the last, with the double in Kueue's place."""

import dataclasses

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find
from lockstep.core.model.kueue.installation import Presence
from lockstep.core.model.kueue.writes import WorkloadVerb
from lockstep.core.model.lifecycle import Phase
from support.kueue_double import HOSTNAME, assigned_hosts
from support.kueue_world import kueue_world, nodes, phase, reason, running
from support.values import not_none

RACK = "topology.kubernetes.io/rack"


def test_a_run_is_asked_for_admitted_trains_and_is_finished() -> None:
    world = running()
    assert [write.verb for write in world.written] == [WorkloadVerb.CREATE, WorkloadVerb.TELL]
    assert world.told("PodsReady") == ("True", "Started")
    status = not_none(world.status("run").kueue)
    assert (status.queue, status.chosen_by, status.cluster_queue) == ("team", "Label", "cluster-queue")
    for rank in range(2):
        world.exit_child("run", rank, 0)
    world.settle()
    world.pass_time(200, 20)
    assert phase(world) is Phase.FINISHED
    assert world.told("Finished") == ("True", "Succeeded")
    assert world.written[-1].verb is WorkloadVerb.TELL
    assert len(world.written) == 3


def test_a_queue_with_backend_kueue_sends_its_runs_there() -> None:
    world = kueue_world()
    world.queue("default", backend="Kueue", localQueue="team")
    world.queue_up(labels={})
    assert phase(world) is Phase.RUNNING
    status = not_none(world.status("run").kueue)
    assert status.chosen_by == "TrainingQueue"


def test_without_kueue_the_run_waits_says_so_and_goes_on_once_it_is_installed() -> None:
    world = kueue_world()
    world.presence = Presence.ABSENT
    world.queue_up()
    assert reason(world)[0] == "KueueNotInstalled"
    version = world.version
    world.pass_time(300, 30)
    assert world.version == version, "nothing is written while nothing changes"
    world.presence = Presence.PRESENT
    world.settle()
    assert phase(world) is Phase.RUNNING


def test_an_operator_that_is_not_to_use_kueue_says_so_and_how_it_would() -> None:
    world = kueue_world()
    world.presence = Presence.DISABLED
    world.queue_up()
    code, message = reason(world)
    assert code == "KueueDisabled"
    assert "kueue.enabled of the operator's configuration is false; upgrade the release" in message
    world.presence = Presence.PRESENT
    world.settle()
    assert phase(world) is Phase.RUNNING


def test_what_kueue_has_said_so_far_is_told() -> None:
    world = kueue_world(pods=1)
    world.queue_up()
    assert phase(world) is Phase.PENDING
    world.pass_time(120, 30)
    word, message = reason(world)
    assert word == "WaitingForKueue"
    assert "ExceedsMaxQuota: couldn't assign flavors to pod set gang: insufficient quota" in message


def test_a_local_queue_that_is_not_there_is_named() -> None:
    world = kueue_world()
    world.queue_up(labels={"kueue.x-k8s.io/queue-name": "nobody"})
    assert reason(world) == (
        "LocalQueueNotFound",
        "there is no LocalQueue nobody in namespace ns; there are: team",
    )
    assert not world.workloads


def test_a_workload_that_is_refused_is_told_in_the_api_servers_words() -> None:
    world = kueue_world()
    world.refusal = "pods is a reserved key"
    world.queue_up()
    assert reason(world) == (
        "WaitingForKueue",
        "its Workload is refused: pods is a reserved key; it is tried again",
    )
    world.refusal = ""
    world.settle()
    assert phase(world) is Phase.RUNNING


def test_the_nodes_that_kueue_names_are_used_in_its_order() -> None:
    world = kueue_world(levels=(RACK, HOSTNAME))
    world.double.nodes = {name: world.double.nodes[name] for name in ("n3", "n1")}
    world.queue_up()
    assert nodes(world) == ("n1", "n3")
    pod = next(iter(world.pods.values()))
    assert pod.bound


def test_a_rack_that_kueue_names_is_filled_by_us() -> None:
    world = kueue_world(levels=(RACK,))
    world.queue_up(placement={"topology": [{"level": "rack", "mode": "Required"}]})
    assert phase(world) is Phase.RUNNING
    assert len({world.nodes[name].labels[RACK] for name in nodes(world)}) == 1


@pytest.mark.parametrize(("why", "requeued"), [("Preempted", "True"), ("PodsReadyTimeout", "False")])
def test_an_eviction_waits_for_the_save_and_only_then_gives_the_reservation_back(why: str, requeued: str) -> None:
    world = running()
    world.double.requeue = False
    world.double.queues["ns", "team"].pods = 0  # not admitted again
    world.train("run", 100)
    world.listens, world.saves_succeed = True, False
    world.evict(why)
    world.settle()
    assert phase(world) is Phase.STOPPING
    assert world.told("QuotaReserved")[0] == "True", "the save is waited for"
    world.pass_time(30, 5)
    assert world.told("QuotaReserved")[0] == "True"
    world.saves_succeed = True
    world.pass_time(5)
    assert phase(world) is Phase.PENDING
    assert not slots.is_held(world.status("run").assignment)
    assert world.told("QuotaReserved") == ("False", world.told("QuotaReserved")[1])
    assert world.told("Admitted") == ("False", "NoReservation")
    assert world.told("Requeued") == (requeued, why)
    assert world.told("PodsReady") == ("False", "WaitForStart")
    assert "admission" not in world.workload()["status"]
    assert world.workload()["status"]["accumulatedPastExecutionTimeSeconds"] >= 30


def test_an_evicted_run_resumes_from_its_save_once_it_is_admitted_again() -> None:
    world = running()
    world.train("run", 100)
    world.evict("Preempted")
    world.settle()
    world.pass_time(30, 5)
    assert phase(world) is Phase.RUNNING
    start = not_none(world.status("run").start)
    assert start.resume is not None
    assert start.resume.step >= 100
    assert world.status("run").attempt == 2


@pytest.mark.slow
def test_a_preempted_run_makes_room_for_the_one_that_kueue_prefers() -> None:
    world = kueue_world(pods=2, preempts=True)
    world.classes = {"high": 10}
    world.queue_up()
    world.train("run", 5)
    world.submit("urgent", priorityClassName="high")
    world.pass_time(60, 5)
    assert phase(world, "urgent") is Phase.RUNNING
    assert phase(world) is Phase.PENDING
    assert set(nodes(world, "urgent")) <= set(world.nodes)
    for rank in range(2):
        world.exit_child("urgent", rank, 0)
    world.pass_time(300, 20)
    assert phase(world) is Phase.RUNNING


def test_a_deactivated_run_stops_says_so_and_goes_on_when_it_is_activated_again() -> None:
    world = running()
    world.train("run", 10)
    world.activate(False)
    world.pass_time(30, 5)
    assert phase(world) is Phase.PENDING
    assert reason(world)[0] == "KueueDeactivated"
    assert "spec.active" in reason(world)[1]
    world.activate(True)
    world.pass_time(60, 5)
    assert phase(world) is Phase.RUNNING


def test_a_suspended_run_lets_go_of_its_workload_and_asks_anew_when_it_goes_on() -> None:
    world = running()
    first = world.workload()["metadata"]["uid"]
    view = world.runs["run"]
    assert view.spec is not None
    world.apply("run", changed(view.spec, suspend=True))
    world.pass_time(30, 5)
    assert phase(world) is Phase.SUSPENDED
    assert not world.workloads
    world.apply("run", view.spec)
    world.pass_time(30, 5)
    assert phase(world) is Phase.RUNNING
    assert world.workload()["metadata"]["uid"] != first


@pytest.mark.parametrize("backoff", [10.0, 0.0])
def test_a_requeued_run_lets_go_of_its_reservation_and_stands_in_line_anew(backoff: float) -> None:
    world = running()
    world.tunables = dataclasses.replace(world.tunables, backoff_base=backoff, backoff_max=backoff)
    first = world.workload()["metadata"]["uid"]
    world.train("run", 10)
    world.annotate("run", requeue_request="now")
    world.pass_time(120, 5)
    assert phase(world) is Phase.RUNNING
    assert world.status("run").attempt == 2
    assert world.workload()["metadata"]["uid"] != first
    assert first in [write.uid for write in world.written if write.verb is WorkloadVerb.DELETE]


def test_a_deleted_workload_costs_a_gang_its_nodes_after_a_minute_and_a_save() -> None:
    world = running()
    world.train("run", 10)
    world.lose_workload()
    world.settle()
    found = not_none(find(world.status("run"), "KueueReservation"))
    assert (found.status, found.reason) == ("False", "ReservationLost")
    assert phase(world) is Phase.RUNNING, "whoever uninstalls Kueue deletes Workloads first"
    world.pass_time(90, 10)
    world.pass_time(60, 10)
    assert phase(world) is Phase.RUNNING
    assert world.status("run").attempt == 2
    assert world.workload()["metadata"]["uid"] == world.status("run").kueue.workload_uid  # type: ignore[union-attr]


def test_a_workload_that_only_lost_its_labels_is_found_and_not_taken_for_deleted() -> None:
    world = running()
    held = nodes(world)
    world.strip_labels()
    world.settle()
    assert world.written[-1].verb is WorkloadVerb.FIND
    found = not_none(find(world.status("run"), "KueueReservation"))
    assert (found.status, found.reason) == ("True", "Admitted")
    world.pass_time(120, 20)
    assert (phase(world), nodes(world)) == (Phase.RUNNING, held)
    assert not world.stripped


def test_a_run_that_waits_finds_its_workload_again_after_it_lost_its_labels() -> None:
    world = kueue_world(pods=0)
    world.queue_up()
    world.strip_labels()
    world.settle()
    assert (phase(world), world.stripped) == (Phase.PENDING, set())
    world.pool.pods = 4
    world.settle()
    assert phase(world) is Phase.RUNNING


@pytest.mark.parametrize("how", ["finishes", "cancel", "suspend"])
def test_the_condition_about_the_reservation_goes_with_the_gang(how: str) -> None:
    world = running()
    assert find(world.status("run"), "KueueReservation") is not None
    if how == "finishes":
        for rank in range(2):
            world.exit_child("run", rank, 0)
    else:
        view = world.runs["run"]
        assert view.spec is not None
        world.apply("run", changed(view.spec, **{how: True}))
    world.settle()
    world.pass_time(400, 20)
    assert phase(world) in (Phase.FINISHED, Phase.SUSPENDED)
    assert find(world.status("run"), "KueueReservation") is None


@pytest.mark.parametrize(
    ("presence", "told"), [(Presence.ABSENT, "KueueNotInstalled"), (Presence.DISABLED, "KueueDisabled")]
)
def test_a_gang_outlives_the_removal_of_kueue_and_an_operator_that_may_not_follow_it(
    presence: Presence, told: str
) -> None:
    world = running()
    world.presence = presence
    world.workloads.clear()
    world.pass_time(600, 60)
    assert phase(world) is Phase.RUNNING
    assert world.status("run").attempt == 1
    found = not_none(find(world.status("run"), "KueueReservation"))
    assert found.reason == told


def test_a_gang_goes_on_while_nothing_is_known_of_kueue() -> None:
    world = running()
    world.presence = Presence.UNKNOWN
    version = world.version
    world.pass_time(20, 10)
    assert phase(world) is Phase.RUNNING
    assert world.version == version


def test_one_failed_node_is_replaced_by_the_one_that_kueue_names() -> None:
    world = running(levels=(RACK, HOSTNAME))
    lost = nodes(world)[1]
    world.train("run", 10)
    world.fail_node(lost)
    world.double.unhealthy.add(lost)
    world.pass_time(120, 5)
    assert phase(world) is Phase.RUNNING
    assert lost not in nodes(world)
    assert world.told("Admitted")[0] == "True"
    assert world.status("run").attempt == 2
    assert world.told("PodsReady") == ("True", "Recovered")


def test_a_node_that_kueue_swaps_while_its_rank_runs_is_left_after_a_save() -> None:
    world = running(levels=(RACK, HOSTNAME))
    swapped = nodes(world)[1]
    world.train("run", 10)
    world.double.unhealthy.add(swapped)
    world.pass_time(120, 5)
    assert phase(world) is Phase.RUNNING
    assert swapped not in nodes(world)
    assert nodes(world)[1] in assigned_hosts(world.workload("run"))
    assert world.status("run").attempt == 2
    assert world.status("run").attempts[0].cause == "Drained"


@pytest.mark.slow
def test_two_failed_nodes_end_in_an_eviction_a_save_where_possible_and_another_admission() -> None:
    world = running(nodes=6, levels=(RACK, HOSTNAME))
    world.train("run", 10)
    for lost in nodes(world):
        world.fail_node(lost)
        world.double.unhealthy.add(lost)
    world.pass_time(900, 10)
    assert phase(world) is Phase.RUNNING
    assert not set(nodes(world)) & world.double.unhealthy


@pytest.mark.slow
def test_a_node_that_only_we_leave_is_asked_around() -> None:
    world = running(levels=(RACK, HOSTNAME))
    bad = nodes(world)[1]
    for _ in range(6):
        world.train("run", 10)
        world.exit_child("run", 1, 1, signs=["Xid:79"])
        world.pass_time(120, 5)
        if bad not in nodes(world):
            break
    assert bad not in nodes(world)
    world.pass_time(400, 10)
    assert phase(world) is Phase.RUNNING
    assert bad not in nodes(world)


def test_without_topology_a_lost_node_is_replaced_within_the_reservation() -> None:
    world = running()
    lost = nodes(world)[0]
    world.fail_node(lost)
    world.pass_time(120, 5)
    assert phase(world) is Phase.RUNNING
    assert lost not in nodes(world)
    assert world.workload()["metadata"]["uid"] == world.status("run").kueue.workload_uid  # type: ignore[union-attr]


def test_a_node_that_a_run_of_ours_holds_is_not_taken_from_it() -> None:
    world = kueue_world(levels=(RACK, HOSTNAME))
    world.queue_up("ours", 3, labels={})
    assert phase(world, "ours") is Phase.RUNNING
    world.queue_up()
    word, message = reason(world)
    assert word == "KueueAssignment"
    assert "held by others" in message
    assert world.status("run").queue.blocked_by == ("ns/ours",)
    assert phase(world, "ours") is Phase.RUNNING
    for rank in range(3):
        world.exit_child("ours", rank, 0)
    world.pass_time(300, 20)
    assert phase(world) is Phase.RUNNING


def test_our_runs_are_not_given_nodes_that_kueues_gangs_use() -> None:
    world = running()
    world.queue_up("ours", 3, labels={})
    assert phase(world, "ours") is Phase.PENDING
    assert reason(world, "ours")[0] == "Resources"


def test_a_paused_gang_makes_room_for_kueue_after_a_save_and_comes_back_when_it_is_not_paused_any_more() -> None:
    world = running()
    world.train("run", 5)
    world.annotate("run", paused="true")
    world.settle()
    written = len(world.written)
    world.pass_time(300, 30)
    assert (phase(world), len(world.written)) == (Phase.RUNNING, written)
    world.evict("Preempted")
    world.pass_time(400, 10)
    assert (phase(world), nodes(world), world.pods) == (Phase.PENDING, (), {})
    assert reason(world)[0] == "Paused"
    assert all(write.verb is not WorkloadVerb.CREATE for write in world.written[written:]), "it asks for nothing"
    world.annotate("run", paused="false")
    world.pass_time(120, 10)
    assert phase(world) is Phase.RUNNING


@pytest.mark.slow
def test_a_gang_that_is_left_alone_is_not_stopped_for_a_size_of_its_own() -> None:
    world = running()
    world.format = "TorchDCP"  # which three can load of two
    world.annotate("run", paused="true")
    world.submit(nodes=3)
    world.pass_time(300, 30)
    assert (phase(world), len(nodes(world))) == (Phase.RUNNING, 2)
    world.annotate("run", paused="false")
    world.pass_time(400, 10)
    assert (phase(world), len(nodes(world))) == (Phase.RUNNING, 3)
