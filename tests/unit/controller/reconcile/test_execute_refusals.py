"""What the API server has against a write is told, and holds up nothing that does not rest on it."""

from contextlib import nullcontext
from typing import Any, cast

import orjson
import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.queue import TrainingQueueStatus
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome, UnreachableError
from lockstep.controller.kube.workqueue import CLUSTER_KEY, run_key
from lockstep.controller.reconcile import threaded_admission
from lockstep.core.model.plan import (
    ClusterPlan,
    CreateJob,
    CreatePod,
    DeleteJob,
    DryRunPod,
    EnsureConfigMap,
    Plan,
    QueueStatusWrite,
)
from lockstep.core.model.snapshot import TOLD_AFTER, DryRunResult, Leadership
from support.plans_at_work import GROUP, MEMBER, NO_KIND, WEBHOOK_DOWN, GroupKube, Kube, World
from support.stored_runs import run, stored


@pytest.fixture
def world() -> World:
    return World()


def queue_object(version: int) -> dict[str, Any]:
    metadata = {"name": "q", "uid": "q1", "resourceVersion": str(version), "generation": 1}
    return {"metadata": metadata | {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}


@pytest.mark.parametrize(
    ("refusal", "known", "taken"),
    [
        (None, 20, True),
        (ApiError(409, "Conflict", "the object has been modified"), 20, False),
        (ApiError(403, "Forbidden", "no such right"), 20, False),
        (UnreachableError("no answer"), 20, False),
        (None, 21, False),
    ],
)
async def test_a_queue_status_that_cannot_be_written_is_tried_again_later_and_holds_up_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, refusal: KubeError | None, known: int, taken: bool
) -> None:
    patches: list[Any] = []

    async def patch_status(*_: Any, patch: Any, **__: Any) -> bytes:
        patches.append(patch)
        if refusal is not None:
            raise refusal
        return orjson.dumps(queue_object(22) | {"status": patch})

    monkeypatch.setattr(world.kube, "patch_status", patch_status)
    world.store.queues.apply(queue_object(known))
    write = QueueStatusWrite("q", "q1", "20", TrainingQueueStatus(running=1))
    monkeypatch.setattr(threaded_admission, "admit_isolating_failures", lambda *_: ClusterPlan(queues=(write,)))
    world.queue.clear()
    await world.reconciler.reconcile(CLUSTER_KEY)
    assert bool(patches) is (known == 20)
    view = world.store.queues.cache.get("q1")
    assert view is not None
    assert view.status.running == int(taken)
    world.queue.wake_at("last", world.clock.now() + 11)
    await world.clock.advance(11)
    assert await world.queue.get() == ("last" if taken else CLUSTER_KEY)


async def test_a_status_that_the_api_server_refuses_is_told_of(world: World) -> None:
    world.kube.write = ApiError(422, "Invalid", "status.attempts: Too many")
    with pytest.raises(ApiError):
        await world.write()
    assert world.warnings == ["StatusRefused"]


async def test_nothing_rests_on_a_status_of_which_older_crds_have_dropped_a_field(world: World) -> None:
    world.kube.unknown = {"attempt"}
    view = stored(world.store)
    created: list[Any] = []
    world.kube.create = lambda *_, **__: created.append(_)  # type: ignore[assignment, return-value]
    job = CreateJob("team", "j", {"metadata": {"name": "j"}})
    with pytest.raises(ApiError, match=r"status\.attempt was not stored: the CRDs are older than the operator"):
        await world.executor.run_plan(view, Plan(status=changed(view.status, attempt=3), jobs=(job,)))
    assert world.warnings == ["StatusRefused"]
    assert created == []
    assert stored(world.store).resource_version == "12"


