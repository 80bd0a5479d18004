"""No write of the Kubernetes client outlives the lease of its process, and that lease is renewed first."""

import asyncio

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import UnreachableError
from lockstep.controller.runtime.resources import LEASES, NODES, PODS, RUNS
from support.kube_server import FakeServer, refuses, says


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


async def test_questions_by_post_need_no_leadership(kube: KubeClient, fake: FakeServer) -> None:
    def forbid() -> None:
        raise RuntimeError("not the leader")

    kube.write_guard = forbid
    fake.answers = [says(201, {"status": {"authenticated": True}})]
    reply = await kube.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "t"}})
    assert reply == {"status": {"authenticated": True}}
    assert kube.requests == {("create", "tokenreviews", 201): 1}


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
