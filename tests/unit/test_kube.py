"""The Kubernetes client against a small HTTP server that misbehaves on demand (a fake API server)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lockstep.controller.kube import pages
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.errors import ApiError, UnknownOutcome, UnreachableError
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.runtime.resources import CLAIMS, CONFIG_MAPS, LEASES, NODES, PODS, RUNS, SECRETS
from support.hasty_clock import HastyClock
from support.manual_clock import ManualClock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeServer:
    """Answers with whatever the test puts in line, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Handler] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.tokens: list[str] = []
        self.accepted: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append((request.method, request.path, dict(request.query), body))
        self.tokens.append(request.headers.get("Authorization", ""))
        self.accepted.append(request.headers.get("Accept", ""))
        return await self.answers.pop(0)(request)


def says(status: int, body: Any, **headers: str) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def refuses(status: int, reason: str, message: str = "no", **headers: str) -> Handler:
    return says(
        status,
        {"kind": "Status", "code": status, "reason": reason, "message": message},
        **{name.replace("_", "-"): value for name, value in headers.items()},
    )


async def hangs_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@pytest.fixture
async def fake() -> FakeServer:
    return FakeServer()


@pytest.fixture
async def server(fake: FakeServer) -> AsyncIterator[TestServer]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", fake.answer)
    async with TestServer(application) as running:
        yield running


def credentials(server: TestServer, token: str = "Bearer t") -> Credentials:
    async def authorization() -> str | None:
        return token

    return Credentials(str(server.make_url("")).rstrip("/"), False, None, authorization)


@pytest.fixture
async def kube(server: TestServer) -> AsyncIterator[KubeClient]:
    async def load() -> Credentials:
        return credentials(server)

    async with KubeClient(load, HastyClock()) as client:
        yield client


async def test_an_object_is_read_by_its_path_with_our_token(kube: KubeClient, fake: FakeServer) -> None:
    fake.answers = [says(200, {"metadata": {"name": "x"}})]
    assert orjson.loads(await kube.get(LEASES, "x", "team")) == {"metadata": {"name": "x"}}
    assert fake.asked[0][:2] == ("GET", "/apis/coordination.k8s.io/v1/namespaces/team/leases/x")
    assert fake.tokens == ["Bearer t"]
    assert kube.requests == {("get", "leases", 200): 1}


NO_SUCH = refuses(404, "NotFound", 'secrets "x" not found')
NO_KIND = refuses(404, "NotFound", "the server could not find the requested resource")


