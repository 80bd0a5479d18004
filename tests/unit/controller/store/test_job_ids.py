"""Numbers of batch jobs at work: no two of them are the same, whatever dies, is lost or is asked for twice."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome
from lockstep.controller.kube.workqueue import WorkQueue, run_key, set_key
from lockstep.controller.store import job_ids
from lockstep.controller.store.job_ids import JobIds, UsedUpError
from lockstep.controller.store.store import Store
from lockstep.core.batch.inside import submitted_name
from lockstep.core.model.job_ids import BLOCK, GAP
from lockstep.core.model.plan import Plan, RefuseRun, SubmitRun
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import JobAsk, WorkerPhase, WorkerReport
from lockstep.slurm.environment import MOST_JOB_ID
from support import shaky_api
from support.manual_clock import ManualClock
from support.plans_at_work import World
from support.sets_at_work import Operator
from support.shaky_api import Api
from support.stored_runs import run, stored

BATCH: dict[str, Any] = {
    "nodes": 2,
    "image": "i",
    "launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun x\n"}},
}


class Kube:
    """Holds the counter, and lets others come in between a read and the write that follows."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.version = 0
        self.writes: list[KubeError | None] = []  # what the next ones come to; an UnknownOutcome takes effect

    async def get(self, resource: object, name: str, namespace: str) -> bytes:
        assert (name, namespace) == ("lockstep-job-ids", "lockstep-system")
        found = self.stored
        await asyncio.sleep(0)
        if found is None:
            raise ApiError(404, "NotFound", f'configmaps "{name}" not found')
        return json.dumps(found).encode()

    async def create(self, resource: object, body: Mapping[str, Any], namespace: str) -> bytes:
        if self.stored is not None:
            raise ApiError(409, "AlreadyExists", "exists")
        return self._write(body)

    async def replace(self, resource: object, name: str, body: Mapping[str, Any], namespace: str) -> bytes:
        if self.stored is None:
            raise ApiError(404, "NotFound", f'configmaps "{name}" not found')
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", "changed")
        return self._write(body)

    def _write(self, body: Mapping[str, Any]) -> bytes:
        fault = self.writes.pop(0) if self.writes else None
        if fault is not None and not isinstance(fault, UnknownOutcome):
            raise fault
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.stored = {**json.loads(json.dumps(body)), "metadata": metadata}
        if fault is not None:
            raise fault
        return json.dumps(self.stored).encode()


@pytest.fixture
def kube() -> Kube:
    return Kube()


def leader(kube: Kube, *known: int) -> JobIds:
    """A process that leads, and knows of runs with these numbers."""
    clock = ManualClock()
    store = Store(WorkQueue(clock), clock)
    for number in known:
        named = run(uid=f"known-{number}", status={"jobId": number})
        named["metadata"]["name"] = f"known-{number}"
        store.runs.apply(named)
    return JobIds(cast(KubeClient, kube), store, "lockstep-system")


async def taken(ids: JobIds, *uids: str) -> list[int]:
    await asyncio.gather(*(ids.take(uid) for uid in uids))
    return [ids.kept_for(uid) for uid in uids]


async def test_numbers_follow_each_other_and_are_kept_for_whom_they_were_taken(kube: Kube) -> None:
    ids = leader(kube)
    assert ids.kept_for("a") == 0
    assert await taken(ids, "a", "b", "a") == [1, 2, 1]
    assert await taken(ids, "c", "a") == [3, 1]
    assert kube.version == 1, "a block is one write"


async def test_a_heterogeneous_job_has_a_number_for_each_component_and_nobody_else_has_them(kube: Kube) -> None:
    ids = leader(kube)
    await ids.take("a", 3)
    assert await taken(ids, "b") == [4]
    await ids.take("c", BLOCK - 3)
    assert ids.kept_for("c") == BLOCK + 1, "all of one block"
    await ids.take("d", 5 * BLOCK)
    assert (await taken(ids, "e"))[0] == ids.kept_for("d") + 5 * BLOCK


async def test_so_many_numbers_as_are_not_left_are_used_up(kube: Kube) -> None:
    ids = leader(kube)
    kube.stored = {"metadata": {"resourceVersion": "0"}, "data": {"next": str(MOST_JOB_ID - 1)}}
    with pytest.raises(UsedUpError):
        await ids.take("a", 3)


async def test_a_leader_that_dies_leaves_the_rest_of_its_block_unused(kube: Kube) -> None:
    """Whatever it was about to write may take effect still."""
    assert await taken(leader(kube), "a", "b") == [1, 2]
    assert await taken(leader(kube), "a", "c") == [BLOCK + 1, BLOCK + 2]


