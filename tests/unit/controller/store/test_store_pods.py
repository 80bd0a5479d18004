"""Pods and nodes in the store: whose they are, whom they wake, and what they take."""

from typing import Any

import orjson
import pytest

from lockstep.api.base import names
from lockstep.controller.kube.workqueue import CLUSTER_KEY
from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import parse_pod
from lockstep.core.model.snapshot import PodPhase
from support.stored_runs import run
from support.stored_world import HOLDING, KEY, LEADER, World, foreign, node, pod, unread
from support.values import not_none


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def confined() -> World:
    """Its store looks after the namespace `other` alone."""
    world = World()
    world.store = Store(world.queue, world.clock, ["other"])
    return world


async def test_pods_of_a_deleted_run_are_orphans(world: World) -> None:
    world.store.runs.compare(unread(run()), 10, begun_at=0.0)
    world.store.gang_pods.upsert(pod())
    assert world.store.orphaned_pods("team", "llama") == ()
    world.store.runs.remove("team", "llama", "u1")
    assert [p.uid for p in world.store.orphaned_pods("team", "llama")] == ["p1"]


async def test_pods_outside_of_the_named_namespaces_are_nobodys_orphans(confined: World) -> None:
    confined.store.runs.compare(unread(), 10, begun_at=0.0)
    confined.store.gang_pods.upsert(pod())
    confined.store.runs.remove("team", "llama", "u1")
    assert confined.store.orphaned_pods("team", "llama") == ()


async def test_a_pod_heard_of_before_its_run_is_no_orphan(world: World) -> None:
    begun = world.clock.monotonic()
    await world.clock.advance(1)
    world.store.gang_pods.upsert(pod())
    world.store.runs.compare(unread(), 10, begun_at=begun)
    assert world.store.orphaned_pods("team", "llama") == ()
    await world.clock.advance(1)
    world.store.runs.compare(unread(), 11, begun_at=world.clock.monotonic())
    assert [p.uid for p in world.store.orphaned_pods("team", "llama")] == ["p1"]


async def test_a_copied_label_makes_no_orphan(world: World) -> None:
    world.store.gang_pods.upsert(pod(owner_uid="somebody else"))
    await world.clock.advance(1)
    world.store.runs.compare(unread(), 30, begun_at=world.clock.monotonic())
    assert world.store.orphaned_pods("team", "llama") == ()


async def test_pods_of_living_runs_are_not_looked_at_to_find_the_orphans_of_one(world: World) -> None:
    world.store.runs.compare(unread(run()), 10, begun_at=0.0)
    world.store.gang_pods.upsert(pod())
    world.store.gang_pods.upsert(pod("p2", run_uid="u2", run="mistral"))
    world.store.gang_pods.upsert(pod("p3", run_uid="u2", run="copied"))
    await world.clock.advance(1)
    world.store.runs.compare(unread(run()), 30, begun_at=world.clock.monotonic())
    assert world.store.orphaned_pods("team", "llama") == ()
    assert [p.uid for p in world.store.orphaned_pods("team", "mistral")] == ["p2"]
    assert [p.uid for p in world.store.orphaned_pods("team", "copied")] == ["p3"]
    assert world.store.orphaned_pods("other", "mistral") == ()
    for uid in ("p1", "p2", "p3"):
        world.store.gang_pods.remove(uid, 40)
    assert world.store.orphaned_pods("team", "mistral") == ()


async def test_an_earlier_run_of_the_same_name_has_orphans_while_the_new_one_has_none(world: World) -> None:
    world.store.runs.compare(unread(run()), 10, begun_at=0.0)
    world.store.gang_pods.upsert(pod())
    world.store.runs.apply(run(20, uid="u2"))
    world.store.gang_pods.upsert(pod("p2", run_uid="u2"))
    assert [p.uid for p in world.store.orphaned_pods("team", "llama")] == ["p1"]


async def test_an_ordinary_pod_change_wakes_the_run_a_moment_later(world: World) -> None:
    world.store.runs.apply(run())
    await world.due()
    world.store.gang_pods.upsert(pod())
    assert len(world.queue) == 0
    assert await world.due() == {KEY}


