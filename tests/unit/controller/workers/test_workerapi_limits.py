"""What the worker API does not take in: too large, too much, too slow, too many at once, or of another form."""

import asyncio
import io
import json
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from lockstep.controller.runtime.ratelimit import block
from lockstep.controller.workers import api, protocol
from lockstep.controller.workers.connections import Connections
from lockstep.controller.workers.protocol import REGISTER_LIMIT, REPORT_LIMIT
from lockstep.controller.workers.tls import Material
from lockstep.controller.workers.trust import SenderClaim
from support.worker_api import ENDPOINTS, RUN, World, eventually, made_material, pod, served


@pytest.fixture
def material() -> Material:
    return made_material()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with served(World(), made_material()) as opened:
        yield opened


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_body_too_large_is_refused_while_it_is_read(world: World, endpoint: str) -> None:
    limit = {"/v1/register": REGISTER_LIMIT, "/v1/report": REPORT_LIMIT}[endpoint]
    headers = {"Authorization": f"Bearer {world.token(pod(0).uid)}"}

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(limit // 4096 + 2):
            yield b" " * 4096

    for data in (io.BytesIO(b" " * (limit + 1)), endless()):
        async with world.session.post(world.url + endpoint, data=data, headers=headers) as response:
            assert response.status == 413
            assert (await response.json())["error"] == "too-large"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_body_that_just_fits_is_taken(world: World, endpoint: str) -> None:
    limit = {"/v1/register": REGISTER_LIMIT, "/v1/report": REPORT_LIMIT}[endpoint]
    await world.say("/v1/register", pod(0))
    body = json.dumps(world.body(pod(0))).encode()
    status, _, _ = await world.send(endpoint, body + b" " * (limit - len(body)), world.token(pod(0).uid))
    assert status == 200


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_malformed_bodies_are_refused_in_words(world: World, endpoint: str) -> None:
    token = world.token(pod(0).uid)
    for body in (b"", b"{", b"[]", world.body(pod(0), slot="0"), b"[" * 50_000):
        status, answer, _ = await world.send(endpoint, body, token)
        assert (status, answer["error"]) == (400, "malformed")
    status, answer, _ = await world.send(endpoint, world.body(pod(0), protocol=2), token)
    assert (status, answer["error"]) == (426, "protocol")


async def test_a_compressed_body_is_refused(world: World) -> None:
    headers = {"Authorization": f"Bearer {world.token(pod(0).uid)}", "Content-Encoding": "gzip"}
    async with world.session.post(world.url + "/v1/report", data=b"\x1f\x8b", headers=headers) as response:
        assert response.status == 400


@pytest.mark.slow
async def test_a_worker_that_sends_too_much_is_slowed_and_others_are_not(world: World) -> None:
    await world.say("/v1/register", pod(1))
    flood = await asyncio.gather(*(world.say("/v1/register", pod(0)) for _ in range(80)))
    assert {status for status, _ in flood} == {200, 429}
    assert (await world.say("/v1/report", pod(1)))[0] == 200


async def test_large_reports_count_for_as_many_as_their_size(world: World) -> None:
    """What the largest cost the operator is many times what an ordinary one does."""
    await world.say("/v1/register", pod(0))
    large = json.dumps(world.body(pod(0), problem="x" * 50_000)).encode()
    token = world.token(pod(0).uid)
    answers = await asyncio.gather(*(world.send("/v1/report", large, token) for _ in range(30)))
    assert {status for status, _, _ in answers} == {200, 429}  # of ordinary ones 40 are let in at once
    assert (await world.say("/v1/register", pod(1)))[0] == 200


def test_strangers_count_by_the_addresses_that_one_machine_can_have() -> None:
    assert World().api.connections._peer("2001:db8::1") == block("2001:db8::ffff:1")


async def test_a_worker_holds_only_so_many_connections_and_is_told(material: Material) -> None:
    world = World()
    world.api.connections = Connections(world.clock, per_sender=4)
    trust = ssl.create_default_context(cadata=material.ca_bundle)
    body = json.dumps(world.body(pod(0))).encode()
    head = f"POST /v1/register HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.token(pod(0).uid)}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    held, answers = [], []
    async with served(world, material):
        for _ in range(4 + 1):
            reader, writer = await asyncio.open_connection(*urlsplit(world.url).netloc.split(":"), ssl=trust)
            writer.write(request)
            answers.append((await reader.readline()).split()[1])
            held.append((reader, writer))
        assert answers == [b"200"] * 4 + [b"429"]
        told = await asyncio.wait_for(held[-1][0].read(), 20)
        assert b"too-many-connections" in told  # and closed, or this had not ended
        assert (await world.say("/v1/register", pod(1)))[0] == 200
        for _, writer in held:
            writer.close()


@pytest.mark.slow
async def test_a_body_that_comes_slowly_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "REQUEST_SECONDS", 0.1)

    async def dribble() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    headers = {"Authorization": f"Bearer {world.token(pod(0).uid)}"}
    async with asyncio.timeout(20):
        async with world.session.post(world.url + "/v1/report", data=dribble(), headers=headers) as response:
            assert (response.status, (await response.json())["error"]) == (503, "timeout")


