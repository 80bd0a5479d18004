"""What is read of a watch before kopf decodes it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any, cast

import aiohttp
import orjson
import pytest

from lockstep.api.base import names
from lockstep.api.base.nesting import TOO_DEEP, UNREADABLE
from lockstep.controller.kube import watch_lines
from lockstep.controller.kube.errors import UnreachableError
from lockstep.controller.kube.kopf_session import Answer, KopfSession, WatchedKind, WatchFilter
from lockstep.controller.runtime.resources import RUNS
from support.manual_clock import ManualClock
from support.own_events import line, passed


def run(name: str, version: int) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"nodes": 1}, "status": {"attempt": 3}}


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


async def nothing() -> None:
    raise AssertionError("nothing is listed here")


def watched(**known: int) -> WatchedKind:
    """``known``: versions, by name of the run."""
    versions = {f"uid-{name}": version for name, version in known.items()}
    return WatchedKind("runs", RUNS, lambda item: versions.get(item.uid, -1) < item.version, nothing, 0.0)


def kinds(events: list[Any]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_an_echo_of_our_own_write_is_dropped_and_leaves_its_version() -> None:
    kind = watched(one=7)
    text = line("MODIFIED", run("one", 6)) + line("MODIFIED", run("one", 7))
    [left] = passed(kind, text)
    assert (left["type"], left["object"]["metadata"]) == ("BOOKMARK", {"resourceVersion": "7"})
    assert kind.version == 7


def test_what_is_newer_or_of_another_object_or_a_deletion_passes_whole() -> None:
    events = [("MODIFIED", run("one", 8)), ("ADDED", run("two", 3)), ("DELETED", run("one", 7))]
    found = passed(watched(one=7), b"".join(line(*event) for event in events))
    assert [(event["type"], event["object"]) for event in found] == events


def test_bookmarks_and_the_end_of_a_watch_that_expired_pass_as_they_are() -> None:
    gone = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    kind = watched()
    lines = WatchFilter(kind)
    assert lines.feed(bookmark(9) + gone) == bookmark(9) + gone
    assert kind.version == 9
    assert lines.failure is None


def test_any_other_error_has_kopf_list_anew_instead_of_ending_it() -> None:
    lines = WatchFilter(watched())
    event = orjson.loads(lines.feed(line("ERROR", {"kind": "Status", "code": 500, "message": "etcd is ill"})))
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert lines.failure is not None
    assert lines.failure.status == 500


@pytest.mark.parametrize("levels", [300, 9_000, 9_990])
def test_what_is_nested_too_deeply_passes_with_a_mark_in_its_place(levels: int) -> None:
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    text = orjson.dumps(run("one", 5)).replace(b'"nodes":1', b'"nodes":1,"podTemplate":' + deep)
    text = text.replace(b'"name"', b'"managedFields":[{"fieldsV1":' + deep + b'}],"name"')
    [event] = passed(watched(), line("ADDED", text))
    assert event["object"]["metadata"]["name"] == "one"
    assert event["object"]["status"] == {"attempt": 3}
    assert TOO_DEEP in str(event["object"]["spec"]["podTemplate"])


def test_a_spec_that_is_no_text_passes_as_a_mark() -> None:
    text = orjson.dumps(run("one", 5)).replace(b'"nodes":1', b'"nodes":1,"command":["\xff\xfe"]')
    text = text.replace(b'"uid"', b'"annotations":{"a":"\xff"},"uid"')
    [event] = passed(watched(), line("ADDED", text))
    assert event["object"]["spec"] == UNREADABLE
    assert event["object"]["metadata"]["annotations"] == {"a": "\N{REPLACEMENT CHARACTER}"}
    assert event["object"]["status"] == {"attempt": 3}


def test_who_is_hostile_costs_no_echo_either() -> None:
    deep = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
    text = orjson.dumps(run("one", 5)).replace(b'"nodes":1', b'"podTemplate":' + deep)
    assert kinds(passed(watched(one=5), line("MODIFIED", text))) == [("BOOKMARK", "")]


@pytest.mark.parametrize("text", [b"nothing", b'{"type":"ADDED"}', b'{"type":"ADDED","object":{"metadata":{}}}'])
def test_a_line_that_is_no_event_is_left_out_and_the_next_one_counts(text: bytes) -> None:
    found = passed(watched(), text + b"\n" + line("ADDED", run("one", 5)))
    assert kinds(found) == [("ADDED", "one")]
    assert passed(watched(), text + b"\n") == []


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_may_come_in_any_pieces(size: int) -> None:
    text = line("ADDED", run("one", 5)) + b"\n" + line("MODIFIED", run("two", 6)) + line("ADDED", run("three", 7))
    lines = WatchFilter(watched(two=6))
    out = b"".join(lines.feed(text[start : start + size]) for start in range(0, len(text), size))
    found = [event for event in map(orjson.loads, out.splitlines()) if event["type"] != "BOOKMARK"]
    assert kinds(found) == [("ADDED", "one"), ("ADDED", "three")]
    assert lines.feed(b'{"type":"ADDED"') == b""  # half a line is nobody's


def test_a_line_without_an_end_fills_nobodys_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_lines, "LONGEST_LINE", 1_000)
    lines = WatchFilter(watched())
    for _ in range(50):
        assert lines.feed(b"x" * 100) == b""
    assert sum(map(len, lines._lines._parts)) <= 1_000
    rest = line("ADDED", run("of-the-same-line", 4))
    assert kinds([orjson.loads(lines.feed(rest + line("ADDED", run("one", 5))))]) == [("ADDED", "one")]


class Server:
    """In the place of aiohttp's session; answers with ``status`` and ``body``, or raises it."""

    def __init__(self, status: int = 200, body: bytes = b"", error: Exception | None = None) -> None:
        self.status, self.body, self.error = status, body, error
        self.asked: list[str] = []
        self.closed = False
        self.reason = "on purpose"
        self.headers: dict[str, str] = {}
        self.content = self

    async def request(self, method: str, url: str, **_: Any) -> Server:
        self.asked.append(url)
        if self.error is not None:
            raise self.error
        return self

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self) -> bytes:
        return self.body

    async def iter_any(self) -> Any:
        yield self.body

    def close(self) -> None:
        self.closed = True