@pytest.mark.parametrize("phase", [PodPhase.FAILED, PodPhase.SUCCEEDED])
async def test_a_pod_that_ended_wakes_its_run_at_once_and_the_admission_pass(world: World, phase: PodPhase) -> None:
    world.store.gang_pods.upsert(pod())
    await world.due()
    world.store.gang_pods.upsert(pod(version=21, phase=phase))
    assert len(world.queue) == 2
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_report_wakes_its_run_a_moment_later_and_a_large_gang_after_a_longer_one(world: World) -> None:
    world.store.runs.apply(run())
    await world.due()
    world.store.worker_reported("u1")
    assert len(world.queue) == 0
    await world.clock.advance(0.06)
    assert await world.queue.get() == KEY
    world.queue.done(KEY)
    for number in range(500):
        world.store.gang_pods.upsert(pod(f"p{number}", slot=number))
    await world.due()
    world.store.worker_reported("u1")
    world.store.worker_reported("of another run")
    await world.clock.advance(0.06)
    world.queue.wake_at("soon", world.clock.now())
    assert await world.queue.get() == "soon"
    await world.clock.advance(0.2)
    assert await world.queue.get() == KEY


async def test_a_pod_that_is_gone_frees_its_node(world: World) -> None:
    world.store.gang_pods.upsert(pod())
    world.store.gang_pods.remove("p1", 22)
    assert world.store.snapshot_cluster(LEADER).gang_pods == ()
    assert await world.due() == {KEY, CLUSTER_KEY}


@pytest.mark.parametrize("lost_first", [True, False])
async def test_a_pod_that_lost_its_labels_and_got_them_back_is_one_pod_all_the_while(
    world: World, lost_first: bool
) -> None:
    """Two watches tell of it, one of pods with our labels and one of those without, in either order."""
    world.store.runs.apply(run(status=HOLDING))
    gang, others = world.store.gang_pods, world.store.other_pods

    def move(source: Any, target: Any, version: int) -> None:
        moves = [lambda: source.remove("p1", version), lambda: target.upsert(pod(version=version))]
        for each in moves if lost_first else reversed(moves):
            each()

    gang.upsert(pod())
    for version, source, target in ((21, gang, others), (23, others, gang), (25, gang, others)):
        move(source, target, version)
        assert [each.uid for each in world.store.pods_of("u1")] == ["p1"]
        assert world.store.foreign_requests == {}
    others.upsert(pod(version=26, phase=PodPhase.FAILED))
    assert [each.phase for each in world.store.pods_of("u1")] == [PodPhase.FAILED]
    others.remove("p1", 27)
    assert world.store.pods_of("u1") == ()
    assert world.store.snapshot_cluster(LEADER).gang_pods == ()


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize(
    "forged",
    [{"run_uid": "nobody"}, {"namespace": "elsewhere"}, {"slot": 7}, {"incarnation": 99}],
    ids=["of a run that does not exist", "of another namespace", "of a slot too many", "of a later incarnation"],
)
async def test_a_forged_pod_takes_no_node_but_what_it_requests_where_it_is_bound(
    world: World, forged: dict[str, Any], bound: bool
) -> None:
    world.store.runs.apply(run(status=HOLDING))
    world.store.gang_pods.upsert(pod("mine"))
    for number in range(6):
        fields = {"bound": bound, "requests": {"cpu": 1, "pods": 1}, **forged}
        world.store.gang_pods.upsert(pod(f"p{number}", node=f"gpu-{number}", **fields))
    snapshot = world.store.snapshot_cluster(LEADER)
    assert [each.uid for each in snapshot.gang_pods] == ["mine"]
    of_its_own = forged.keys() & {"slot", "incarnation"}
    assert len(snapshot.doubtful_pods) == (6 if of_its_own else 0), "its own run does not start beside them"
    taken = {f"gpu-{number}": {"cpu": 1, "pods": 1} for number in range(6)} if bound else {}
    assert snapshot.foreign_requests == world.store.foreign_requests == taken


