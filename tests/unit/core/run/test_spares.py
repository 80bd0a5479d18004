"""Spares: they wait at the barrier, take a lost rank's place in one status write, and are never waited for."""

from dataclasses import replace
from itertools import pairwise

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.run_status import AssignmentStatus, TrainingRunStatus
from lockstep.controller.runtime.patches import dump_status
from lockstep.core.admission.admit import admit
from lockstep.core.admission.queueing.holds import hold_of
from lockstep.core.checkpoints.inventory import rank_view
from lockstep.core.model import assignment as slots
from lockstep.core.model.ranges import format_order, parse_order
from lockstep.core.model.snapshot import PodPhase, QueueView
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import WorkerPhase
from support.admission import NOW, after, run, statuses
from support.admission import world as cluster
from support.world import World, node, spec, world


def running(w: World, *, nodes: int = 3, spares: int = 1, **fields: object) -> World:
    w.roll_out("llama", spec(nodes, spareNodes=spares, **fields))
    w.pass_time(4)
    assert sorted(w.children("llama")) == list(range(nodes)), w.status("llama")
    return w


def test_a_gang_starts_with_its_ranks_while_its_spares_wait_at_the_barrier() -> None:
    w = running(world(6, racks_of=3))
    status = w.status("llama")
    assert status.assignment.rank_to_slot == (0, 1, 2)
    assert all(status.assignment.nodes)
    assert w.warm("llama") == {3}
    assert (status.spares, status.nodes_ready) == ("1/1", "3/3")
    assert status.start is not None
    assert [member.slots for member in status.start.members] == ["0-2"], "a spare has no part in START"
    assert w.directives["uid-llama"].slot_ranks == (0, 1, 2, -1)
    assert len(w.directives["uid-llama"].nodelist) == 3


def test_a_run_that_can_start_smaller_comes_before_the_spare_of_one_that_starts_in_the_same_pass() -> None:
    first = run("first", 3, spareNodes=1)
    smaller = run("smaller", 3, at=1.0, elastic={"min": 1})
    begun = admit(snapshot := cluster((first, smaller), 5), Tunables(), NOW)
    assert sum(map(bool, statuses(begun)["first"].assignment.nodes)) == 3
    assert begun.wake_at == NOW, "there is more to look at"
    then = admit(snapshot := after(snapshot, begun), Tunables(), NOW)
    assert len(statuses(then)["smaller"].assignment.nodes) == 2
    assert admit(after(snapshot, then), Tunables(), NOW).writes == ()


def test_a_spare_takes_a_lost_ranks_place_in_one_write_and_no_pod_is_touched() -> None:
    w = running(world(6, racks_of=3))
    w.train("llama", 10)
    w.settle()
    w.lose_ranks("llama", 1)
    before = set(w.pods)
    plan = w.reconcile("llama")
    assert plan.status is not None
    assert plan.status.attempt == 2
    assert plan.status.assignment.rank_to_slot == (0, 3, 2)
    assert plan.status.assignment.vacant == (1,)
    assert plan.status.assignment.vacant_since is None, "every rank has a node"
    assert plan.creates == ()
    w.admit()
    for _ in range(3):
        w.work()
        assert w.reconcile("llama").creates == () or set(w.pods) > before
    w.settle()
    status = w.status("llama")
    assert status.start is not None
    assert (status.start.attempt, status.start.order) == (2, "0,3,2")
    assert status.start.resume is not None
    assert status.start.resume.step == 10
    assert w.children("llama") == {0: 2, 3: 2, 2: 2}


def test_the_start_with_a_spare_needs_no_new_node() -> None:
    w = running(world(4, racks_of=3))
    w.lose_ranks("llama", 2)
    w.settle()
    w.pass_time(3)
    status = w.status("llama")
    assert w.children("llama") == {0: 2, 1: 2, 3: 2}
    assert status.assignment.vacant == (2,)
    assert (status.spares, status.state) == ("0/1", "Running")
    w.pass_time(700, step=50)
    assert w.status("llama").attempt == 2, "a spare that cannot be had stops nobody"
    w.nodes["n9"] = node("n9")
    w.pass_time(4)
    assert w.warm("llama") == {2}
    assert w.status("llama").spares == "1/1"
    assert w.status("llama").assignment.incarnations == (1, 1, 2, 1)