WATCH = f"https://host/apis/{names.API_VERSION}/{names.RUNS}?watch=true&resourceVersion=5"
LIST = f"https://host/apis/{names.API_VERSION}/{names.RUNS}?limit=500"


class Asking:
    """A session, and the time that a request takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, server: Server, listed: int | Exception = 40) -> None:
        monkeypatch.setattr(random, "uniform", lambda least, most: most)
        self.clock = ManualClock()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.listed = listed
        self.kind = watched(one=7)
        own = cast(aiohttp.ClientSession, server)
        self.session = KopfSession(own, {RUNS.path(): self.kind}, self._list_of, self.clock, self.requests)

    async def _list_of(self, kind: WatchedKind) -> int:
        if isinstance(self.listed, Exception):
            raise self.listed
        return self.listed

    async def get(self, url: str, seconds: float = 1.0, *, at_least: float = 0.0) -> Any:
        asking = asyncio.create_task(self.session.request("get", url))
        await self.clock.advance(at_least)
        assert not (at_least and asking.done()), "it takes no longer"
        await self.clock.advance(seconds - at_least)
        assert asking.done(), "it takes longer"
        return await asking


async def lines_of(answer: Any) -> list[Any]:
    return [orjson.loads(each) async for chunk in answer.content.iter_chunked(1) for each in chunk.splitlines()]


async def test_a_list_is_taken_in_here_and_leaves_kopf_nothing_but_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    answer = await Asking(monkeypatch, server).get(LIST)
    assert await answer.json() == {"metadata": {"resourceVersion": "40"}, "items": []}
    assert server.asked == []


async def test_a_list_that_failed_is_one_that_broke_and_is_asked_for_no_faster_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = Asking(monkeypatch, Server(), UnreachableError("down"))
    for seconds in (0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        with pytest.raises(aiohttp.ClientPayloadError, match="down"):
            await asking.get(LIST, seconds, at_least=seconds - 0.1)


async def test_a_watch_comes_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(body=line("MODIFIED", run("one", 7)) + line("ADDED", run("two", 8)))
    asking = Asking(monkeypatch, server)
    async with await asking.get(WATCH) as answer:
        assert isinstance(answer, Answer)
        assert kinds(await lines_of(answer)) == [("ADDED", "two")]
    assert server.closed
    assert asking.requests == {("watch", names.RUNS, 200): 1}


@pytest.mark.parametrize(("status", "message"), [(410, "too old"), (504, "Too large resource version: 9, current: 5")])
async def test_a_version_that_the_server_does_not_have_is_one_that_expired(
    monkeypatch: pytest.MonkeyPatch, status: int, message: str
) -> None:
    body = orjson.dumps({"kind": "Status", "code": status, "message": message})
    [event] = await lines_of(await Asking(monkeypatch, Server(status, body)).get(WATCH))
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


@pytest.mark.parametrize("status", [400, 403, 404, 422, 429, 500, 503])
async def test_a_watch_that_is_refused_is_one_that_broke(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    asking = Asking(monkeypatch, Server(status, b"no"))
    with pytest.raises(aiohttp.ClientPayloadError):
        await asking.get(WATCH, 2.0)
    assert asking.requests == {("watch", names.RUNS, status): 1}


async def test_a_server_that_is_not_there_is_a_watch_that_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        await Asking(monkeypatch, Server(error=OSError("nobody listens"))).get(WATCH)


async def test_who_is_not_known_logs_in_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await Asking(monkeypatch, Server(401)).get(WATCH)).status == 401


async def test_a_closed_session_is_told_to_kopf_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError):
        await Asking(monkeypatch, Server(error=RuntimeError("Session is closed"))).get(WATCH)


async def test_what_is_not_of_our_kinds_passes_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(404)
    assert await Asking(monkeypatch, server).get("https://host/apis") is server
