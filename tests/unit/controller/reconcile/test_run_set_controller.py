"""Arrays at work: the store, the admission cycle and the API server's answers, without any of them being real."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import orjson
import pytest

from lockstep.api.base import names
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import WorkQueue, run_key, set_key, split_set_key
from lockstep.controller.reconcile import run_set
from lockstep.controller.reconcile.failing import IN_A_ROW
from lockstep.controller.reconcile.pace import RunPace
from lockstep.controller.reconcile.run_set import RunSetReconciler
from lockstep.controller.reconcile.run_writer import StaleError
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.store.store import Store
from lockstep.core.decide import decide
from lockstep.core.model.cluster_objects import Unread, Versioned, parse_unread
from lockstep.core.model.conditions import find
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.tunables import Tunables
from support.manual_clock import ManualClock
from support.sets_at_work import HOLDING, LEADER, RUN, SUCCEEDED, SUCCEEDED_AT, Api, Operator
from support.values import not_none


@pytest.fixture
def operator() -> Operator:
    return Operator()


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


async def test_a_set_that_a_restored_backup_made_older_is_looked_at_as_it_is(operator: Operator) -> None:
    operator.apply(maxRunning=2)
    operator.api.objects["sweep"]["metadata"]["resourceVersion"] = "0"
    with pytest.raises(StaleError):
        await operator.look()
    await operator.look()
    assert operator.api.created == ["sweep-0", "sweep-1"]


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


async def drained(queue: WorkQueue) -> set[str]:
    """What is due."""
    keys = set()
    while len(queue):
        keys.add(key := await asyncio.wait_for(queue.get(), 20))
        queue.done(key)
    return keys


async def test_of_a_run_and_an_array_of_one_name_the_later_waits_until_the_other_has_ended(operator: Operator) -> None:
    def is_taken() -> bool:
        return not_none(operator.store.snapshot_run("team", "sweep", {}, LEADER)).namesake

    run = operator.api.put("run", spec=RUN)
    metadata = run["metadata"] | {"name": "sweep", "uid": "uid-run", "creationTimestamp": "2025-12-31T00:00:00Z"}
    operator.store.runs.apply(run | {"metadata": metadata})
    operator.apply()
    await operator.look()
    assert (operator.api.created, operator.status().reason) == ([], "NameTaken")
    assert not is_taken()
    operator.queue.clear()
    metadata = metadata | {"resourceVersion": "900"}
    operator.store.runs.apply(run | {"metadata": metadata, "status": {"conditions": SUCCEEDED}})
    await operator.clock.advance(3.0)
    assert set_key("team", "sweep") in await drained(operator.queue)
    await operator.look()
    assert operator.api.created

    operator.store.runs.remove("team", "sweep", "uid-run")
    metadata = metadata | {"uid": "later", "resourceVersion": "901", "creationTimestamp": "2026-02-01T00:00:00Z"}
    operator.store.runs.apply(run | {"metadata": metadata})
    assert is_taken()
    operator.queue.clear()
    over = operator.api.put("sweep", **operator.api.objects["sweep"] | {"status": {"conditions": SUCCEEDED}})
    operator.store.run_sets.apply(over)
    assert not is_taken()
    assert run_key("team", "sweep") in await drained(operator.queue)


@pytest.mark.parametrize("accepted", [False, True])
async def test_of_a_run_and_an_array_of_one_name_and_second_the_run_waits_unless_it_is_accepted(
    operator: Operator, accepted: bool
) -> None:
    said = {**SUCCEEDED[0], "type": "Accepted", "reason": "Accepted"}
    run = operator.api.put("run", spec=RUN, status={"conditions": [said] if accepted else []})
    operator.store.runs.apply(run | {"metadata": run["metadata"] | {"name": "sweep", "uid": "uid-run"}})
    operator.apply()
    await operator.look()
    assert (operator.status().reason == "NameTaken") is accepted
    assert bool(operator.api.created) is not accepted


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


async def test_nothing_is_kept_of_a_set_whose_runs_outlived_it(operator: Operator) -> None:
    operator.apply(maxRunning=2)
    await operator.look()
    sets = operator.store.run_sets
    sets.remove("uid-sweep")
    sets.note_made("uid-sweep", {3: "no"}, taken=False, is_news=True)
    for member in [*operator.store.runs.cache]:
        operator.store.runs.remove(member.namespace, member.name, member.uid)
    kept = (sets._members, sets._departed, sets._refused, sets._fruitless, sets._widths, sets._uids)
    assert not any(kept)


async def test_a_run_may_only_be_deleted_when_its_outcome_is_on_record(operator: Operator) -> None:
    operator.apply()
    await operator.look()
    operator.change_run("sweep-0", conditions=SUCCEEDED)

    def recorded() -> bool:
        found = not_none(operator.store.snapshot_run("team", "sweep-0", {}, LEADER))
        return found.recorded

    assert not recorded()
    await operator.look()
    assert recorded()


async def test_a_run_whose_time_is_over_is_looked_at_when_its_outcome_is_on_record_and_not_before(
    operator: Operator,
) -> None:
    operator.apply(template={"spec": RUN | {"ttlAfterFinished": "1h"}})
    await operator.look()
    operator.change_run("sweep-0", conditions=SUCCEEDED)
    due = SUCCEEDED_AT + 3600

    def decided(now: float) -> tuple[bool, float | None]:
        found = not_none(operator.store.snapshot_run("team", "sweep-0", {}, LEADER))
        plan = decide(found, Tunables(), now)
        return plan.delete_run, plan.wake_at

    assert decided(SUCCEEDED_AT + 1) == (False, due), "ten thousand runs of a paused set would ask all day"
    assert decided(due + 1) == (False, None), "nor any more when it is over"
    operator.queue.clear()
    await operator.clock.advance(due + 1 - operator.clock.now())
    await operator.look()
    assert decided(due + 1) == (True, None)
    assert await asyncio.wait_for(operator.queue.get(), 20) == run_key("team", "sweep-0")


async def test_outcomes_on_record_wake_nobody_whose_time_is_not_over(operator: Operator) -> None:
    operator.apply(template={"spec": RUN | {"ttlAfterFinished": "1h"}})
    await operator.look()
    operator.change_run("sweep-0", conditions=SUCCEEDED)
    operator.queue.clear()
    await operator.look()
    assert operator.status().indices.succeeded == "0"
    assert await asyncio.wait_for(operator.queue.get(), 20) == set_key("team", "sweep")
    assert len(operator.queue) == 0


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
    operator.store.runs.apply(operator.api.put("copied", metadata=metadata, spec=RUN))
    await operator.look()
    operator.store.runs.remove("other", "sweep-0", "u")
    await operator.look()
    assert operator.api.created == ["sweep-0", "sweep-1"]
    assert operator.status().indices.active == "0-1"


async def test_a_status_that_cannot_be_read_is_neither_written_over_nor_taken_for_a_new_set(operator: Operator) -> None:
    operator.apply()
    stop = {"reason": "StoppedOnFailure", "cancel": "Unheard", "time": "2026-01-01T00:00:00Z"}
    status = {"observedGeneration": 1, "indices": {"succeeded": "0-3"}, "stop": stop}
    operator.store.run_sets.apply(operator.api.put("sweep", **{**operator.api.objects["sweep"], "status": status}))
    await operator.look()
    assert (operator.api.created, operator.said) == ([], ["StateRegression"])
    assert operator.api.objects["sweep"]["status"] == status


def unread(raw: dict[str, Any]) -> Versioned[Unread]:
    return parse_unread(msgspec.Raw(orjson.dumps(raw)))


def test_after_a_restore_a_set_is_what_the_api_server_has(operator: Operator) -> None:
    operator.apply()
    backup = operator.api.objects["sweep"]
    operator.apply(suspend=True)
    operator.store.run_sets.compare([unread(operator.api.objects["sweep"])], operator.api.version, 1.0)
    operator.store.run_sets.compare([unread(backup)], operator.api.version - 1, 2.0)
    found = not_none(operator.store.run_sets.named("team", "sweep"))
    assert found.resource_version == backup["metadata"]["resourceVersion"]


def test_late_news_of_a_set_of_the_same_name_is_nothing_to_those_that_come_after(operator: Operator) -> None:
    operator.apply()
    late = operator.api.put("before", metadata={"uid": "old"}, spec={"indices": "0-4", "template": {"spec": RUN}})
    new = operator.api.put("before", metadata={"uid": "new"}, spec={"indices": "0-4", "template": {"spec": RUN}})
    operator.store.run_sets.apply(new)
    operator.store.run_sets.apply(late)
    sweep = not_none(operator.store.run_sets.named("team", "sweep"))
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


async def test_a_write_without_an_answer_is_forgotten_with_its_set(operator: Operator) -> None:
    operator.apply()
    operator.api.fail["patch"] = UnknownOutcome("no answer", operator.clock.now() + 15)
    with pytest.raises(UnknownOutcome):
        await operator.look()
    operator.store.run_sets.remove("uid-sweep")
    await operator.look()
    assert not operator.sets._unsettled


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


async def test_sets_and_runs_of_namespaces_that_are_not_ours_are_left_alone() -> None:
    clock = ManualClock()
    store = Store(WorkQueue(clock), clock, ["other"])
    spec = {"indices": "0", "template": {"spec": RUN}}
    store.run_sets.apply(Api(clock).put("sweep", spec=spec))
    assert store.run_sets.named("team", "sweep") is None


async def test_an_array_whose_look_takes_long_is_looked_at_again_after_a_hundred_times_as_long() -> None:
    operator, taken = Operator(), [2.0]
    used = itertools.accumulate(taken[0] for _ in itertools.count())
    operator.sets = RunSetReconciler(
        cast(KubeClient, operator.api),
        operator.store,
        cast(EventRecorder, SimpleNamespace(run_set_event=lambda _, event: operator.said.append(event.reason))),
        operator.queue,
        operator.clock,
        Tunables,
        RunPace(operator.clock, Tallies(), lambda: next(used)),
    )
    operator.apply()
    await operator.sets.reconcile("team", "sweep")
    made = len(operator.api.objects)
    operator.apply(indices="0-9")
    await operator.sets.reconcile("team", "sweep")
    assert len(operator.api.objects) == made
    assert operator.said == ["Paced"]
    taken[0] = 0.1
    await operator.clock.advance(2.0 * 100)
    await operator.sets.reconcile("team", "sweep")
    assert len(operator.api.objects) > made
    assert operator.said == ["Paced"]


def fails_with(error: Exception) -> Any:
    def fail(*_: Any) -> Any:
        raise error

    return fail


async def test_a_set_that_nothing_can_be_decided_for_is_told_so_after_a_few_failures_and_until_one_succeeds(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.apply(maxRunning=2)
    await operator.look()
    with monkeypatch.context() as broken:
        broken.setattr(run_set, "decide_run_set", fails_with(ZeroDivisionError("a secret")))
        for _ in range(IN_A_ROW - 1):
            with pytest.raises(ZeroDivisionError):
                await operator.look()
        assert find(operator.status(), ConditionType.UNDECIDABLE) is None, "it may have been of the moment"
        operator.api.fail["patch"] = ApiError(429, "TooManyRequests", "busy")
        with pytest.raises(ApiError):
            await operator.look()
        await operator.look()
        told = find(operator.status(), ConditionType.UNDECIDABLE)
        assert told is not None
        assert (told.status, told.reason) == ("True", "DecisionFails")
        assert "ZeroDivisionError" in told.message
        assert "secret" not in told.message
        assert operator.said.count("Undecidable") == 1
        version = operator.api.version
        await operator.look()
        assert operator.api.version == version
        operator.apply(suspend=True, maxRunning=2)
        spec = operator.run("sweep-0").spec
        assert spec is not None
        assert spec.suspend, "its runs hear what it says all the same"
        operator.apply(maxRunning=2)
    await operator.look()
    assert find(operator.status(), ConditionType.UNDECIDABLE) is None
    assert operator.api.created == ["sweep-0", "sweep-1"]


async def test_another_leader_knows_by_status_what_nothing_can_be_decided_for(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.apply()
    monkeypatch.setattr(run_set, "decide_run_set", fails_with(ZeroDivisionError()))
    for _ in range(IN_A_ROW):
        with contextlib.suppress(ZeroDivisionError):
            await operator.look()
    successor = Operator()
    successor.api = operator.api
    successor.store.run_sets.apply(operator.api.objects["sweep"])
    await successor.look()
