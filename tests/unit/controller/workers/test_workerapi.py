"""How workers register, wait at the barrier and are released, over real TLS; only the TokenReview is a fake."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.worker_api import ENDPOINTS, PREPARE, RELEASE, RUN, World, eventually, made_material, pod, served


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with served(World(), made_material()) as opened:
        yield opened


async def test_a_worker_registers_waits_at_the_barrier_and_is_released(world: World) -> None:
    status, answer = await world.say("/v1/register", pod(0))
    assert (status, answer["phase"], answer["revision"]) == (200, "Hold", 0)
    assert answer["epoch"] == [1_700_000_000, 3]
    assert answer["heartbeatSeconds"] == 3.0
    world.book.set_directive(RUN, PREPARE)
    status, answer = await world.say("/v1/report", pod(0))
    assert (status, answer["phase"], answer["attempt"], answer["revision"]) == (200, "Prepare", 1, 1)

    ready = {"phase": "Ready", "readyFor": 1, "port": 40000}
    poll = asyncio.ensure_future(
        world.say("/v1/report", pod(0), **ready, epoch=answer["epoch"], seen=1, waitSeconds=15)
    )
    await eventually(lambda: world.book.reports(RUN)[0].polling)
    assert not poll.done()
    world.book.set_directive(RUN, RELEASE)
    status, answer = await asyncio.wait_for(poll, 14)
    assert (answer["phase"], answer["rank"], answer["worldSize"], answer["revision"]) == ("Run", 0, 2, 2)
    assert answer["start"]["masterPort"] == 40123
    assert answer["nodelist"] == ["10.0.0.1", "10.0.0.2"]
    report = world.book.reports(RUN)[0]
    assert (report.node, report.address, report.port) == ("gpu-0", "10.0.0.1", 40000)
    assert world.api.answered == {("/v1/register", 200): 1, ("/v1/report", 200): 2}


async def test_a_report_before_registration_is_sent_to_register(world: World) -> None:
    status, answer = await world.say("/v1/report", pod(0))
    assert (status, answer["error"]) == (409, "unregistered")


async def test_what_was_seen_of_another_leader_is_answered_at_once(world: World) -> None:
    world.book.set_directive(RUN, PREPARE)
    await world.say("/v1/register", pod(0))
    async with asyncio.timeout(14):
        status, answer = await world.say("/v1/report", pod(0), epoch=[1_600_000_000, 9], seen=1, waitSeconds=15)
    assert (status, answer["revision"]) == (200, 1)


async def test_a_worker_that_hangs_up_is_no_longer_at_the_barrier(world: World) -> None:
    await world.say("/v1/register", pod(0))
    poll = asyncio.ensure_future(
        world.say("/v1/report", pod(0), phase="Ready", readyFor=1, epoch=[1_700_000_000, 3], waitSeconds=15)
    )
    await eventually(lambda: world.book.reports(RUN)[0].polling)
    poll.cancel()
    await eventually(lambda: not world.book.reports(RUN)[0].polling)


async def test_a_run_not_known_is_told_to_hold_and_leaves_nothing_behind(world: World) -> None:
    world.runs.clear()
    for endpoint in ENDPOINTS:
        status, answer = await world.say(endpoint, pod(0))
        assert (status, answer["phase"]) == (200, "Hold")
    assert world.book.worker_count() == 0


async def test_a_standby_asks_workers_to_come_back(world: World) -> None:
    world.epoch = None
    for endpoint in ENDPOINTS:
        status, answer, headers = await world.send(endpoint, world.body(pod(0)), world.token(pod(0).uid))
        assert (status, answer["error"], headers["Retry-After"]) == (503, "not-leading", "2")


async def test_a_leader_deposed_during_a_poll_gives_no_orders(world: World) -> None:
    await world.say("/v1/register", pod(0))
    poll = asyncio.ensure_future(world.say("/v1/report", pod(0), epoch=[1_700_000_000, 3], waitSeconds=15))
    await eventually(lambda: world.book.reports(RUN)[0].polling)
    world.epoch = None
    world.book.set_directive(RUN, RELEASE)
    assert (await asyncio.wait_for(poll, 14))[0] == 503


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [("GET", "/v1/report", 405), ("POST", "/v1/other", 404), ("GET", "/", 404)],
)
async def test_there_is_nothing_else(world: World, method: str, path: str, expected: int) -> None:
    async with world.session.request(method, world.url + path) as response:
        assert response.status == expected
        assert set(await response.json()) == {"error", "message"}


async def test_a_defect_is_logged_and_told_without_details(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(world.book, "register", broken)
    status, answer = await world.say("/v1/register", pod(0))
    assert status == 500
    assert "secret" not in answer["message"]
    assert "/v1/register failed" in caplog.text
