"""Runs that Kueue admits, and what changes on the way: size, queue, class; and an operator that dies."""

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.decide import decide
from lockstep.core.model.conditions import find
from lockstep.core.model.kueue import api_names
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import Plan
from support.kueue_double import HOSTNAME
from support.kueue_world import KueueWorld, kueue_world, nodes, phase, reason, running
from support.world import World

RACK = "topology.kubernetes.io/rack"


def test_a_change_of_size_is_saved_given_back_and_asked_for_anew() -> None:
    world = running()
    world.format = "TorchDCP"  # which three can load of two
    world.train("run", 10)
    view = world.runs["run"]
    assert view.spec is not None
    world.apply("run", changed(view.spec, nodes=3))
    world.pass_time(120, 5)
    assert phase(world) is Phase.RUNNING
    assert len(nodes(world)) == 3
    assert world.workload()["spec"]["podSets"][0]["count"] == 3


def test_a_gang_whose_status_was_lost_keeps_its_reservation() -> None:
    world = running(levels=(RACK, HOSTNAME))
    before = world.status("run").kueue
    uid = world.workload()["metadata"]["uid"]
    world.wipe_status("run")
    world.pass_time(60, 2)
    assert phase(world) is Phase.RUNNING
    assert world.workload()["metadata"]["uid"] == uid
    assert world.status("run").kueue == before
    assert world.status("run").attempt == 1


@pytest.mark.parametrize("why", ["Preempted", "PodsReadyTimeout", "Deactivated"])
def test_a_gang_whose_status_was_lost_before_an_eviction_was_seen_leaves_for_it_all_the_same(why: str) -> None:
    world = running(levels=(RACK, HOSTNAME))
    world.train("run", 10)
    world.pool.pods = 0  # not admitted again
    world.freeze()
    if why == "Deactivated":
        world.activate(False)
    else:
        world.evict(why)
    world.wipe_status("run")
    world.stale = None
    world.pass_time(400, 10)
    assert (phase(world), nodes(world)) == (Phase.PENDING, ())
    assert world.told("QuotaReserved")[0] == "False"


@pytest.mark.parametrize(("gpus", "count"), [("1", 2), ("8", 1)])
def test_a_workload_that_somebody_makes_ask_for_less_is_mended(gpus: str, count: int) -> None:
    world = kueue_world(pods=1)
    world.queue_up()
    container = world.workload()["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["resources"]["requests"]["nvidia.com/gpu"] = gpus
    world.workload()["spec"]["podSets"][0]["count"] = count
    world.activate(True)
    world.pass_time(60, 5)
    pod_set = world.workload()["spec"]["podSets"][0]
    assert pod_set["count"] == 2
    assert pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] == "8"
    assert phase(world) is Phase.PENDING, "one pod is all there is"


def test_when_it_would_start_is_not_asked_of_kueue() -> None:
    world = kueue_world()
    world.submit()
    world.request("run", test_only="true")
    found = find(world.status("run"), "Accepted")
    assert found is not None
    assert found.message.startswith("metadata.annotations[lockstep.dev/test-only]: Kueue tells nobody")
    assert not world.workloads


def test_a_waiting_run_that_changes_keeps_its_workload() -> None:
    world = kueue_world(pods=1)
    world.queue_up()
    first = world.workload()["metadata"]["uid"]
    view = world.runs["run"]
    assert view.spec is not None
    world.roll_out("run", changed(view.spec, nodes=1))
    assert world.workload()["metadata"]["uid"] == first
    assert phase(world) is Phase.RUNNING


@pytest.mark.parametrize("is_reserved", [True, False])
def test_a_node_that_may_be_had_again_costs_a_waiting_run_no_reservation(is_reserved: bool) -> None:
    world = kueue_world(pods=2 if is_reserved else 1)
    world.submit()
    world.exclude_nodes("run", "n0", seconds=100)
    World.settle(world)  # all but Kueue
    first = world.workload()["metadata"]["uid"]
    assert world.workload()["metadata"]["annotations"]["lockstep.dev/avoided"] == "n0"
    world.kueue_acts()
    world.now += 200
    world.reconcile("run")
    world.settle()
    assert world.workload()["metadata"]["uid"] == first
    assert world.workload()["metadata"]["annotations"]["lockstep.dev/avoided"] == ("n0" if is_reserved else "")
    assert phase(world) is (Phase.RUNNING if is_reserved else Phase.PENDING)


def test_taking_the_label_away_hands_a_waiting_run_to_our_own_admission() -> None:
    world = kueue_world(pods=1)
    world.queue_up()
    assert world.workloads
    world.label("run")
    world.settle()
    assert phase(world) is Phase.RUNNING
    assert not world.workloads
    assert world.status("run").kueue is None


def _reserved_on_nodes_of_others() -> KueueWorld:
    world = kueue_world(6, levels=(RACK, HOSTNAME))
    world.queue_up("ours", 3, labels={})
    world.queue_up()
    assert reason(world)[0] == "KueueAssignment"
    assert world.told("QuotaReserved")[0] == "True"
    return world


