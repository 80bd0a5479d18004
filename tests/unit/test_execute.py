"""Carrying out plans when the API server says something else than expected."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.api.queue import TrainingQueueStatus
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome, UnreachableError
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key
from lockstep.controller.reconcile import reconcile, threaded_admission
from lockstep.controller.reconcile.execute import Executor, StaleError
from lockstep.controller.reconcile.history import History
from lockstep.controller.reconcile.node_marks import NodeMarker
from lockstep.controller.reconcile.reconcile import Reconciler
from lockstep.controller.reconcile.recoveries import Recoveries
from lockstep.controller.reconcile.run_set import RunSetReconciler
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.store.store import Store
from lockstep.controller.store.usage import UsageKeeper
from lockstep.controller.workers.orders import Orders
from lockstep.controller.workers.reports import ReportBook
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.plan import (
    ClusterPlan,
    CreateJob,
    CreatePlaceholder,
    CreatePod,
    DeletePodGroup,
    DesiredPhase,
    Directive,
    DryRunPod,
    EnsureConfigMap,
    EnsurePodGroup,
    EnsureProvisioning,
    Plan,
    QueueStatusWrite,
)
from lockstep.core.model.snapshot import TOLD_AFTER, ClusterSnapshot, DryRunResult, Leadership, RefusedCreate, RunView
from lockstep.core.model.tunables import Tunables
from support.manual_clock import ManualClock
from support.stored_runs import run, stored

WEBHOOK_DOWN = UnknownOutcome('create pods: 500 InternalError: failed calling webhook "x": connection refused', 0.0)
GONE = ApiError(404, "NotFound", 'trainingruns.lockstep.dev "llama" not found')
NO_KIND = ApiError(404, "NotFound", "the server could not find the requested resource")


class Kube:
    """Answers writes and reads of the one run as told."""

    def __init__(self) -> None:
        self.write: KubeError | None = None
        self.read: ApiError | Mapping[str, Any] = run(11)
        self.creation: KubeError | None = None
        self.created: Mapping[str, Any] = {"metadata": {"name": "j", "uid": "job-1", "resourceVersion": "20"}}
        self.writes = 0
        self.unknown: set[str] = set()  # fields of status that its definition of the kind lacks

    async def patch_status(self, *_: Any, patch: Any, **__: Any) -> bytes:
        self.writes += 1
        if self.write is not None:
            raise self.write
        return orjson.dumps(run(12, status={key: value for key, value in patch.items() if key not in self.unknown}))

    async def get(self, *_: Any) -> bytes:
        if isinstance(self.read, ApiError):
            raise self.read
        return orjson.dumps(self.read)

    async def create(self, *_: Any, **__: Any) -> bytes:
        if self.creation is not None:
            raise self.creation
        return orjson.dumps(self.created)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = WorkQueue(self.clock)
        self.store = Store(self.queue, self.clock)
        self.book = ReportBook(self.clock, lambda uid: None)
        self.kube = Kube()
        kube = cast(KubeClient, self.kube)
        self.warnings: list[str] = []
        warn: Callable[..., None] = lambda run, reason, *_: self.warnings.append(reason)  # noqa: E731
        events = cast(EventRecorder, SimpleNamespace(run_event=lambda *_: None, warn=warn))
        tallies = Tallies()
        recoveries = Recoveries(self.clock, self.book.reports, tallies)
        history = History("", 0, self.clock, tallies.drop_history)
        nodes = NodeMarker(kube, self.store, self.clock, Tunables)
        self.executor = Executor(
            kube, self.store, self.book, events, tallies, recoveries, self.clock, nodes, history, self.queue
        )
        self.reconciler = Reconciler(
            kube=kube,
            store=self.store,
            book=self.book,
            queue=self.queue,
            executor=self.executor,
            nodes=nodes,
            recoveries=recoveries,
            usage=UsageKeeper(kube, self.clock, "lockstep-system"),
            clock=self.clock,
            tunables=Tunables,
            tallies=tallies,
            run_sets=RunSetReconciler(kube, self.store, events, self.queue, self.clock, Tunables),
        )
        self.store.apply_run(run(10))

    async def write(self) -> None:
        view = stored(self.store)
        await self.executor.run_plan(view, Plan(status=changed(view.status, state="Pending")))


@pytest.fixture
def world() -> World:
    return World()


async def test_runs_whose_nodes_cannot_be_read_are_all_asked_for_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its time to be given; one after the other they would keep everybody waiting for the sum of it."""
    asked: list[str] = []

    async def unanswered(view: RunView) -> bool:
        asked.append(view.name)
        raise UnreachableError(view.name)

    views = tuple(dataclasses.replace(stored(world.store), name=name, uid=name) for name in ("one", "two"))
    monkeypatch.setattr(world.store, "unread", lambda: views)
    monkeypatch.setattr(world.reconciler, "_is_read", unanswered)
    with pytest.raises(UnreachableError, match="one"):
        await world.reconciler._read_what_is_unread()
    assert asked == ["one", "two"]


