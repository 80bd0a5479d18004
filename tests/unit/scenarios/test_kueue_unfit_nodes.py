"""Nodes that Lockstep refuses and Kueue takes for good: by their conditions, or as they are to be left."""

import dataclasses

import pytest

from lockstep.core.model.kueue.workload import ANNOTATION_AMENDED, parse_workload
from lockstep.core.model.kueue.writes import WorkloadVerb
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import Taint
from lockstep.core.model.tunables import Tunables
from support.kueue_double import HOSTNAME, assigned_hosts
from support.kueue_world import KueueWorld, kueue_world, nodes, phase, reason
from support.world import spec

RACK = "topology.kubernetes.io/rack"
TOLERATES = {"spec": {"tolerations": [{"key": "maintenance", "operator": "Exists"}]}}


def spoil(world: KueueWorld, name: str, how: str = "condition") -> None:
    """Lockstep refuses the node from now on; ``mend`` ends it."""
    view = world.nodes[name]
    if how == "drain":
        view = dataclasses.replace(view, drain="new firmware")
    elif how == "taint":
        world.tunables = Tunables(drain_taints=("maintenance",))
        view = dataclasses.replace(view, taints=(Taint("maintenance", "NoSchedule"),))
    else:
        view = dataclasses.replace(view, conditions={"XidCriticalError": "Xid 79"})
    world.nodes[name] = view
    world.version += 1


def mend(world: KueueWorld, name: str) -> None:
    world.nodes[name] = dataclasses.replace(world.nodes[name], conditions={}, drain="", taints=())
    world.version += 1


def made(world: KueueWorld) -> int:
    """Workloads that were made so far."""
    return sum(write.verb is WorkloadVerb.CREATE for write in world.written)


@pytest.mark.parametrize("how", ["condition", "drain", "taint"])
def test_a_node_that_only_we_refuse_is_not_asked_for(how: str) -> None:
    world = kueue_world(6, levels=(RACK, HOSTNAME))
    spoil(world, "n0", how)
    world.queue_up(podTemplate=TOLERATES)
    assert phase(world) is Phase.RUNNING, reason(world)
    assert "n0" not in nodes(world)
    assert made(world) == 1


def test_a_reserved_node_that_turns_bad_before_the_gang_has_it_is_asked_around() -> None:
    world = kueue_world(6, levels=(RACK, HOSTNAME))
    world.queue_up("ours", 1, labels={}, placement={"nodes": ["n0"]})
    world.queue_up()
    assert reason(world)[0] == "KueueAssignment", "n0 is held"
    first = world.workload()["metadata"]["uid"]
    world.pass_time(100, 10)
    spoil(world, "n5")
    world.pass_time(20, 5)
    assert world.workload()["metadata"]["uid"] == first, "a node that it does not name costs it nothing"
    spoil(world, "n0")
    world.pass_time(20, 5)
    assert phase(world) is Phase.RUNNING, reason(world)
    assert nodes(world) == ("n1", "n2")
    assert world.workload()["metadata"]["uid"] == first
    assert world.told("Requeued") == ("True", "AskedAnew")


def test_a_run_that_asks_around_a_node_keeps_its_place_in_kueues_line() -> None:
    world = kueue_world(6, pods=2, levels=(RACK, HOSTNAME))
    world.queue_up("ours", 1, labels={}, placement={"nodes": ["n0"]})
    world.queue_up("old")
    world.pass_time(3_000, 300)
    world.queue_up("young")
    spoil(world, "n0")
    world.pass_time(70, 5)
    assert (phase(world, "old"), phase(world, "young")) == (Phase.RUNNING, Phase.PENDING)


@pytest.mark.parametrize("writes", range(4))
def test_an_operator_that_dies_while_a_run_asks_around_a_node_goes_on_with_it(writes: int) -> None:
    world = kueue_world(6, levels=(RACK, HOSTNAME))
    world.queue_up("ours", 1, labels={}, placement={"nodes": ["n0"]})
    world.queue_up()
    world.pass_time(100, 10)
    spoil(world, "n0")
    for _ in range(writes):
        world.reconcile("run")
        world.kueue_acts()
    world.crash()
    world.settle()
    assert phase(world) is Phase.RUNNING, reason(world)
    assert (nodes(world), made(world)) == (("n1", "n2"), 1)


def test_where_checks_were_passed_for_the_reservation_it_is_asked_for_anew() -> None:
    world = kueue_world(6, levels=(RACK, HOSTNAME))
    world.queue_up("ours", 1, labels={}, placement={"nodes": ["n0"]})
    world.queue_up()
    world.workload()["status"]["admissionChecks"] = [{"name": "capacity", "state": "Ready"}]
    world.pass_time(100, 10)
    spoil(world, "n0")
    world.pass_time(20, 5)
    assert phase(world) is Phase.RUNNING, reason(world)
    assert made(world) == 2