def test_several_ranks_lost_at_once_take_as_many_spares_in_one_attempt() -> None:
    w = running(world(6, racks_of=3), nodes=4, spares=2)
    w.lose_ranks("llama", 1, 3)
    plan = w.reconcile("llama")
    assert plan.status is not None
    assert set(plan.status.assignment.rank_to_slot) == {0, 2, 4, 5}
    assert [plan.status.assignment.rank_to_slot[rank] for rank in (0, 2)] == [0, 2]
    w.settle()
    assert w.status("llama").attempt == 2
    assert set(w.children("llama").values()) == {2}
    assert w.status("llama").totals.nodes_replaced == 2


def test_of_two_lost_ranks_one_takes_the_spare_and_the_other_a_free_node() -> None:
    w = running(world(6, racks_of=3), nodes=4, spares=1)
    w.lose_ranks("llama", 1, 2)
    w.settle()
    status = w.status("llama")
    assert status.attempt == 2
    assert sorted(status.assignment.rank_to_slot) == [0, 2, 3, 4] or sorted(status.assignment.rank_to_slot) == [
        0,
        1,
        3,
        4,
    ]
    assert len(w.children("llama")) == 4
    assert set(w.children("llama").values()) == {2}


def test_the_spare_in_the_rack_of_a_neighbouring_rank_is_preferred() -> None:
    w = World({f"n{i}": node(f"n{i}", rack=rack) for i, rack in enumerate("aabbcc")})
    w.roll_out("llama", spec(4, spareNodes=2))
    by_rack = {
        slot: w.nodes[name].labels["topology.kubernetes.io/rack"]
        for slot, name in enumerate(w.status("llama").assignment.nodes)
    }
    assert by_rack[4] == by_rack[5] == "c"
    w.nodes[w.status("llama").assignment.nodes[5]] = node(w.status("llama").assignment.nodes[5], rack="b")
    w.lose_ranks("llama", 3)
    w.reconcile("llama")
    assert w.status("llama").assignment.rank_to_slot == (0, 1, 2, 5)


def test_a_lost_spare_ends_no_attempt_and_is_found_again() -> None:
    w = running(world(5, racks_of=3))
    name = w.status("llama").assignment.nodes[3]
    w.lose_node(name)
    del w.nodes[name]
    w.settle()
    w.pass_time(4)
    status = w.status("llama")
    assert (status.attempt, status.spares) == (1, "1/1")
    assert status.assignment.nodes[3] not in ("", name)
    assert status.assignment.incarnations == (1, 1, 1, 2)
    assert status.totals.restarts == 0


def test_a_spares_pod_that_dies_comes_back_while_the_ranks_train() -> None:
    w = running(world(4, racks_of=3))
    pod = next(pod for pod in w.pods.values() if pod.slot == 3)
    del w.workers[pod.uid]
    w.pods[pod.name] = replace(pod, phase=PodPhase.FAILED, exit_code=1)
    w.settle()
    w.pass_time(4)
    assert w.status("llama").assignment.incarnations == (1, 1, 1, 2)
    assert (w.status("llama").attempt, w.status("llama").spares) == (1, "1/1")
    assert w.warm("llama") == {3}


def _pause_and_lose_the_spare(w: World) -> None:
    """Its ranks train, then evaluate for a minute and more; meanwhile the spare's pod is evicted."""
    w.train("llama", 5)
    w.pass_time(4)
    w.now += 100
    w.work_reports_only()


def test_a_spare_made_again_in_a_pause_of_steps_is_given_the_time_to_come_up() -> None:
    w = running(world(4))
    _pause_and_lose_the_spare(w)
    pod = next(pod for pod in w.pods.values() if pod.slot == 3)
    w.workers.pop(pod.uid)
    w.pods[pod.name] = replace(pod, phase=PodPhase.FAILED, exit_code=1)
    made = w.version
    for _ in range(60):  # seconds in which its new container is being started
        w.now += 1
        w.work()
        w.reconcile("llama")
        w.admit()
    assert w.status("llama").assignment.incarnations == (1, 1, 1, 2)
    assert w.status("llama").totals.nodes_replaced == 0
    assert w.version - made < 10
    w.settle()
    w.pass_time(4)
    assert w.warm("llama") == {3}