async def test_a_pod_that_a_webhook_would_hold_back_for_good_is_refused_by_the_dry_run(world: World) -> None:
    world.kube.created = {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}
    view = stored(world.store)
    await world.executor.run_plan(view, Plan(dry_run=DryRunPod(1, {})))
    snapshot = world.store.snapshot_run(view.namespace, view.name, {}, Leadership(0.0))
    assert snapshot is not None
    assert snapshot.dry_run is not None
    assert not snapshot.dry_run.accepted
    assert "kueue.x-k8s.io/queue-name" in snapshot.dry_run.message


async def test_a_run_that_was_changed_by_others_is_decided_again_on_what_is_there(world: World) -> None:
    world.kube.write = ApiError(409, "Conflict", "the object has been modified")
    with pytest.raises(StaleError):
        await world.write()
    view = stored(world.store)
    assert view.resource_version == "11"


async def test_a_run_that_a_restored_backup_made_older_is_decided_on_what_is_there(world: World) -> None:
    world.kube.write, world.kube.read = ApiError(409, "Conflict", "the object has been modified"), run(5)
    with pytest.raises(StaleError):
        await world.write()
    view = stored(world.store)
    assert view.resource_version == "5"


async def test_a_run_that_turns_out_to_be_gone_is_not_written_over_and_over(world: World) -> None:
    world.kube.write = world.kube.read = GONE
    await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.store.run("team", "llama") is None
    await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.kube.writes == 1


async def test_a_kind_that_is_not_served_for_a_moment_proves_nothing_of_its_objects(world: World) -> None:
    world.kube.write = world.kube.read = NO_KIND
    with pytest.raises(ApiError):
        await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.store.run("team", "llama") is not None


async def test_a_run_without_pods_that_holds_nothing_keeps_no_words_of_workers(world: World) -> None:
    directive = Directive(1, DesiredPhase.COMPLETE, (1,), (0,))
    world.book.set_directive("u1", directive)
    assert isinstance(world.book.orders("u1"), Orders)
    await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.book.orders("u1") is None


@pytest.mark.parametrize(
    "refusal",
    [
        None,
        ApiError(409, "AlreadyExists", "jobs.batch already exists"),
        ApiError(403, "Forbidden", "exceeded quota"),
        ApiError(422, "Invalid", "spec is invalid"),
    ],
)
async def test_a_job_that_is_refused_or_there_already_holds_up_nothing(world: World, refusal: ApiError | None) -> None:
    world.kube.creation = refusal
    view = stored(world.store)
    await world.executor.run_plan(view, Plan(jobs=(CreateJob("team", "j", {}),)))
    assert len(world.store.archive_jobs.cache) == (1 if refusal is None else 0)


async def test_a_job_is_made_again_when_the_api_server_was_overwhelmed(world: World) -> None:
    world.kube.creation = ApiError(503, "ServiceUnavailable", "try again")
    view = stored(world.store)
    with pytest.raises(ApiError):
        await world.executor.run_plan(view, Plan(jobs=(CreateJob("team", "j", {}),)))