@pytest.mark.parametrize(
    ("refusal", "verdict"),
    [
        (ApiError(403, "Forbidden", "exceeded quota"), True),
        (ApiError(422, "Invalid", "spec is invalid"), True),
        (ApiError(429, "TooManyRequests", "try again"), False),
        (ApiError(401, "Unauthorized", "Unauthorized"), False),
        (ApiError(409, "Conflict", "the object of the quota has been modified"), False),
        (WEBHOOK_DOWN, False),
        (UnknownOutcome("create pods: TimeoutError", 0.0), False),
    ],
)
async def test_only_what_the_api_server_has_against_a_pod_is_held_against_it_and_all_is_told(
    world: World, refusal: KubeError, verdict: bool
) -> None:
    world.kube.creation = refusal
    view = stored(world.store)
    plan = Plan(creates=tuple(CreatePod("team", name, 0, 1, "n1", b"{}") for name in ("p", "q")))
    with pytest.raises(KubeError):
        await world.executor.run_plan(view, plan)
    for refused in world.store._refused.for_run("u1").values():
        assert (refused.is_verdict, refused.message) == (verdict, refusal.words)
    assert world.warnings == (["PodRefused"] * 2 if verdict else []), "what passes in a moment is no event"
    for _ in range(2):
        await world.clock.advance(TOLD_AFTER)
        with pytest.raises(KubeError):
            await world.executor.run_plan(view, plan)
    assert world.warnings == (["PodRefused"] * 2 if verdict else ["PodRefused"]), "once a run"


async def test_an_api_server_that_is_away_says_nothing_of_a_pod(world: World) -> None:
    world.kube.creation = UnreachableError("connection refused")
    view = stored(world.store)
    with pytest.raises(KubeError):
        await world.executor.run_plan(view, Plan(creates=(CreatePod("team", "p", 0, 1, "n1", b"{}"),)))
    assert not world.store._refused.for_run("u1")


async def test_pods_that_wait_for_a_config_map_say_what_the_api_server_has_said_of_it(world: World) -> None:
    world.kube.creation = WEBHOOK_DOWN
    view = world.store.runs.named("team", "llama")
    assert view is not None
    pod = CreatePod("team", "p", 0, 1, "n1", b"{}")
    with pytest.raises(KubeError):
        await world.executor.run_plan(view, Plan(config_maps=(EnsureConfigMap("team", "c", {}),), creates=(pod,)))
    assert "ConfigMap c" in world.store._refused.for_run("u1")["p"].message
    assert WEBHOOK_DOWN.words in world.store._refused.for_run("u1")["p"].message


async def test_an_answer_to_a_dry_run_that_is_no_verdict_is_kept_and_asked_for_again_after_a_pause(
    world: World,
) -> None:
    world.kube.creation = WEBHOOK_DOWN
    view = world.store.runs.named("team", "llama")
    assert view is not None
    world.queue.clear()
    first = world.clock.now()
    for _ in range(2):
        with pytest.raises(KubeError):
            await world.executor.run_plan(view, Plan(dry_run=DryRunPod(1, {})))
        await world.clock.advance(3.0)
    snapshot = world.store.snapshot_run("team", "llama", {}, Leadership(0.0))
    assert snapshot is not None
    assert snapshot.dry_run == DryRunResult(1, None, WEBHOOK_DOWN.words, first), "since when"
    assert not world.queue._due, "it comes again after the back-off, and not at once"


@pytest.mark.parametrize("optional", [True, False])
async def test_only_a_config_map_that_something_rests_on_holds_up_the_plan(world: World, optional: bool) -> None:
    world.kube.creation = ApiError(403, "Forbidden", "exceeded quota")
    view = stored(world.store)
    status = changed(view.status, state="Pending")
    plan = Plan(config_maps=(EnsureConfigMap("team", "c", {}, optional=optional),), status=status)
    with nullcontext() if optional else pytest.raises(ApiError):
        await world.executor.run_plan(view, plan)
    assert world.kube.writes == int(optional)
    assert world.warnings == ["ConfigMapRefused"]


