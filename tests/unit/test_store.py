"""The store: what it knows, who it wakes, and what it keeps booked."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
import pytest

from lockstep.api.base import names, nesting
from lockstep.api.base.nesting import TOO_DEEP
from lockstep.api.run_status import AssignmentStatus, TrainingRunStatus
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue
from lockstep.controller.runtime.patches import dump_status
from lockstep.controller.store import store
from lockstep.controller.store.store import Store
from lockstep.controller.store.whole_status import MissingAssignmentError
from lockstep.core.model import reservation as kept
from lockstep.core.model.assignment import assigned, spilled
from lockstep.core.model.cluster_objects import ForeignPod, Unread, Versioned, parse_node, parse_pod, parse_unread
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import DryRunResult, Leadership, PodPhase, PodView, RefusedCreate, RunView
from support.manual_clock import ManualClock
from support.own_events import hear
from support.stored_runs import pod as a_pod
from support.stored_runs import run, stored
from support.values import not_none

LEADER = Leadership(since=0.0)
KEY = "run/team/llama"


class World:
    """A store with its queue and clock, and shorthand for what the API server would say."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = WorkQueue(self.clock)
        self.store = Store(self.queue, self.clock)

    async def due(self) -> set[str]:
        """Keys that are due within the next two seconds, taken off the queue."""
        self.queue.wake_at("last", self.clock.now() + 2)
        await self.clock.advance(2)
        keys = set()
        while (key := await self.queue.get()) != "last":
            keys.add(key)
            self.queue.done(key)
        self.queue.done("last")
        return keys


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def confined() -> World:
    """Its store looks after the namespace `other` alone."""
    world = World()
    world.store = Store(world.queue, world.clock, ["other"])
    return world


HOLDING = {"attempt": 1, "assignment": {"nodes": ["gpu-1", "gpu-2"], "incarnations": [1, 1]}}


def pod(
    uid: str = "p1", *, run_uid: str = "u1", node: str = "gpu-1", version: int = 20, **changes: Any
) -> Versioned[PodView | ForeignPod]:
    view = a_pod(name=f"llama-{uid}", uid=uid, run_uid=run_uid, node=node, **changes)
    return Versioned(uid, version, view)


def foreign(uid: str, node: str = "gpu-1", version: int = 5, terminal: bool = False, **requests: int) -> Any:
    return Versioned(uid, version, ForeignPod(node, {**requests, "pods": 1}, terminal))


def node(name: str, uid: str = "n1", version: int = 3, *, ready: str = "True") -> Any:
    raw = {
        "metadata": {"name": name, "uid": uid, "resourceVersion": str(version)},
        "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": ready}]},
    }
    return parse_node(orjson.dumps(raw))


def unread(*raws: Mapping[str, Any]) -> list[Versioned[Unread]]:
    """As they come in a list or by a watch."""
    return [parse_unread(msgspec.Raw(orjson.dumps(raw))) for raw in raws]


async def test_a_new_run_wakes_itself_and_the_admission_pass(world: World) -> None:
    world.store.apply_run(run())
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_status_write_wakes_only_the_run(world: World) -> None:
    world.store.apply_run(run())
    await world.due()
    world.store.apply_run(run(11, status={"attempt": 1}))
    assert await world.due() == {KEY}


async def test_what_a_watch_says_first_is_taken_in(world: World) -> None:
    for heard in (run(), run(11, status={"attempt": 1})):
        hear(world.store, heard)
    known = stored(world.store)
    assert known.status.attempt == 1
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_spec_change_wakes_the_admission_pass_too(world: World) -> None:
    world.store.apply_run(run())
    await world.due()
    world.store.apply_run(run(11, generation=2))
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_spec_is_read_anew_only_with_its_generation(world: World) -> None:
    first = world.store.apply_run(run(10)).spec
    assert world.store.apply_run(run(11, status={"attempt": 2})).spec is first
    assert world.store.apply_run(run(12, generation=2)).spec is not first


async def test_an_older_event_after_a_write_changes_nothing(world: World) -> None:
    world.store.apply_run(run(12, status={"attempt": 2}))
    await world.due()
    view = world.store.apply_run(run(11, status={"attempt": 1}))
    assert view.status.attempt == 2
    assert await world.due() == set()


