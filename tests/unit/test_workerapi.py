"""The worker API over real TLS connections; only the API server's TokenReview is a fake."""

import asyncio
import base64
import io
import json
import logging
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from cryptography import x509

from lockstep.api.base import names
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.workers import api, protocol
from lockstep.controller.workers.api import WorkerApi
from lockstep.controller.workers.connections import Connections
from lockstep.controller.workers.listener import Listener
from lockstep.controller.workers.protocol import REGISTER_LIMIT, REPORT_LIMIT
from lockstep.controller.workers.reports import ReportBook
from lockstep.controller.workers.step_certificates import StepCertificates, StepIdentity, WorkerOfAttempt
from lockstep.controller.workers.tls import Material, new_material, server_context
from lockstep.controller.workers.trust import SenderClaim, TokenReviews
from lockstep.core.model.plan import DesiredPhase, Directive
from lockstep.core.model.snapshot import PodPhase, PodView
from lockstep.core.model.start_record import CollectiveStart, Members

RUN = "7f1c2a34-1"
OTHER_RUN = "9e8d7c6b-2"
ENDPOINTS = ("/v1/register", "/v1/report")
PREPARE = Directive(1, DesiredPhase.PREPARE, (1, 1), (0, 1))
RELEASE = replace(
    PREPARE,
    phase=DesiredPhase.RUN,
    start=CollectiveStart(1, "hash", "10.0.0.1", 40123, members=(Members("0-1", 1),)),
    nodelist=("10.0.0.1", "10.0.0.2"),
)


def pod(slot: int, incarnation: int = 1, run: str = RUN) -> PodView:
    name = {RUN: "llama", OTHER_RUN: "gpt"}[run]
    return PodView(
        namespace="team",
        name=names.pod_name(name, run, slot, incarnation),
        uid=f"{run}-{slot}-{incarnation}",
        run=name,
        run_uid=run,
        owner_uid=run,
        slot=slot,
        incarnation=incarnation,
        node=f"gpu-{slot}",
        bound=True,
        phase=PodPhase.RUNNING,
        created_at=0.0,
    )


class World:
    """Pods and runs as the operator sees them, the API server's reviews, and the worker API over them."""

    def __init__(self, **limits: int) -> None:
        self.clock = SystemClock()
        self.pods = {p.uid: p for p in (pod(0), pod(1), pod(0, run=OTHER_RUN))}
        self.runs = {RUN, OTHER_RUN}
        self.incarnations = {(RUN, 0): 1, (RUN, 1): 1, (OTHER_RUN, 0): 1}
        self.epoch: tuple[int, int] | None = (1_700_000_000, 3)
        self.woken: list[str] = []
        self.down = False
        self.expires_at = time.time() + 3600
        self.book = ReportBook(self.clock, self.woken.append)
        self.steps = StepCertificates(self.clock)
        self.steps.use(b"s" * 32)
        self.api = WorkerApi(
            reviews=TokenReviews(self.post, self, self.clock),
            gangs=self,
            book=self.book,
            clock=self.clock,
            epoch=lambda: self.epoch,
            heartbeat_seconds=lambda workers: 2.0 + workers,
            steps=self.steps,
            **limits,
        )
        self.session: aiohttp.ClientSession
        self.url = ""

    def pod_by_uid(self, uid: str) -> PodView | None:
        return self.pods.get(uid)

    def run_namespace(self, run_uid: str) -> str | None:
        return "team" if run_uid in self.runs else None

    def incarnation(self, run_uid: str, slot: int) -> int | None:
        return self.incarnations.get((run_uid, slot))

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.down:
            raise OSError("connection refused")
        payload = body["spec"]["token"].split(".")[1]
        uid = json.loads(base64.urlsafe_b64decode(payload + "=="))["kubernetes.io"]["pod"]["uid"]
        extra = {
            "authentication.kubernetes.io/pod-name": [self.pods[uid].name],
            "authentication.kubernetes.io/pod-uid": [uid],
        }
        user = {"username": "system:serviceaccount:team:default", "extra": extra}
        return {"status": {"authenticated": True, "audiences": ["lockstep"], "user": user}}

    def token(self, uid: str, audience: str = "lockstep") -> str:
        claims = {
            "aud": [audience],
            "exp": self.expires_at,
            "kubernetes.io": {"pod": {"uid": uid}},
        }
        payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        return f"e30.{payload}.c2ln"

    def body(self, speaker: PodView, **changes: Any) -> dict[str, Any]:
        sender = {
            "protocol": 1,
            "runUid": speaker.run_uid,
            "slot": speaker.slot,
            "incarnation": speaker.incarnation,
            "podUid": speaker.uid,
        }
        state = {"phase": "Preparing", "wall": time.time(), "mono": time.monotonic()}
        registration = {
            "namespace": "team",
            "run": speaker.run,
            "node": speaker.node,
            "hostname": speaker.node,
            "address": f"10.0.0.{speaker.slot + 1}",
            "inventory": [],
            "report": state,
        }
        return {**sender, **registration, **state, **changes}

    async def send(self, endpoint: str, body: Any, token: str | None) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url + endpoint, data=data, headers=headers) as response:
            return response.status, await response.json(), response.headers

    async def say(self, endpoint: str, speaker: PodView, **changes: Any) -> tuple[int, dict[str, Any]]:
        """What the worker in the pod ``speaker`` would send, with its own token."""
        status, answer, _ = await self.send(endpoint, self.body(speaker, **changes), self.token(speaker.uid))
        return status, answer


