"""What was found out about runs, beside their objects: answers of the API server, and the content of ConfigMaps."""

import pytest

from lockstep.api.run_status import AssignmentStatus, TrainingRunStatus
from lockstep.controller.runtime.patches import dump_status
from lockstep.controller.store.whole_status import MissingAssignmentError
from lockstep.core.model import reservation as kept
from lockstep.core.model.assignment import assigned, spilled
from lockstep.core.model.snapshot import DryRunResult, RefusedCreate
from support.stored_runs import run
from support.stored_world import LEADER, World, pod
from support.values import not_none


@pytest.fixture
def world() -> World:
    return World()


async def test_a_refused_pod_is_news_once_and_keeps_its_first_moment(world: World) -> None:
    world.store.runs.apply(run())
    assert world.store.note_refused_create("u1", "llama-p1", RefusedCreate(1.0, "quota"))
    assert not world.store.note_refused_create("u1", "llama-p1", RefusedCreate(2.0, "quota"))
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert snapshot.refused_creates == {"llama-p1": RefusedCreate(1.0, "quota")}
    world.store.gang_pods.upsert(pod())
    after = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert after.refused_creates == {}


async def test_a_verdict_stands_whatever_comes_between_two_of_its_kind(world: World) -> None:
    world.store.runs.apply(run())
    note = world.store.note_refused_create
    assert not note("u1", "p", RefusedCreate(1.0, "time-out", is_verdict=False))
    assert note("u1", "p", RefusedCreate(2.0, "quota"))
    assert not note("u1", "p", RefusedCreate(50.0, "Conflict", is_verdict=False))
    assert not note("u1", "p", RefusedCreate(51.0, "quota"))
    assert world.store._refused.for_run("u1")["p"] == RefusedCreate(2.0, "quota")


async def test_what_is_heard_of_a_run_that_is_gone_is_not_kept(world: World) -> None:
    world.store.runs.apply(run())
    world.store.runs.remove("team", "llama", "u1")
    assert not world.store.note_refused_create("u1", "llama-p1", RefusedCreate(1.0, "quota"))
    world.store.set_dry_run("u1", DryRunResult(1, True))
    world.store.runs.apply(run(version=11), assignment=AssignmentStatus(nodes=("n0",), incarnations=(1,)))
    kept = (
        world.store._refused._refused,
        world.store._dry_runs,
        world.store.runs.views,
        world.store.runs._whole._assignments,
    )
    assert not any(kept)


async def test_a_dry_run_is_kept_with_its_run(world: World) -> None:
    world.store.set_dry_run("u1", DryRunResult(1, True))
    world.store.runs.apply(run())
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
    world.store.runs.apply(raw)  # the watch may be first
    with pytest.raises(MissingAssignmentError):
        world.store.snapshot_run("team", "llama", {}, LEADER)
    view = world.store.runs.apply(raw, whole)
    assert view.status.assignment == whole
    snapshot = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert snapshot.run.status.assignment.nodes == whole.nodes


async def test_no_pass_is_made_before_the_nodes_that_are_kept_for_a_run_have_been_read(world: World) -> None:
    names = tuple(f"gke-large-cluster-a3-mega-pool-{number:05d}" for number in range(2000))
    whole, config_map = kept.spilled(kept.reservation_of(names, ("u2",), 1.0, 2.0), "team", "llama", "u1")
    assert config_map is not None
    raw = run(11, status=dump_status(TrainingRunStatus(reservation=whole)))
    assert "nodes" not in raw["status"]["reservation"]
    world.store.runs.apply(raw)  # the watch may be first
    with pytest.raises(MissingAssignmentError) as missing:
        world.store.snapshot_cluster(LEADER)
    assert missing.value.config_map == whole.config_map
    world.store.runs.keep_reservation("u1", config_map.body["data"][kept.RESERVATION_KEY])
    [view] = world.store.snapshot_cluster(LEADER).runs
    assert view.status.reservation == whole
    assert world.store.runs.apply(run(12, status=raw["status"])).status.reservation == whole


async def test_a_reservation_whose_config_map_is_gone_names_nothing_and_holds_up_nobody(world: World) -> None:
    whole, _ = kept.spilled(kept.reservation_of(("x" * 20_000,), (), 1.0, 2.0), "team", "llama", "u1")
    world.store.runs.apply(run(11, status=dump_status(TrainingRunStatus(reservation=whole))))
    with pytest.raises(ValueError, match="does not hold"):
        world.store.runs.keep_reservation("u1", "{}")
    world.store.runs.lose_reservation("u1")
    [view] = world.store.snapshot_cluster(LEADER).runs
    assert view.status.reservation == kept.lost(whole)


async def test_nothing_is_decided_before_a_named_assignment_has_been_read(world: World) -> None:
    whole = large_assignment()
    world.store.runs.apply(run(11, status=dump_status(TrainingRunStatus(assignment=whole))))
    with pytest.raises(MissingAssignmentError) as missing:
        world.store.snapshot_cluster(LEADER)
    assert (missing.value.namespace, missing.value.config_map) == ("team", whole.config_map)
    _, config_map = spilled(whole, "team", "llama", "u1")
    assert config_map is not None
    world.store.runs.keep_assignment("u1", config_map.body["data"]["assignment.json"])
    assert world.store.snapshot_cluster(LEADER).runs[0].status.assignment.nodes == whole.nodes