async def test_what_is_known_already_is_not_parsed_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write of ours comes back by the watch, and every run with each list."""
    parsed: list[str] = []

    def note(raw: Mapping[str, Any], before: RunView | None = None) -> RunView:
        parsed.append(raw["metadata"]["resourceVersion"])
        return parse_run(raw, before)

    monkeypatch.setattr(store, "parse_run", note)
    known = world.store.apply_run(run(11))
    assert world.store.apply_run(run(11)) is known
    assert not hear(world.store, run(11))
    world.store.compare_runs(unread(run(11)), 30, begun_at=1.0)
    assert parsed == ["11"]
    world.store.compare_runs(unread(run(11, status={"attempt": 3})), 12, begun_at=2.0)  # of a restored backup
    assert parsed == ["11", "11"]
    restored = stored(world.store)
    assert restored.status.attempt == 3


async def test_who_is_nested_too_deeply_is_told_and_harms_no_other(world: World) -> None:
    """The API server takes 10,000 levels, and a pod template is anybody's to write."""
    deep = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
    hostile = orjson.dumps(run(11, "u2")).replace(b'"spec":{', b'"spec":{"podTemplate":' + deep + b",")
    hostile = hostile.replace(b'"llama"', b'"deep"')
    item = parse_unread(msgspec.Raw(nesting.cut(hostile)))  # as a list has it
    hear(world.store, hostile)
    world.store.compare_runs([item, *unread(run())], 30, begun_at=0.0)
    errors = {known.uid: known.spec_error for known in world.store.runs}
    assert errors == {"u1": "", "u2": f"spec.podTemplate: {TOO_DEEP}"}


async def test_an_array_that_is_nested_too_deeply_is_told_as_well(world: World) -> None:
    deep = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
    spec = {"indices": "0-3", "template": {"spec": run()["spec"] | {"podTemplate": "DEEP"}}}
    raw = orjson.dumps(run(11, "u2") | {"spec": spec}).replace(b'"DEEP"', deep)
    item = parse_unread(msgspec.Raw(nesting.cut(raw)))
    hear(world.store, raw, plural=names.RUN_SETS)
    world.store.run_sets.compare([item], 30)
    assert [known.spec_error for known in world.store.run_sets.cache] == [f"spec.template.spec.podTemplate: {TOO_DEEP}"]


async def test_a_set_that_is_known_already_is_not_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hear(world.store, run(11, "u2"), plural=names.RUN_SETS)
    monkeypatch.setattr(nesting, "plain_json", lambda _: pytest.fail("it was read"))
    assert not hear(world.store, run(11, "u2"), plural=names.RUN_SETS)
    monkeypatch.setattr(Unread, "read", lambda _: pytest.fail("it was read"))
    world.store.run_sets.compare(unread(run(11, "u2")), 30)


@pytest.mark.parametrize(("seen", "left"), [(150, 0), (100, 1)])
async def test_a_list_older_than_what_was_seen_before_it_is_of_a_restored_backup(
    world: World, seen: int, left: int
) -> None:
    """Otherwise what it lacks was made while it was on its way."""
    hear(world.store, run(150))
    hear(world.store, run(150, "u2"), plural=names.RUN_SETS)
    world.store.compare_runs([], 120, begun_at=0.0, seen=seen)
    world.store.run_sets.compare([], 120, seen=seen)
    assert len(world.store.runs) == len(world.store.run_sets.cache) == left


async def test_one_that_cannot_be_read_is_left_out_of_a_list_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_of_u1(item: Unread) -> dict[str, Any]:
        if b'"u1"' in bytes(item.text):
            raise TypeError("who would have thought of that")
        return read(item)

    read = Unread.read
    monkeypatch.setattr(Unread, "read", fail_of_u1)
    world.store.compare_runs(unread(run(), run(11, "u2")), 30, begun_at=0.0)
    world.store.run_sets.compare(unread(run(), run(11, "u2")), 30)
    assert [known.uid for known in world.store.runs] == ["u2"]
    assert [known.uid for known in world.store.run_sets.cache] == ["u2"]


async def test_the_last_version_that_could_be_read_stays(world: World) -> None:
    world.store.apply_run(run(status={"attempt": 3}))
    item = Versioned("u1", 11, Unread("team", msgspec.Raw(b"nothing that can be read")))
    world.store.compare_runs([item], 30, begun_at=0.0)
    assert not hear(world.store, item.view.text)
    known = stored(world.store)
    assert known.status.attempt == 3


