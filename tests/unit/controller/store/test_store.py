"""The store: what it knows, who it wakes, and what it keeps booked."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
import pytest

from lockstep.api.base import names, nesting
from lockstep.api.base.nesting import TOO_DEEP
from lockstep.controller.kube.workqueue import CLUSTER_KEY
from lockstep.controller.store import training_runs
from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import Unread, Versioned, parse_node, parse_unread
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView
from support.own_events import hear
from support.stored_runs import run, stored
from support.stored_world import KEY, LEADER, World, pod, unread
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


async def test_a_new_run_wakes_itself_and_the_admission_pass(world: World) -> None:
    world.store.runs.apply(run())
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_status_write_wakes_only_the_run(world: World) -> None:
    world.store.runs.apply(run())
    await world.due()
    world.store.runs.apply(run(11, status={"attempt": 1}))
    assert await world.due() == {KEY}


async def test_what_a_watch_says_first_is_taken_in(world: World) -> None:
    for heard in (run(), run(11, status={"attempt": 1})):
        hear(world.store, heard)
    known = stored(world.store)
    assert known.status.attempt == 1
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_spec_change_wakes_the_admission_pass_too(world: World) -> None:
    world.store.runs.apply(run())
    await world.due()
    world.store.runs.apply(run(11, generation=2))
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_spec_is_read_anew_only_with_its_generation(world: World) -> None:
    first = world.store.runs.apply(run(10)).spec
    assert world.store.runs.apply(run(11, status={"attempt": 2})).spec is first
    assert world.store.runs.apply(run(12, generation=2)).spec is not first


async def test_an_older_event_after_a_write_changes_nothing(world: World) -> None:
    world.store.runs.apply(run(12, status={"attempt": 2}))
    await world.due()
    view = world.store.runs.apply(run(11, status={"attempt": 1}))
    assert view.status.attempt == 2
    assert await world.due() == set()


async def test_what_is_known_already_is_not_parsed_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write of ours comes back by the watch, and every run with each list."""
    parsed: list[str] = []

    def note(raw: Mapping[str, Any], before: RunView | None = None) -> RunView:
        parsed.append(raw["metadata"]["resourceVersion"])
        return parse_run(raw, before)

    monkeypatch.setattr(training_runs, "parse_run", note)
    known = world.store.runs.apply(run(11))
    assert world.store.runs.apply(run(11)) is known
    assert not hear(world.store, run(11))
    world.store.runs.compare(unread(run(11)), 30, begun_at=1.0)
    assert parsed == ["11"]
    world.store.runs.compare(unread(run(11)), 12, begun_at=2.0)  # of a restored backup
    assert parsed == ["11", "11"]


async def test_what_a_restored_backup_has_in_the_same_version_and_generation_is_read_whole(world: World) -> None:
    world.store.runs.compare(unread(run(11)), 30, begun_at=1.0)
    smaller = {"nodes": 1, "image": "i", "command": ["train"]}
    world.store.runs.compare(unread(run(11, spec=smaller, status={"attempt": 3})), 12, begun_at=2.0)
    restored = stored(world.store)
    assert (not_none(restored.spec).nodes, restored.status.attempt) == (1, 3)


async def test_who_is_nested_too_deeply_is_told_and_harms_no_other(world: World) -> None:
    """The API server takes 10,000 levels, and a pod template is anybody's to write."""
    deep = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
    hostile = orjson.dumps(run(11, "u2")).replace(b'"spec":{', b'"spec":{"podTemplate":' + deep + b",")
    hostile = hostile.replace(b'"llama"', b'"deep"')
    item = parse_unread(msgspec.Raw(nesting.cut(hostile)))  # as a list has it
    hear(world.store, hostile)
    world.store.runs.compare([item, *unread(run())], 30, begun_at=0.0)
    errors = {known.uid: known.spec_error for known in world.store.runs.cache}
    assert errors == {"u1": "", "u2": f"spec.podTemplate: {TOO_DEEP}"}


