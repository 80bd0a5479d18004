"""Carrying out plans when the API server says something else than expected."""

import asyncio
import dataclasses
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.controller.kube.errors import ApiError, UnknownOutcome, UnreachableError
from lockstep.controller.kube.workqueue import CLUSTER_KEY, run_key
from lockstep.controller.reconcile import reconcile, threaded_admission
from lockstep.controller.reconcile.run_writer import StaleError
from lockstep.controller.runtime.resources import NODES
from lockstep.controller.workers.orders import Orders
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.named_objects import LookedUp, MissingObject, NamedObject, ObjectKind
from lockstep.core.model.plan import (
    ClusterPlan,
    CreateJob,
    CreatePlaceholder,
    CreatePod,
    DeleteJob,
    DesiredPhase,
    Directive,
    DryRunPod,
    EnsureProvisioning,
    Plan,
    RememberFailure,
)
from lockstep.core.model.snapshot import ClusterSnapshot, Leadership, NodeFailure, RefusedCreate, RunView
from support.plans_at_work import GONE, NO_KIND, WEBHOOK_DOWN, World
from support.stored_runs import run, stored


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
    monkeypatch.setattr(world.store.runs, "unread", lambda: views)
    monkeypatch.setattr(world.reconciler, "_read_or_give_up", unanswered)
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


@pytest.mark.parametrize(
    ("body", "error", "accepted", "message"),
    [
        ({}, None, True, ""),
        ({}, ApiError(403, "Forbidden", "exceeded quota"), False, "exceeded quota"),
        (None, ApiError(403, "Forbidden", "exceeded quota"), True, ""),
    ],
)
async def test_with_the_dry_run_comes_what_is_missing_of_what_a_run_names(
    world: World, body: Any, error: ApiError | None, accepted: bool, message: str
) -> None:
    world.kube.creation = error
    view = stored(world.store)
    named = tuple(NamedObject(ObjectKind.CLAIM, name, f"spec.{name}") for name in ("data", "dta"))
    await world.executor.run_plan(view, Plan(dry_run=DryRunPod(1, body, named)))
    snapshot = world.store.snapshot_run(view.namespace, view.name, {}, Leadership(0.0))
    assert snapshot is not None
    assert snapshot.dry_run is not None
    assert (snapshot.dry_run.accepted, snapshot.dry_run.message) == (accepted, message)
    assert snapshot.dry_run.looked_up == LookedUp((MissingObject(named[1], ("data",)),))


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
    assert world.store.runs.named("team", "llama") is None
    await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.kube.writes == 1


async def test_a_kind_that_is_not_served_for_a_moment_proves_nothing_of_its_objects(world: World) -> None:
    world.kube.write = world.kube.read = NO_KIND
    with pytest.raises(ApiError):
        await world.reconciler.reconcile(run_key("team", "llama"))
    assert world.store.runs.named("team", "llama") is not None


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


async def test_a_job_that_is_to_end_goes_after_its_pods_which_are_seen_to_be_gone_so(world: World) -> None:
    await world.executor.run_plan(stored(world.store), Plan(ended_jobs=(DeleteJob("team", "j", "job-1"),)))
    assert world.kube.deleted == [("jobs", "j", "job-1", {"propagation": "Foreground"})]


async def test_a_job_whose_end_is_refused_holds_up_nothing_and_is_told_of(world: World) -> None:
    world.kube.creation = ApiError(403, "Forbidden", "jobs.batch is forbidden")
    await world.executor.run_plan(stored(world.store), Plan(ended_jobs=(DeleteJob("team", "j", "job-1"),)))
    assert world.warnings == ["ArchiveJobRefused"]


async def test_a_job_is_made_again_when_the_api_server_was_overwhelmed(world: World) -> None:
    world.kube.creation = ApiError(429, "TooManyRequests", "try again")
    view = stored(world.store)
    with pytest.raises(ApiError):
        await world.executor.run_plan(view, Plan(jobs=(CreateJob("team", "j", {}),)))