async def test_a_run_deleted_in_a_watch_gap_goes_with_the_next_list_and_frees_its_nodes(world: World) -> None:
    world.store.apply_run(run())
    await world.due()
    world.store.compare_runs(unread(), 30, begun_at=world.clock.monotonic())
    assert world.store.run("team", "llama") is None
    assert world.store.snapshot_cluster(LEADER).runs == ()
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_run_applied_again_under_the_same_name_is_another_run(world: World) -> None:
    world.store.apply_run(run(10, "old"))
    world.store.gang_pods.upsert(pod("p1", run_uid="old", deleting=True))
    world.store.apply_run(run(30, "new"))
    current = stored(world.store)
    assert current.uid == "new"
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert snapshot.pods == ()
    cluster = world.store.snapshot_cluster(LEADER)
    assert [r.uid for r in cluster.runs] == ["new"]
    assert [(p.run_uid, p.node) for p in cluster.gang_pods] == [("old", "gpu-1")]


async def test_late_news_of_the_old_run_does_not_displace_the_new_one(world: World) -> None:
    world.store.apply_run(run(30, "new"))
    world.store.apply_run(run(10, "old"))
    world.store.remove_run("team", "llama", "old")
    current = stored(world.store)
    assert current.uid == "new"
    assert [r.uid for r in world.store.runs] == ["new"]


async def test_a_removed_run_never_comes_back(world: World) -> None:
    world.store.apply_run(run(10))
    world.store.remove_run("team", "llama", "u1")
    world.store.apply_run(run(11))
    assert world.store.run("team", "llama") is None


async def test_pods_of_a_deleted_run_are_orphans(world: World) -> None:
    world.store.compare_runs(unread(run()), 10, begun_at=0.0)
    world.store.gang_pods.upsert(pod())
    assert world.store.orphaned_pods("team", "llama") == ()
    world.store.remove_run("team", "llama", "u1")
    assert [p.uid for p in world.store.orphaned_pods("team", "llama")] == ["p1"]


async def test_runs_outside_of_the_named_namespaces_are_left_alone(confined: World) -> None:
    ours = run(uid="u2")
    ours["metadata"]["namespace"] = "other"
    confined.store.apply_run(run())
    confined.store.compare_runs(unread(run(), ours), 30, begun_at=0.0)
    assert [known.uid for known in confined.store.runs] == ["u2"]


async def test_pods_outside_of_the_named_namespaces_are_nobodys_orphans(confined: World) -> None:
    confined.store.compare_runs(unread(), 10, begun_at=0.0)
    confined.store.gang_pods.upsert(pod())
    confined.store.remove_run("team", "llama", "u1")
    assert confined.store.orphaned_pods("team", "llama") == ()


async def test_a_pod_heard_of_before_its_run_is_no_orphan(world: World) -> None:
    begun = world.clock.monotonic()
    await world.clock.advance(1)
    world.store.gang_pods.upsert(pod())
    world.store.compare_runs(unread(), 10, begun_at=begun)
    assert world.store.orphaned_pods("team", "llama") == ()
    await world.clock.advance(1)
    world.store.compare_runs(unread(), 11, begun_at=world.clock.monotonic())
    assert [p.uid for p in world.store.orphaned_pods("team", "llama")] == ["p1"]


async def test_a_copied_label_makes_no_orphan(world: World) -> None:
    world.store.gang_pods.upsert(pod(owner_uid="somebody else"))
    await world.clock.advance(1)
    world.store.compare_runs(unread(), 30, begun_at=world.clock.monotonic())
    assert world.store.orphaned_pods("team", "llama") == ()


async def test_pods_of_living_runs_are_not_looked_at_to_find_the_orphans_of_one(world: World) -> None:
    world.store.compare_runs(unread(run()), 10, begun_at=0.0)
    world.store.gang_pods.upsert(pod())
    world.store.gang_pods.upsert(pod("p2", run_uid="u2", run="mistral"))
    world.store.gang_pods.upsert(pod("p3", run_uid="u2", run="copied"))
    await world.clock.advance(1)
    world.store.compare_runs(unread(run()), 30, begun_at=world.clock.monotonic())
    assert world.store.orphaned_pods("team", "llama") == ()
    assert [p.uid for p in world.store.orphaned_pods("team", "mistral")] == ["p2"]
    assert [p.uid for p in world.store.orphaned_pods("team", "copied")] == ["p3"]
    assert world.store.orphaned_pods("other", "mistral") == ()
    for uid in ("p1", "p2", "p3"):
        world.store.gang_pods.remove(uid, 40)
    assert world.store.orphaned_pods("team", "mistral") == ()