@pytest.fixture(scope="module")
def material() -> Material:
    return new_material(["127.0.0.1"], time.time())


@asynccontextmanager
async def served(world: World, material: Material) -> AsyncIterator[World]:
    listener = await Listener.open(
        world.api.application(), "127.0.0.1", 0, server_context(material), world.api.connections
    )
    world.url = f"https://127.0.0.1:{listener.port}"
    trust = ssl.create_default_context(cadata=material.ca_bundle)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as world.session:
            yield world
    finally:
        await listener.close()


@pytest.fixture
async def world(material: Material) -> AsyncIterator[World]:
    async with served(World(), material) as opened:
        yield opened


async def eventually(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


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


async def test_the_pattern_of_the_steps_is_told_to_who_is_to_start_and_to_nobody_else(world: World) -> None:
    await world.say("/v1/register", pod(0))
    world.book.set_directive(RUN, replace(RELEASE, progress_pattern="at (?P<step>[0-9]+)"))
    assert (await world.say("/v1/report", pod(0)))[1]["progressPattern"] == "at (?P<step>[0-9]+)"
    assert "progressPattern" not in (await world.say("/v1/report", pod(0), attempt=1, phase="Running"))[1]
    world.book.set_directive(RUN, RELEASE)
    assert "progressPattern" not in (await world.say("/v1/report", pod(0)))[1]


async def test_who_is_to_start_an_attempt_with_steps_is_told_how_its_peers_know_it(world: World) -> None:
    for slot in (0, 1):
        await world.say("/v1/register", pod(slot))
    world.book.set_directive(RUN, replace(RELEASE, step_ports=(5000, 5001)))
    answers = [(await world.say("/v1/report", pod(slot)))[1] for slot in (0, 1)]
    answers.append((await world.say("/v1/register", pod(1)))[1])
    assert {tuple(answer["steps"]["ports"]) for answer in answers} == {(5000, 5001)}
    assert len({answer["steps"]["ca"] for answer in answers}) == 1
    assert [_uri(answer["steps"]["certificate"]) for answer in answers] == [
        f"lockstep://run/{RUN}/attempt/1/slot/{slot}/incarnation/1" for slot in (0, 1, 1)
    ]
    assert len({answer["steps"]["key"] for answer in answers}) == 3


async def test_who_is_to_start_an_attempt_of_ray_shares_a_token_with_its_peers(world: World) -> None:
    for slot in (0, 1):
        await world.say("/v1/register", pod(slot))
    world.book.set_directive(RUN, replace(RELEASE, has_token=True))
    answers = [(await world.say("/v1/report", pod(slot)))[1] for slot in (0, 1)]
    assert [answer["token"] for answer in answers] == [world.steps.token(RUN, 1)] * 2
    world.book.set_directive(RUN, replace(RELEASE, has_token=True, joining=frozenset({1})))
    answer = (await world.say("/v1/report", pod(1)))[1]
    assert (answer["phase"], answer["rank"], answer["worldSize"]) == ("Prepare", 1, 2), "it prepares to join"


async def test_who_is_superseded_is_told_that_the_others_go_on(world: World) -> None:
    await world.say("/v1/register", pod(1))
    world.book.set_directive(RUN, replace(RELEASE, incarnations=(1, 2)))
    answer = (await world.say("/v1/report", pod(1)))[1]
    assert (answer["phase"], answer["superseded"], answer["attempt"]) == ("Stop", True, 1)
    world.book.set_directive(RUN, replace(RELEASE, phase=DesiredPhase.STOP))
    answer = (await world.say("/v1/report", pod(1)))[1]
    assert (answer["phase"], "superseded" in answer) == ("Stop", False)


STEPS = replace(RELEASE, step_ports=(5000, 5001), has_token=True, stop_grace=20)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("directive", "attempt"),
    [
        (None, 1),
        (replace(STEPS, attempt=2), 2),  # of before: it would have it start
        (replace(STEPS, incarnations=(1, 2)), 1),
        (replace(PREPARE, attempt=2, incarnations=(1, 2), stop_grace=20), 2),
    ],
)
async def test_who_is_of_a_past_incarnation_is_told_to_stop_and_counts_for_nothing(
    world: World, endpoint: str, directive: Directive | None, attempt: int
) -> None:
    """As after a failover, or behind a network that is back: no poll of it was open when status said so."""
    if directive is not None:
        await world.say("/v1/register", pod(1))
        world.book.set_directive(RUN, directive)
    world.incarnations[RUN, 1] = 2
    before = world.book.reports(RUN)
    world.woken.clear()
    said = {"phase": "Running", "attempt": 1, "asks": [{"id": "1", "kind": "requeue"}]}
    report = {**world.body(pod(1))["report"], **said}
    status, answer = await world.say(endpoint, pod(1), **said, report=report)
    assert (status, answer["phase"], answer["superseded"], answer["attempt"]) == (200, "Stop", True, attempt)
    assert answer.get("stopGraceSeconds") == (20 if directive else None), "else the worker has one of its own"
    assert (answer["rank"], answer["start"], answer["nodelist"]) == (-1, None, [])
    assert not {"steps", "token", "asked"} & set(answer)
    assert world.book.reports(RUN) == before
    assert (world.woken, world.book.ended(RUN)) == ([], {})


