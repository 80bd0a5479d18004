"""Pods and runs as the operator sees them, and the worker API over them with real TLS."""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import aiohttp

from lockstep.api.base import names
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.workers.api import WorkerApi
from lockstep.controller.workers.listener import Listener
from lockstep.controller.workers.reports import ReportBook
from lockstep.controller.workers.step_certificates import StepCertificates
from lockstep.controller.workers.tls import Material, new_material, server_context
from lockstep.controller.workers.trust import TokenReviews
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


@cache
def made_material() -> Material:
    """Of a server at 127.0.0.1."""
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


async def eventually(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")