async def test_an_earlier_run_of_the_same_name_has_orphans_while_the_new_one_has_none(world: World) -> None:
    world.store.compare_runs(unread(run()), 10, begun_at=0.0)
    world.store.gang_pods.upsert(pod())
    world.store.apply_run(run(20, uid="u2"))
    world.store.gang_pods.upsert(pod("p2", run_uid="u2"))
    assert [p.uid for p in world.store.orphaned_pods("team", "llama")] == ["p1"]


async def test_priority_classes_are_seen_by_the_admission_pass_and_wake_it(world: World) -> None:
    classes = world.store.priority_classes
    classes.upsert(Versioned("c1", 1, ("high", 1000)))
    assert await world.due() == {CLUSTER_KEY}
    seen = world.store.snapshot_cluster(LEADER)
    classes.upsert(Versioned("c2", 2, ("high", 2000)))
    classes.remove("c1", 2)
    assert await world.due() == {CLUSTER_KEY}
    assert seen.priority_classes == {"high": 1000}
    assert world.store.snapshot_cluster(LEADER).priority_classes == {"high": 2000}
    classes.remove("c2", 3)
    assert world.store.snapshot_cluster(LEADER).priority_classes == {}


async def test_labels_of_namespaces_are_seen_by_the_admission_pass_and_wake_it(world: World) -> None:
    namespaces = world.store.namespaces
    namespaces.upsert(Versioned("ns1", 1, ("team", {"tier": "gold"})))
    assert await world.due() == {CLUSTER_KEY}
    assert world.store.snapshot_cluster(LEADER).namespace_labels == {"team": {"tier": "gold"}}
    namespaces.upsert(Versioned("ns2", 3, ("team", {"tier": "iron"})))
    namespaces.remove("ns1", 3)
    assert world.store.snapshot_cluster(LEADER).namespace_labels == {"team": {"tier": "iron"}}
    namespaces.remove("ns2", 4)
    assert world.store.snapshot_cluster(LEADER).namespace_labels == {}


async def test_an_ordinary_pod_change_wakes_the_run_a_moment_later(world: World) -> None:
    world.store.apply_run(run())
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
    world.store.apply_run(run())
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
    world.store.apply_run(run(status=HOLDING))
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
    world.store.apply_run(run(status=HOLDING))
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


async def test_pods_of_a_run_that_is_gone_hold_their_nodes_until_they_are_gone(world: World) -> None:
    world.store.apply_run(run(status=HOLDING))
    world.store.gang_pods.upsert(pod())
    world.store.remove_run("team", "llama", "u1")
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
    world.store.apply_run(run(status=HOLDING))
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


async def test_namespace_labels_reach_the_snapshot(world: World) -> None:
    world.store.apply_run(run())
    world.store.namespaces.upsert(Versioned("ns", 1, ("team", {"lockstep.dev/allow-privileged": "true"})))
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert snapshot.namespace_labels == {"lockstep.dev/allow-privileged": "true"}


async def test_nodes_in_flight_stay_booked_until_released(world: World) -> None:
    world.store.writes.book("u1", ["a", "b"])
    assert world.store.snapshot_cluster(LEADER).in_flight == {"u1": frozenset({"a", "b"})}
    world.store.writes.release("u1")
    assert world.store.snapshot_cluster(LEADER).in_flight == {}
    assert await world.due() == {CLUSTER_KEY}


async def test_a_refused_pod_is_news_once_and_keeps_its_first_moment(world: World) -> None:
    world.store.apply_run(run())
    assert world.store.note_refused_create("u1", "llama-p1", RefusedCreate(1.0, "quota"))
    assert not world.store.note_refused_create("u1", "llama-p1", RefusedCreate(2.0, "quota"))
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert snapshot.refused_creates == {"llama-p1": RefusedCreate(1.0, "quota")}
    world.store.gang_pods.upsert(pod())
    after = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert after.refused_creates == {}


async def test_a_verdict_stands_whatever_comes_between_two_of_its_kind(world: World) -> None:
    world.store.apply_run(run())
    note = world.store.note_refused_create
    assert not note("u1", "p", RefusedCreate(1.0, "time-out", is_verdict=False))
    assert note("u1", "p", RefusedCreate(2.0, "quota"))
    assert not note("u1", "p", RefusedCreate(50.0, "Conflict", is_verdict=False))
    assert not note("u1", "p", RefusedCreate(51.0, "quota"))
    assert world.store._refused["u1"]["p"] == RefusedCreate(2.0, "quota")


