"""The web page over HTTP: what is served, to whom, and what turns a request away. Only the reviews are a fake."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from lockstep.controller.web import compare, fleet, server, threads
from lockstep.controller.web.server import BURST, SHARED_SECONDS, WebPage
from lockstep.controller.web.strangers import EACH_BURST
from lockstep.controller.workers.listener import Listener
from support import sample_runs
from support.manual_clock import ManualClock
from support.web_site import Cluster, busy_cluster

ADMIN, TENANT = {"X-Lockstep-Token": "admin"}, {"X-Lockstep-Token": "tenant"}
ANSWERS = ("api/me", "api/fleet", "api/queues", "api/runs/research/llama-70b", "api/arrays/research/lr-sweep")
ANSWERS += ("api/runs/research/llama-70b/actions", "api/runs/research/llama-70b/ranks/0")
ANSWERS += ("api/compare?run=research/llama-70b&run=research/vision-l",)
FILES = ("", "main.js", "style.css", "fleet.js", "queue.js", "run.js", "array.js", "losses.js", "icon.svg")
FILES += ("deeds.js", "logs.js", "compare.js")


class Site:
    """The page being served, and somebody who asks for it."""

    def __init__(self, cluster: Cluster, page: WebPage, url: str, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.page = page
        self.url = url
        self.session = session
        self.clock = cluster.clock

    async def get(self, path: str, headers: Any = None, method: str = "GET") -> tuple[int, Any, Any]:
        """Status, headers, and the body, decoded where it is JSON."""
        async with self.session.request(
            method, f"{self.url}/{path}", headers=headers or {}, allow_redirects=False
        ) as answer:
            body = await answer.read()
            is_json = answer.content_type == "application/json" and body
            return answer.status, answer.headers, json.loads(body) if is_json else body.decode()


@asynccontextmanager
async def served(count: int = 64) -> AsyncIterator[Site]:
    cluster = busy_cluster(ManualClock(sample_runs.NOW), count)
    page = cluster.page()
    listener = await Listener.open(page.application(), "127.0.0.1", 0, None, page.connections)
    async with aiohttp.ClientSession() as session:
        yield Site(cluster, page, f"http://127.0.0.1:{listener.port}", session)
    await listener.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with served() as found:
        yield found


@pytest.mark.parametrize("name", FILES)
async def test_the_pages_files_are_for_everybody(site: Site, name: str) -> None:
    status, headers, body = await site.get(f"ui/{name}")
    assert (status, bool(body)) == (200, True)
    assert (await site.get(f"ui/{name}", {"If-None-Match": headers["ETag"]}))[0] == 304
    assert site.cluster.reviewer.asked == []


@pytest.mark.parametrize(
    "path",
    [
        "ui/../server.py",
        "ui/..%2fserver.py",
        "ui/%2e%2e/server.py",
        "ui/static",
        "ui//etc/passwd",
        "ui/x/y",
        "ui/api",
        "x",
    ],
)
async def test_nothing_but_the_pages_files_is_served(site: Site, path: str) -> None:
    status, _, body = await site.get(path)
    assert status == 404
    assert "import" not in str(body)


@pytest.mark.parametrize("path", ["", "ui"])
async def test_the_way_to_the_page_is_relative(site: Site, path: str) -> None:
    status, headers, _ = await site.get(path)
    assert (status, headers["Location"]) == (302, "ui/")


@pytest.mark.parametrize("path", ANSWERS)
async def test_no_answer_without_a_good_token(site: Site, path: str) -> None:
    assert (await site.get(f"ui/{path}"))[0] == 401
    assert (await site.get(f"ui/{path}", {"X-Lockstep-Token": "forged"}))[0] == 401
    assert (await site.get(f"ui/{path}", {"Authorization": "Basic YWRtaW4="}))[0] == 401
    assert (await site.get(f"ui/{path}", {"Cookie": "token=admin"}))[0] == 401


@pytest.mark.parametrize("path", ANSWERS)
async def test_a_token_is_taken_from_either_header(site: Site, path: str) -> None:
    for headers in (ADMIN, {"Authorization": "Bearer admin"}, {"Authorization": "bearer  admin "}):
        assert (await site.get(f"ui/{path}", headers))[0] == 200


async def test_an_array_is_for_those_who_may_get_it_and_its_runs_for_those_who_may_get_them(site: Site) -> None:
    users = site.cluster.reviewer
    users.admit("reader", "rita", "research", "no arrays")
    assert (await site.get("ui/api/arrays/research/lr-sweep", {"X-Lockstep-Token": "reader"}))[0] == 403
    status, _, body = await site.get("ui/api/arrays/research/lr-sweep", TENANT)
    assert (status, [row["name"] for row in body["runs"]]) == (200, ["lr-sweep-45", "lr-sweep-46"])
    assert [said["reason"] for said in body["events"]] == ["RunsCreated"]
    users.admit("lister", "lisa", "research", "no runs")
    status, _, body = await site.get("ui/api/arrays/research/lr-sweep", {"X-Lockstep-Token": "lister"})
    assert (status, body["runs"], body["outcomes"][-1]["outcome"]) == (200, [], "not ended")
    assert (await site.get("ui/api/arrays/products/ads-sweep", TENANT))[0] == 403
    assert (await site.get("ui/api/arrays/products/none", TENANT))[0] == 403  # whether there is one or not
    assert (await site.get("ui/api/arrays/research/none", TENANT))[0] == 404


@pytest.mark.slow
async def test_who_does_not_take_an_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is in the operator's memory meanwhile: that to a large cluster is a megabyte for each."""
    monkeypatch.setattr(server, "SEND_SECONDS", 0.1)
    monkeypatch.setattr(server, "_encoded", lambda said: server._Answer(b" " * 2**24, b"", '"large"'))
    async with served() as site:
        host, port = site.url.removeprefix("http://").split(":")
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(slow, (host, int(port)))
            ask = f"GET /ui/api/fleet HTTP/1.1\r\nHost: {host}\r\nX-Lockstep-Token: admin\r\n\r\n"
            await loop.sock_sendall(slow, ask.encode())
            async with asyncio.timeout(60):
                while len(site.page.connections) or not site.cluster.reviewer.asked:
                    await asyncio.sleep(0.05)
                    await site.clock.advance(1)  # the listener looks who is still there


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["", *ANSWERS])
async def test_there_is_nothing_to_write(site: Site, method: str, path: str) -> None:
    assert (await site.get(f"ui/{path}", ADMIN, method))[0] == 405


