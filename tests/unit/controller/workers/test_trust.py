"""Whom the worker API believes: tokens reviewed once, then held against our own view of the pods."""

import asyncio
import base64
import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.controller.workers import trust
from lockstep.controller.workers.trust import (
    ForbiddenError,
    PastIncarnationError,
    PodIdentity,
    ReviewUnavailableError,
    SenderClaim,
    TokenReviews,
    UnauthenticatedError,
    authorize,
)
from lockstep.core.model.snapshot import PodPhase, PodView
from support.manual_clock import ManualClock
from support.stored_runs import pod

RUN_UID = "7f1c2a34-1"
POD = pod(3, name=names.pod_name("llama", RUN_UID, 3, 2), uid="pod-uid-3-2", run_uid=RUN_UID, incarnation=2)
IDENTITY = PodIdentity(POD.namespace, POD.name, POD.uid)
CLAIM = SenderClaim(RUN_UID, 3, 2, POD.uid)


class Gangs:
    """One run with one pod."""

    def __init__(self, pod: PodView = POD, namespace: str | None = "team", incarnation: int | None = 2) -> None:
        self.pod = pod
        self.namespace = namespace
        self.current = incarnation

    def pod_by_uid(self, uid: str) -> PodView | None:
        return self.pod if uid.startswith(self.pod.uid) else None

    def run_namespace(self, run_uid: str) -> str | None:
        return self.namespace

    def incarnation(self, run_uid: str, slot: int) -> int | None:
        return self.current


def token(clock: ManualClock, *, seconds: float = 3600, worker: object = "", **claims: Any) -> str:
    """Unsigned: the API server that would check the signature is a fake here. With ``worker``, of a pod of its own."""
    payload = {
        "aud": ["lockstep"],
        "exp": int(clock.now() + seconds),
        "kubernetes.io": {"pod": {"uid": f"{POD.uid}{worker}"}},
        **claims,
    }
    encoded = base64.urlsafe_b64encode(json.dumps(payload).encode()).decode().rstrip("=")
    return f"e30.{encoded}.c2ln"


GOOD: dict[str, Any] = {
    "authenticated": True,
    "audiences": ["lockstep"],
    "user": {
        "username": "system:serviceaccount:team:default",
        "extra": {
            "authentication.kubernetes.io/pod-name": [POD.name],
            "authentication.kubernetes.io/pod-uid": [POD.uid],
        },
    },
}


class ApiServer:
    """Answers TokenReviews as told; counts them."""

    def __init__(self, status: dict[str, Any] | None = None) -> None:
        self.status = GOOD if status is None else status
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
        assert body["spec"]["audiences"] == ["lockstep"]
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.failure is not None:
                raise self.failure
            return {"status": self.status}
        finally:
            self.at_once -= 1


def reviews(api: ApiServer, clock: ManualClock) -> TokenReviews:
    return TokenReviews(api.post, Gangs(), clock)


async def test_a_token_is_reviewed_once_in_ten_minutes(clock: ManualClock) -> None:
    api = ApiServer()
    desk = reviews(api, clock)
    held = token(clock)
    for _ in range(100):
        assert await desk.identity(held) == IDENTITY
    assert api.asked == 1
    await clock.advance(600)
    await desk.identity(held)
    assert api.asked == 2


async def test_a_token_is_never_believed_beyond_its_own_expiry(clock: ManualClock) -> None:
    api = ApiServer()
    desk = reviews(api, clock)
    held = token(clock, seconds=60)
    await desk.identity(held)
    api.failure = OSError()
    await clock.advance(60)
    with pytest.raises(UnauthenticatedError, match="expired"):
        await desk.identity(held)


async def test_many_requests_with_one_token_share_one_review(clock: ManualClock) -> None:
    api = ApiServer()
    api.gate = asyncio.Event()
    desk = reviews(api, clock)
    held = token(clock)
    waiting = [asyncio.ensure_future(desk.identity(held)) for _ in range(50)]
    await clock.advance(0)
    waiting[0].cancel()
    api.gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [IDENTITY] * 49
    assert api.asked == 1


async def test_at_most_32_reviews_are_under_way(clock: ManualClock) -> None:
    api = ApiServer()
    api.gate = asyncio.Event()
    desk = reviews(api, clock)
    waiting = [asyncio.ensure_future(desk.identity(token(clock, worker=n))) for n in range(100)]
    await clock.advance(0)
    api.gate.set()
    await asyncio.gather(*waiting)
    assert (api.asked, api.most_at_once) == (100, 32)