async def test_what_is_heard_of_a_run_that_is_gone_is_not_kept(world: World) -> None:
    world.store.apply_run(run())
    world.store.remove_run("team", "llama", "u1")
    assert not world.store.note_refused_create("u1", "llama-p1", RefusedCreate(1.0, "quota"))
    world.store.set_dry_run("u1", DryRunResult(1, True))
    world.store.apply_run(run(version=11), assignment=AssignmentStatus(nodes=("n0",), incarnations=(1,)))
    kept = (world.store._refused, world.store._dry_runs, world.store._views, world.store._whole._assignments)
    assert not any(kept)


async def test_a_dry_run_is_kept_with_its_run(world: World) -> None:
    world.store.set_dry_run("u1", DryRunResult(1, True))
    world.store.apply_run(run())
    world.store.set_dry_run("u1", DryRunResult(1, False, "no"))
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert snapshot.dry_run == DryRunResult(1, False, "no")


def large_assignment() -> AssignmentStatus:
    names = [f"gke-large-cluster-a3-mega-pool-{number:05d}" for number in range(2000)]
    named, config_map = spilled(assigned(AssignmentStatus(), names), "team", "llama", "u1")
    assert config_map is not None
    return named


async def test_a_written_assignment_is_known_in_full_although_status_only_names_its_config_map(
    world: World,
) -> None:
    whole = large_assignment()
    raw = run(11, status=dump_status(TrainingRunStatus(assignment=whole)))
    world.store.apply_run(raw)  # the watch may be first
    with pytest.raises(MissingAssignmentError):
        world.store.snapshot_run("team", "llama", {}, LEADER)
    view = world.store.apply_run(raw, whole)
    assert view.status.assignment == whole
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert snapshot.run.status.assignment.nodes == whole.nodes


async def test_no_pass_is_made_before_the_nodes_that_are_kept_for_a_run_have_been_read(world: World) -> None:
    names = tuple(f"gke-large-cluster-a3-mega-pool-{number:05d}" for number in range(2000))
    whole, config_map = kept.spilled(kept.reservation_of(names, ("u2",), 1.0, 2.0), "team", "llama", "u1")
    assert config_map is not None
    raw = run(11, status=dump_status(TrainingRunStatus(reservation=whole)))
    assert "nodes" not in raw["status"]["reservation"]
    world.store.apply_run(raw)  # the watch may be first
    with pytest.raises(MissingAssignmentError) as missing:
        world.store.snapshot_cluster(LEADER)
    assert missing.value.config_map == whole.config_map
    world.store.keep_reservation("u1", config_map.body["data"][kept.RESERVATION_KEY])
    [view] = world.store.snapshot_cluster(LEADER).runs
    assert view.status.reservation == whole
    assert world.store.apply_run(run(12, status=raw["status"])).status.reservation == whole


async def test_a_reservation_whose_config_map_is_gone_names_nothing_and_holds_up_nobody(world: World) -> None:
    whole, _ = kept.spilled(kept.reservation_of(("x" * 20_000,), (), 1.0, 2.0), "team", "llama", "u1")
    world.store.apply_run(run(11, status=dump_status(TrainingRunStatus(reservation=whole))))
    with pytest.raises(ValueError, match="does not hold"):
        world.store.keep_reservation("u1", "{}")
    world.store.lose_reservation("u1")
    [view] = world.store.snapshot_cluster(LEADER).runs
    assert view.status.reservation == kept.lost(whole)


async def test_nothing_is_decided_before_a_named_assignment_has_been_read(world: World) -> None:
    whole = large_assignment()
    world.store.apply_run(run(11, status=dump_status(TrainingRunStatus(assignment=whole))))
    with pytest.raises(MissingAssignmentError) as missing:
        world.store.snapshot_cluster(LEADER)
    assert (missing.value.namespace, missing.value.config_map) == ("team", whole.config_map)
    _, config_map = spilled(whole, "team", "llama", "u1")
    assert config_map is not None
    world.store.keep_assignment("u1", config_map.body["data"]["assignment.json"])
    assert world.store.snapshot_cluster(LEADER).runs[0].status.assignment.nodes == whole.nodes


