"""Arrays at work: the store, the admission pass and the API server's answers, without any of them being real."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from lockstep.api import names
from lockstep.api.run_status import AssignmentStatus
from lockstep.controller.clock import ManualClock
from lockstep.controller.events import EventRecorder
from lockstep.controller.execute import StaleError
from lockstep.controller.kube import ApiError, KubeClient, KubeError, UnknownOutcome
from lockstep.controller.run_set_reconcile import RunSetReconciler
from lockstep.controller.store import Store
from lockstep.controller.workqueue import WorkQueue, run_key, set_key, split_set_key
from lockstep.core.admission.admit import admit
from lockstep.core.decide import decide
from lockstep.core.snapshot import Leadership, RunView
from lockstep.core.tunables import Tunables
from lockstep.core.waiting import RECORD_AGAIN
from support.admission import run, world

LEADER = Leadership(0.0)
RUN = {"nodes": 1, "image": "trainer", "command": ["train"]}


def merged(old: Any, patch: Any) -> Any:
    """As the API server merges a patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    old = old if isinstance(old, dict) else {}
    changed = {key: merged(old.get(key), value) for key, value in patch.items() if value is not None}
    return {key: value for key, value in old.items() if key not in patch} | changed


class Api:
    """An API server for sets and runs, which fails on request."""

    def __init__(self, clock: ManualClock) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 10
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.fail: dict[str, KubeError] = {}
        self._clock = clock

    def put(self, name: str, **parts: Any) -> dict[str, Any]:
        self.version += 1
        metadata = {
            "namespace": "team",
            "name": name,
            "uid": f"uid-{name}-{self.version}",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **parts.pop("metadata", {}),
            "resourceVersion": str(self.version),
        }
        self.objects[name] = {**self.objects.get(name, {}), **parts, "metadata": metadata}
        return self.objects[name]

    async def create(self, resource: Any, body: Any, namespace: str) -> bytes:
        self._check("create")
        name = body["metadata"]["name"]
        if name in self.objects:
            raise ApiError(409, "AlreadyExists", f'"{name}" already exists')
        self.created.append(name)
        return orjson.dumps(self.put(name, **body))

    async def get(self, resource: Any, name: str, namespace: str) -> bytes:
        self._check("get")
        if name not in self.objects:
            raise ApiError(404, "NotFound", f'{resource.plural} "{name}" not found')
        return orjson.dumps(self.objects[name])

    async def patch_status(
        self, resource: Any, name: str, namespace: str, *, resource_version: str, patch: Any
    ) -> bytes:
        self._check("patch")
        found = self.objects[name]
        if found["metadata"]["resourceVersion"] != resource_version:
            raise ApiError(409, "Conflict", "the object has been modified")
        status = merged(found.get("status", {}), patch)
        return orjson.dumps(self.put(name, **{**found, "status": status}))

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str, resource_version: str) -> None:
        self.deleted.append(name)

    def _check(self, verb: str) -> None:
        if verb in self.fail:
            raise self.fail.pop(verb)


