"""Tokens that live ten minutes, the least that Kubernetes gives, over many hours: renewed, reviewed, never missed."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from lockstep.controller.workers.trust import ReviewUnavailableError, TokenReviews, UnauthenticatedError
from lockstep.core.model.snapshot import PodView
from support.manual_clock import ManualClock
from support.stored_runs import pod

LIFETIME = 600.0
RENEWED_AFTER = 0.8 * LIFETIME  # as the kubelet does
HEARTBEAT = 10.0
HOURS = 6
WORKERS = 8


class Gang:
    def pod_by_uid(self, uid: str) -> PodView | None:
        return pod(int(uid.removeprefix("pod-")), run_uid="7f1c")

    def run_namespace(self, run_uid: str) -> str | None:
        return "team"

    def incarnation(self, run_uid: str, slot: int) -> int | None:
        return 1


class ApiServer:
    """Makes tokens and reviews them, by its own clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.made = 0
        self.reviewed = 0
        self.is_away = False

    def token(self, slot: int) -> str:
        """Raises ConnectionError."""
        if self.is_away:
            raise ConnectionError
        self.made += 1
        claims = {
            "aud": ["lockstep"],
            "exp": self.clock.now() + LIFETIME,
            "jti": self.made,
            "kubernetes.io": {"pod": {"uid": f"pod-{slot}"}},
        }
        return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.is_away:
            raise ConnectionError("connection refused")
        self.reviewed += 1
        part = body["spec"]["token"].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        uid = claims["kubernetes.io"]["pod"]["uid"]
        extra = {"authentication.kubernetes.io/pod-name": [uid], "authentication.kubernetes.io/pod-uid": [uid]}
        user = {"username": "system:serviceaccount:team:default", "extra": extra}
        good = self.clock.now() < claims["exp"]
        return {"status": {"authenticated": good, "audiences": ["lockstep"], "user": user if good else {}}}


@dataclass
class Worker:
    """Its token file, kept by a kubelet, and its heartbeat."""

    slot: int
    server: ApiServer
    token: str = ""
    renew_at: float = 0.0

    async def beat(self, reviews: TokenReviews) -> str:
        """Whose heartbeat it was, by its token. Raises UnauthenticatedError, ReviewUnavailableError."""
        now = self.server.clock.now()
        if now >= self.renew_at:
            try:
                self.token = self.server.token(self.slot)
                self.renew_at = now + RENEWED_AFTER
            except ConnectionError:
                self.renew_at = now + HEARTBEAT
        return (await reviews.identity(self.token)).pod_uid


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(ManualClock())


@pytest.mark.slow
async def test_no_heartbeat_is_refused_over_many_hours_and_each_token_is_reviewed_once(server: ApiServer) -> None:
    reviews = TokenReviews(server.post, Gang(), server.clock)
    workers = [Worker(slot, server) for slot in range(WORKERS)]
    for _ in range(int(HOURS * 3600 / HEARTBEAT)):
        for worker in workers:
            assert await worker.beat(reviews) == f"pod-{worker.slot}"
        await server.clock.advance(HEARTBEAT)
    assert server.reviewed == server.made == WORKERS * HOURS * 3600 / RENEWED_AFTER


async def test_a_token_that_was_renewed_is_worth_nothing_once_it_has_expired(server: ApiServer) -> None:
    reviews = TokenReviews(server.post, Gang(), server.clock)
    old = server.token(0)
    await reviews.identity(old)
    await server.clock.advance(LIFETIME - 1)
    await reviews.identity(old)
    await server.clock.advance(1)
    with pytest.raises(UnauthenticatedError, match="expired"):
        await reviews.identity(old)


async def test_an_outage_longer_than_a_token_lives_ends_with_everybody_heard_again(server: ApiServer) -> None:
    reviews = TokenReviews(server.post, Gang(), server.clock)
    workers = [Worker(slot, server) for slot in range(WORKERS)]
    heard = []
    for second in range(0, 7200, int(HEARTBEAT)):
        server.is_away = 1800 <= second < 3600
        for worker in workers:
            try:
                await worker.beat(reviews)
                heard.append((second, worker.slot))
            except (UnauthenticatedError, ReviewUnavailableError):
                assert 1800 + LIFETIME - RENEWED_AFTER <= second <= 3600 + HEARTBEAT
        await server.clock.advance(HEARTBEAT)
    late = {slot for second, slot in heard if second > 3700}
    assert late == set(range(WORKERS))