async def test_leaders_that_think_they_lead_at_the_same_time_never_give_out_the_same(kube: Kube) -> None:
    leaders = [leader(kube) for _ in range(5)]
    uids = [f"u{number}" for number in range(BLOCK + 20)]
    given = await asyncio.gather(*(taken(ids, *uids) for ids in leaders))
    numbers = [number for each in given for number in each]
    assert len(set(numbers)) == len(leaders) * len(uids)


async def test_a_counter_that_was_deleted_goes_on_above_all_that_is_known(kube: Kube) -> None:
    ids = leader(kube, 7, 4242)
    assert await taken(ids, "a") == [4242 + GAP + 1]
    kube.stored = None
    more = await taken(ids, *(f"u{number}" for number in range(BLOCK)))
    assert min(more) > 4242 + GAP + 1
    assert len({*more, ids.kept_for("a")}) == BLOCK + 1
    kube.stored = None
    assert await taken(leader(kube, max(more)), "b") == [max(more) + GAP + 1]


async def test_a_block_whose_write_had_no_answer_is_not_used(kube: Kube) -> None:
    ids = leader(kube)
    kube.writes = [UnknownOutcome("no answer", 0.0)]
    with pytest.raises(UnknownOutcome):
        await ids.take("a")
    assert ids.kept_for("a") == 0
    assert await taken(ids, "a") == [BLOCK + 1]


async def test_what_the_api_server_refuses_takes_no_number(kube: Kube) -> None:
    ids = leader(kube)
    kube.writes = [ApiError(403, "Forbidden", "no")]
    with pytest.raises(ApiError):
        await ids.take("a")
    assert await taken(ids, "a") == [1]


async def test_the_last_number_is_not_followed_by_the_first(kube: Kube) -> None:
    ids = leader(kube)
    kube.stored = {"metadata": {"resourceVersion": "0"}, "data": {"next": str(MOST_JOB_ID)}}
    assert await taken(ids, "a") == [MOST_JOB_ID]
    with pytest.raises(UsedUpError) as told:
        await ids.take("b")
    assert told.value.is_verdict
    assert "used up" in told.value.words


@pytest.mark.slow
async def test_however_many_batch_jobs_wait_for_a_number_each_gets_one_and_no_other_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_ids, "_TIDY_FROM", 2)
    api = Api([])
    api.queue("default")
    jobs = [f"job-{number}" for number in range(30)]
    for job in jobs:
        api.apply(job, queue="default", **BATCH)
    operator = shaky_api.Operator(api, Tunables())
    for _ in range(30):
        await api.clock.advance(0.1)
    assert sorted(api.view(job).status.job_id or 0 for job in jobs) == [*range(1, 31)]
    await operator.die()


async def test_a_number_is_kept_until_it_is_in_status_or_its_run_or_array_is_gone(
    kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_ids, "_TIDY_FROM", 4)
    ids = leader(kube)
    uids = [f"u{number}" for number in range(10)]
    waiting = {uid: run(uid=uid) for uid in uids}
    for uid, each in waiting.items():
        each["metadata"]["name"] = uid
        ids._store.runs.apply(each)
    array = run(uid="array", spec={"indices": "0-3", "template": {"spec": BATCH}})
    ids._store.run_sets.apply(array)
    await taken(ids, *uids, "array")
    written = waiting["u2"]["metadata"] | {"resourceVersion": "11"}
    ids._store.runs.apply(waiting["u2"] | {"metadata": written, "status": {"jobId": 3}})
    ids._store.runs.remove("team", "u3", "u3")
    await taken(ids, *(f"gone-{number}" for number in range(100)))
    assert [ids.kept_for(uid) for uid in (*uids, "array")] == [1, 2, 0, 0, 5, 6, 7, 8, 9, 10, 11]
    assert len(ids._kept) < 30


async def test_a_run_that_waits_for_a_number_is_looked_at_again_once_it_has_one(kube: Kube) -> None:
    world = World()
    ids = JobIds(cast(KubeClient, kube), world.store, "lockstep-system")
    executor = world.executor_with(job_ids=ids)
    view = stored(world.store)
    kube.writes = [ApiError(403, "Forbidden", "no such right")]
    with pytest.raises(ApiError):
        await executor.run_plan(view, Plan(take_job_id=True))
    assert world.warnings == ["ConfigMapRefused"]
    world.queue.clear()
    await executor.run_plan(view, Plan(take_job_id=True))
    assert await world.queue.get() == run_key("team", "llama")
    snapshot = world.store.snapshot_run("team", "llama", {}, world.reconciler._leadership)
    assert snapshot is not None
    assert snapshot.job_id == 1