async def test_a_refused_token_is_not_asked_about_again_for_five_seconds(clock: ManualClock) -> None:
    api = ApiServer({"authenticated": False, "error": "no"})
    desk = reviews(api, clock)
    held = token(clock)
    for _ in range(3):
        with pytest.raises(UnauthenticatedError):
            await desk.identity(held)
    assert api.asked == 1
    await clock.advance(5)
    api.status = GOOD
    assert await desk.identity(held) == IDENTITY
    assert desk.outcomes == {"Refused": 1, "Authenticated": 1}


async def test_forged_tokens_of_a_pod_from_elsewhere_do_not_keep_the_pod_itself_away(clock: ManualClock) -> None:
    api = ApiServer()
    reviews = TokenReviews(api.post, Gangs(), clock)
    for number in range(60):
        for address in ("10.0.0.66", "::ffff:10.0.0.66", f"fd00::{number:x}"):
            with contextlib.suppress(ReviewUnavailableError):
                await reviews.identity(token(clock, jti=f"{number} {address}"), address)
        await clock.advance(1.0)
    assert api.asked <= 2 * (10 + 60), "one machine has one bucket, however it is called"
    assert await reviews.identity(token(clock), "10.0.0.1") == IDENTITY


async def test_forged_tokens_of_one_pod_keep_neither_the_api_server_busy_nor_who_is_known_away(
    clock: ManualClock,
) -> None:
    api = ApiServer()
    reviews = TokenReviews(api.post, Gangs(), clock)
    good = token(clock)
    await reviews.identity(good)
    for number in range(200):
        with contextlib.suppress(ReviewUnavailableError):
            await reviews.identity(token(clock, jti=str(number)))
    assert api.asked == 10
    await clock.advance(600.0)
    for number in range(200, 400):
        with contextlib.suppress(ReviewUnavailableError):
            await reviews.identity(token(clock, jti=str(number)))
    assert api.asked == 20
    assert await reviews.identity(good) == IDENTITY
    assert api.asked == 21, "it is known, and its turn comes whatever is forged"


@pytest.mark.parametrize("failure", [OSError("connection refused"), TimeoutError(), RuntimeError("500 InternalError")])
async def test_a_known_token_outlives_an_outage_of_the_api_server(clock: ManualClock, failure: Exception) -> None:
    api = ApiServer()
    desk = reviews(api, clock)
    held = token(clock, seconds=3600)
    await desk.identity(held)
    api.failure = failure
    await clock.advance(3000)
    for _ in range(10):
        assert await desk.identity(held) == IDENTITY
    assert api.asked == 2  # not once per heartbeat
    api.failure = None
    api.status = {"authenticated": False}
    await clock.advance(5)
    with pytest.raises(UnauthenticatedError):
        await desk.identity(held)


async def test_an_outage_is_logged_once_and_not_once_per_worker(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    api = ApiServer()
    desk = reviews(api, clock)
    for outage in (1, 2):
        api.failure = RuntimeError("403 Forbidden: tokenreviews")
        for worker in range(5):
            with pytest.raises(ReviewUnavailableError):
                await desk.identity(token(clock, worker=f"{outage}-{worker}"))
        assert caplog.text.count("403 Forbidden: tokenreviews") == outage
        api.failure = None
        await desk.identity(token(clock, jti=f"{outage}"))


async def test_an_unknown_token_has_to_wait_for_the_api_server(clock: ManualClock) -> None:
    api = ApiServer()
    api.failure = OSError("connection refused")
    desk = reviews(api, clock)
    with pytest.raises(ReviewUnavailableError):
        await desk.identity(token(clock))
    api.failure = None
    assert await desk.identity(token(clock)) == IDENTITY


@pytest.mark.parametrize(
    "held",
    ["", "a", "a.b", "a.!!.c", "a..c", "a.W10.c", "a.bnVsbA.c", "x" * 7169, "a." + "W" * 7000, "\udc80.e30.c"],
)
async def test_what_is_no_pods_token_never_reaches_the_api_server(clock: ManualClock, held: str) -> None:
    api = ApiServer()
    with pytest.raises(UnauthenticatedError):
        await reviews(api, clock).identity(held)
    assert api.asked == 0


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"aud": ["https://kubernetes.default.svc"]}, UnauthenticatedError),
        ({"aud": "kubernetes"}, UnauthenticatedError),
        ({"aud": None}, UnauthenticatedError),
        ({"aud": 7}, UnauthenticatedError),
        ({"exp": 1}, UnauthenticatedError),
        ({"exp": "soon"}, UnauthenticatedError),
        ({"exp": None}, UnauthenticatedError),
        ({"kubernetes.io": {}}, UnauthenticatedError),
        ({"kubernetes.io": {"pod": {"uid": "a stranger's"}}}, ForbiddenError),
    ],
)
async def test_a_stranger_is_turned_away_before_the_api_server_is_asked(
    clock: ManualClock, claims: dict[str, Any], error: type[Exception]
) -> None:
    api = ApiServer()
    with pytest.raises(error):
        await reviews(api, clock).identity(token(clock, **claims))
    assert api.asked == 0