async def test_a_past_incarnation_that_was_told_polls_as_others_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, news = asyncio.Event(), world.book.news

    async def wait_for_news(run_uid: str, seen: int, seconds: float) -> None:
        arrived.set()
        await news(run_uid, seen, seconds)

    monkeypatch.setattr(world.book, "news", wait_for_news)
    world.book.set_directive(RUN, RELEASE)
    world.incarnations[RUN, 1] = 2
    answer = (await world.say("/v1/report", pod(1), epoch=[1, 1], seen=1, waitSeconds=15))[1]
    assert (answer["phase"], arrived.is_set()) == ("Stop", False), "another leader's: at once"
    seen = {"epoch": answer["epoch"], "seen": answer["revision"], "waitSeconds": 15}
    poll = asyncio.ensure_future(world.say("/v1/report", pod(1), **seen))
    await asyncio.wait_for(arrived.wait(), 14)
    world.book.set_directive(RUN, replace(RELEASE, incarnations=(1, 2)))
    answer = (await asyncio.wait_for(poll, 14))[1]
    assert (answer["phase"], answer["revision"]) == ("Stop", 2)
    assert world.book.reports(RUN) == {}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_that_the_program_of_a_past_incarnation_has_ended_is_taken_in(world: World, endpoint: str) -> None:
    world.incarnations[RUN, 1] = 2
    ended = {"phase": "Exited", "attempt": 3}
    report = {**world.body(pod(1))["report"], **ended}
    for _ in range(2):
        assert (await world.say(endpoint, pod(1), **ended, report=report))[0] == 200
    assert (world.book.ended(RUN), world.book.reports(RUN)) == ({pod(1).uid: 3}, {})
    assert world.woken == [RUN], "once"
    world.incarnations[RUN, 0] = 2
    del world.pods[pod(1).uid]
    report["attempt"] = 1
    await world.say(endpoint, pod(0), phase="Exited", attempt=1, report=report)
    assert world.book.ended(RUN) == {pod(0).uid: 1}, "pods that are gone are forgotten"


SPARE = replace(RELEASE, step_ports=(5000,), incarnations=(1, 1), slot_ranks=(0, -1))