async def test_a_mark_that_cannot_be_taken_off_does_not_bring_the_admission_pass_back_at_once(world: World) -> None:
    told = to_rfc3339(world.clock.now() - 2 * 86_400)
    rows = orjson.dumps([{"run": "team/a", "time": told, "cause": "Hang"}] * 2).decode()
    annotations = {names.ANNOTATION_FIRST_FAILURES: rows, names.ANNOTATION_SUSPECT: "2 first failures"}
    metadata = {"name": "n1", "uid": "n1", "resourceVersion": "5", "annotations": annotations}
    world.store.apply_node(orjson.dumps({"metadata": metadata}))
    world.kube.read = ApiError(403, "Forbidden", "may not")
    world.queue.clear()
    await world.reconciler.reconcile(CLUSTER_KEY)
    assert world.queue.oldest_due_age() == 0.0
    assert not len(world.queue)


async def test_an_admission_pass_is_asked_for_although_a_pod_of_the_plan_was_not_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(creates=(CreatePod("team", "p", 0, 1, "n1", b"{}"),), admission_changed=True)
    monkeypatch.setattr(reconcile, "decide", lambda *_: plan)
    world.kube.creation = ApiError(403, "Forbidden", "exceeded quota")
    world.queue.clear()
    with pytest.raises(ApiError):
        await world.reconciler.reconcile(run_key("team", "llama"))
    assert len(world.queue) == 1
    assert await world.queue.get() == CLUSTER_KEY


AT_ONCE = ("deletes", "pod_group", "creates", "jobs", "placeholders", "provisioning", "node_failures")


