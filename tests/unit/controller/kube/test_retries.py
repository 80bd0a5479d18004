"""What the Kubernetes client asks again, when and how often: an old token, and a server that has no time."""

import asyncio

import orjson
import pytest
from aiohttp.test_utils import TestServer

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.errors import ApiError, UnreachableError
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.runtime.resources import LEASES, PODS
from support.kube_server import FakeServer, credentials, refuses, says
from support.manual_clock import ManualClock


async def test_credentials_that_cannot_be_read_are_unreachable_not_a_crash() -> None:
    async def load() -> Credentials:
        raise FileNotFoundError("token")

    async with KubeClient(load, SystemClock()) as kube:
        with pytest.raises(UnreachableError, match="token"):
            await kube.get(PODS, "x", "team")


async def test_an_expired_token_is_read_anew_once(server: TestServer, fake: FakeServer) -> None:
    tokens = iter(["Bearer old", "Bearer new"])

    async def load() -> Credentials:
        return credentials(server, next(tokens))

    async with KubeClient(load, SystemClock()) as kube:
        fake.answers = [refuses(401, "Unauthorized"), says(201, {"done": True})]
        assert orjson.loads(await kube.create(PODS, {}, "team")) == {"done": True}
        assert fake.tokens == ["Bearer old", "Bearer new"]


@pytest.mark.process
async def test_too_many_requests_are_retried_when_the_server_says(server: TestServer, fake: FakeServer) -> None:
    clock = ManualClock()

    async def load() -> Credentials:
        return credentials(server)

    async with KubeClient(load, clock) as kube:
        fake.answers = [refuses(429, "TooManyRequests", Retry_After="3"), says(201, {})]
        creating = asyncio.ensure_future(kube.create(PODS, {}, "team"))
        async with asyncio.timeout(20):
            while kube.window.limit_of("team") == 32:  # noqa: ASYNC110 - there is nothing to wait on but the answer's effect
                await asyncio.sleep(0.01)
        assert kube.window.limit_of("team") == 16
        await clock.advance(2.9)
        assert len(fake.asked) == 1
        await clock.advance(0.2)
        await creating
        assert len(fake.asked) == 2


@pytest.mark.process
async def test_a_server_that_never_has_time_is_told_to_the_caller(server: TestServer, fake: FakeServer) -> None:
    clock = ManualClock()

    async def load() -> Credentials:
        return credentials(server)

    async with KubeClient(load, clock) as kube:
        fake.answers = [refuses(429, "TooManyRequests")] * 4
        reading = asyncio.ensure_future(kube.get(PODS, "x", "team"))
        while not reading.done():
            await clock.advance(1)
            await asyncio.sleep(0.01)
        with pytest.raises(ApiError, match="429"):
            await reading


async def test_who_has_less_patience_than_the_server_wants_is_told_so_at_once(
    server: TestServer, fake: FakeServer
) -> None:
    """A leader that slept for as long as it is told to would neither lead any more nor know it."""

    async def load() -> Credentials:
        return credentials(server)

    async with KubeClient(load, ManualClock()) as kube:  # nobody moves it: whoever sleeps does so for ever
        fake.answers = [refuses(429, "TooManyRequests", Retry_After="30")] * 2
        async with asyncio.timeout(20):
            with pytest.raises(ApiError, match="429"):
                await kube.replace(LEASES, "x", {}, "team", guarded=False, within=2.0)
            with pytest.raises(ApiError, match="429"):
                await kube.get(LEASES, "x", "team", within=2.0)
    assert len(fake.asked) == 2