@pytest.mark.parametrize(
    "found",
    [
        ApiError(404, "NotFound", 'configmaps "llama-a" not found'),
        {"metadata": {}},
        {"data": {"assignment.json": "[]"}},
        {"data": {"assignment.json": '{"nodes": ["n9"], "incarnations": [1]}'}},
    ],
)
async def test_a_run_whose_assignment_is_lost_is_held_and_holds_up_nobody_else(
    world: World, found: ApiError | dict[str, Any]
) -> None:
    written: list[Any] = []

    async def patch_status(*_: Any, patch: Any, **__: Any) -> bytes:
        written.append(patch)
        return orjson.dumps(run(13, status={**status, **patch}))

    world.kube.patch_status = patch_status  # type: ignore[method-assign]
    status = {"attempt": 1, "assignment": {"revision": 1, "hash": "abc", "configMap": "llama-a"}}
    world.store.runs.apply(run(12, status=status))
    world.kube.read = found
    await world.reconciler.reconcile(CLUSTER_KEY)
    await world.reconciler.reconcile(run_key("team", "llama"))
    held = next(each for each in written[0]["conditions"] if each["type"] == "StateRegression")
    assert held["status"] == "True"
    assert "restore status.assignment, or delete the run" in held["message"]
    assert "assignment" not in written[0]


async def test_a_pod_that_does_not_name_its_run_as_its_controller_is_told_and_not_waited_for_without_end(
    world: World,
) -> None:
    view = stored(world.store)
    owner = {"apiVersion": names.API_VERSION, "kind": "TrainingRun", "name": "llama", "uid": "u1", "controller": True}
    metadata = {"name": MEMBER.name, "namespace": "team", "uid": "p", "resourceVersion": "20"}
    metadata |= {"ownerReferences": [owner], "creationTimestamp": "2026-01-01T00:00:00Z"}
    world.kube.creation = ApiError(409, "AlreadyExists", "there is one")
    world.kube.read = {"metadata": metadata}
    await world.executor.run_plan(view, Plan(creates=(MEMBER,)))
    assert world.warnings == []
    world.kube.read = {"metadata": metadata | {"ownerReferences": [owner | {"controller": False}]}}
    for _ in range(2):
        with pytest.raises(ApiError, match="does not name the run"):
            await world.executor.run_plan(view, Plan(creates=(MEMBER,)))
    assert world.warnings == ["PodOwnerLost"]
    refused = world.store._refused.for_run("u1")[MEMBER.name]
    assert refused.message.startswith(f"pod {MEMBER.name} does not name the run")


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (Plan(config_maps=(EnsureConfigMap("team", "c", {}),)), "ConfigMapRefused"),
        (Plan(jobs=(CreateJob("team", "j", {}),)), "ArchiveJobRefused"),
        (Plan(ended_jobs=(DeleteJob("team", "j", "job-1"),)), "ArchiveJobRefused"),
        (Plan(pod_group=GROUP, creates=(MEMBER,)), "PodGroupRefused"),
        (Plan(), "StatusRefused"),
    ],
    ids=["a ConfigMap", "a job", "the end of a job", "a PodGroup", "the status"],
)
async def test_no_write_for_a_run_fails_for_long_without_a_word(plan: Plan, reason: str) -> None:
    kube = GroupKube(refusal=cast(ApiError, WEBHOOK_DOWN)) if plan.pod_group is not None else Kube()
    kube.creation = kube.write = WEBHOOK_DOWN
    kube.read = NO_KIND
    world = World(kube)
    view = world.store.runs.named("team", "llama")
    assert view is not None
    if reason == "StatusRefused":
        plan = Plan(status=changed(view.status, state="Pending"))
    for _ in range(5):
        with pytest.raises(KubeError):
            await world.executor.run_plan(view, plan)
        await world.clock.advance(TOLD_AFTER / 2)
    assert world.warnings == [reason], "once it lasts, and once"