@pytest.mark.parametrize(
    ("directive", "speaker", "said"),
    [
        (RELEASE, pod(1), {}),
        (replace(PREPARE, step_ports=(5000, 5001)), pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001)), pod(1), {"attempt": 1, "phase": "Running"}),
        (replace(RELEASE, step_ports=(5000, 5001), attempt=2), pod(1), {"attempt": 7}),
        (SPARE, pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001), incarnations=(1, 2)), pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001), incarnations=(1, 0)), pod(1), {}),
        (replace(RELEASE, step_ports=(5000,), incarnations=(1,), slot_ranks=(0,)), pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001)), pod(0, run=OTHER_RUN), {}),
        (replace(RELEASE, step_ports=(5000, 5001), phase=DesiredPhase.STOP), pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001), joining=frozenset({1})), pod(1), {}),
    ],
    ids=[
        "a run without steps", "at the barrier", "it has begun the attempt", "it is in a later attempt", "a spare",
        "an older incarnation", "a newer incarnation", "no slot of the gang", "another run", "a gang that stops",
        "one that has yet to join",
    ],
)  # fmt: skip
async def test_nobody_else_gets_a_certificate(
    world: World, directive: Directive, speaker: PodView, said: dict[str, Any]
) -> None:
    world.book.set_directive(RUN, replace(directive, has_token=bool(directive.step_ports)))
    await world.say("/v1/register", speaker)
    status, answer = await world.say("/v1/report", speaker, **said)
    assert status == 200
    assert "steps" not in answer
    assert "token" not in answer
    assert "PRIVATE KEY" not in json.dumps(answer)


async def test_a_leader_deposed_while_it_issues_gives_no_certificate(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.say("/v1/register", pod(0))
    world.book.set_directive(RUN, replace(RELEASE, step_ports=(5000, 5001)))
    issue = world.steps.issued

    def depose(worker: WorkerOfAttempt) -> StepIdentity:
        world.epoch = None
        return issue(worker)

    monkeypatch.setattr(world.steps, "issued", depose)
    assert (await world.say("/v1/report", pod(0)))[0] == 503


def _uri(certificate: str) -> str:
    names = x509.load_pem_x509_certificate(certificate.encode()).extensions
    [uri] = names.get_extension_for_class(x509.SubjectAlternativeName).value
    return str(uri.value)


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


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("no token", 401),
        ("not a token", 401),
        ("basic", 401),
        ("wrong audience", 401),
        ("token of another run", 403),
        ("token of another slot's pod", 403),
        ("claims a newer incarnation", 403),
        ("pod has ended", 403),
        ("pod is gone", 403),
    ],
)
async def test_a_worker_that_is_not_who_it_says_is_refused_everywhere(
    world: World, endpoint: str, wrong: str, expected: int
) -> None:
    await world.say("/v1/register", pod(0))
    body, token = world.body(pod(0)), world.token(pod(0).uid)
    match wrong:
        case "no token":
            token = None
        case "not a token":
            token = "hello"
        case "basic":
            token = ""
        case "wrong audience":
            token = world.token(pod(0).uid, audience="https://kubernetes.default.svc")
        case "token of another run":
            token = world.token(pod(0, run=OTHER_RUN).uid)
        case "token of another slot's pod":
            token = world.token(pod(1).uid)
        case "claims a newer incarnation":
            body["incarnation"] = 2
        case "pod has ended":
            world.pods[pod(0).uid] = replace(pod(0), phase=PodPhase.FAILED)
        case "pod is gone":
            del world.pods[pod(0).uid]
    before = world.book.reports(RUN)
    status, answer, _ = await world.send(endpoint, body, token)
    assert status == expected, answer
    assert set(answer) == {"error", "message"}
    assert world.book.reports(RUN) == before


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


async def test_a_registration_for_another_run_or_from_no_address_is_refused(world: World) -> None:
    assert (await world.say("/v1/register", pod(0), run="gpt"))[0] == 403
    assert (await world.say("/v1/register", pod(0), namespace="elsewhere"))[0] == 403
    assert (await world.say("/v1/register", pod(0), address="gpu-0.local"))[0] == 400


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


async def test_a_pods_token_is_worth_nothing_to_another_pod_and_is_written_nowhere(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stolen = world.token(pod(0).uid)
    answers = []
    for endpoint in ENDPOINTS:
        await world.say("/v1/register", pod(0))
        for thief in (pod(1), pod(0, run=OTHER_RUN), replace(pod(0), slot=7), replace(pod(0), incarnation=9)):
            status, answer, headers = await world.send(endpoint, world.body(thief), stolen)
            assert status == 403
            answers.append(f"{answer} {dict(headers)}")
    world.down = True
    await world.send("/v1/report", world.body(pod(1)), world.token(pod(1).uid))
    assert stolen not in caplog.text + "".join(answers)
    assert world.token(pod(1).uid) not in caplog.text
    assert set(world.book.reports(RUN)) == {0}
    assert world.book.reports(OTHER_RUN) == {}


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


async def test_known_workers_are_heard_while_the_api_server_is_down(world: World) -> None:
    await world.say("/v1/register", pod(0))
    world.down = True
    assert (await world.say("/v1/report", pod(0)))[0] == 200
    status, answer = await world.say("/v1/register", pod(1))
    assert (status, answer["error"]) == (503, "unavailable")


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