@pytest.mark.slow
@pytest.mark.parametrize("evidence", ["it fails", "its node's check fails"])
def test_a_spare_made_again_while_the_ranks_train_is_not_replaced_again_at_once(evidence: str) -> None:
    w = running(world(9))
    w.pass_time(10)
    replaced = []
    for _ in range(300):
        w.now += 1
        w.kubelets()
        w.work()
        for pod in [pod for pod in w.pods.values() if pod.slot == 3 and not pod.is_terminal]:
            if evidence == "it fails":
                w.workers.pop(pod.uid, None)
                w.pods[pod.name] = replace(pod, phase=PodPhase.FAILED, exit_code=1)
            elif (report := w.reports[pod.run_uid].get(3)) is not None:
                unfit = replace(report, problem="DiskFull", phase=WorkerPhase.PREPARING)
                w.reports[pod.run_uid][3] = unfit
        before = w.status("llama").assignment.incarnations[3]
        w.reconcile("llama")
        w.admit()
        if w.status("llama").assignment.incarnations[3] > before:
            replaced.append(w.now)
    patience = Tunables().deadlines.registered
    assert replaced
    assert all(later - earlier >= patience for earlier, later in pairwise(replaced)), replaced
    assert w.status("llama").attempt == 1


def test_a_spare_that_is_not_ready_is_not_used() -> None:
    w = running(world(5, racks_of=3))
    worker = next(worker for worker in w.workers.values() if worker.slot == 3)
    worker.phase = WorkerPhase.PREPARING  # it takes its time
    w.work_reports_only()
    w.lose_ranks("llama", 1)
    w.reconcile("llama")
    assert w.status("llama").assignment.rank_to_slot == (0, 1, 2)
    w.admit()
    assert w.status("llama").assignment.nodes[1] == "n4"


def test_a_gang_is_admitted_without_spares_when_there_are_no_nodes_for_them() -> None:
    w = running(world(4, racks_of=3), nodes=3, spares=2)
    status = w.status("llama")
    assert status.assignment.nodes[3:] == ("n3", "")
    assert (status.spares, status.queue.reason) == ("1/2", "")
    w.pass_time(1000, step=100)
    assert w.status("llama").attempt == 1


def test_ranks_that_lack_a_node_come_before_spares() -> None:
    w = running(world(4, racks_of=3), nodes=3, spares=1)
    w.lose_ranks("llama", 0)
    w.settle()
    w.lose_ranks("llama", 1)  # no spare is left, and no node
    w.settle()
    assert slots.lacking(w.status("llama").assignment) == (1,)
    assert w.status("llama").assignment.vacant == (0, 1)
    w.nodes["n9"] = node("n9")
    w.settle()
    assert w.status("llama").assignment.nodes[1] == "n9"
    assert set(w.children("llama").values()) == {3}


def test_a_rank_whose_node_is_still_sought_takes_a_spare_as_soon_as_one_is_ready() -> None:
    w = running(world(4, racks_of=3), nodes=3, spares=1)
    spare = next(worker for worker in w.workers.values() if worker.slot == 3)
    spare.phase = WorkerPhase.PREPARING
    w.work_reports_only()
    w.lose_ranks("llama", 1)
    w.reconcile("llama")
    assert w.status("llama").assignment.rank_to_slot == (0, 1, 2)
    w.settle()
    assert w.status("llama").assignment.rank_to_slot == (0, 3, 2)
    assert set(w.children("llama").values()) == {2}


def test_a_spare_of_a_gang_with_steps_is_ready_once_it_says_where_it_takes_them() -> None:
    w = running(world(6, racks_of=3), launcher={"steps": True})
    w.without_steps_port.add(w.status("llama").assignment.nodes[3])
    w.pass_time(5)
    assert w.status("llama").spares == "0/1"
    w.lose_ranks("llama", 1)
    w.reconcile("llama")
    assert w.status("llama").assignment.rank_to_slot == (0, 1, 2)


def test_suspending_does_not_wait_for_spares_and_resuming_finds_new_ones() -> None:
    w = running(world(5, racks_of=3))
    w.fail_node(w.status("llama").assignment.nodes[3])
    w.apply("llama", spec(3, spareNodes=1, suspend=True))
    w.pass_time(5)
    assert w.status("llama").state == "Suspended"
    w.apply("llama", spec(3, spareNodes=1))
    w.pass_time(5)
    assert sorted(w.children("llama")) == [0, 1, 2]
    assert w.status("llama").spares == "1/1"