async def test_an_array_that_is_nested_too_deeply_is_told_as_well(world: World) -> None:
    deep = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
    spec = {"indices": "0-3", "template": {"spec": run()["spec"] | {"podTemplate": "DEEP"}}}
    raw = orjson.dumps(run(11, "u2") | {"spec": spec}).replace(b'"DEEP"', deep)
    item = parse_unread(msgspec.Raw(nesting.cut(raw)))
    hear(world.store, raw, plural=names.RUN_SETS)
    world.store.run_sets.compare([item], 30, 1.0)
    assert [known.spec_error for known in world.store.run_sets.cache] == [f"spec.template.spec.podTemplate: {TOO_DEEP}"]


async def test_a_set_that_is_known_already_is_not_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hear(world.store, run(11, "u2"), plural=names.RUN_SETS)
    monkeypatch.setattr(nesting, "plain_json", lambda _: pytest.fail("it was read"))
    assert not hear(world.store, run(11, "u2"), plural=names.RUN_SETS)
    monkeypatch.setattr(Unread, "read", lambda _: pytest.fail("it was read"))
    world.store.run_sets.compare(unread(run(11, "u2")), 30, 1.0)


@pytest.mark.parametrize(("seen", "left"), [(150, 0), (100, 1)])
async def test_a_list_older_than_what_was_seen_before_it_is_of_a_restored_backup(
    world: World, seen: int, left: int
) -> None:
    """Otherwise what it lacks was made while it was on its way."""
    hear(world.store, run(150))
    hear(world.store, run(150, "u2"), plural=names.RUN_SETS)
    world.store.runs.compare([], 120, begun_at=0.0, seen=seen)
    world.store.run_sets.compare([], 120, 1.0, seen=seen)
    assert len(world.store.runs.cache) == len(world.store.run_sets.cache) == left


async def test_one_that_cannot_be_read_is_left_out_of_a_list_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_of_u1(item: Unread) -> dict[str, Any]:
        if b'"u1"' in bytes(item.text):
            raise TypeError("who would have thought of that")
        return read(item)

    read = Unread.read
    monkeypatch.setattr(Unread, "read", fail_of_u1)
    world.store.runs.compare(unread(run(), run(11, "u2")), 30, begun_at=0.0)
    world.store.run_sets.compare(unread(run(), run(11, "u2")), 30, 1.0)
    assert [known.uid for known in world.store.runs.cache] == ["u2"]
    assert [known.uid for known in world.store.run_sets.cache] == ["u2"]


async def test_the_last_version_that_could_be_read_stays(world: World) -> None:
    world.store.runs.apply(run(status={"attempt": 3}))
    item = Versioned("u1", 11, Unread("team", msgspec.Raw(b"nothing that can be read")))
    world.store.runs.compare([item], 30, begun_at=0.0)
    assert not hear(world.store, item.view.text)
    known = stored(world.store)
    assert known.status.attempt == 3


async def test_a_run_deleted_in_a_watch_gap_goes_with_the_next_list_and_frees_its_nodes(world: World) -> None:
    world.store.runs.apply(run())
    await world.due()
    world.store.runs.compare(unread(), 30, begun_at=world.clock.monotonic())
    assert world.store.runs.named("team", "llama") is None
    assert world.store.snapshot_cluster(LEADER).runs == ()
    assert await world.due() == {KEY, CLUSTER_KEY}


async def test_a_run_applied_again_under_the_same_name_is_another_run(world: World) -> None:
    world.store.runs.apply(run(10, "old"))
    world.store.gang_pods.upsert(pod("p1", run_uid="old", deleting=True))
    world.store.runs.apply(run(30, "new"))
    current = stored(world.store)
    assert current.uid == "new"
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert snapshot.pods == ()
    cluster = world.store.snapshot_cluster(LEADER)
    assert [r.uid for r in cluster.runs] == ["new"]
    assert [(p.run_uid, p.node) for p in cluster.gang_pods] == [("old", "gpu-1")]


async def test_late_news_of_the_old_run_does_not_displace_the_new_one(world: World) -> None:
    world.store.runs.apply(run(30, "new"))
    world.store.runs.apply(run(10, "old"))
    world.store.runs.remove("team", "llama", "old")
    current = stored(world.store)
    assert current.uid == "new"
    assert [r.uid for r in world.store.runs.cache] == ["new"]