async def test_the_api_server_is_asked_for_reviews_alone(site: Site) -> None:
    for path in ANSWERS:
        await site.get(f"ui/{path}", TENANT)
    assert {path.rpartition("/")[2] for path, _ in site.cluster.reviewer.asked} == {
        "tokenreviews",
        "subjectaccessreviews",
    }


@pytest.mark.parametrize(
    "path", ["", "main.js", "none.js", *ANSWERS, "api/runs/products/moe-16x", "api/runs/research/none"]
)
async def test_every_answer_forbids_what_the_page_does_not_need(site: Site, path: str) -> None:
    for headers in ({}, TENANT):
        _, said, _ = await site.get(f"ui/{path}", headers)
        policy = said["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (said["X-Content-Type-Options"], said["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert "Set-Cookie" not in said
        assert "Access-Control-Allow-Origin" not in said
        assert "aiohttp" not in said["Server"]


async def test_a_tenant_sees_own_runs_and_no_trace_of_others(site: Site) -> None:
    site.cluster.queues = []
    told = json.dumps([(await site.get(f"ui/{path}", TENANT))[2] for path in ("api/me", "api/fleet")])
    assert "llama-70b" in told
    assert not any(word in told for word in ("products", "search-ranker", "moe-16x", "speech-2"))
    everything = json.dumps((await site.get("ui/api/fleet", ADMIN))[2])
    assert "search-ranker" in everything


async def test_what_one_viewer_is_answered_is_never_another_viewers_answer(site: Site) -> None:
    admins, tenants = await asyncio.gather(site.get("ui/api/fleet", ADMIN), site.get("ui/api/fleet", TENANT))
    assert len(admins[2]["runs"]) > len(tenants[2]["runs"])
    again = await site.get("ui/api/fleet", {**TENANT, "If-None-Match": admins[1]["ETag"]})
    assert again[0] == 200


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("run=research/llama-70b&run=research/vision-l", 200),
        ("run=products/moe-16x", 403),
        ("run=products/moe-16x&run=research/none", 403),
        ("run=research/none", 404),
        ("run=llama-70b", 403),
        ("run=/llama-70b", 403),
        ("run=", 403),
        ("", 400),
        ("&".join(f"run=research/r{i}" for i in range(5)), 400),
    ],
)
async def test_runs_are_compared_by_who_may_read_them(site: Site, asked: str, status: int) -> None:
    got, _, body = await site.get(f"ui/api/compare?{asked}", TENANT)
    assert got == status
    if status == 200:
        assert [run["name"] for run in body["runs"]] == ["llama-70b", "vision-l"]
        assert body["missing"] == []