async def test_the_store_is_synced_once_every_kind_was_listed(world: World) -> None:
    store = world.store
    store.compare_runs(unread(), 1, begun_at=0.0)
    store.queues.replace([], "1")
    store.run_sets.compare([], 1)
    pods = (store.gang_pods, store.other_pods, store.placeholder_pods)
    for cache in (*pods, store.nodes, store.priority_classes, store.archive_jobs.cache):
        cache.replace([], 1)
    assert not store.synced
    store.namespaces.replace([], 1)
    assert store.synced


def training_queue(version: int, generation: int = 1, **changes: Any) -> dict[str, Any]:
    metadata = {"name": "research", "uid": "q", "resourceVersion": str(version), "generation": generation}
    created = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata | created, "spec": {"stopPolicy": "Hold"}, **changes}


async def test_what_a_queue_says_of_itself_wakes_nobody_and_leaves_its_rules_the_very_same(world: World) -> None:
    world.store.apply_run(run(spec={**run()["spec"], "queue": "research"}))
    world.store.queues.apply(training_queue(5))
    assert await world.due() == {KEY, CLUSTER_KEY}
    before = world.store.snapshot_cluster(LEADER).queues["research"]
    world.store.queues.apply(training_queue(6, status={"pending": 3}))
    assert await world.due() == set()
    after = world.store.snapshot_cluster(LEADER).queues["research"]
    assert (after.status.pending, after.resource_version) == (3, "6")
    assert after.spec is before.spec
    world.store.queues.apply(training_queue(7, generation=2, status={"pending": 3}))
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_status_of_a_queue_that_does_not_parse_reads_as_none(world: World) -> None:
    world.store.queues.apply(training_queue(5, status={"pending": "many"}))
    assert world.store.snapshot_cluster(LEADER).queues["research"].status.pending == 0


async def test_a_queue_lives_as_long_as_it_is_listed(world: World) -> None:
    raw = {
        "metadata": {
            "name": "research",
            "uid": "q",
            "resourceVersion": "3",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {},
    }
    world.store.queues.replace([raw], "5")
    assert set(world.store.snapshot_cluster(LEADER).queues) == {"research"}
    world.store.queues.replace([], "6")
    assert set(world.store.snapshot_cluster(LEADER).queues) == set()


@pytest.mark.parametrize("restored_at", [8, 1000])
async def test_a_queue_that_a_restored_backup_made_older_is_as_it_was_then(world: World, restored_at: int) -> None:
    world.store.queues.replace([training_queue(9, generation=2, spec={})], "10")
    world.store.queues.replace([training_queue(5)], str(restored_at))
    queue = world.store.snapshot_cluster(LEADER).queues["research"]
    assert (queue.resource_version, queue.generation) == ("5", 1)


async def test_a_queue_that_does_not_parse_any_more_stays_as_it_was(world: World) -> None:
    world.store.queues.replace([training_queue(5)], "6")
    world.store.queues.replace([training_queue(7, spec={"stopPolicy": "Perhaps"})], "8")
    world.store.queues.apply(training_queue(9, spec={"stopPolicy": "Perhaps"}))
    assert world.store.snapshot_cluster(LEADER).queues["research"].resource_version == "5"


@pytest.mark.parametrize("forged", [{"owner_uid": ""}, {"owner_uid": "u2"}, {"namespace": "elsewhere"}])
def test_a_pod_that_only_bears_the_label_of_a_run_is_no_pod_of_it(world: World, forged: dict[str, Any]) -> None:
    world.store.apply_run(run())
    world.store.gang_pods.upsert(pod("p1"))
    world.store.gang_pods.upsert(pod("p2", **forged))
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert [known.uid for known in snapshot.pods] == ["p1"]


def test_a_run_is_seen_with_those_that_start_from_it(world: World) -> None:
    def follower(name: str, origin: str, version: int = 11) -> dict[str, Any]:
        made = run(version, uid=f"of-{name}", generation=version)
        made["metadata"] = made["metadata"] | {"name": name}
        made["spec"] = made["spec"] | {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"run": origin}}}
        return made

    def followers() -> list[str]:
        snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
        return sorted(each.name for each in snapshot.successors)

    world.store.apply_run(follower("early", "llama"))
    world.store.apply_run(run())
    world.store.apply_run(follower("other", "elsewhere"))
    assert followers() == ["early"]
    world.store.apply_run(follower("other", "llama", 12))
    world.store.apply_run(follower("early", "elsewhere", 13))
    assert followers() == ["other"]
    world.store.remove_run("team", "other", "of-other")
    assert followers() == []


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