async def test_of_what_only_has_to_be_there_no_content_is_read(kube: KubeClient, fake: FakeServer) -> None:
    fake.answers = [says(200, {"metadata": {"name": "x"}}), NO_SUCH, NO_KIND]
    assert await kube.exists(SECRETS, "x", "team", within=5.0)
    assert not await kube.exists(SECRETS, "x", "team", within=5.0)
    with pytest.raises(ApiError):
        await kube.exists(SECRETS, "x", "team", within=5.0)
    fake.answers = [says(200, {"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]})]
    assert await kube.names_of(CLAIMS, "team", 500, within=5.0) == ["a", "b"]
    assert fake.asked[-1][2] == {"limit": "500", "labelSelector": "app.kubernetes.io/managed-by!=lockstep"}
    assert all("as=PartialObjectMetadata" in accept for accept in fake.accepted)


async def test_a_refusal_carries_the_servers_reason_and_words(kube: KubeClient, fake: FakeServer) -> None:
    fake.answers = [refuses(404, "NotFound", "pods x not found")]
    with pytest.raises(ApiError) as refusal:
        await kube.get(PODS, "x", "team")
    assert (refusal.value.status, refusal.value.reason) == (404, "NotFound")
    assert refusal.value.message == "pods x not found"


async def test_a_list_comes_in_pages(kube: KubeClient, fake: FakeServer) -> None:
    fake.answers = [
        says(200, {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [{"n": 1}]}),
        says(200, {"metadata": {"resourceVersion": "7"}, "items": [{"n": 2}]}),
    ]
    items, version = await kube.list_all(NODES, labels="a=b")
    assert (items, version) == ([{"n": 1}, {"n": 2}], "7")
    assert fake.asked[0][2] == {"limit": "500", "labelSelector": "a=b"}
    assert fake.asked[1][2]["continue"] == "more"


async def test_a_status_write_names_the_version_it_was_decided_on(kube: KubeClient, fake: FakeServer) -> None:
    fake.answers = [says(200, {})]
    await kube.patch_status(RUNS, "llama", "team", resource_version="5", patch={"attempt": 2})
    method, path, query, body = fake.asked[0]
    assert (method, path) == (
        "PATCH",
        "/apis/lockstep.dev/v1alpha1/namespaces/team/trainingruns/llama/status",
    )
    assert query == {"timeout": "10s", "fieldManager": "lockstep", "fieldValidation": "Ignore"}
    assert orjson.loads(body) == {
        "metadata": {"resourceVersion": "5"},
        "status": {"attempt": 2},
    }


async def test_a_dry_run_is_strict_and_needs_no_leadership(kube: KubeClient, fake: FakeServer) -> None:
    def forbid() -> None:
        raise RuntimeError("not the leader")

    kube.write_guard = forbid
    fake.answers = [says(201, {})]
    await kube.create(PODS, {}, "team", dry_run=True)
    assert fake.asked[0][2]["dryRun"] == "All"
    assert fake.asked[0][2]["fieldValidation"] == "Strict"


@pytest.mark.parametrize(
    ("words", "counted"),
    [
        ('pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces', {}),
        (
            'pods is forbidden: User "system:serviceaccount:s:o" cannot create resource "pods" in API group ""',
            {("create", "pods", 403): 1},
        ),
    ],
)
async def test_a_dry_run_that_is_refused_counts_as_a_missing_right_only_where_it_is_one(
    kube: KubeClient, fake: FakeServer, words: str, counted: dict[tuple[str, str, int], int]
) -> None:
    fake.answers = [refuses(403, "Forbidden", words)]
    with pytest.raises(ApiError):
        await kube.create(PODS, {}, "team", dry_run=True)
    assert kube.requests == {("try", "pods", 403): 1} | counted


async def test_no_guarded_write_leaves_a_process_that_does_not_lead(kube: KubeClient, fake: FakeServer) -> None:
    def forbid() -> None:
        raise RuntimeError("not the leader")

    kube.write_guard = forbid
    with pytest.raises(RuntimeError):
        await kube.create(PODS, {}, "team")
    with pytest.raises(RuntimeError):
        await kube.delete(PODS, "x", "team", uid="u")
    with pytest.raises(RuntimeError):
        await kube.patch(RUNS, "x", {}, "team")
    assert fake.asked == []
    assert kube.window.in_flight == 0
    fake.answers = [says(200, {})]
    await kube.replace(LEASES, "x", {}, "team", guarded=False)


@pytest.mark.parametrize(("left", "asked"), [(4.7, "4s"), (60.0, "10s"), (0.2, "1s")])
async def test_the_server_gives_up_on_a_write_before_the_lease_is_over(
    kube: KubeClient, fake: FakeServer, left: float, asked: str
) -> None:
    kube.write_seconds = lambda: left
    fake.answers = [says(200, {}), says(200, {}), says(201, {})]
    await kube.patch_status(RUNS, "llama", "team", resource_version="5", patch={})
    await kube.replace(LEASES, "x", {}, "team", guarded=False)
    await kube.create(PODS, {}, "team", dry_run=True)
    assert [query["timeout"] for _, _, query, _ in fake.asked] == [asked, "10s", "10s"]


async def test_each_try_of_a_write_ends_with_what_is_left_of_the_lease_by_then(
    kube: KubeClient, fake: FakeServer
) -> None:
    left = iter([9.0, 9.0, 3.0, 3.0])
    kube.write_seconds = lambda: next(left)
    fake.answers = [refuses(429, "TooManyRequests"), says(200, {})]
    await kube.patch(RUNS, "x", {}, "team")
    assert [query["timeout"] for _, _, query, _ in fake.asked] == ["9s", "3s"]


async def test_a_write_that_would_outlive_the_lease_by_now_is_not_sent(kube: KubeClient, fake: FakeServer) -> None:
    left = iter([9.0, 7.5])  # while its connection was made
    kube.write_seconds = lambda: next(left)
    with pytest.raises(UnreachableError, match="little of the lease is left"):
        await kube.patch(RUNS, "x", {}, "team")
    assert [body for *_, body in fake.asked if body] == []


async def test_a_write_whose_lease_runs_out_while_its_connection_is_made_is_not_sent(
    kube: KubeClient, fake: FakeServer
) -> None:
    looks = iter([None, RuntimeError("not the leader any more")])

    def leads_for_one_more_look() -> None:
        if (error := next(looks)) is not None:
            raise error

    kube.write_guard = leads_for_one_more_look
    with pytest.raises(RuntimeError, match="any more"):
        await kube.patch(RUNS, "x", {"spec": {}}, "team")
    assert fake.asked == []
    kube.write_guard = lambda: None
    fake.answers = [says(200, {})]
    await kube.patch(RUNS, "x", {"spec": {"nodes": 2}}, "team")
    assert orjson.loads(fake.asked[0][3]) == {"spec": {"nodes": 2}}


async def test_deleting_what_is_gone_or_replaced_is_no_error(kube: KubeClient, fake: FakeServer) -> None:
    fake.answers = [refuses(404, "NotFound"), refuses(409, "Conflict"), says(200, {"kind": "Pod"})]
    assert await kube.delete(PODS, "x", "team", uid="u") is None
    assert await kube.delete(PODS, "x", "team", uid="u") is None
    assert await kube.delete(PODS, "x", "team", uid="u", grace=0) == b'{"kind": "Pod"}'
    assert orjson.loads(fake.asked[2][3]) == {
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
    }


async def test_a_write_whose_answer_is_lost_has_an_unknown_outcome(kube: KubeClient, fake: FakeServer) -> None:
    fake.answers = [hangs_up]
    begun = SystemClock().now()
    with pytest.raises(UnknownOutcome) as unknown:
        await kube.create(CONFIG_MAPS, {}, "team")
    assert 14 < unknown.value.settles_at - begun < 20
    assert kube.requests == {("create", "configmaps", 0): 1}


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_write_answered_by_a_broken_server_has_an_unknown_outcome(
    kube: KubeClient, fake: FakeServer, status: int
) -> None:
    fake.answers = [refuses(status, "InternalError")]
    with pytest.raises(UnknownOutcome):
        await kube.create(CONFIG_MAPS, {}, "team")


async def test_a_write_that_takes_too_long_has_an_unknown_outcome(kube: KubeClient, fake: FakeServer) -> None:
    async def dawdles(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5)
        return web.Response()

    fake.answers = [dawdles]
    with pytest.raises(UnknownOutcome):
        await kube.replace(LEASES, "x", {}, "team", within=0.05)


async def test_how_long_writes_take_is_told_by_namespace_and_not_of_leases(kube: KubeClient, fake: FakeServer) -> None:
    told: list[str] = []
    kube.wrote = lambda namespace, seconds: told.append(namespace)
    fake.answers = [says(200, {})] * 3 + [refuses(409, "Conflict"), hangs_up, says(200, {})]
    await kube.create(CONFIG_MAPS, {}, "team")
    await kube.create(CONFIG_MAPS, {}, "team", dry_run=True)
    await kube.replace(LEASES, "x", {}, "system")
    with pytest.raises(ApiError):
        await kube.create(PODS, {}, "other")
    with pytest.raises(UnknownOutcome):
        await kube.patch(PODS, "x", {}, "third", "status")
    await kube.post("/apis/authentication.k8s.io/v1/tokenreviews", {})
    assert told == ["team", "team", "other", "third", ""]


async def test_a_read_that_fails_is_merely_unreachable(kube: KubeClient, fake: FakeServer) -> None:
    fake.answers = [hangs_up, hangs_up]
    with pytest.raises(UnreachableError):
        await kube.get(PODS, "x", "team")


async def test_a_write_that_found_nobody_was_never_sent() -> None:
    async def load() -> Credentials:
        async def authorization() -> str | None:
            return None

        return Credentials("http://127.0.0.1:1", False, None, authorization)

    async with KubeClient(load, SystemClock()) as kube:
        with pytest.raises(UnreachableError):
            await kube.create(PODS, {}, "team")


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


async def test_watch_lines_come_whole_however_they_are_cut(kube: KubeClient, fake: FakeServer) -> None:
    lines = [orjson.dumps({"n": number, "filler": "x" * number * 1000}) for number in range(30)]
    text = b"\n".join(lines) + b"\n"

    async def streams(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(text), 7919):
            await response.write(text[start : start + 7919])
        await response.write_eof()
        return response

    fake.answers = [streams]
    got: list[bytes] = []
    async for batch in kube.watch(PODS, {"resourceVersion": "1"}, idle_timeout=5):
        got += [line for line in batch if line]
    assert got == lines


async def test_a_silent_watch_is_given_up(kube: KubeClient, fake: FakeServer) -> None:
    async def falls_silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"n": 1}\n')
        await asyncio.sleep(5)
        return response

    fake.answers = [falls_silent]
    watch = kube.watch(PODS, {}, idle_timeout=0.1)
    assert await anext(watch) == []  # it was granted
    assert await anext(watch) == [b'{"n": 1}']
    with pytest.raises(UnreachableError):
        await anext(watch)


async def test_questions_by_post_need_no_leadership(kube: KubeClient, fake: FakeServer) -> None:
    def forbid() -> None:
        raise RuntimeError("not the leader")

    kube.write_guard = forbid
    fake.answers = [says(201, {"status": {"authenticated": True}})]
    reply = await kube.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "t"}})
    assert reply == {"status": {"authenticated": True}}
    assert kube.requests == {("create", "tokenreviews", 201): 1}