def test_nodes_that_turn_bad_and_good_again_make_it_ask_no_more_than_once_a_minute() -> None:
    world = kueue_world(6, levels=(RACK, HOSTNAME))
    world.queue_up("ours", 1, labels={}, placement={"nodes": ["n0"]})
    world.queue_up()
    for turn in range(60):
        for name in ("n1", "n2", "n3"):
            (spoil if turn % 3 == int(name[1]) - 1 else mend)(world, name)
        world.pass_time(5, 5)
    assert phase(world) is Phase.PENDING
    assert 1 < sum(write.why == "it names nodes that the run cannot have now" for write in world.written) <= 300 // 60
    assert made(world) == 1


def test_a_run_whose_own_nodes_are_all_bad_holds_no_quota() -> None:
    world = kueue_world(4, pods=2, levels=(RACK, HOSTNAME))
    for name in ("n0", "n1"):
        spoil(world, name)
    world.queue_up(placement={"nodes": ["n0", "n1"]})
    assert world.told("QuotaReserved") == ("False", "TopologyPlacementFailed")
    mend(world, "n0")
    mend(world, "n1")
    world.settle()
    assert phase(world) is Phase.RUNNING


def test_a_waiting_run_is_given_a_node_that_is_mended() -> None:
    world = kueue_world(2, levels=(RACK, HOSTNAME))
    spoil(world, "n0")
    world.queue_up()
    assert reason(world)[0] == "WaitingForKueue"
    assert world.reconcile("run").wake_at is None, "it looks as it is reconciled, every five minutes"
    mend(world, "n0")
    world.settle()
    assert (phase(world), made(world)) == (Phase.RUNNING, 1)


def amended(world: KueueWorld) -> int:
    """Workloads of waiting runs that were rewritten so far."""
    return sum(write.verb is WorkloadVerb.AMEND for write in world.written)


def test_a_node_that_comes_and_goes_has_a_waiting_run_rewrite_its_workload_at_most_every_ten_minutes() -> None:
    world = kueue_world(6, pods=2, levels=(RACK, HOSTNAME))
    world.queue_up("first")
    world.queue_up()
    for turn in range(60):
        (mend if turn % 2 else spoil)(world, "n5")
        world.pass_time(30, 15)
    assert 1 <= amended(world) <= 1 + 1800 // 600
    spoil(world, "n5")
    world.pass_time(660, 60)
    assert amended(world) <= 1 + 2460 // 600
    assert parse_workload(world.workload()).avoided == {"n5"}, "in the end it asks for what is so"


def test_what_the_run_itself_changes_is_asked_for_at_once() -> None:
    world = kueue_world(6, pods=2, levels=(RACK, HOSTNAME))
    world.queue_up("first")
    world.queue_up()
    spoil(world, "n5")
    world.settle()
    assert amended(world) == 1
    world.apply("run", spec(1, gpusPerNode=8))
    world.settle()
    assert amended(world) == 2


@pytest.mark.parametrize("said", ["", "soon", "-1", "9" * 400, "99999999999"])
def test_what_anybody_writes_as_the_time_of_the_last_change_holds_up_nothing(said: str) -> None:
    world = kueue_world(6, pods=2, levels=(RACK, HOSTNAME))
    world.queue_up("first")
    world.queue_up()
    world.workload()["metadata"]["annotations"][ANNOTATION_AMENDED] = said
    spoil(world, "n5")
    world.settle()
    assert amended(world) == 1


def test_in_a_rack_that_kueue_names_a_bad_node_is_told_and_a_cordon_has_kueue_count_it_no_more() -> None:
    world = kueue_world(6, levels=(RACK,))
    spoil(world, "n0")
    world.queue_up()
    assert reason(world)[0] == "KueueAssignment"
    assert "1 with the condition XidCriticalError (n0: Xid 79)" in reason(world)[1]
    assert reason(world)[1].endswith("; Kueue counts every node there that is not cordoned")
    world.evict("PodsReadyTimeout")
    world.cordon("n0")
    world.pass_time(60, 5)
    assert phase(world) is Phase.RUNNING, reason(world)


@pytest.mark.parametrize("how", ["drain", "taint"])
def test_a_gang_that_leaves_a_node_which_kueue_keeps_asks_without_it_after_a_minute(how: str) -> None:
    world = kueue_world(6, levels=(RACK, HOSTNAME))
    world.queue_up(podTemplate=TOLERATES)
    world.train("run", 10)
    left = nodes(world)[1]
    spoil(world, left, how)
    world.pass_time(120, 5)
    assert phase(world) is Phase.RUNNING, reason(world)
    assert left not in nodes(world)
    assert world.status("run").kueue.workload_uid == world.workload()["metadata"]["uid"]  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["migrate", "drain"])
def test_a_gang_that_leaves_a_cordoned_node_keeps_its_reservation(how: str) -> None:
    world = kueue_world(6, levels=(RACK, HOSTNAME))
    world.queue_up(recovery={"onCordon": "Migrate"} if how == "migrate" else {})
    world.train("run", 10)
    left, first = nodes(world)[1], world.workload()["metadata"]["uid"]
    world.cordon(left)
    if how == "drain":
        spoil(world, left, "drain")
    world.settle()
    world.pass_time(120, 5)
    assert phase(world) is Phase.RUNNING, reason(world)
    assert left not in nodes(world)
    assert set(nodes(world)) == set(assigned_hosts(world.workload()))
    assert world.workload()["metadata"]["uid"] == first
