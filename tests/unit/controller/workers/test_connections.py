"""How many connections may be open: the book of them by hand, then a listener with real ones."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop
from aiohttp import web

from lockstep.config import OperatorConfig
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.runtime.ratelimit import block
from lockstep.controller.workers import listener
from lockstep.controller.workers.connections import PROVE_SECONDS, SWEEP_SECONDS, Connections
from lockstep.controller.workers.listener import Listener
from lockstep.controller.workers.tls import Material, new_material, server_context
from support.hasty_clock import HastyClock
from support.manual_clock import ManualClock


class Transport(asyncio.Transport):
    """One that only knows whether it was aborted."""

    def __init__(self, handler: "Handler") -> None:
        super().__init__()
        self.handler = handler

    def abort(self) -> None:
        self.handler.transport = None


class Handler:
    """What serves a connection that has shaken hands."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = Transport(self)

    @property
    def is_open(self) -> bool:
        return self.transport is not None


class Door:
    """Connections for 4 strangers and 3 of each sender."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.book = Connections(self.clock, unproven=4, unproven_bytes=1000, per_sender=3)

    async def open(self, peer: str) -> Handler:
        handler = Handler()
        self.book.open(peer, handler, await _done())
        return handler

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        watch = asyncio.create_task(self.book.watch())
        yield
        watch.cancel()


async def _done() -> "asyncio.Task[None]":
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    return task


@pytest.fixture
def door() -> Door:
    return Door()


async def test_who_opens_most_gives_up_its_oldest(door: Door) -> None:
    gang = [await door.open("10.0.0.1")]
    flood = [await door.open("10.0.0.66") for _ in range(3)]
    assert all(each.is_open for each in gang + flood)
    gang.append(await door.open("10.0.0.2"))
    assert [each.is_open for each in flood] == [False, True, True]
    flood += [await door.open("10.0.0.66") for _ in range(100)]
    assert all(each.is_open for each in gang)
    assert [each.is_open for each in flood].count(True) == 2
    assert len(door.book) == 4


async def test_who_sends_most_before_it_is_known_gives_up_its_largest(door: Door) -> None:
    gang, flood = await door.open("10.0.0.1"), [await door.open("10.0.0.66") for _ in range(2)]
    assert door.book.receive("10.0.0.1", gang, 400)
    assert [door.book.receive("10.0.0.66", each, size) for each, size in zip(flood, (200, 350), strict=True)] == [
        True,
        True,
    ]
    assert not door.book.receive("10.0.0.66", flood[1], 100)
    assert (gang.is_open, flood[0].is_open, flood[1].is_open) == (True, True, False)
    assert (door.book.unproven_bytes, door.book.cut) == (600, 1)


async def test_bytes_of_who_is_known_or_has_left_take_no_room(door: Door) -> None:
    known, left = await door.open("10.0.0.1"), await door.open("10.0.0.2")
    assert door.book.receive("10.0.0.1", known, 600)
    assert door.book.receive("10.0.0.2", left, 400)
    assert door.book.prove("10.0.0.1", known, "pod")
    assert door.book.receive("10.0.0.1", known, 5000)
    door.book.close("10.0.0.2", left)
    door.book.close("10.0.0.2", left)
    assert (door.book.unproven_bytes, known.is_open) == (0, True)


async def test_who_has_said_its_name_makes_room(door: Door) -> None:
    known = [await door.open(f"10.0.0.{i}") for i in range(4)]
    assert all(door.book.prove(f"10.0.0.{i}", each, f"pod-{i}") for i, each in enumerate(known))
    await door.open("10.0.0.9")
    assert all(each.is_open for each in known)


async def test_a_sender_has_only_so_many_until_it_closes_one(door: Door) -> None:
    mine = [await door.open("10.0.0.1") for _ in range(4)]
    assert [door.book.prove("10.0.0.1", each, "pod") for each in mine] == [True, True, True, False]
    assert door.book.prove("10.0.0.1", mine[0], "pod")
    mine[0].transport = None
    assert door.book.prove("10.0.0.1", mine[3], "pod")


async def test_where_all_that_are_known_are_too_many_who_has_most_gives_up_its_oldest(door: Door) -> None:
    door.book = Connections(door.clock, per_sender=3, proven=4)
    flood = [await door.open("10.0.0.66") for _ in range(3)]
    assert all(door.book.prove("10.0.0.66", each, "flood") for each in flood)
    others = {name: await door.open(name) for name in ("10.0.0.1", "10.0.0.2", "10.0.0.3")}
    assert all(door.book.prove(name, each, name) for name, each in others.items())
    assert [each.is_open for each in flood] == [False, False, True]
    assert all(each.is_open for each in others.values())
    late = await door.open("10.0.0.4")
    assert not door.book.prove("10.0.0.4", late, "10.0.0.4")  # nobody has more than it would
    others["10.0.0.1"].transport = None
    await door.clock.advance(SWEEP_SECONDS)
    assert door.book.prove("10.0.0.4", late, "10.0.0.4")


async def test_addresses_that_one_machine_can_have_are_one_peer_where_that_is_asked(door: Door) -> None:
    door.book = Connections(door.clock, unproven=4, peers=block)
    others = [await door.open("2001:db8:0:2::1"), await door.open("192.0.2.1")]
    flood = [await door.open(f"2001:db8:0:1::{i}") for i in range(100)]
    assert all(each.is_open for each in others)
    assert [each.is_open for each in flood].count(True) == 2
    assert door.book.receive("2001:db8:0:1::63", flood[-1], 10)
    assert door.book.prove("2001:db8:0:1::63", flood[-1], "2001:db8:0:1::/64")
    assert door.book.unproven_bytes == 0


async def test_a_stranger_that_says_nothing_is_cut_off_in_time_and_others_are_not(door: Door) -> None:
    async with door.watched():
        silent, known = await door.open("10.0.0.1"), await door.open("10.0.0.1")
        door.book.prove("10.0.0.1", known, "pod")
        await door.clock.advance(PROVE_SECONDS - SWEEP_SECONDS)
        assert silent.is_open
        await door.clock.advance(2 * SWEEP_SECONDS)
        assert (silent.is_open, known.is_open, door.book.cut) == (False, True, 1)


async def test_what_has_closed_is_forgotten(door: Door) -> None:
    async with door.watched():
        stranger, known = await door.open("10.0.0.1"), await door.open("10.0.0.2")
        door.book.prove("10.0.0.2", known, "pod")
        stranger.transport = known.transport = None
        await door.clock.advance(2 * SWEEP_SECONDS)
        assert (len(door.book), door.book.cut) == (0, 0)


# With real connections.


@pytest.fixture(scope="module")
def material() -> Material:
    return new_material(["127.0.0.1"], time.time())


@asynccontextmanager
async def listening(book: Connections, material: Material | None) -> AsyncIterator[int]:
    app = web.Application()

    async def hello(request: web.Request) -> web.Response:
        book.prove(request.remote or "", request.protocol, "somebody")
        return web.Response(text="hello\n")

    app.router.add_get("/", hello)
    context = server_context(material) if material is not None else None
    opened = await Listener.open(app, "127.0.0.1", 0, context, book)
    try:
        yield opened.port
    finally:
        await opened.close()


async def is_cut(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(20):
            return await reader.read(1) == b""
    except ConnectionError:
        return True


async def fetched(port: int, material: Material) -> bytes:
    trust = ssl.create_default_context(cadata=material.ca_bundle)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "the beginning of a handshake"])
async def test_connections_that_never_shake_hands_are_cut_when_there_is_no_room(
    material: Material, said: bytes
) -> None:
    async with listening(Connections(SystemClock(), unproven=8), material) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        for _, writer in silent:
            writer.write(said)
        assert b"hello" in await fetched(port, material)
        assert [await is_cut(reader) for reader, _ in silent[:22]] == [True] * 22
        for _, writer in silent:
            writer.close()


@pytest.mark.slow
async def test_headers_that_come_slowly_are_not_waited_for() -> None:
    async with listening(Connections(HastyClock(), prove_seconds=0.2), None) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")

        async def dribble() -> None:
            while True:
                writer.write(b"A: b\r\n")
                await asyncio.sleep(0.02)

        slowly = asyncio.create_task(dribble())
        assert await is_cut(reader)
        slowly.cancel()
        writer.close()


def head(size: int, *, ends: bool = False, headers: int = 4) -> bytes:
    """The head of a request of so many bytes."""
    start, end = b"GET / HTTP/1.1\r\nHost: x\r\n", b"\r\n\r\n" if ends else b""
    each = (size - len(start) - len(end)) // headers
    lines = [b"A%d: " % number + b"b" * (each - 6) for number in range(10, 10 + headers)]
    return start + b"\r\n".join(lines) + end


@pytest.mark.slow
@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain"])
async def test_heads_that_never_end_hold_no_more_than_there_is_room_for_and_others_are_answered(
    material: Material, tls: bool
) -> None:
    room, size = 256 * 1024, 15 * 1024
    book = Connections(SystemClock(), unproven_bytes=room)
    trust = ssl.create_default_context(cadata=material.ca_bundle) if tls else None
    most = 0
    async with listening(book, material if tls else None) as port:
        flood = []
        for _ in range(100):
            flood.append(await asyncio.open_connection("127.0.0.1", port, ssl=trust))
            flood[-1][1].write(head(size))
            await flood[-1][1].drain()
            most = max(most, book.unproven_bytes)
        # From another address, as the victim of a flood is.
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trust, local_addr=("127.0.0.2", 0), server_hostname="127.0.0.1" if tls else None
        )
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"hello" in await reader.read()
        assert room / 2 < most <= room
        assert book.cut >= 100 - room // size - 1
        for _, each in [*flood, (reader, writer)]:
            each.transport.abort()


@pytest.mark.slow
@pytest.mark.parametrize("in_pieces", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (head(15_000, ends=True), b"200"),
        (b"\r\n\r\n" + head(15_000, ends=True), b"200"),
        (head(17_000, ends=True), b"431"),
        (head(17_000), b"431"),
        (b"\r\n\r\n" + head(17_000), b"431"),
        (head(2_000, ends=True, headers=40), b"400"),
    ],
    ids=["that fits", "after empty lines", "too long", "too long, endless", "the same after empty lines", "40 headers"],
)
@pytest.mark.parametrize("earlier", [False, True], ids=["first", "later"])
async def test_no_head_of_any_request_is_longer_than_the_limit(
    said: bytes, answer: bytes, in_pieces: bool, earlier: bool
) -> None:
    async with listening(Connections(SystemClock()), None) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if earlier:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"hello" in await reader.readuntil(b"hello\n")
        for start in range(0, len(said), 1500 if in_pieces else len(said)):
            writer.write(said[start : start + (1500 if in_pieces else len(said))])
            await asyncio.sleep(0.001 if in_pieces else 0)
        assert (await reader.readline()).split()[1] == answer
        if answer != b"200":
            async with asyncio.timeout(20):
                with contextlib.suppress(ConnectionError):
                    await reader.read()
        writer.transport.abort()


def test_heads_are_limited_on_the_loop_that_the_operator_runs_on(material: Material) -> None:
    async def answers() -> tuple[list[bytes], int]:
        room, found = 64 * 1024, list[bytes]()
        book = Connections(SystemClock(), unproven_bytes=room)
        trust = ssl.create_default_context(cadata=material.ca_bundle)
        async with listening(book, material) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            for said in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", head(15_000, ends=True), head(17_000)):
                writer.write(said)
                found.append((await reader.readline()).split()[1])
                if found[-1] == b"200":
                    await reader.readuntil(b"hello\n")
            flood = [await asyncio.open_connection("127.0.0.1", port, ssl=trust) for _ in range(10)]
            for _, each in flood:
                each.write(head(15_000))
            for cut, _ in flood[:2]:
                assert await is_cut(cut)
            for _, each in [*flood, (reader, writer)]:
                each.transport.abort()
            return found, book.unproven_bytes

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found, held = runner.run(answers())
    assert found == [b"200", b"200", b"431"]
    assert 0 < held <= 64 * 1024


async def test_a_body_is_no_head_and_one_that_nobody_waits_for_ends_the_connection() -> None:
    app = web.Application()

    async def take(request: web.Request) -> web.Response:
        return web.Response(text=f"{len(await request.read())}\n")

    app.router.add_post("/", take)
    opened = await Listener.open(app, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", opened.port)
    for size in (50_000, 100_000):  # one after the other on one connection
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
        assert (await reader.readuntil(b"%d\n" % size)).startswith(b"HTTP/1.1 200")
    writer.write(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b"404" in answer
    assert b"connection: close" in answer.lower()
    writer.transport.abort()
    await opened.close()


async def test_a_listener_of_its_own_lets_one_address_have_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PER_ADDRESS", 2)

    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello\n")

    app = web.Application()
    app.router.add_get("/", hello)
    opened = await Listener.open(app, "127.0.0.1", 0)
    try:
        answers = []
        streams = [await asyncio.open_connection("127.0.0.1", opened.port) for _ in range(3)]
        for reader, writer in streams:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answers.append((await reader.readline()).split()[1])
        assert answers == [b"200", b"200", b"429"]
        for _, writer in streams:
            writer.close()
    finally:
        await opened.close()


async def hears(port: int, address: str) -> bool:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.mark.parametrize(
    ("host", "has_both", "heard"),
    [
        (OperatorConfig().worker_listen, True, {"127.0.0.1", "::1"}),
        (OperatorConfig().metrics_listen, True, {"127.0.0.1", "::1"}),
        ("::", False, {"127.0.0.1"}),
        ("0.0.0.0", True, {"127.0.0.1"}),
        ("::1", True, {"::1"}),
    ],
    ids=[
        "workers, by default",
        "probes, by default",
        "on a kernel without IPv6",
        "asked for IPv4 alone",
        "asked for one address",
    ],
)
async def test_pods_of_either_family_are_listened_to(
    host: str, has_both: bool, heard: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    try:  # containers often have a kernel with IPv6, and no address of it
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: has_both)
    opened = await Listener.open(web.Application(), host, 0)
    try:
        assert {each for each in ("127.0.0.1", "::1") if await hears(opened.port, each)} == heard
    finally:
        await opened.close()


async def test_a_listener_that_is_closed_leaves_no_connection_open(material: Material) -> None:
    async with listening(Connections(SystemClock()), material) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0)
        assert b"hello" in await fetched(port, material)
    assert await is_cut(reader)
    writer.close()
