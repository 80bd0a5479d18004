"""A run for which decisions fail, in a whole operator: it alone is concerned, and what it owes to others is done."""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from lockstep.controller.kube.errors import ApiError, UnreachableError
from lockstep.controller.reconcile import reconcile
from lockstep.controller.reconcile.failing import AGAIN
from lockstep.core.decide import decide
from lockstep.core.model.cluster_objects import Versioned
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.plan import Plan
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import JobPhase, JobView, RunSnapshot
from lockstep.core.model.tunables import Tunables
from support.shaky_api import Api, Fate, Link, Operator, is_running


class Cluster:
    """Two nodes, and one operator after the other."""

    def __init__(self) -> None:
        self.api = Api(["n0", "n1"])
        self.operator = Operator(self.api, Tunables())

    def apply(self, name: str, **fields: Any) -> None:
        self.api.apply(name, **{"nodes": 1, "image": "i", "command": ["train"], "worker": "Disabled"} | fields)

    async def live(self, seconds: int) -> None:
        for _ in range(seconds):
            for kind in self.api.changes:
                self.operator.hear(kind)
            await self.api.clock.advance(1.0)
            self.api.kubelets()
            for error in self.operator.failures:
                raise error

    async def restart(self) -> None:
        await self.operator.die()
        self.operator = Operator(self.api, Tunables())

    def told(self, name: str) -> str:
        found = find(self.api.view(name).status, ConditionType.UNDECIDABLE)
        return found.message if found is not None else ""

    def trains(self, name: str) -> bool:
        return any(pod.startswith(f"{name}-") and is_running(raw) for pod, raw in self.api.pods.items())


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster()
    yield found
    await found.operator.die()


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """From now on decisions about a run fail, or so many of them; returns how often they did."""

    def begin(name: str, times: float = float("inf")) -> list[int]:
        failed: list[int] = []

        def failing(snapshot: RunSnapshot, tunables: Tunables, now: float) -> Plan:
            if snapshot.run.name == name and len(failed) < times:
                failed.append(len(failed))
                raise ZeroDivisionError("a secret of the tenant")
            return decide(snapshot, tunables, now)

        monkeypatch.setattr(reconcile, "decide", failing)
        return failed

    return begin


async def test_others_are_launched_and_it_is_told(
    cluster: Cluster, fails: Callable[..., list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    failed = fails("bad")
    cluster.apply("bad")
    cluster.apply("good")
    await cluster.live(30)
    assert cluster.trains("good")
    assert "ZeroDivisionError" in cluster.told("bad")
    assert "secret" not in cluster.told("bad")
    caplog.clear()
    before = len(failed)
    version = cluster.api.version
    with caplog.at_level(logging.INFO):
        await cluster.live(int(5 * AGAIN))
    assert 3 <= len(failed) - before <= 8, "it is tried again, and not all the time"
    assert cluster.api.version == version, "nothing is written that says nothing new"
    assert not [record for record in caplog.records if record.exc_info], "the traceback was told once"


@pytest.mark.parametrize("times", [1, 3])
async def test_what_is_of_the_moment_is_no_state(cluster: Cluster, fails: Callable[..., list[int]], times: int) -> None:
    fails("one", times)
    cluster.apply("one")
    await cluster.live(30)
    assert cluster.trains("one")
    assert not cluster.told("one")


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("fate", [Fate.DONE, Fate.REFUSED, Fate.UNSENT])
async def test_it_ends_when_it_is_cancelled_whatever_becomes_of_the_writes_and_the_operator(
    cluster: Cluster, fails: Callable[..., list[int]], fate: Fate, restarts: bool
) -> None:
    cluster.apply("one")
    await cluster.live(10)
    fails("one")
    cluster.api.fates.extend([fate] * 3)
    cluster.apply("one", cancel=True)
    await cluster.live(5)
    if restarts:
        await cluster.restart()
    cluster.api.fates.extend([fate] * 3)
    await cluster.live(900)
    ended = find(cluster.api.view("one").status, ConditionType.FINISHED)
    assert ended is not None
    assert (ended.status, ended.reason) == ("True", "Cancelled")
    assert not cluster.trains("one")


async def test_it_goes_on_once_decisions_succeed_again(cluster: Cluster, fails: Callable[..., list[int]]) -> None:
    cluster.apply("one")
    await cluster.live(10)
    assert cluster.trains("one")
    fails("one")
    cluster.apply("one", env=[])
    await cluster.live(10)
    assert cluster.told("one")
    assert cluster.trains("one")
    fails("one", 0)
    await cluster.live(int(AGAIN) + 5)
    assert not cluster.told("one")
    assert cluster.trains("one")


@pytest.mark.slow
async def test_a_plan_that_cannot_be_carried_out_is_such_a_failure_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a status cannot be encoded."""
    cluster.apply("one")
    await cluster.live(10)
    executor = cluster.operator.reconciler._executor
    run_plan = executor.run_plan

    async def failing(run: Any, plan: Plan) -> None:
        if plan.status is not None and find(plan.status, ConditionType.UNDECIDABLE) is None:
            raise TypeError("Integer exceeds 64-bit range")
        await run_plan(run, plan)

    monkeypatch.setattr(executor, "run_plan", failing)
    cluster.apply("one", cancel=True)
    await cluster.live(900)
    assert "TypeError" in cluster.told("one")
    ended = find(cluster.api.view("one").status, ConditionType.FINISHED)
    assert ended is not None
    assert ended.reason == "Cancelled"


@pytest.mark.parametrize(
    "answer",
    [
        ApiError(403, "Forbidden", "pods is forbidden"),
        ApiError(500, "InternalError", "cannot be decrypted"),
        UnreachableError("reset"),
        [{"status": {"containerStatuses": [7]}, "metadata": {"ownerReferences": [{"uid": "job-1"}]}}],
    ],
    ids=["forbidden", "broken", "unreached", "odd"],
)
async def test_pods_of_an_archive_job_that_nobody_gives_keep_no_run_from_being_decided(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, answer: Exception | list[Any]
) -> None:
    asked: list[str] = []

    async def list_all(self: Link, *_: Any, labels: str = "", **__: Any) -> tuple[list[Any], str]:
        asked.append(labels)
        if isinstance(answer, Exception):
            raise answer
        return answer, "1"

    monkeypatch.setattr(Link, "list_all", list_all)
    cluster.apply("one")
    await cluster.live(5)
    cluster.api.runs["one"]["status"]["checkpoint"] = {"archive": {"job": {"name": "j", "action": "Upload"}}}
    cluster.operator.store.runs.apply(cluster.api.runs["one"])
    ended = JobView("ns", "j", "job-1", "uid-one", JobPhase.COMPLETE, 0.0, 0.0, "")
    cluster.operator.store.archive_jobs.cache.upsert(Versioned("job-1", 1, ended))
    cluster.apply("one", env=[])
    await cluster.live(20)
    assert asked == ["batch.kubernetes.io/job-name=j"], "it was asked for, and not at every look"
    if isinstance(answer, ApiError) and answer.is_verdict:
        assert cluster.operator.said == ["ArchiveJobUnread"]
    cluster.apply("one", cancel=True)
    await cluster.live(20)
    assert not cluster.trains("one")
    assert is_true(cluster.api.view("one").status, ConditionType.FINISHED)
