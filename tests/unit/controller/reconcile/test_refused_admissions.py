"""A run whose admission the API server would not take is left alone for a while: nobody else waits for it."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AssignmentStatus
from lockstep.controller.kube.errors import ApiError
from lockstep.controller.kube.workqueue import run_key
from lockstep.controller.reconcile import look_ups
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.assignment import assigned, vacated
from lockstep.core.model.conditions import find
from lockstep.core.model.plan import ClusterPlan, DryRunPod, EnsureConfigMap, Plan, StatusWrite
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.reservation import reservation_of
from lockstep.core.model.snapshot import Leadership, RefusedAdmission
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.named_objects import named_objects
from support import admission
from support.admission import NOW, reason, statuses
from support.stored_runs import run, stored
from support.values import not_none
from unit.controller.reconcile.test_execute import World

FORBIDDEN = ApiError(403, "Forbidden", 'admission webhook "names.example" denied the request')
MAP = EnsureConfigMap("team", "llama-nodes", {})


def admitting(world: World, *, config_map: bool = False) -> ClusterPlan:
    view = stored(world.store)
    status = changed(view.status, attempt=1, assignment=assigned(view.status.assignment, ["n1"]))
    maps = (MAP,) if config_map else ()
    write = StatusWrite("team", "llama", "u1", view.resource_version, status, frozenset({"n1"}), config_maps=maps)
    return ClusterPlan(writes=(write,))


def telling(world: World) -> ClusterPlan:
    view = stored(world.store)
    status = changed(view.status, state="Pending")
    return ClusterPlan(writes=(StatusWrite("team", "llama", "u1", view.resource_version, status, frozenset()),))


async def carry_out(world: World, plan: ClusterPlan) -> None:
    await world.executor.admissions.carry_out(plan)
    await world.executor.admissions.settle(20.0)


def refused(world: World) -> Mapping[str, RefusedAdmission]:
    return world.store.snapshot_cluster(Leadership(since=0.0)).refused


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_refusal_fails_no_pass_and_is_not_tried_again_at_once(world: World) -> None:
    world.kube.write = FORBIDDEN
    begun = world.clock.now()
    await carry_out(world, admitting(world))
    assert refused(world) == {"u1": RefusedAdmission(FORBIDDEN.message, begun + 5.0)}
    for plan in (admitting(world), telling(world)):
        await carry_out(world, plan)
    assert world.kube.writes == 1
    assert world.warnings == ["StatusRefused"]


async def test_each_refusal_is_followed_by_a_longer_pause_and_success_ends_that(world: World) -> None:
    world.kube.write = FORBIDDEN
    pauses = []
    for _ in range(8):
        await carry_out(world, admitting(world))
        pauses.append(refused(world)["u1"].until - world.clock.now())
        await world.clock.advance(pauses[-1])
    assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    world.kube.write = None
    await carry_out(world, admitting(world))
    assert not refused(world)


async def test_a_run_whose_config_map_is_refused_can_still_be_told_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ensure(_: Any) -> None:
        raise ApiError(403, "Forbidden", "exceeded quota: few, requested: count/configmaps=1")

    monkeypatch.setattr(world.executor._runs._config_maps, "ensure", ensure)
    await carry_out(world, admitting(world, config_map=True))
    assert "exceeded quota" in refused(world)["u1"].message
    await carry_out(world, admitting(world))
    assert world.kube.writes == 0
    await carry_out(world, telling(world))
    assert world.kube.writes == 1


async def test_an_edited_run_is_judged_anew(world: World) -> None:
    world.kube.write = FORBIDDEN
    await carry_out(world, admitting(world))
    edited = run(11)
    world.store.runs.apply(edited | {"metadata": edited["metadata"] | {"generation": 2}})
    assert not refused(world)
    world.kube.write = None
    await carry_out(world, admitting(world))
    assert world.kube.writes == 2


NAMING = {"nodes": 2, "image": "i", "command": ["train"], "checkpoint": {"shared": {"claimName": "data"}}}


async def test_a_run_whose_claim_went_away_while_it_waited_is_refused_for_that_and_books_no_node(world: World) -> None:
    world.store.runs.apply(run(11, generation=2, spec=NAMING))
    world.kube.existing = {"dta"}
    await carry_out(world, admitting(world))
    await carry_out(world, admitting(world))  # by a pass that comes before the run is looked at
    assert world.kube.writes == 0
    assert "PersistentVolumeClaim data" in refused(world)["u1"].message
    await world.reconciler.reconcile(run_key("team", "llama"))
    accepted = not_none(find(stored(world.store).status, ConditionType.ACCEPTED))
    assert (accepted.status, accepted.reason) == ("False", "ClaimNotFound")
    assert "did you mean dta?" in accepted.message
    world.kube.existing = {"data"}
    await world.clock.advance(look_ups.MISSING_SECONDS)
    named = named_objects(not_none(stored(world.store).spec))
    await world.executor.run_plan(stored(world.store), Plan(dry_run=DryRunPod(2, None, named)))
    assert not refused(world), "it waits no longer than for its claim"


async def test_a_run_whose_claim_went_away_has_nobody_leave_for_it(world: World) -> None:
    world.store.runs.apply(run(11, generation=2, spec=NAMING))
    world.kube.existing = set()
    view = stored(world.store)
    status = changed(view.status, reservation=reservation_of(("n1",), ("other",), 0.0, 60.0))
    write = StatusWrite("team", "llama", "u1", view.resource_version, status, frozenset())
    await carry_out(world, ClusterPlan(writes=(write,)))
    assert world.kube.writes == 0


async def test_where_nobody_knows_whether_the_claim_is_there_still_the_run_gets_its_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: Any, **__: Any) -> bool:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(world.kube, "exists", silent)
    monkeypatch.setattr(look_ups, "_AGAIN_WITHIN", 0.01)
    world.store.runs.apply(run(11, generation=2, spec=NAMING))
    await carry_out(world, admitting(world))
    assert (world.kube.writes, refused(world)) == (1, {})


async def test_of_a_run_that_has_its_nodes_nothing_is_looked_up_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kube.existing = set()
    status = changed(stored(world.store).status, assignment=assigned(AssignmentStatus(), ["n1"]))
    world.store.runs.apply(run(11, generation=2, spec=NAMING, status=status.dump()))
    await carry_out(world, admitting(world))
    assert world.kube.writes == 1


def test_the_nodes_of_a_refused_run_go_to_others_until_it_is_tried_again() -> None:
    runs = [admission.run("big", 3, at=1.0), admission.run("other", 3, at=2.0)]
    told = {"uid-big": RefusedAdmission("no room for a ConfigMap", NOW + 40)}
    snapshot, memory = admission.world(runs), CycleMemory()
    plan = admit(replace(snapshot, refused=told), Tunables(), NOW, memory)
    assert {write.name for write in plan.writes if write.nodes} == {"other"}
    assert reason(plan, "big") == (0, "AdmissionRefused")
    assert "no room for a ConfigMap" in statuses(plan)["big"].queue.message
    assert plan.wake_at is not None
    assert plan.wake_at <= NOW + 40
    later = admit(replace(snapshot, refused=told), Tunables(), NOW + 40, memory)
    assert {write.name for write in later.writes if write.nodes} == {"big"}


def test_a_refusal_is_heard_by_a_pass_that_remembers_the_one_before() -> None:
    snapshot, memory = admission.world([admission.run("big", 3)]), CycleMemory()
    first = admit(snapshot, Tunables(), NOW, memory)
    assert [write.name for write in first.writes if write.nodes] == ["big"]
    told = {"uid-big": RefusedAdmission("no", NOW + 40)}
    second = admit(replace(snapshot, refused=told), Tunables(), NOW, memory)
    assert reason(second, "big") == (0, "AdmissionRefused")
    third = admit(snapshot, Tunables(), NOW, memory)
    assert [write.name for write in third.writes if write.nodes] == ["big"]


def test_a_gang_whose_replacement_is_refused_leaves_the_node_to_others() -> None:
    lost = vacated(assigned(AssignmentStatus(), ["n0", "x"]), [1], NOW)
    broken = admission.run("broken", 2, status={"attempt": 1, "last_admitted": NOW, "assignment": lost})
    told = {"uid-broken": RefusedAdmission("no", NOW + 40)}
    plan = admit(replace(admission.world([broken, admission.run("new")], 2), refused=told), Tunables(), NOW)
    assert statuses(plan)["new"].assignment.nodes == ("n1",)
    assert statuses(plan)["broken"].queue.reason == "AdmissionRefused"