async def test_an_object_that_is_too_deep_does_not_cost_the_page_it_is_on(kube: KubeClient, fake: FakeServer) -> None:
    deep = {"metadata": {"namespace": "team", "name": "deep", "managedFields": [{"fieldsV1": "DEEP"}]}}
    body = orjson.dumps({"metadata": {"resourceVersion": "7"}, "items": [deep, {"metadata": {"name": "plain"}}]})

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body.replace(b'"DEEP"', b'{"a":' * 9_990 + b"1" + b"}" * 9_990))

    fake.answers = [answer]
    items, _ = await kube.list_all(NODES)
    assert [item["metadata"]["name"] for item in items] == ["deep", "plain"]
    assert kube._left_out.counts == {"nodes": 1}


async def test_an_answer_that_is_no_list_is_no_answer(kube: KubeClient, fake: FakeServer) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="<html>a proxy's page</html>")

    fake.answers = [answer]
    with pytest.raises(UnreachableError):
        await kube.list_all(NODES)


async def test_what_cannot_be_written_as_json_is_refused_as_the_server_would(kube: KubeClient) -> None:
    with pytest.raises(ApiError) as refusal:
        await kube.patch(NODES, "n", {"metadata": {"seconds": 2**90}})
    assert refusal.value.is_verdict