@pytest.mark.slow
async def test_the_largest_reports_of_a_hostile_pod_take_no_more_memory_the_longer_it_sends(world: World) -> None:
    desk = world.book
    claim = SenderClaim(RUN, 0, 1, pod(0).uid)

    def row(step: int) -> dict[str, Any]:
        reason = f"{step}" * 200
        return {"tier": "shared", "step": step, "path": f"/{step}" * 300, "verdict": "Valid", "reason": reason}

    def hostile(turn: int) -> bytes:
        told = {
            "phase": "Running", "mono": 1e9 + turn, "problem": f"{turn}" * 2000, "newCheckpoints": [row(turn)],
            "signs": [{"kind": f"{turn}-{n}", "at": 1.0 * turn, "text": "t" * 300} for n in range(64)],
            "stacks": {"id": f"{turn}", "text": f"{turn}" * 3000},
            "verified": [row(turn) for _ in range(10)],
        }  # fmt: skip
        return json.dumps(world.body(pod(0), **told)).encode()

    desk.register(claim, "gpu-0", protocol.decode_registration(json.dumps(world.body(pod(0))).encode()))
    tracemalloc.start()
    try:
        for turn in range(40):
            desk.report(claim, protocol.decode_report(hostile(turn)))
        after_some = tracemalloc.get_traced_memory()[0]
        for turn in range(40, 240):
            desk.report(claim, protocol.decode_report(hostile(turn)))
        growth = tracemalloc.get_traced_memory()[0] - after_some
    finally:
        tracemalloc.stop()
    assert growth < 200_000
    assert after_some < 1_000_000


async def test_bodies_under_way_have_a_bound_for_all_senders_together(material: Material) -> None:
    async with served(World(bodies_room=100_000), material) as world:
        received = asyncio.Event()
        go_on = asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield b" " * 60_000
            received.set()
            await go_on.wait()

        first = asyncio.ensure_future(
            world.session.post(
                world.url + "/v1/register",
                data=slowly(),
                headers={"Authorization": f"Bearer {world.token(pod(0).uid)}"},
            )
        )
        await asyncio.wait_for(received.wait(), 20)
        large = json.dumps(world.body(pod(1))).encode() + b" " * 60_000
        await eventually(lambda: world.api.bodies_room < 50_000)
        status, answer, _ = await world.send("/v1/register", large, world.token(pod(1).uid))
        assert (status, answer["error"]) == (503, "busy")
        go_on.set()
        assert (await first).status == 400
        assert (await world.send("/v1/register", large, world.token(pod(1).uid)))[0] == 200
        assert world.api.bodies_room == 100_000