async def test_a_plan_is_carried_out_in_the_order_of_its_fields(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    view = stored(world.store)
    done: list[str] = []

    def note(owner: object, name: str, field: str) -> None:
        monkeypatch.setattr(owner, name, lambda *_, **__: done.append(field))

    def note_awaited(owner: object, name: str, field: str) -> None:
        async def noted(*_: object, **__: object) -> None:
            done.append(field)

        monkeypatch.setattr(owner, name, noted)

    executor = world.executor
    note(world.queue, "wake_at", "wake_at")
    note_awaited(executor, "_ensure_config_map", "config_maps")
    note_awaited(executor, "_write_status", "status")
    note(world.book, "set_directive", "directive")
    note(executor._events, "run_event", "events")
    note_awaited(executor, "_dry_run", "dry_run")
    note_awaited(executor, "_delete", "deletes")
    note_awaited(executor, "_ensure_pod_group", "pod_group")
    note_awaited(executor, "_create", "creates")
    note_awaited(executor, "_create_job", "jobs")
    note_awaited(executor, "_create_placeholder", "placeholders")
    note_awaited(executor, "_provision", "provisioning")
    note_awaited(executor._nodes, "remember", "node_failures")
    note_awaited(executor._pod_groups, "delete", "pod_group_deletes")
    note_awaited(executor, "_forget", "delete_run")
    note_awaited(executor._workloads, "carry_out", "workload")
    monkeypatch.setattr(
        world.queue, "add", lambda key: done.append("admission_changed") if key == CLUSTER_KEY else None
    )
    anything: Any = SimpleNamespace(generation=1, body={}, reason="", note="")
    plan = Plan(**dict.fromkeys((field.name for field in dataclasses.fields(Plan)), (anything,)))  # type: ignore[arg-type]
    plan = dataclasses.replace(plan, wake_at=1.0, status=view.status, dry_run=anything)
    await executor.run_plan(view, dataclasses.replace(plan, pod_group_deletes=()))
    order = [field.name for field in dataclasses.fields(Plan) if field.name != "pod_group_deletes"]
    assert [field for field in done if field not in AT_ONCE] == [field for field in order if field not in AT_ONCE]
    first, last = order.index(AT_ONCE[0]), order.index(AT_ONCE[-1])
    assert sorted(done[first : last + 1]) == sorted(AT_ONCE)
    assert done.index("pod_group") < done.index("creates")
    done.clear()
    await executor.run_plan(view, plan)
    at = done.index("pod_group_deletes")
    assert done[at - 1] in AT_ONCE
    assert done[at + 1 :] == ["status", "delete_run", "workload", "admission_changed"]


async def test_what_one_pass_leaves_to_the_next_ends_with_the_leadership(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories: list[CycleMemory] = []

    def note(snapshot: object, tunables: object, now: float, memory: CycleMemory) -> ClusterPlan:
        memories.append(memory)
        return ClusterPlan()

    monkeypatch.setattr(threaded_admission, "admit_isolating_failures", note)
    for _ in range(2):
        await world.reconciler.reconcile(CLUSTER_KEY)
    world.reconciler.lead()
    await world.reconciler.reconcile(CLUSTER_KEY)
    assert memories[0] is memories[1]
    assert memories[2] is not memories[1]


async def test_what_a_failed_pass_was_told_to_have_changed_the_next_one_is_told_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[set[str] | None] = []

    def note(snapshot: ClusterSnapshot, *_: object) -> ClusterPlan:
        runs = snapshot.changes.runs
        told.append(None if runs is None else {*runs})
        if len(told) in (1, 3):
            raise ArithmeticError
        return ClusterPlan()

    monkeypatch.setattr(threaded_admission, "admit_isolating_failures", note)
    for number in range(5):
        with pytest.raises(ArithmeticError) if number in (0, 2) else nullcontext():
            await world.reconciler.reconcile(CLUSTER_KEY)
        if number in (1, 2):
            another = run(20 + number)
            another["metadata"] |= {"name": f"r{number}", "uid": f"u-{number}"}
            world.store.apply_run(another)
    assert told == [None, None, {"u-1"}, {"u-1", "u-2"}, set()]


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
    for refused in world.store._refused["u1"].values():
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
    assert not world.store._refused.get("u1")


async def test_pods_that_wait_for_a_config_map_say_what_the_api_server_has_said_of_it(world: World) -> None:
    world.kube.creation = WEBHOOK_DOWN
    view = world.store.run("team", "llama")
    assert view is not None
    pod = CreatePod("team", "p", 0, 1, "n1", b"{}")
    with pytest.raises(KubeError):
        await world.executor.run_plan(view, Plan(config_maps=(EnsureConfigMap("team", "c", {}),), creates=(pod,)))
    assert "ConfigMap c" in world.store._refused["u1"]["p"].message
    assert WEBHOOK_DOWN.words in world.store._refused["u1"]["p"].message


async def test_an_answer_to_a_dry_run_that_is_no_verdict_is_kept_and_asked_for_again_after_a_pause(
    world: World,
) -> None:
    world.kube.creation = WEBHOOK_DOWN
    view = world.store.run("team", "llama")
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
    world.store.apply_run(run(12, status=status))
    world.kube.read = found
    await world.reconciler.reconcile(CLUSTER_KEY)
    await world.reconciler.reconcile(run_key("team", "llama"))
    held = next(each for each in written[0]["conditions"] if each["type"] == "StateRegression")
    assert held["status"] == "True"
    assert "restore status.assignment, or delete the run" in held["message"]
    assert "assignment" not in written[0]


GROUP = EnsurePodGroup("team", "g", "scheduling.k8s.io/v1alpha2", {})
ENDED = DeletePodGroup("team", "g", GROUP.api_version)
MEMBER = CreatePod("team", "llama-u1-0-1", 0, 1, "n1", {})


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
    refused = world.store._refused["u1"][MEMBER.name]
    assert refused.message.startswith(f"pod {MEMBER.name} does not name the run")


class GroupKube(Kube):
    """Has one PodGroup, or none, and keeps what was asked of it in order."""

    def __init__(self, there: Mapping[str, Any] | None = None, refusal: ApiError | None = None) -> None:
        super().__init__()
        self.there, self.refusal = there, refusal
        self.asked: list[str] = []

    async def create(self, resource: Any, *_: Any, **__: Any) -> bytes:
        self.asked.append(f"create {resource.plural}")
        if resource.plural == "podgroups":
            if self.refusal is not None:
                raise self.refusal
            if self.there is not None:
                raise ApiError(409, "AlreadyExists", "there is one")
            return b"{}"
        labels = {
            names.LABEL_RUN: "llama",
            names.LABEL_RUN_UID: "u1",
            names.LABEL_SLOT: "0",
            names.LABEL_INCARNATION: "1",
        }
        metadata = {"name": MEMBER.name, "namespace": "team", "uid": "p", "resourceVersion": "20", "labels": labels}
        return orjson.dumps({"metadata": metadata | {"creationTimestamp": "2026-01-01T00:00:00Z"}})

    async def get(self, resource: Any, *_: Any) -> bytes:
        if resource.plural != "podgroups":
            return await super().get()
        if self.there is None:
            raise ApiError(404, "NotFound", "none")
        return orjson.dumps(self.there)

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str, **_: Any) -> bytes:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(f"delete {resource.plural} {namespace}/{name} {uid}")
        return b"{}"

    async def patch_status(self, *_: Any, patch: Any, **__: Any) -> bytes:
        self.asked.append("patch status")
        return await super().patch_status(patch=patch)


def group_of(owner: str) -> dict[str, Any]:
    return {"metadata": {"uid": "g1", "ownerReferences": [{"uid": owner}]}}


async def carry_out(world: World, kube: GroupKube, plan: Plan) -> None:
    world.executor._kube = world.executor._pod_groups._kube = cast(KubeClient, kube)
    view = stored(world.store)
    await world.executor.run_plan(view, plan)


@pytest.mark.parametrize("there", [None, group_of("u1")], ids=["it is made", "it is there already"])
async def test_the_pod_group_is_there_before_its_pods(world: World, there: Mapping[str, Any] | None) -> None:
    kube = GroupKube(there)
    await carry_out(world, kube, Plan(pod_group=GROUP, creates=(MEMBER,)))
    assert kube.asked == ["create podgroups", "create pods"]


@pytest.mark.parametrize(
    ("kube", "words"),
    [
        (GroupKube(group_of("u2")), "not of this run"),
        (GroupKube(refusal=ApiError(403, "Forbidden", "may not")), "may not"),
        (GroupKube(refusal=NO_KIND), "could not find"),
    ],
    ids=["somebody else's", "a right is missing", "the API has gone"],
)
async def test_without_its_pod_group_no_pod_is_made_and_its_slot_says_why(
    world: World, kube: GroupKube, words: str
) -> None:
    for _ in range(2):
        with pytest.raises(ApiError):
            await carry_out(world, kube, Plan(pod_group=GROUP, creates=(MEMBER,)))
    assert "create pods" not in kube.asked
    assert world.warnings == ["PodGroupRefused"], "said once"
    snapshot = world.store.snapshot_run("team", "llama", {}, Leadership(0.0))
    assert snapshot is not None
    assert words in snapshot.refused_creates[MEMBER.name].message


async def test_what_is_to_be_done_is_done_before_a_pod_group_that_a_failing_webhook_keeps(world: World) -> None:
    view = stored(world.store)
    kube = GroupKube(group_of("u1"), ApiError(500, "InternalError", "failed calling webhook"))
    created = Plan(creates=(MEMBER,), pod_group_deletes=(ENDED,), status=view.status)
    with pytest.raises(ApiError, match="failed calling webhook"):
        await carry_out(world, kube, created)
    assert kube.asked == ["create pods"], "status forgets no group that is there"


async def test_a_pod_group_is_gone_before_status_forgets_it(world: World) -> None:
    view = stored(world.store)
    kube = GroupKube(group_of("u1"))
    status = changed(view.status, state="Suspended")
    await carry_out(world, kube, Plan(pod_group_deletes=(ENDED,), status=status))
    assert kube.asked == ["delete podgroups team/g g1", "patch status"]


@pytest.mark.parametrize(
    "kube",
    [GroupKube(), GroupKube(group_of("u2")), GroupKube(group_of("u1"), ApiError(403, "Forbidden", "may not"))],
    ids=["gone", "somebody else's", "refused"],
)
async def test_no_stop_waits_for_a_pod_group_that_cannot_be_deleted(world: World, kube: GroupKube) -> None:
    view = stored(world.store)
    status = changed(view.status, state="Suspended")
    await carry_out(world, kube, Plan(pod_group_deletes=(ENDED,), status=status))
    assert kube.asked == ["patch status"]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (Plan(config_maps=(EnsureConfigMap("team", "c", {}),)), "ConfigMapRefused"),
        (Plan(jobs=(CreateJob("team", "j", {}),)), "ArchiveJobRefused"),
        (Plan(pod_group=GROUP, creates=(MEMBER,)), "PodGroupRefused"),
        (Plan(), "StatusRefused"),
    ],
    ids=["a ConfigMap", "a job", "a PodGroup", "the status"],
)
async def test_no_write_for_a_run_fails_for_long_without_a_word(world: World, plan: Plan, reason: str) -> None:
    kube = GroupKube(refusal=cast(ApiError, WEBHOOK_DOWN)) if plan.pod_group is not None else Kube()
    kube.creation = kube.write = WEBHOOK_DOWN
    kube.read = NO_KIND
    world.executor._kube = world.executor._pod_groups._kube = cast(KubeClient, kube)
    world.executor._config_maps._kube = cast(KubeClient, kube)
    view = world.store.run("team", "llama")
    assert view is not None
    if reason == "StatusRefused":
        plan = Plan(status=changed(view.status, state="Pending"))
    for _ in range(5):
        with pytest.raises(KubeError):
            await world.executor.run_plan(view, plan)
        await world.clock.advance(TOLD_AFTER / 2)
    assert world.warnings == [reason], "once it lasts, and once"