@pytest.mark.slow
async def test_a_lease_is_renewed_while_every_other_request_waits_for_its_answer(
    server: TestServer, kube: KubeClient, fake: FakeServer
) -> None:
    full, answered = asyncio.Event(), asyncio.Event()

    async def by_kind(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/leases/x"):
            if len(fake.asked) == 256:
                full.set()
            await answered.wait()
        return web.json_response({})

    fake.answers = [by_kind] * 300
    others = [asyncio.ensure_future(kube.get(NODES, f"n{number}")) for number in range(299)]
    await full.wait()
    try:
        await kube.replace(LEASES, "x", {}, "team", guarded=False, within=1.0)
    finally:
        answered.set()
        await asyncio.gather(*others)


async def test_an_answer_without_end_is_not_taken_in(
    kube: KubeClient, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b"x" * 2**16)
                sent += 2**16
        return response

    monkeypatch.setattr(pages, "LONGEST_PAGE", 2**20)
    fake.answers = [endless, says(200, {"metadata": {"resourceVersion": "7"}, "items": [{"n": 1}]})]
    assert await kube.list_all(NODES) == ([{"n": 1}], "7")
    assert [asked[2]["limit"] for asked in fake.asked] == ["500", "125"]
    assert sent < 2**24


async def test_of_an_object_that_is_too_large_only_its_metadata_is_read_and_no_list_passes_for_complete_without_it(
    kube: KubeClient, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LONGEST_PAGE", 1_000)
    monkeypatch.setattr(pages, "LONGEST_BODY", 1_000)
    accepted = list[str]()

    async def answer(request: web.Request) -> web.StreamResponse:
        accepted.append(request.headers["Accept"])
        metadata = {"name": "large", "uid": "u1"}
        data = {} if "PartialObjectMetadata" in accepted[-1] else {"data": "x" * 2_000}
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": metadata, **data}]})

    fake.answers = [answer] * 20
    found = [page async for page in kube.list_pages(PODS)]
    assert [(page.items, page.unread) for page in found] == [([], ["u1"])]
    assert accepted[-2:] == ["application/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"]
    with pytest.raises(UnreachableError):
        await kube.list_all(PODS)