def suspect_of_old(world: World) -> bytes:
    """A node whose day is over."""
    told = to_rfc3339(world.clock.now() - 2 * 86_400)
    rows = orjson.dumps([{"run": "team/a", "time": told, "cause": "Hang"}] * 2).decode()
    annotations = {names.ANNOTATION_FIRST_FAILURES: rows, names.ANNOTATION_SUSPECT: "2 first failures"}
    metadata = {"name": "n1", "uid": "n1", "resourceVersion": "5", "annotations": annotations}
    return orjson.dumps({"metadata": metadata, "spec": {}})


class SlowNode:
    """One whose day is over, and of which nobody hears until it answers."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.raw, self.answers = suspect_of_old(world), asyncio.Event()
        self.asked, self.written = list[str](), list[str]()
        self._get = world.kube.get
        monkeypatch.setattr(world.kube, "get", self.get)
        monkeypatch.setattr(world.kube, "patch", self.patch, raising=False)
        world.store.apply_node(self.raw)

    async def get(self, resource: object, name: str, *namespace: str) -> bytes:
        if resource is not NODES:
            return await self._get()
        self.asked.append(name)
        await self.answers.wait()
        return self.raw

    async def patch(self, _: object, name: str, body: object) -> bytes:
        self.written.append(name)
        return self.raw


async def test_a_node_that_takes_long_to_be_written_holds_up_no_admission_pass_and_is_asked_for_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SlowNode(world, monkeypatch)
    for _ in range(3):
        await asyncio.wait_for(world.reconciler.reconcile(CLUSTER_KEY), 10)
        await world.clock.advance(0)
    assert node.asked == ["n1"]
    node.answers.set()
    await world.clock.advance(0)
    assert node.written == ["n1"]


async def test_a_node_that_takes_long_to_be_written_holds_up_no_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SlowNode(world, monkeypatch)
    failure = RememberFailure("n1", "n1", NodeFailure("team/llama", world.clock.now(), "Application"))
    for _ in range(3):
        await asyncio.wait_for(world.executor.run_plan(stored(world.store), Plan(node_failures=(failure,))), 10)
        await world.clock.advance(0)
    assert node.asked == ["n1"]
    node.answers.set()
    await world.clock.advance(0)
    assert node.written == ["n1"]


async def test_no_mark_is_taken_off_a_node_once_the_operator_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SlowNode(world, monkeypatch)
    await world.reconciler.reconcile(CLUSTER_KEY)
    await world.clock.advance(0)
    assert await world.reconciler.stop()
    node.answers.set()
    await world.clock.advance(0)
    assert (node.asked, node.written) == (["n1"], [])


async def test_a_mark_that_cannot_be_taken_off_does_not_bring_the_admission_pass_back_at_once(world: World) -> None:
    world.store.apply_node(suspect_of_old(world))
    world.kube.read = ApiError(403, "Forbidden", "may not")
    world.queue.clear()
    await world.reconciler.reconcile(CLUSTER_KEY)
    await world.clock.advance(0)
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


@pytest.mark.parametrize("admission_changed", [True, False])
async def test_an_admission_pass_sees_what_an_unanswered_write_has_changed_once_that_is_heard(
    world: World, admission_changed: bool
) -> None:
    world.kube.write = UnknownOutcome("patch status: Server disconnected", 0.0)
    view = stored(world.store)
    accepted = Plan(status=changed(view.status, state="Pending"), admission_changed=admission_changed)
    with pytest.raises(UnknownOutcome):
        await world.executor.run_plan(view, accepted)
    world.queue.clear()  # of the pass that the write asked for, which knows nothing of it yet
    for version in (12, 13):
        world.store.runs.apply(run(version, status={"state": "Pending"}))
        due = {await world.queue.get() for _ in range(len(world.queue))}
        assert (CLUSTER_KEY in due) is (admission_changed and version == 12)
        for key in due:
            world.queue.done(key)


async def test_an_unanswered_write_of_a_run_that_is_gone_is_not_waited_for(world: World) -> None:
    world.kube.write = UnknownOutcome("patch status: Server disconnected", 0.0)
    view = stored(world.store)
    world.store.runs.cache.remove(view.uid, int(view.resource_version))
    with pytest.raises(UnknownOutcome):
        await world.executor.run_plan(view, Plan(status=changed(view.status, state="Pending"), admission_changed=True))
    assert not world.store.writes._unanswered


AT_ONCE = (
    "deletes", "pod_group", "creates", "jobs", "ended_jobs", "runs", "refused_runs", "placeholders", "provisioning",
    "node_failures",
)  # fmt: skip


async def test_a_plan_is_carried_out_in_the_order_of_its_fields(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    view = stored(world.store)
    done: list[str] = []

    def note(owner: object, name: str, field: str) -> None:
        monkeypatch.setattr(owner, name, lambda *_, **__: done.append(field))

    def note_awaited(owner: object, name: str, field: str) -> None:
        async def noted(*_: object, **__: object) -> None:
            done.append(field)

        monkeypatch.setattr(owner, name, noted)

    executor, objects, runs = world.executor, world.executor.objects, world.executor._runs
    note(world.queue, "wake_at", "wake_at")
    note_awaited(runs, "ensure_config_map", "config_maps")
    note_awaited(runs, "write_status", "status")
    note(world.book, "set_directive", "directive")
    note(executor._events, "run_event", "events")
    note_awaited(executor, "_dry_run", "dry_run")
    note_awaited(executor, "_take_job_id", "take_job_id")
    note_awaited(objects, "delete_pod", "deletes")
    note_awaited(objects, "_ensure_pod_group", "pod_group")
    note_awaited(objects, "_create", "creates")
    note_awaited(objects, "create_job", "jobs")
    note_awaited(objects, "delete_job", "ended_jobs")
    note_awaited(objects, "submit_run", "runs")
    note_awaited(objects, "refuse_run", "refused_runs")
    note_awaited(objects, "_create_placeholder", "placeholders")
    note_awaited(objects, "provision", "provisioning")
    note(executor._nodes, "begin_to_note", "node_failures")
    note_awaited(objects.pod_groups, "delete", "pod_group_deletes")
    note_awaited(runs, "forget", "delete_run")
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
            world.store.runs.apply(another)
    assert told == [None, None, {"u-1"}, {"u-1", "u-2"}, set()]


PLACE = CreatePlaceholder("team", "llama-u1-scale-up-0", {"metadata": {"name": "llama-u1-scale-up-0"}})
REQUEST = EnsureProvisioning("team", "llama-u1-scale-up", {"kind": "PodTemplate"}, {"kind": "ProvisioningRequest"})


@pytest.mark.parametrize("plan", [Plan(placeholders=(PLACE,)), Plan(provisioning=REQUEST)], ids=["pods", "a request"])
async def test_what_asks_for_nodes_and_is_refused_is_told_and_holds_up_nothing(world: World, plan: Plan) -> None:
    view = stored(world.store)
    world.kube.creation = ApiError(403, "Forbidden", "exceeded quota")
    for _ in range(40):
        await world.executor.run_plan(view, plan)
    assert world.executor.pace.rest_of_pods(run_key("team", "llama")) == 0
    snapshot = world.store.snapshot_run("team", "llama", {}, Leadership(0.0))
    assert snapshot is not None
    (told,) = snapshot.refused_creates.values()
    assert told.message == "exceeded quota"
    world.kube.creation = WEBHOOK_DOWN
    with pytest.raises(UnknownOutcome, match="failed calling webhook"):
        await world.executor.run_plan(view, plan)


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "somebody else's"])
async def test_a_placeholder_that_is_there_already_ends_the_refusal_and_what_is_in_its_way_is_told(
    world: World, is_ours: bool
) -> None:
    view = stored(world.store)
    world.store.note_refused_create(view.uid, PLACE.name, RefusedCreate(0.0, "exceeded quota"))
    world.kube.creation = ApiError(409, "AlreadyExists", "there is one")
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "name": "llama",
        "uid": view.uid,
        "controller": True,
    }
    metadata = {"namespace": "team", "name": PLACE.name, "uid": "p1", "resourceVersion": "20"}
    metadata |= {"labels": {names.LABEL_PLACEHOLDER_OF: view.uid}, "ownerReferences": [owner] if is_ours else []}
    world.kube.read = {"metadata": metadata, "spec": {"priority": -1}}
    await world.executor.run_plan(view, Plan(placeholders=(PLACE,)))
    told = world.store._refused.for_run(view.uid)
    assert [each.message for each in told.values()] == (
        [] if is_ours else [f"a pod {PLACE.name} that is not of this run is in the way; delete or rename it"]
    )
    assert not world.warnings
