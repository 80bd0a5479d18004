"""PodGroups are there before their pods, and nothing waits for their end."""

from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.controller.kube.errors import ApiError, UnknownOutcome
from lockstep.core.model.kueue.writes import WorkloadVerb, WorkloadWrite
from lockstep.core.model.plan import (
    DeletePodGroup,
    Plan,
)
from lockstep.core.model.snapshot import Leadership, RunView
from support.plans_at_work import GROUP, MEMBER, NO_KIND, WEBHOOK_DOWN, GroupKube, World
from support.stored_runs import stored

ENDED = DeletePodGroup("team", "g", GROUP.api_version)


def group_of(owner: str) -> dict[str, Any]:
    return {"metadata": {"uid": "g1", "ownerReferences": [{"uid": owner}]}}


async def carry_out(world: World, plan: Plan) -> None:
    await world.executor.run_plan(stored(world.store), plan)


@pytest.mark.parametrize("there", [None, group_of("u1")], ids=["it is made", "it is there already"])
async def test_the_pod_group_is_there_before_its_pods(there: Mapping[str, Any] | None) -> None:
    kube = GroupKube(there)
    world = World(kube)
    await carry_out(world, Plan(pod_group=GROUP, creates=(MEMBER,)))
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
async def test_without_its_pod_group_no_pod_is_made_and_its_slot_says_why(kube: GroupKube, words: str) -> None:
    world = World(kube)
    for _ in range(40):  # which is no pod that its pace would have to bear
        with pytest.raises(ApiError):
            await carry_out(world, Plan(pod_group=GROUP, creates=(MEMBER,)))
    assert "create pods" not in kube.asked
    assert world.warnings == ["PodGroupRefused"], "said once"
    snapshot = world.store.snapshot_run("team", "llama", {}, Leadership(0.0))
    assert snapshot is not None
    assert words in snapshot.refused_creates[MEMBER.name].message


async def test_what_is_to_be_done_is_done_before_a_pod_group_that_a_failing_webhook_keeps() -> None:
    kube = GroupKube(group_of("u1"), WEBHOOK_DOWN)
    world = World(kube)
    view = stored(world.store)
    created = Plan(creates=(MEMBER,), pod_group_deletes=(ENDED,), status=view.status)
    with pytest.raises(UnknownOutcome, match="failed calling webhook"):
        await carry_out(world, created)
    assert kube.asked == ["create pods"], "status forgets no group that is there"


async def test_neither_the_end_of_its_run_nor_that_of_its_workload_waits_for_a_pod_group_that_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kube, done = GroupKube(group_of("u1"), WEBHOOK_DOWN), list[str]()
    world = World(kube)

    async def forget(run: RunView) -> None:
        done.append("run")

    async def write(run: RunView, workload: WorkloadWrite) -> None:
        done.append("workload")

    monkeypatch.setattr(world.executor._runs, "forget", forget)
    monkeypatch.setattr(world.executor._workloads, "carry_out", write)
    workload = WorkloadWrite(WorkloadVerb.DELETE, "team", "trainingrun-llama", "it is over", "w1", "5")
    status = stored(world.store).status
    plan = Plan(pod_group_deletes=(ENDED,), status=status, delete_run=True, workload=workload)
    with pytest.raises(UnknownOutcome):  # so that it comes again after a back-off
        await carry_out(world, plan)
    assert done == ["run", "workload"]
    assert not kube.asked, "status forgets no group that is there"


async def test_a_pod_group_is_gone_before_status_forgets_it() -> None:
    kube = GroupKube(group_of("u1"))
    world = World(kube)
    view = stored(world.store)
    status = changed(view.status, state="Suspended")
    await carry_out(world, Plan(pod_group_deletes=(ENDED,), status=status))
    assert kube.asked == ["delete podgroups team/g g1", "patch status"]


@pytest.mark.parametrize(
    "kube",
    [GroupKube(), GroupKube(group_of("u2")), GroupKube(group_of("u1"), ApiError(403, "Forbidden", "may not"))],
    ids=["gone", "somebody else's", "refused"],
)
async def test_no_stop_waits_for_a_pod_group_that_cannot_be_deleted(kube: GroupKube) -> None:
    world = World(kube)
    view = stored(world.store)
    status = changed(view.status, state="Suspended")
    await carry_out(world, Plan(pod_group_deletes=(ENDED,), status=status))
    assert kube.asked == ["patch status"]