PLACE = CreatePlaceholder("team", "llama-u1-scale-up-0", {"metadata": {"name": "llama-u1-scale-up-0"}})
REQUEST = EnsureProvisioning("team", "llama-u1-scale-up", {"kind": "PodTemplate"}, {"kind": "ProvisioningRequest"})


@pytest.mark.parametrize("plan", [Plan(placeholders=(PLACE,)), Plan(provisioning=REQUEST)], ids=["pods", "a request"])
async def test_what_asks_for_nodes_and_is_refused_is_told_and_holds_up_nothing(world: World, plan: Plan) -> None:
    view = stored(world.store)
    world.kube.creation = ApiError(403, "Forbidden", "exceeded quota")
    for _ in range(2):
        await world.executor.run_plan(view, plan)
    snapshot = world.store.snapshot_run("team", "llama", {}, Leadership(0.0))
    assert snapshot is not None
    (told,) = snapshot.refused_creates.values()
    assert told.message == "exceeded quota"
    world.kube.creation = ApiError(500, "InternalError", "failed calling webhook")
    with pytest.raises(ApiError, match="failed calling webhook"):
        await world.executor.run_plan(view, plan)


async def test_a_placeholder_that_is_there_already_is_no_news_and_one_that_is_taken_ends_the_refusal(
    world: World,
) -> None:
    view = stored(world.store)
    world.store.note_refused_create(view.uid, PLACE.name, RefusedCreate(0.0, "exceeded quota"))
    world.kube.creation = ApiError(409, "AlreadyExists", "there is one")
    await world.executor.run_plan(view, Plan(placeholders=(PLACE,)))
    assert PLACE.name in world.store._refused[view.uid]
    world.kube.creation = None
    world.kube.created = {"metadata": {"name": PLACE.name, "uid": "p1", "resourceVersion": "20"}}
    await world.executor.run_plan(view, Plan(placeholders=(PLACE,)))
    assert PLACE.name not in world.store._refused[view.uid]
    assert not world.warnings
