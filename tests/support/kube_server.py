"""A small HTTP server that misbehaves on demand (a fake API server), and a Kubernetes client that asks it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials
from support.hasty_clock import HastyClock

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


@asynccontextmanager
async def served(fake: FakeServer) -> AsyncIterator[TestServer]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", fake.answer)
    running = TestServer(application)
    async with running:
        yield running


def credentials(server: TestServer, token: str = "Bearer t") -> Credentials:
    async def authorization() -> str | None:
        return token

    return Credentials(str(server.make_url("")).rstrip("/"), False, None, authorization)


@asynccontextmanager
async def asking(server: TestServer) -> AsyncIterator[KubeClient]:
    async def load() -> Credentials:
        return credentials(server)

    async with KubeClient(load, HastyClock()) as client:
        yield client