async def test_a_removed_run_never_comes_back(world: World) -> None:
    world.store.runs.apply(run(10))
    world.store.runs.remove("team", "llama", "u1")
    world.store.runs.apply(run(11))
    assert world.store.runs.named("team", "llama") is None


async def test_runs_outside_of_the_named_namespaces_are_left_alone(confined: World) -> None:
    ours = run(uid="u2")
    ours["metadata"]["namespace"] = "other"
    confined.store.runs.apply(run())
    confined.store.runs.compare(unread(run(), ours), 30, begun_at=0.0)
    assert [known.uid for known in confined.store.runs.cache] == ["u2"]


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


async def test_namespace_labels_reach_the_snapshot(world: World) -> None:
    world.store.runs.apply(run())
    world.store.namespaces.upsert(Versioned("ns", 1, ("team", {"lockstep.dev/allow-privileged": "true"})))
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert snapshot.namespace_labels == {"lockstep.dev/allow-privileged": "true"}


async def test_nodes_in_flight_stay_booked_until_released(world: World) -> None:
    world.store.writes.book("u1", ["a", "b"])
    assert world.store.snapshot_cluster(LEADER).in_flight == {"u1": frozenset({"a", "b"})}
    world.store.writes.release("u1")
    assert world.store.snapshot_cluster(LEADER).in_flight == {}
    assert await world.due() == {CLUSTER_KEY}


async def test_the_store_is_synced_once_every_kind_was_listed(world: World) -> None:
    store = world.store
    store.runs.compare(unread(), 1, begun_at=0.0)
    store.queues.replace([], "1")
    store.run_sets.compare([], 1, 1.0)
    pods = (store.gang_pods, store.other_pods, store.placeholder_pods)
    for cache in (*pods, store.nodes, store.priority_classes, store.archive_jobs.cache):
        cache.replace([], 1)
    assert not store.synced
    store.namespaces.replace([], 1)
    assert store.synced


def test_a_run_is_seen_with_those_that_start_from_it(world: World) -> None:
    def follower(name: str, origin: str, version: int = 11) -> dict[str, Any]:
        made = run(version, uid=f"of-{name}", generation=version)
        made["metadata"] = made["metadata"] | {"name": name}
        made["spec"] = made["spec"] | {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"run": origin}}}
        return made

    def followers() -> list[str]:
        snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
        return sorted(each.name for each in snapshot.successors)

    world.store.runs.apply(follower("early", "llama"))
    world.store.runs.apply(run())
    world.store.runs.apply(follower("other", "elsewhere"))
    assert followers() == ["early"]
    world.store.runs.apply(follower("other", "llama", 12))
    world.store.runs.apply(follower("early", "elsewhere", 13))
    assert followers() == ["other"]
    world.store.runs.remove("team", "other", "of-other")
    assert followers() == []


async def test_a_run_hears_of_it_once_another_one_starts_from_it(world: World) -> None:
    def follower(version: int, uid: str) -> dict[str, Any]:
        resolved = {"startRun": "llama", "startRunUid": uid} if uid else {}
        made = run(version, uid="of-next", status={"resolved": resolved})
        made["metadata"] = made["metadata"] | {"name": "next"}
        return made

    world.store.runs.apply(run())
    world.store.runs.apply(follower(11, ""))
    await world.due()
    world.store.runs.apply(follower(12, "uid"))
    assert KEY in await world.due()
    world.store.runs.apply(follower(13, "uid"))
    assert KEY not in await world.due(), "it is known already"


def recorded(
    name: str, of: str = "u1", *, version: int = 11, created: str = "2026-01-01T00:00:00Z", **metadata: Any
) -> dict[str, Any]:
    """A run that was made with the record of one with the UID ``of``."""
    made = run(version, uid=f"of-{name}", status={"previous": [{"name": "llama", "uid": of}]})
    made["metadata"] = made["metadata"] | {"name": name, "creationTimestamp": created} | metadata
    return made