@pytest.mark.parametrize(
    "ends",
    [
        ["0-01", "00-1", "0-001", "000-1", "0-0001", "0000-0001"],
        [f"{slot}-1" for slot in range(1, 7)],
        [f"0-{incarnation}" for incarnation in range(1, 7)],
    ],
    ids=["whose names are padded", "of slots for spares that have no node", "of its own slot and earlier ones of it"],
)
@pytest.mark.parametrize("status_first", [True, False])
async def test_a_run_of_one_node_takes_no_other_by_any_number_of_pods(
    world: World, ends: list[str], status_first: bool
) -> None:
    """They have its owner, its name, and a node each that somebody has pinned them to, and request nothing."""
    incarnations = [7 if ends[1] == "0-2" else 1, *[1] * 6]
    assignment = {"nodes": ["gpu-0", *[""] * 6], "incarnations": incarnations, "vacant": [1, 2, 3, 4, 5, 6]}
    status = {"attempt": 1, "assignment": {**assignment, "rankToSlot": [0]}}
    if status_first:
        world.store.runs.apply(run(status=status))
    world.store.gang_pods.upsert(pod("mine", node="gpu-0", incarnation=incarnations[0]))
    for number, end in enumerate(ends, start=1):
        world.store.gang_pods.upsert(parse_pod(orjson.dumps(_pinned(f"llama-u1-{end}", f"gpu-{number}"))))
    world.store.runs.apply(run(11, status=status))
    snapshot = world.store.snapshot_cluster(LEADER)
    assert [each.uid for each in snapshot.gang_pods] == ["mine"]
    assert snapshot.foreign_requests == {}


def _pinned(name: str, node: str) -> dict[str, Any]:
    """A pod of the run ``llama`` by its owner that nobody schedules, as the API server has it."""
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "name": "llama", "uid": "u1", "controller": True}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    meta = {"namespace": "team", "name": name, "uid": name, "resourceVersion": "21", "ownerReferences": [owner]}
    return {
        "metadata": meta,
        "spec": {"schedulerName": "nobody", "affinity": {"nodeAffinity": required}},
        "status": {"phase": "Pending"},
    }


@pytest.mark.parametrize(
    ("synced", "statuses", "taken"),
    [
        (True, [{}], 0),
        (False, [{}], 6),
        (True, [HOLDING, {}], 6),
        (True, [{}, HOLDING, {}], 6),
        (True, [{}, {"state": "Pending"}], 0),
    ],
    ids=[
        "that came while all runs were known",
        "that was there before, and may have lost its status",
        "whose status somebody has wiped",
        "the same, later",
        "that waits",
    ],
)
async def test_pods_bound_in_the_name_of_a_run_that_has_had_no_nodes_take_none(
    world: World, synced: bool, statuses: list[dict[str, Any]], taken: int
) -> None:
    """Whoever may create pods may write ``spec.nodeName`` too."""
    world.store.runs.cache.synced = synced
    for version, status in enumerate(statuses, start=10):
        world.store.runs.apply(run(version, status=status))
    for number in range(6):
        world.store.gang_pods.upsert(pod(f"p{number}", slot=number, node=f"gpu-{number}", requests={"pods": 1}))
    snapshot = world.store.snapshot_cluster(LEADER)
    assert len(snapshot.gang_pods) == taken
    assert len(snapshot.foreign_requests) == len(snapshot.doubtful_pods) == 6 - taken


async def test_nothing_is_kept_of_a_run_without_nodes_that_is_gone(world: World) -> None:
    world.store.runs.cache.synced = True
    world.store.runs.apply(run())
    assert world.store.runs.has_had_no_nodes("u1")
    world.store.runs.remove("team", "llama", "u1")
    assert not world.store.runs.has_had_no_nodes("u1")


async def test_pods_of_a_run_that_is_gone_hold_their_nodes_until_they_are_gone(world: World) -> None:
    world.store.runs.apply(run(status=HOLDING))
    world.store.gang_pods.upsert(pod())
    world.store.runs.remove("team", "llama", "u1")
    assert [each.uid for each in world.store.snapshot_cluster(LEADER).gang_pods] == ["p1"]


