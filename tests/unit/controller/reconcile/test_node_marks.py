"""Writing on nodes what is remembered of them, when the API server does not take it."""

import logging
from typing import Any, cast

import orjson
import pytest

from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.election import LostLeadershipError
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.reconcile.node_marks import REST_WITHOUT_RIGHTS, NodeMarker
from lockstep.controller.store.store import Store
from lockstep.core.model.node_failures import read_failures
from lockstep.core.model.plan import ForgiveFailures, RememberFailure
from lockstep.core.model.snapshot import NodeFailure
from lockstep.core.model.tunables import Mode, Tunables
from support.manual_clock import ManualClock

FORBIDDEN = ApiError(403, "Forbidden", "nodes is forbidden: cannot patch")


class Kube:
    """One node, and an answer to each write: the last one again and again."""

    def __init__(self, *answers: Exception | None, **annotations: str) -> None:
        self.answers = list(answers) or [None]
        self.annotations = annotations
        self.version = 1
        self.requests = 0

    def node(self) -> bytes:
        metadata = {"name": "n1", "uid": "u-n1", "resourceVersion": str(self.version), "annotations": self.annotations}
        return orjson.dumps({"metadata": metadata, "spec": {}})

    async def get(self, *_: Any) -> bytes:
        self.requests += 1
        return self.node()

    async def patch(self, resource: object, name: str, body: dict[str, Any]) -> bytes:
        self.requests += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        self.version += 1
        changed = {**self.annotations, **body["metadata"]["annotations"]}
        self.annotations = {key: value for key, value in changed.items() if value is not None}
        return self.node()


class Desk:
    def __init__(self, kube: Kube, mode: Mode = Mode.ACTIVE) -> None:
        self.clock = ManualClock(now=1_000_000.0)
        self.kube = kube
        self.store = Store(WorkQueue(self.clock), self.clock)
        self.store.apply_node(kube.node())
        self.marker = NodeMarker(cast(KubeClient, kube), self.store, self.clock, lambda: Tunables(mode=mode))

    async def remember(self, hours_ago: float = 1.0) -> None:
        failure = NodeFailure("team/llama", self.clock.now() - 3600 * hours_ago, "Application")
        await self.marker.remember(RememberFailure("n1", "u-n1", failure))


def suspect(now: float, hours_ago: float = 30.0) -> dict[str, str]:
    row = {"run": "team/llama", "time": to_rfc3339(now - 3600 * hours_ago), "cause": "Hang"}
    return {
        names.ANNOTATION_FIRST_FAILURES: orjson.dumps([row, row]).decode(),
        names.ANNOTATION_SUSPECT: "2 first failures within a day",
    }


async def test_an_operator_that_may_not_write_nodes_says_so_once_and_seldom_tries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(Kube(FORBIDDEN))
    with caplog.at_level(logging.WARNING, logger="lockstep.nodes"):
        for _ in range(50):
            await desk.remember()
        assert desk.kube.requests == 2
        await desk.clock.advance(REST_WITHOUT_RIGHTS + 1)
        await desk.remember()
    assert desk.kube.requests == 4
    assert len(caplog.records) == 1
    assert "nodes is forbidden" in caplog.text


async def test_a_failure_is_remembered_once_the_rights_are_there() -> None:
    desk = Desk(Kube(FORBIDDEN, None))
    await desk.remember()
    await desk.clock.advance(REST_WITHOUT_RIGHTS + 1)
    await desk.remember()
    assert "Application" in desk.kube.annotations[names.ANNOTATION_FIRST_FAILURES]


@pytest.mark.parametrize(
    "answer",
    [
        ApiError(422, "Invalid", "annotations are too long"),
        ApiError(409, "Conflict", "modified"),
        ApiError(429, "TooManyRequests", "later"),
        UnknownOutcome("timeout", 0.0),
    ],
)
async def test_a_node_that_cannot_be_written_holds_up_nobody_and_is_let_alone_for_a_moment(answer: KubeError) -> None:
    desk = Desk(Kube(answer))
    await desk.remember()
    asked = desk.kube.requests
    await desk.remember()
    assert desk.kube.requests == asked


async def test_nothing_is_kept_of_nodes_that_are_gone() -> None:
    desk = Desk(Kube(ApiError(422, "Invalid", "annotations are too long")))
    await desk.remember()
    desk.store.nodes.remove("u-n1", 100)
    desk.store.apply_node(desk.kube.node().replace(b"n1", b"n2").replace(b'"1"', b'"101"'))
    failure = NodeFailure("team/llama", desk.clock.now(), "Application")
    await desk.marker.remember(RememberFailure("n2", "u-n1", failure))
    assert desk.marker._rests.keys() == {"n2"}


async def test_a_change_by_somebody_else_is_taken_into_account() -> None:
    desk = Desk(Kube(ApiError(409, "Conflict", "modified"), None))
    await desk.remember()
    assert names.ANNOTATION_FIRST_FAILURES in desk.kube.annotations


async def test_the_mark_goes_when_the_day_is_over_but_not_while_only_reporting() -> None:
    desk = Desk(Kube(**suspect(1_000_000.0)), Mode.REPORT_ONLY)
    await desk.marker.forgive()
    assert not desk.kube.requests
    desk = Desk(Kube(**suspect(1_000_000.0)))
    await desk.marker.forgive()
    assert desk.kube.annotations == {}


async def test_failures_that_were_the_programs_are_taken_off_the_node_with_its_mark() -> None:
    desk = Desk(Kube(None, **suspect(1_000_000.0, hours_ago=1.0)))
    found = read_failures(desk.kube.annotations[names.ANNOTATION_FIRST_FAILURES])
    await desk.marker.note(ForgiveFailures("n1", "another", found))
    assert names.ANNOTATION_SUSPECT in desk.kube.annotations
    await desk.marker.note(ForgiveFailures("n1", "u-n1", found))
    assert not desk.kube.annotations
    asked = desk.kube.requests
    await desk.marker.note(ForgiveFailures("n1", "u-n1", found))  # twice, or with an old cache: nothing is written
    assert desk.kube.requests == asked + 1


async def test_what_is_noted_of_a_node_may_be_a_failure_as_well() -> None:
    desk = Desk(Kube(None))
    failure = NodeFailure("team/llama", desk.clock.now() - 60, "Application")
    await desk.marker.note(RememberFailure("n1", "u-n1", failure))
    assert "Application" in desk.kube.annotations[names.ANNOTATION_FIRST_FAILURES]


async def test_what_goes_wrong_with_forgiving_nodes_is_told_and_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(Kube(LostLeadershipError("the lease"), None, **suspect(1_000_000.0)))
    for told in (1, 1):
        desk.marker.begin_to_forgive()
        await desk.clock.advance(0)
        assert len(caplog.records) == told
    assert desk.kube.annotations == {}