async def test_a_run_hears_of_it_once_another_one_was_made_with_its_record(world: World) -> None:
    world.store.runs.apply(run())
    await world.due()
    world.store.runs.apply(recorded("next"))
    assert KEY in await world.due()
    world.store.runs.apply(recorded("next", version=12))
    assert KEY not in await world.due(), "it is known already"
    world.store.runs.apply(recorded("other", "uid/of/nobody"))
    world.store.runs.apply(recorded("foreign", namespace="theirs"))
    assert KEY not in await world.due()


def test_of_those_made_with_its_record_a_run_is_seen_with_the_latest_alone(world: World) -> None:
    def followers() -> list[str]:
        snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
        return sorted(each.name for each in snapshot.successors)

    world.store.runs.apply(run())
    world.store.runs.apply(recorded("late", created="2026-01-02T00:00:00Z"))
    for number in range(20):
        world.store.runs.apply(recorded(f"early-{number}"))
    world.store.runs.apply(recorded("foreign", namespace="theirs", created="2026-01-03T00:00:00Z"))
    asks = {names.ANNOTATION_TEST_ONLY: "true"}
    world.store.runs.apply(recorded("question", created="2026-01-04T00:00:00Z", annotations=asks))
    assert followers() == ["late"]
    world.store.runs.remove("team", "late", "of-late")
    assert followers() == []
    world.store.runs.apply(recorded("next"))
    assert followers() == ["next"]


async def test_a_node_is_remembered_to_have_the_gpus_that_it_offered(world: World) -> None:
    def offering(version: int, devices: Mapping[str, str] | None = None) -> Any:
        raw = {
            "metadata": {"name": "gpu-1", "uid": "n1", "resourceVersion": str(version)},
            "status": {"allocatable": {"cpu": "4", **(devices or {})}},
        }
        return parse_node(orjson.dumps(raw))

    def withheld() -> Mapping[str, int]:
        node = world.store.node("gpu-1")
        assert node is not None
        return node.withheld

    world.store.nodes.upsert(offering(3, {"example/npu": "8"}))
    world.store.nodes.upsert(offering(4))  # somebody took the name away
    world.store.nodes.upsert(offering(5, {"example/npu": "0"}))
    assert withheld() == {"example/npu": 8}
    world.store.nodes.upsert(offering(6, {"example/npu": "8"}))
    assert withheld() == {}


async def test_how_long_the_scheduler_takes_is_told_of_each_pod_that_it_places(world: World) -> None:
    placed: list[tuple[str, float]] = []
    world.store.placed = lambda namespace, seconds: placed.append((namespace, seconds))
    world.store.gang_pods.upsert(pod("p1", bound=False, created_at=100.0))
    world.store.gang_pods.upsert(pod("p2", bound=True, created_at=100.0, bound_at=103.0))
    assert not placed, "of one that was placed before it was seen nothing is known"
    world.store.gang_pods.upsert(pod("p1", version=21, created_at=100.0, bound_at=107.0))
    world.store.gang_pods.upsert(pod("p1", version=22, created_at=100.0, bound_at=107.0, started_at=108.0))
    assert placed == [("team", 7.0)]


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ({}, True),
        ({"by_kube_scheduler": False}, False),
        ({"reason": "Unschedulable"}, False),
        ({"reason": "SchedulingGated"}, False),
    ],
    ids=["kube-scheduler's", "another scheduler's", "that waits for room", "that waits for its gates"],
)
async def test_what_another_scheduler_takes_or_a_pod_waits_for_is_not_told(
    world: World, before: dict[str, Any], told: bool
) -> None:
    placed: list[float] = []
    world.store.placed = lambda _, seconds: placed.append(seconds)
    world.store.gang_pods.upsert(pod("p1", bound=False, created_at=100.0, **before))
    after = {key: value for key, value in before.items() if key != "reason"}
    world.store.gang_pods.upsert(pod("p1", version=21, created_at=100.0, bound_at=107.0, **after))
    assert placed == ([7.0] if told else [])