def test_the_end_of_all_ranks_ends_the_run_and_its_spares() -> None:
    w = running(world(4, racks_of=3))
    for rank in range(3):
        w.exit_child("llama", rank, 0)
    w.settle()
    status = w.status("llama")
    assert (status.state, status.exits.succeeded) == ("Succeeded", "0-2")
    assert all(pod.is_terminal for pod in w.pods.values())


def test_a_wiped_status_is_rebuilt_with_every_rank_in_its_seat() -> None:
    w = running(world(5, racks_of=3))
    w.lose_ranks("llama", 1)
    w.settle()
    before = w.status("llama").assignment
    assert before.rank_to_slot == (0, 3, 2)
    w.wipe_status("llama")
    w.settle()
    after = w.status("llama").assignment
    assert (after.rank_to_slot, after.nodes, after.incarnations) == (
        before.rank_to_slot,
        before.nodes,
        before.incarnations,
    )
    assert w.status("llama").attempt == 2
    assert set(w.children("llama").values()) == {2}


def test_a_spares_local_disk_has_no_part_in_what_is_resumed_from() -> None:
    w = running(world(6, racks_of=3))
    view = rank_view(w.snapshot("llama"), w.status("llama"))
    assert view.world == 3
    assert sorted(view.reports) == [0, 1, 2]


def test_an_order_of_slots_is_short_text_and_back() -> None:
    assert format_order([0, 1, 4, 2, 3]) == "0-1,4,2-3"
    assert parse_order("0-1,4,2-3") == (0, 1, 4, 2, 3)
    assert parse_order("") == ()


def test_an_assignment_with_spares_survives_the_config_map_that_holds_it() -> None:
    names = [f"node-{i:05d}.a-long-cluster-domain.example" for i in range(600)]
    whole = slots.reseated(slots.assigned(AssignmentStatus(), names, spares=2), {5: 600})
    named, config_map = slots.spilled(whole, "ns", "llama", "uid-llama")
    assert config_map is not None
    content = config_map.body["data"][slots.ASSIGNMENT_KEY]
    bare = changed(named, nodes=(), incarnations=(), rank_to_slot=())
    assert slots.restored(bare, content) == named
    status = TrainingRunStatus(assignment=named)
    assert "rankToSlot" not in dump_status(status)["assignment"]


def test_a_rank_on_a_drained_node_moves_to_the_spare_after_a_save() -> None:
    w = running(world(6, racks_of=3))
    w.listens = True
    w.train("llama", 10)
    w.pass_time(2)
    w.drain(w.status("llama").assignment.nodes[1])
    w.pass_time(4)
    status = w.status("llama")
    assert status.assignment.rank_to_slot == (0, 3, 2)
    assert (status.attempts[0].cause, status.attempt) == ("Drained", 2)
    assert set(w.children("llama").values()) == {2}


def test_a_spare_on_a_drained_node_moves_and_nobody_else_notices() -> None:
    w = running(world(6, racks_of=3))
    name = w.status("llama").assignment.nodes[3]
    w.drain(name)
    w.pass_time(4)
    status = w.status("llama")
    assert status.assignment.nodes[3] not in ("", name)
    assert (status.attempt, status.spares) == (1, "1/1")


def test_a_new_leader_that_never_heard_the_spare_does_not_use_it() -> None:
    w = running(world(4, racks_of=3))
    w.crash()
    w.lose_ranks("llama", 1)
    w.reconcile("llama")
    assert w.status("llama").assignment.rank_to_slot == (0, 1, 2)
    w.settle()
    assert w.status("llama").assignment.rank_to_slot == (0, 3, 2)


def test_with_spares_a_new_leader_repeats_start_without_hearing_them() -> None:
    w = running(world(4, racks_of=3))
    w.lose_node(w.status("llama").assignment.nodes[3])
    w.crash()
    w.work()
    assert w.reconcile("llama").directive is not None
    assert w.status("llama").attempt == 1


def test_spares_count_against_the_most_nodes_that_a_queue_gives_to_one_run() -> None:
    queue = TrainingQueueSpec.model_validate({"limits": {"maxNodesPerRun": 3}})
    w = world(4, racks_of=3)
    view = w.apply("llama", spec(3, spareNodes=1, queue="small"))
    seen = replace(w.cluster_snapshot(), queues={"small": QueueView("small", queue)})
    hold = hold_of(view, seen, w.tunables, w.now, has_live_pods=False)
    assert hold is not None
    assert hold.message == "needs 4 nodes, spares included; queue small admits runs of at most 3"