class Operator:
    """One process, and what it was told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = WorkQueue(self.clock)
        self.store = Store(self.queue, self.clock)
        self.api = Api(self.clock)
        self.said: list[str] = []
        events = SimpleNamespace(run_set_event=lambda view, event: self.said.append(event.reason))
        kube = cast(KubeClient, self.api)
        recorder = cast(EventRecorder, events)
        self.sets = RunSetReconciler(kube, self.store, recorder, self.queue, self.clock, Tunables)

    def apply(self, name: str = "sweep", **spec: Any) -> None:
        known = self.api.objects.get(name, {})
        generation = known.get("metadata", {}).get("generation", 0) + 1
        metadata = known.get("metadata", {}) | {"uid": f"uid-{name}", "generation": generation}
        body = self.api.put(name, metadata=metadata, spec={"indices": "0-4", "template": {"spec": RUN}} | spec)
        self.store.apply_run_set(body)

    def annotate(self, annotations: dict[str, str]) -> None:
        found = self.api.objects["sweep"]
        metadata = found["metadata"] | {"annotations": annotations}
        self.store.apply_run_set(self.api.put("sweep", **{**found, "metadata": metadata}))

    def change_run(self, name: str, **status: Any) -> None:
        found = self.api.objects[name]
        self.store.apply_run(self.api.put(name, **{**found, "status": status}))

    def delete_run(self, name: str) -> None:
        metadata = self.api.objects.pop(name)["metadata"]
        self.store.remove_run("team", name, metadata["uid"])

    async def look(self) -> None:
        await self.sets.reconcile("team", "sweep")

    def run(self, name: str) -> RunView:
        found = self.store.run("team", name)
        assert found is not None
        return found

    def status(self) -> Any:
        view = self.store.run_sets.named("team", "sweep")
        assert view is not None
        return view.status


@pytest.fixture
def operator() -> Operator:
    return Operator()


SUCCEEDED_AT = 1_767_225_600.0
SUCCEEDED = [
    {"type": kind, "status": "True", "reason": "AllRanksSucceeded", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for kind in ("Finished", "Succeeded")
]
HOLDING = {"assignment": {"nodes": ["n0"], "incarnations": [1]}}


async def test_runs_are_made_and_put_on_record_and_the_next_look_finds_nothing_to_do(operator: Operator) -> None:
    operator.apply(maxRunning=2)
    await operator.look()
    assert operator.api.created == ["sweep-0", "sweep-1"]
    await operator.look()
    assert operator.status().indices.active == "0-1"
    written = operator.api.objects["sweep"]["status"]["counts"]
    assert written == {"total": 5, "pending": 5, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0}
    version = operator.api.version
    await operator.look()
    assert operator.api.version == version


async def test_a_run_that_is_there_already_is_taken_for_what_it_is(operator: Operator) -> None:
    operator.apply(maxRunning=2)
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_SET_KIND, "name": "sweep", "uid": "uid-sweep"}
    operator.api.put("sweep-0", metadata={"ownerReferences": [owner]}, spec=RUN)
    operator.api.put("sweep-1", spec=RUN)
    await operator.look()
    await operator.look()
    await operator.look()
    assert operator.api.created == ["sweep-2"]
    assert operator.status().indices.active == "0,2"
    assert operator.status().reason == "NameTaken"
    assert operator.api.deleted == []


async def test_a_change_of_any_of_its_runs_has_a_set_looked_at_soon(operator: Operator) -> None:
    operator.apply()
    await operator.look()
    operator.queue.clear()
    operator.change_run("sweep-0", **HOLDING)
    await operator.clock.advance(2.5)
    assert await asyncio.wait_for(operator.queue.get(), 20) == run_key("team", "sweep-0")
    assert await asyncio.wait_for(operator.queue.get(), 20) == set_key("team", "sweep")
    assert split_set_key(set_key("team", "sweep")) == ("team", "sweep")
    assert split_set_key(run_key("team", "sweep-0")) is None


async def test_a_run_may_only_be_deleted_when_its_outcome_is_on_record(operator: Operator) -> None:
    operator.apply()
    await operator.look()
    operator.change_run("sweep-0", conditions=SUCCEEDED)

    def recorded() -> bool:
        found = operator.store.snapshot_run("team", "sweep-0", {}, LEADER)
        assert found is not None
        return found.recorded

    assert not recorded()
    await operator.look()
    assert recorded()


async def test_a_run_whose_time_is_over_waits_for_the_record_and_asks_for_it_no_sooner(operator: Operator) -> None:
    operator.apply(template={"spec": RUN | {"ttlAfterFinished": "1h"}})
    await operator.look()
    operator.change_run("sweep-0", conditions=SUCCEEDED)
    due = SUCCEEDED_AT + 3600

    def decided(now: float) -> tuple[bool, float | None]:
        found = operator.store.snapshot_run("team", "sweep-0", {}, LEADER)
        assert found is not None
        plan = decide(found, Tunables(), now)
        return plan.delete_run, plan.wake_at

    assert decided(SUCCEEDED_AT + 1) == (False, due), "ten thousand runs of a paused set would ask all day"
    assert decided(due + 1) == (False, due + 1 + RECORD_AGAIN)
    await operator.look()
    assert decided(due + 1) == (True, None)


async def test_a_run_that_ends_and_is_deleted_between_two_looks_counts_as_what_it_was(operator: Operator) -> None:
    operator.apply(maxRunning=2)
    await operator.look()
    operator.change_run("sweep-0", conditions=SUCCEEDED)
    operator.delete_run("sweep-0")
    operator.delete_run("sweep-1")
    await operator.look()
    assert (operator.status().indices.succeeded, operator.status().indices.cancelled) == ("0", "1")
    assert operator.api.created == ["sweep-0", "sweep-1", "sweep-2", "sweep-3"]
    assert operator.said == ["RunDeleted"]


@pytest.mark.parametrize(
    "left_alone", [{"annotations": {names.ANNOTATION_PAUSED: "true"}}, {"spec": {"cancelIndices": "5-3"}}]
)
async def test_what_came_of_a_run_is_kept_in_mind_while_its_set_is_left_alone(
    operator: Operator, left_alone: dict[str, Any]
) -> None:
    operator.apply(maxRunning=1)
    await operator.look()
    await operator.look()
    operator.apply(maxRunning=1, **left_alone.get("spec", {}))
    operator.annotate(left_alone.get("annotations", {}))
    await operator.look()
    operator.change_run("sweep-0", conditions=SUCCEEDED)
    operator.delete_run("sweep-0")
    await operator.look()
    operator.apply(maxRunning=1)
    operator.annotate({})
    await operator.look()
    assert (operator.status().indices.succeeded, operator.said) == ("0", [])


async def test_a_run_that_is_deleted_while_others_are_made_is_not_made_again(operator: Operator) -> None:
    operator.apply(maxRunning=2)
    create, answered = operator.api.create, False

    async def answer(resource: Any, body: Any, namespace: str) -> bytes:
        if not answered:
            raise KubeError("no answer")
        if body["metadata"]["name"] == "sweep-1":
            operator.delete_run("sweep-0")
        return await create(resource, body, namespace)

    operator.api.create = answer  # type: ignore[method-assign]
    with pytest.raises(KubeError):
        await operator.look()
    answered = True
    await operator.look()  # there is nothing to write: it makes both, and hears of the end of one
    await operator.look()
    assert operator.api.created == ["sweep-0", "sweep-1", "sweep-2"]
    assert (operator.status().indices.cancelled, operator.status().indices.active) == ("0", "1")


async def test_a_set_that_cannot_be_read_lets_nobody_start_and_whoever_trains_go_on(operator: Operator) -> None:
    operator.apply()
    await operator.look()
    operator.change_run("sweep-1", **HOLDING)
    operator.apply(cancelIndices="5-3")
    told = [operator.run(f"sweep-{index}").spec.suspend for index in (0, 1)]  # type: ignore[union-attr]
    assert told == [True, False]
    assert operator.run("sweep-0").set_says == "the spec of its set sweep cannot be read"
    operator.apply()
    assert not operator.run("sweep-0").spec.suspend  # type: ignore[union-attr]


async def test_a_run_of_another_namespace_is_in_no_set_whatever_it_says_of_its_owner(operator: Operator) -> None:
    operator.apply(indices="0-1", maxRunning=2)
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_SET_KIND, "name": "sweep", "uid": "uid-sweep"}
    metadata = {"namespace": "other", "name": "sweep-0", "uid": "u", "ownerReferences": [owner]}
    operator.store.apply_run(operator.api.put("copied", metadata=metadata, spec=RUN))
    await operator.look()
    operator.store.remove_run("other", "sweep-0", "u")
    await operator.look()
    assert operator.api.created == ["sweep-0", "sweep-1"]
    assert operator.status().indices.active == "0-1"


async def test_a_status_that_cannot_be_read_is_neither_written_over_nor_taken_for_a_new_set(operator: Operator) -> None:
    operator.apply()
    stop = {"reason": "StoppedOnFailure", "cancel": "Unheard", "time": "2026-01-01T00:00:00Z"}
    status = {"observedGeneration": 1, "indices": {"succeeded": "0-3"}, "stop": stop}
    operator.store.apply_run_set(operator.api.put("sweep", **{**operator.api.objects["sweep"], "status": status}))
    await operator.look()
    assert (operator.api.created, operator.said) == ([], ["StateRegression"])
    assert operator.api.objects["sweep"]["status"] == status


def test_after_a_restore_a_set_is_what_the_api_server_has(operator: Operator) -> None:
    operator.apply()
    backup = operator.api.objects["sweep"]
    operator.apply(suspend=True)
    operator.store.replace_run_sets([operator.api.objects["sweep"]], str(operator.api.version))
    operator.store.replace_run_sets([backup], str(operator.api.version - 1))
    found = operator.store.run_sets.named("team", "sweep")
    assert found is not None
    assert found.resource_version == backup["metadata"]["resourceVersion"]


def test_late_news_of_a_set_of_the_same_name_is_nothing_to_those_that_come_after(operator: Operator) -> None:
    operator.apply()
    late = operator.api.put("before", metadata={"uid": "old"}, spec={"indices": "0-4", "template": {"spec": RUN}})
    new = operator.api.put("before", metadata={"uid": "new"}, spec={"indices": "0-4", "template": {"spec": RUN}})
    operator.store.apply_run_set(new)
    operator.store.apply_run_set(late)
    sweep = operator.store.run_sets.named("team", "sweep")
    assert sweep is not None
    assert operator.store.run_sets.snapshot(sweep, {}, frozenset()).sets["before"].uid == "new"


async def test_what_a_set_says_reaches_its_runs_and_is_taken_back(operator: Operator) -> None:
    operator.apply()
    await operator.look()
    operator.apply(suspend=True)
    assert operator.run("sweep-0").spec.suspend  # type: ignore[union-attr]
    operator.change_run("sweep-0", **HOLDING)
    assert operator.run("sweep-0").spec.suspend, "whatever the watch says next"  # type: ignore[union-attr]
    operator.apply(suspend=False)
    assert not operator.run("sweep-0").spec.suspend  # type: ignore[union-attr]
    operator.apply(cancelIndices="1")
    told = [operator.run(f"sweep-{index}").spec.cancel for index in (0, 1)]  # type: ignore[union-attr]
    assert told == [False, True]


async def test_nothing_is_made_while_a_write_may_still_take_effect(operator: Operator) -> None:
    operator.apply(maxRunning=1)
    operator.api.fail["patch"] = UnknownOutcome("no answer", operator.clock.now() + 15)
    with pytest.raises(UnknownOutcome):
        await operator.look()
    await operator.look()
    assert operator.api.created == []
    await operator.clock.advance(16)
    await operator.look()
    assert operator.api.created == ["sweep-0"]


async def test_a_set_that_others_changed_is_decided_again_on_what_is_there(operator: Operator) -> None:
    operator.apply()
    operator.api.put(
        "sweep", **{**operator.api.objects["sweep"], "spec": {"indices": "0-1", "template": {"spec": RUN}}}
    )
    with pytest.raises(StaleError):
        await operator.look()
    await operator.look()
    assert operator.api.created == ["sweep-0", "sweep-1"]


async def test_a_set_that_turns_out_to_be_gone_is_forgotten(operator: Operator) -> None:
    operator.apply()
    operator.api.fail["patch"] = ApiError(404, "NotFound", 'trainingrunsets "sweep" not found')
    del operator.api.objects["sweep"]
    with pytest.raises(StaleError):
        await operator.look()
    assert operator.store.run_sets.named("team", "sweep") is None
    await operator.look()


async def test_a_refused_run_is_told_until_one_is_taken(operator: Operator) -> None:
    operator.apply(indices="0")
    operator.api.fail["create"] = ApiError(403, "Forbidden", "exceeded quota")
    with pytest.raises(ApiError):
        await operator.look()
    operator.api.fail["create"] = ApiError(403, "Forbidden", "exceeded quota")
    with pytest.raises(ApiError):
        await operator.look()
    assert (operator.status().reason, operator.said) == ("RunRefused", ["RunRefused"])
    await operator.look()
    await operator.look()
    assert operator.status().reason == "RunsActive"


async def test_sets_and_runs_of_namespaces_that_are_not_ours_are_left_alone() -> None:
    clock = ManualClock()
    store = Store(WorkQueue(clock), clock, ["other"])
    spec = {"indices": "0", "template": {"spec": RUN}}
    store.apply_run_set(Api(clock).put("sweep", spec=spec))
    assert store.run_sets.named("team", "sweep") is None


def member(name: str, **status: Any) -> RunView:
    return replace(run(name, status=status), set_uid="uid-sweep", set_name="sweep")


def admitted(width: int | None, *runs: RunView, in_flight: frozenset[str] = frozenset()) -> tuple[list[str], list[str]]:
    """Who gets nodes, and who is told to wait for the width."""
    widths = {} if width is None else {("team", "uid-sweep"): width}
    flying = {"uid-a": in_flight} if in_flight else {}
    snapshot = replace(world(runs, 8), widths=widths, in_flight=flying)
    plan = admit(snapshot, Tunables(), 1_000.0)
    held = [write.name for write in plan.writes if write.status.queue.reason == "MaxRunning"]
    return sorted(write.name for write in plan.writes if write.nodes), sorted(held)


ON_A_NODE = AssignmentStatus(nodes=("n7",), incarnations=(1,), hash="h")


def test_no_more_runs_of_a_set_get_nodes_than_its_width_allows() -> None:
    five = [member(name) for name in "abcde"]
    assert admitted(None, *five) == (["a", "b", "c", "d", "e"], [])
    assert admitted(2, *five) == (["a", "b"], ["c", "d", "e"])
    assert admitted(0, *five) == ([], ["a", "b", "c", "d", "e"])
    assert admitted(2, member("h", assignment=ON_A_NODE), *five) == (["a"], ["b", "c", "d", "e"])
    assert admitted(2, *five, in_flight=frozenset({"n0"}))[0] == ["b"], "a may have its nodes already"


def test_the_width_of_a_set_is_nothing_to_other_runs() -> None:
    assert admitted(1, run("other"), member("a"), member("b"))[0] == ["a", "other"]
    elsewhere = replace(member("c", assignment=ON_A_NODE), namespace="other")
    assert admitted(1, elsewhere, member("a"))[0] == ["a"], "a copied UID takes no room in the set"