async def test_a_run_takes_as_many_numbers_as_it_has_components(kube: Kube) -> None:
    world = World()
    ids = JobIds(cast(KubeClient, kube), world.store, "lockstep-system")
    batch = {**BATCH["launcher"]["batch"], "components": [1, 1]}
    world.store.runs.apply(run(11, generation=2, spec={**BATCH, "launcher": {"type": "Slurm", "batch": batch}}))
    view = stored(world.store)
    await world.executor_with(job_ids=ids).run_plan(view, Plan(take_job_id=True))
    assert (ids.kept_for(view.uid), await taken(ids, "other")) == (1, [3])


async def test_an_array_has_its_number_before_any_of_its_runs_is_made(kube: Kube) -> None:
    operator = Operator()
    operator.sets._job_ids = JobIds(cast(KubeClient, kube), operator.store, "lockstep-system")
    operator.apply(template={"spec": BATCH}, indices="0-8:2")
    kube.writes = [ApiError(403, "Forbidden", "no such right")]
    with pytest.raises(ApiError):
        await operator.look()
    assert operator.said == ["ConfigMapRefused"]
    operator.queue.clear()
    await operator.look()
    assert operator.api.created == []
    assert await operator.queue.get() == set_key("team", "sweep")
    await operator.look()
    assert operator.status().job_id == 1
    assert len(operator.api.created) == 5
    made = operator.api.objects["sweep-2"]["metadata"]["annotations"]
    assert made["lockstep.dev/array-job"] == "job=1 step=2"


SUBMIT = SubmitRun("team", "llama-12345678", {"metadata": {"name": "llama-12345678"}})


async def test_a_run_that_a_job_submits_is_there_once_and_a_refusal_is_kept_for_who_asked() -> None:
    world = World()
    view = stored(world.store)
    made = run(20, uid="u2", spec=BATCH)
    made["metadata"]["name"] = SUBMIT.name
    world.kube.created = made
    await world.executor.run_plan(view, Plan(runs=(SUBMIT,)))
    assert world.store.runs.named("team", SUBMIT.name) is not None
    world.kube.creation, world.kube.read = ApiError(409, "AlreadyExists", "exists"), made
    await world.executor.run_plan(view, Plan(runs=(SUBMIT,)))
    world.queue.clear()
    world.kube.creation = ApiError(403, "Forbidden", "exceeded quota")
    await world.executor.run_plan(view, Plan(runs=(SUBMIT,)))
    assert await world.queue.get() == run_key("team", "llama")
    snapshot = world.store.snapshot_run("team", "llama", {}, world.reconciler._leadership)
    assert snapshot is not None
    assert snapshot.refused_creates[SUBMIT.name].message == "exceeded quota"
    world.kube.creation = ApiError(429, "TooManyRequests", "busy")
    with pytest.raises(ApiError):
        await world.executor.run_plan(view, Plan(runs=(SUBMIT,)))


@pytest.mark.parametrize("there", [True, False], ids=["as it was seen", "changed since"])
async def test_a_run_that_was_refused_is_deleted_as_it_was_seen_before_who_asked_is_told(
    monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    world, asked = World(), []
    view = stored(world.store)

    async def delete(resource: Any, name: str, namespace: str, **preconditions: Any) -> bytes | None:
        asked.append((resource.plural, namespace, name, preconditions))
        return b"{}" if there else None

    monkeypatch.setattr(world.kube, "delete", delete, raising=False)
    gone = RefuseRun("team", SUBMIT.name, "u2", "20", "exceeded quota")
    await world.executor.run_plan(view, Plan(refused_runs=(gone,)))
    assert asked == [("trainingruns", "team", SUBMIT.name, {"uid": "u2", "resource_version": "20"})]
    snapshot = world.store.snapshot_run("team", "llama", {}, world.reconciler._leadership)
    assert snapshot is not None
    told = {name: refused.message for name, refused in snapshot.refused_creates.items()}
    assert told == ({SUBMIT.name: "exceeded quota"} if there else {})


def asking(kind: str) -> WorkerReport:
    return WorkerReport(0, 1, "pod", "n0", WorkerPhase.RUNNING, 1.0, asks=(JobAsk("a", kind),))


@pytest.mark.parametrize(
    ("spec", "kind", "told"), [(BATCH, "submit", True), (BATCH, "cancel", False), (None, "submit", False)]
)
async def test_who_submits_is_told_of_jobs_by_their_numbers(spec: Any, kind: str, told: bool) -> None:
    world = World()
    world.store.runs.apply(run(11, generation=2, **({"spec": spec} if spec else {})))
    name = submitted_name(stored(world.store), JobAsk("a", kind))
    child = run(12, uid="u2", spec=BATCH, status={"jobId": 8})
    child["metadata"]["name"] = name
    world.store.runs.apply(child)
    snapshot = world.store.snapshot_run("team", "llama", {0: asking(kind)}, world.reconciler._leadership)
    assert snapshot is not None
    assert set(snapshot.submitted) == ({name} if told else set())
    assert snapshot.numbers == ({8: (name, False)} if told else {})