def test_taking_the_label_away_gives_a_reservation_back_before_our_own_admission() -> None:
    world = _reserved_on_nodes_of_others()
    world.label("run")
    world.admit()
    assert phase(world) is Phase.PENDING, "it would be counted by Kueue and by us"
    world.settle()
    assert phase(world) is Phase.RUNNING
    assert not world.workloads
    assert world.status("run").kueue is None


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        ({api_names.LABEL_QUEUE: "nobody"}, "LocalQueueNotFound"),
        ({api_names.LABEL_QUEUE: "team", api_names.LABEL_PRIORITY_CLASS: "nobody"}, "PriorityClassNotFound"),
    ],
)
def test_a_run_that_asks_for_what_is_not_there_keeps_nothing_reserved(labels: dict[str, str], word: str) -> None:
    world = _reserved_on_nodes_of_others()
    world.label("run", **labels)
    world.settle()
    assert reason(world)[0] == word
    assert not world.workloads
    version = world.version
    world.pass_time(120, 10)
    assert world.version == version, "nothing goes round in circles"
    world.label("run", **{api_names.LABEL_QUEUE: "team"})
    world.settle()
    assert world.told("QuotaReserved")[0] == "True"


def test_a_priority_class_that_a_waiting_run_has_no_more_is_taken_from_its_workload() -> None:
    world = kueue_world(pods=1)
    world.classes = {"high": 7}
    world.queue_up(priorityClassName="high")
    assert world.workload()["spec"]["priorityClassRef"]["name"] == "high"
    view = world.runs["run"]
    assert view.spec is not None
    world.roll_out("run", changed(view.spec, priority_class_name=None))
    assert world.workload()["spec"]["priority"] == 0
    assert "priorityClassRef" not in world.workload()["spec"]


def test_a_run_held_back_asks_for_nothing() -> None:
    world = kueue_world(pods=1)
    world.queue_up()
    world.queue("default", heldRuns=["ns/run"])
    world.settle()
    assert reason(world)[0] == "HeldByAdministrator"
    assert not world.workloads


def test_a_run_keeps_its_place_with_kueue_while_nobody_knows_what_its_queue_has_used() -> None:
    world = kueue_world(pods=1)
    world.queue_up()
    first = world.workload()["metadata"]["uid"]
    world.queue("default", limits={"gpuHoursPerDay": 100, "onGpuHours": "Block"})
    world.settle()
    assert reason(world)[0] == "GpuHoursUnknown"
    assert world.workload()["metadata"]["uid"] == first


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"spareNodes": 1}, "spec.spareNodes"),
        ({"elastic": {"min": 1}}, "spec.elastic"),
        ({"gpusPerNode": None}, "spec.gpusPerNode"),
    ],
)
def test_what_kueue_cannot_do_is_refused_by_field(fields: dict[str, object], path: str) -> None:
    world = kueue_world()
    world.queue_up(**fields)
    found = find(world.status("run"), "Accepted")
    assert found is not None
    assert (found.status, found.reason) == ("False", "InvalidSpec")
    assert found.message.startswith(f"{path}: ")
    assert not world.workloads


def _story(world: KueueWorld) -> None:
    """Admitted, trains, evicted, admitted again, ends."""
    world.submit()
    world.pass_time(3)
    world.train("run", 50)
    if phase(world) is Phase.RUNNING and world.status("run").attempt == 1:
        world.evict("Preempted")
    world.pass_time(30, 3)
    for rank in range(2):
        world.exit_child("run", rank, 0)
    world.pass_time(200, 20)


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", range(26))
def test_an_operator_that_dies_before_any_write_gives_nothing_back_early_and_ends_where_it_would(dies_at: int) -> None:
    world = kueue_world(levels=(RACK, HOSTNAME))
    reconcile, written = world.reconcile, 0

    def dying(name: str, *, crash_after: int | None = None) -> Plan:
        nonlocal written
        plan = decide(world.snapshot(name), world.tunables, world.now)
        writes = (plan.status is not None) + len(plan.deletes) + len(plan.creates) + (plan.workload is not None)
        here = written <= dies_at < written + writes
        left = dies_at - written if here else None
        written += writes
        return reconcile(name, crash_after=left)

    world.reconcile = dying  # type: ignore[method-assign]
    _story(world)
    assert written > 26, "the story has more writes than are tried"
    assert phase(world) is Phase.FINISHED
    assert world.told("Finished") == ("True", "Succeeded")


def test_a_lagging_watch_neither_starts_nor_releases_on_old_news() -> None:
    world = running()
    world.train("run", 10)
    world.freeze()  # admitted, as far as the operator knows
    world.evict("Preempted")
    world.double.queues["ns", "team"].pods = 0
    world.pass_time(10)
    assert phase(world) is Phase.RUNNING, "nothing was heard yet"
    world.stale = None
    world.pass_time(5)
    world.freeze()  # evicted and released, as far as the operator knows
    world.double.queues["ns", "team"].pods = 4
    world.kueue_acts()
    world.pass_time(10)
    assert phase(world) is Phase.PENDING
    world.stale = None
    world.pass_time(10)
    assert phase(world) is Phase.RUNNING
