"""What the Kubernetes client writes, and whether it knows what became of it (with a fake API server)."""

import asyncio

import orjson
import pytest
from aiohttp import web

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.errors import ApiError, UnknownOutcome, UnreachableError
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.runtime.resources import CONFIG_MAPS, LEASES, NODES, PODS, RUNS
from support.kube_server import FakeServer, hangs_up, refuses, says


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


async def test_a_write_that_found_nobody_was_never_sent() -> None:
    async def load() -> Credentials:
        async def authorization() -> str | None:
            return None

        return Credentials("http://127.0.0.1:1", False, None, authorization)

    async with KubeClient(load, SystemClock()) as kube:
        with pytest.raises(UnreachableError):
            await kube.create(PODS, {}, "team")


async def test_what_cannot_be_written_as_json_is_refused_as_the_server_would(kube: KubeClient) -> None:
    with pytest.raises(ApiError) as refusal:
        await kube.patch(NODES, "n", {"metadata": {"seconds": 2**90}})
    assert refusal.value.is_verdict