@pytest.mark.parametrize(
    "status",
    [
        {},
        {**GOOD, "audiences": []},
        {**GOOD, "audiences": None},
        {**GOOD, "audiences": ["kubernetes"]},
        {**GOOD, "authenticated": None},
        {**GOOD, "user": {"username": "system:serviceaccount:team:default"}},
        {**GOOD, "user": {**GOOD["user"], "username": "alice"}},
        {**GOOD, "user": {**GOOD["user"], "username": "evil:serviceaccount:team:default"}},
    ],
)
async def test_only_a_pod_bound_token_for_our_audience_is_accepted(clock: ManualClock, status: dict[str, Any]) -> None:
    with pytest.raises(UnauthenticatedError):
        await reviews(ApiServer(status), clock).identity(token(clock))


async def test_memory_for_tokens_is_bounded(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "MAX_CACHED", 10)
    api = ApiServer()
    desk = reviews(api, clock)
    for n in range(20):
        await desk.identity(token(clock, worker=n))
    await desk.identity(token(clock, worker=19))
    assert api.asked == 20
    await desk.identity(token(clock, worker=0))
    assert api.asked == 21


def test_the_pod_that_owns_the_slot_is_let_in() -> None:
    assert authorize(IDENTITY, CLAIM, Gangs()) == POD


def test_a_terminating_pod_is_heard_to_the_end() -> None:
    assert authorize(IDENTITY, CLAIM, Gangs(replace(POD, deleting=True)))


@pytest.mark.parametrize(
    ("gangs", "claim"),
    [
        (Gangs(), replace(CLAIM, pod_uid="another")),
        (Gangs(), replace(CLAIM, run_uid="another")),
        (Gangs(), replace(CLAIM, slot=2)),
        (Gangs(), replace(CLAIM, incarnation=1)),
        (Gangs(), replace(CLAIM, incarnation=3)),
        (Gangs(incarnation=3), CLAIM),
        (Gangs(replace(POD, uid="recreated")), CLAIM),
        (Gangs(replace(POD, namespace="elsewhere")), CLAIM),
        (Gangs(replace(POD, phase=PodPhase.FAILED)), CLAIM),
        (Gangs(replace(POD, phase=PodPhase.SUCCEEDED)), CLAIM),
        (Gangs(replace(POD, owner_uid="")), CLAIM),
        (Gangs(replace(POD, run_uid="another", owner_uid="another")), CLAIM),
        (Gangs(namespace="elsewhere"), CLAIM),
        (Gangs(replace(POD, name="impostor")), CLAIM),
    ],
    ids=[
        "another pod's uid",
        "token of another run",
        "token of another slot's pod",
        "claims an older incarnation than its pod",
        "claims a newer incarnation than its pod",
        "the incarnation was replaced",
        "the pod is gone",
        "a pod of another namespace",
        "the pod failed",
        "the pod succeeded",
        "not owned by the run",
        "labelled for another run",
        "the run lives in another namespace",
        "a forged pod under another name",
    ],
)
def test_everyone_else_is_refused(gangs: Gangs, claim: SenderClaim) -> None:
    identity = PodIdentity("team", gangs.pod.name, POD.uid)
    with pytest.raises(ForbiddenError):
        authorize(identity, claim, gangs)


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [
        ({}, True),
        ({"deleting": True}, True),
        ({"name": "impostor"}, False),
        ({"owner_uid": ""}, False),
        ({"phase": PodPhase.FAILED}, False),
    ],
)
def test_of_a_past_incarnation_only_who_is_right_in_all_else_may_hear_so(
    changes: dict[str, Any], is_told: bool
) -> None:
    gangs = Gangs(replace(POD, **changes), incarnation=3)
    with pytest.raises(ForbiddenError) as refused:
        authorize(PodIdentity("team", gangs.pod.name, POD.uid), CLAIM, gangs)
    assert isinstance(refused.value, PastIncarnationError) is is_told


def test_workers_are_heard_while_status_is_lost_or_behind() -> None:
    assert authorize(IDENTITY, CLAIM, Gangs(incarnation=None))
    assert authorize(IDENTITY, CLAIM, Gangs(incarnation=1))