async def test_foreign_requests_are_sums_of_what_is_not_terminal(world: World) -> None:
    others = world.store.other_pods
    others.upsert(foreign("a", cpu=100))
    others.upsert(foreign("b", cpu=50, memory=7))
    others.upsert(foreign("c", node="", cpu=999))
    others.upsert(foreign("d", cpu=999, terminal=True))
    assert world.store.foreign_requests == {"gpu-1": {"cpu": 150, "memory": 7, "pods": 2}}
    others.upsert(foreign("b", version=6, cpu=70))
    assert world.store.foreign_requests == {"gpu-1": {"cpu": 170, "pods": 2}}
    others.remove("a", 7)
    others.remove("b", 8)
    assert world.store.foreign_requests == {}
    assert await world.due() == {CLUSTER_KEY}


async def test_foreign_requests_of_an_earlier_snapshot_stay_as_they_were(world: World) -> None:
    world.store.other_pods.upsert(foreign("a", cpu=100))
    seen = dict(world.store.foreign_requests)
    world.store.other_pods.upsert(foreign("b", cpu=50))
    assert seen == {"gpu-1": {"cpu": 100, "pods": 1}}
    assert world.store.foreign_requests["gpu-1"]["cpu"] == 150


async def test_a_pod_with_senseless_gang_labels_is_counted_as_foreign(world: World) -> None:
    world.store.runs.apply(run(status=HOLDING))
    world.store.gang_pods.upsert(foreign("odd", cpu=100))
    assert world.store.foreign_requests == {"gpu-1": {"cpu": 100, "pods": 1}}
    world.store.gang_pods.upsert(pod("odd", version=6))
    assert world.store.foreign_requests == {}
    assert len(world.store.pods_of("u1")) == 1


async def test_a_node_change_wakes_the_runs_on_it_and_the_admission_pass(world: World) -> None:
    world.store.gang_pods.upsert(pod(node="gpu-1"))
    world.store.nodes.upsert(node("gpu-1"))
    await world.due()
    world.store.nodes.upsert(node("gpu-1", version=4, ready="False"))
    assert await world.due() == {KEY, CLUSTER_KEY}
    world.store.nodes.upsert(node("gpu-1", version=5, ready="False"))
    assert await world.due() == set()


async def test_a_node_made_anew_under_the_same_name_survives_the_end_of_the_old_one(world: World) -> None:
    world.store.nodes.upsert(node("gpu-1", "n1", 3))
    world.store.nodes.upsert(node("gpu-1", "n2", 5))
    world.store.nodes.remove("n1", 6)
    found = not_none(world.store.node("gpu-1"))
    assert found.uid == "n2"
    world.store.nodes.remove("n2", 7)
    assert world.store.node("gpu-1") is None


@pytest.mark.parametrize("forged", [{"owner_uid": ""}, {"owner_uid": "u2"}, {"namespace": "elsewhere"}])
def test_a_pod_that_only_bears_the_label_of_a_run_is_no_pod_of_it(world: World, forged: dict[str, Any]) -> None:
    world.store.runs.apply(run())
    world.store.gang_pods.upsert(pod("p1"))
    world.store.gang_pods.upsert(pod("p2", **forged))
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert [known.uid for known in snapshot.pods] == ["p1"]


async def test_a_pod_that_lost_its_labels_is_gone_when_its_watch_says_so(world: World) -> None:
    raw: dict[str, Any] = {
        "metadata": {
            "namespace": "team",
            "name": "llama-u1-0-1",
            "uid": "p1",
            "resourceVersion": "21",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.RUN_KIND,
                    "name": "llama",
                    "uid": "u1",
                    "controller": True,
                }
            ],
        },
        "spec": {"nodeName": "gpu-1"},
        "status": {"phase": "Running"},
    }
    world.store.gang_pods.upsert(pod(version=20))
    world.store.gang_pods.remove("p1", 21)
    world.store.other_pods.upsert(parse_pod(orjson.dumps(raw)))
    raw["metadata"] |= {"resourceVersion": "30", "deletionTimestamp": "2026-01-01T01:00:00Z"}
    world.store.apply_pod(orjson.dumps(raw))  # the answer to our DELETE
    assert [each.deleting for each in world.store.pods_of("u1")] == [True]
    world.store.other_pods.remove("p1", 40)
    assert not world.store.pods_of("u1")