async def test_a_run_that_is_gone_or_may_not_be_read_is_missing_beside_those_that_are_compared(site: Site) -> None:
    one, none = "run=research/llama-70b", "run=research/none"
    status, _, body = await site.get(f"ui/api/compare?run=products/moe-16x&{one}&{none}", TENANT)
    assert (status, [run["name"] for run in body["runs"]]) == (200, ["llama-70b"])
    told = [(each["run"], each["status"]) for each in body["missing"]]
    assert told == [("products/moe-16x", 403), ("research/none", 404)]
    assert "role view" in body["missing"][0]["message"]
    absent = (await site.get(f"ui/api/compare?run=products/none&{one}", TENANT))[2]["missing"][0]
    assert absent["message"] == body["missing"][0]["message"]  # whether there is one or not


async def test_each_run_is_made_ready_once_however_it_is_compared(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = compare.side
    monkeypatch.setattr(compare, "side", lambda facts, now: made.append(facts.run.name) or real(facts, now))
    names = ("llama-70b", "vision-l", "ablation-lr")
    for asked in itertools.permutations(names):
        _, _, body = await site.get("ui/api/compare?" + "&".join(f"run=research/{name}" for name in asked), TENANT)
        assert [run["name"] for run in body["runs"]] == [*asked]
    assert sorted(made) == sorted(names)


async def test_a_namespace_that_may_not_be_read_answers_the_same_whatever_is_in_it(site: Site) -> None:
    there = await site.get("ui/api/runs/products/moe-16x", TENANT)
    absent = await site.get("ui/api/runs/products/none", TENANT)
    assert (there[0], there[2]) == (absent[0], absent[2])
    assert there[0] == 403
    assert "role view" in there[2]["message"]
    assert (await site.get("ui/api/runs/research/none", TENANT))[0] == 404


@pytest.mark.parametrize("name", ["%00", "a%2fb", "x" * 4000, "%F0%9F%92%A5", "..", "<script>alert(1)</script>"])
async def test_names_that_can_be_none_are_turned_away(site: Site, name: str) -> None:
    for path in (f"ui/api/runs/research/{name}", f"ui/api/runs/{name}/llama-70b"):
        status, said, _ = await site.get(path, TENANT)
        assert status in (400, 403, 404)
        assert said.get("Content-Type", "").startswith(("application/json", "text/plain"))


async def test_an_answer_that_has_not_changed_is_not_sent_again(site: Site) -> None:
    _, said, _ = await site.get("ui/api/fleet", ADMIN)
    assert said["Cache-Control"] == "no-store"
    status, _, body = await site.get("ui/api/fleet", {**ADMIN, "If-None-Match": said["ETag"]})
    assert (status, body) == (304, "")
    site.cluster.nodes[3] = replace(site.cluster.nodes[3], ready=False)
    await site.clock.advance(SHARED_SECONDS + 1)
    assert (await site.get("ui/api/fleet", {**ADMIN, "If-None-Match": said["ETag"]}))[0] == 200


async def test_however_many_look_the_map_is_made_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(server.fleet, "fleet", lambda facts, real=fleet.fleet: made.append(1) or real(facts))
    answers = await asyncio.gather(*(site.get("ui/api/fleet", ADMIN) for _ in range(30)))
    assert {status for status, _, _ in answers} == {200}
    assert len(made) == 1


async def test_where_a_retry_would_begin_is_no_question_about_a_run_that_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(server.deeds, "offered", lambda *given, **more: made.append(given[0].name) or [])
    for name in ("llama-70b", "gpt2-debug"):
        for step in range(3):
            assert (await site.get(f"ui/api/runs/research/{name}/actions?step={step}", ADMIN))[0] == 200
    assert made == ["llama-70b"] + ["gpt2-debug"] * 3


async def test_who_asks_too_often_is_told_when_to_come_again(site: Site) -> None:
    answers = [await site.get("ui/api/me", TENANT) for _ in range(int(BURST) + 1)]
    assert [status for status, _, _ in answers] == [200] * int(BURST) + [429]
    assert int(answers[-1][1]["Retry-After"]) >= 1
    assert (await site.get("ui/api/me", ADMIN))[0] == 200
    await site.clock.advance(5)
    assert (await site.get("ui/api/me", TENANT))[0] == 200


async def test_who_asks_while_very_many_answers_are_waited_for_is_told_when_to_come_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MOST_WAITING", 0)
    status, said, body = await site.get("ui/api/fleet", ADMIN)
    assert (status, int(said["Retry-After"]) >= 1, "busy" in body["message"]) == (503, True, True)


async def test_strangers_are_told_apart_by_their_connection_and_not_by_what_they_say(site: Site) -> None:
    def claims(number: int) -> dict[str, str]:
        address = f"192.0.2.{number}"
        said = {"X-Forwarded-For": address, "X-Real-IP": address, "Forwarded": f"for={address}"}
        return {"X-Lockstep-Token": f"forged-{number}", **said}

    answers = [await site.get("ui/api/me", claims(number)) for number in range(int(EACH_BURST) + 1)]
    assert [status for status, _, _ in answers] == [401] * int(EACH_BURST) + [429]
    assert int(answers[-1][1]["Retry-After"]) >= 1
    connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with (
        aiohttp.ClientSession(connector=connector) as another,
        another.get(f"{site.url}/ui/api/me", headers=ADMIN) as answer,
    ):
        assert answer.status == 200


async def test_a_replica_that_has_not_seen_the_cluster_says_so(site: Site) -> None:
    site.cluster.synced = False
    status, said, body = await site.get("ui/api/fleet", ADMIN)
    assert (status, said["Retry-After"]) == (503, "2")
    assert "not seen the whole cluster" in body["message"]


async def test_a_standby_answers_and_says_that_it_is_one(site: Site) -> None:
    site.cluster.leads = False
    status, said, _ = await site.get("ui/api/fleet", ADMIN)
    assert (status, said["X-Lockstep-Role"]) == (200, "Standby")


async def test_without_an_api_server_nobody_is_let_in_on_trust(site: Site) -> None:
    site.cluster.reviewer.down = True
    status, said, body = await site.get("ui/api/fleet", ADMIN)
    assert status == 503
    assert "Retry-After" in said
    assert "API server" in body["message"]


async def test_a_defect_is_told_without_its_details(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(facts: Any) -> Any:
        raise RuntimeError("secret-detail")

    monkeypatch.setattr(server.one_run, "run", broken)
    status, _, body = await site.get("ui/api/runs/research/llama-70b", ADMIN)
    assert status == 500
    assert "secret-detail" not in json.dumps(body)
    assert (await site.get("ui/api/me", ADMIN))[0] == 200


async def test_a_token_too_large_for_a_header_is_turned_away(site: Site) -> None:
    for length, status in ((7500, 401), (9000, 400), (60_000, 431)):
        assert (await site.get("ui/api/me", {"X-Lockstep-Token": "x" * length}))[0] == status


async def test_answers_are_packed_for_those_who_can_unpack_them(site: Site) -> None:
    _, said, plain = await site.get("ui/api/fleet", {**ADMIN, "Accept-Encoding": "identity"})
    assert "Content-Encoding" not in said
    _, said, unpacked = await site.get("ui/api/fleet", {**ADMIN, "Accept-Encoding": "gzip"})
    assert said["Content-Encoding"] == "gzip"
    assert unpacked == plain


async def test_one_address_has_room_for_many_people_and_not_for_any_number(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.page.connections, "_per_sender", 1)
    assert (await site.get("ui/api/me", ADMIN))[0] == 200
    async with aiohttp.ClientSession() as another, another.get(f"{site.url}/ui/api/me", headers=ADMIN) as answer:
        assert answer.status == 429


async def test_one_machine_does_not_hold_any_number_of_connections_by_its_many_addresses(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = site.page.connections
    monkeypatch.setattr(book, "_per_sender", 2)

    async def comes_from(address: str) -> int:
        transport = Mock(get_extra_info=lambda name, default=None: (address, 1) if name == "peername" else default)
        request = make_mocked_request("GET", "/ui/", transport=transport)
        handshake = asyncio.create_task(asyncio.sleep(0))
        book.open(address, request.protocol, handshake)
        await handshake
        return (await site.page._guard(request, site.page._asset)).status

    assert [await comes_from(f"2001:db8::{i}") for i in range(3)] == [200, 200, 429]
    assert [await comes_from(address) for address in ("2001:db8:0:1::1", "192.0.2.1")] == [200, 200]
    monkeypatch.setattr(book, "_proven_room", 4)
    assert await comes_from("192.0.2.2") == 200
    assert (len(book), book.cut) == (4 + 1, 1)  # one was refused, and is on its way out
