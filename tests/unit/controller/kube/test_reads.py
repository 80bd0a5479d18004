"""What the Kubernetes client reads, lists and watches, however it is answered (by a fake API server)."""

import asyncio
from contextlib import suppress

import orjson
import pytest
from aiohttp import web

from lockstep.controller.kube import pages
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, UnreachableError
from lockstep.controller.runtime.resources import CLAIMS, LEASES, NODES, PODS, SECRETS
from support.kube_server import FakeServer, hangs_up, refuses, says


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


async def test_a_read_that_fails_is_merely_unreachable(kube: KubeClient, fake: FakeServer) -> None:
    fake.answers = [hangs_up, hangs_up]
    with pytest.raises(UnreachableError):
        await kube.get(PODS, "x", "team")


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


@pytest.mark.slow
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
