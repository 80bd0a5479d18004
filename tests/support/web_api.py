"""The API server as the page asks it: for viewers, by their own tokens, and for reviews of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from lockstep.api.base import names
from lockstep.controller.kube.credentials import Credentials
from support.answering_server import answering_here
from support.web_views import Json


@dataclass
class ApiServer:
    """Of the API server what viewers ask by their own tokens. ``may``: by token, ``edit`` and ``logs``."""

    may: dict[str, frozenset[str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=lambda: ["step 1", "step 2"])
    asked: list[tuple[str, str, Mapping[str, str], Any]] = field(default_factory=list)
    """Method, path, headers, and the query or the body."""
    answer: tuple[int, Json] | None = None
    """Instead of what it would say to a change or for a log."""
    objects: dict[str, Json] = field(default_factory=dict)
    """What may be read by who may do anything, by path."""
    url: str = "http://127.0.0.1:1"
    following: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: what is followed ends."""
    breaks: bool = False
    """Rather than to end, it breaks off."""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[ApiServer]:
        """It listens."""
        async with answering_here(self._answer) as self.url:
            yield self

    async def credentials(self) -> Credentials:
        """As an operator has them, whose own token and certificate nobody else is to come with."""

        async def own() -> str:
            return "Bearer the-operators-own"

        return Credentials(self.url, False, None, own, trust=False)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        changes = request.method != "GET"
        sent: Any = await request.json() if changes else dict(request.query)
        self.asked.append((request.method, request.path, dict(request.headers), sent))
        if self.answer is not None and (changes or request.path not in self.objects):
            return web.json_response(self.answer[1], status=self.answer[0])
        rights = self.may.get(token)
        if rights is None:
            return web.json_response({"message": "Unauthorized", "code": 401}, status=401)
        if ("edit" if changes else "logs") not in rights:
            words = 'forbidden: User "x" cannot do resource "y" in API group "" in the namespace'
            return web.json_response({"message": words, "reason": "Forbidden", "code": 403}, status=403)
        if request.method == "POST":
            return web.json_response({"metadata": {"name": sent["metadata"]["name"], "uid": "uid-made"}})
        if changes:
            return web.json_response({})
        if not request.path.endswith("/log"):
            found = self.objects.get(request.path)
            return web.json_response(found or {"message": "not found"}, status=200 if found else 404)
        response = web.StreamResponse()
        await response.prepare(request)
        self.following += 1
        try:
            for line in self.lines:
                await response.write(f"{line}\n".encode())
            await self.ended.wait()
            if self.breaks and request.transport is not None:
                request.transport.abort()
        finally:
            self.following -= 1
        return response


@dataclass
class Reviewer:
    """The API server's answers. ``users``: by token, name and what they may."""

    users: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    down: bool = False

    def admit(self, token: str, name: str, *rights: str) -> None:
        """``rights``: namespaces where they may get runs and arrays, ``*`` for all; ``no arrays``: runs alone,
        ``no runs``: arrays alone; ``nodes`` and ``queues`` to list those, ``edit`` to change runs, ``logs`` to read
        those of pods."""
        self.users[token] = name, frozenset(rights)

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the API server would say."""
        self.asked.append((path, body))
        if self.down:
            raise OSError("connection refused")
        if path.endswith("tokenreviews"):
            audiences = list(body["spec"].get("audiences", ()))
            known = self.users.get(body["spec"]["token"])
            if known is None or audiences:
                return {"status": {"authenticated": False}}
            user = {"username": known[0], "uid": f"uid-{known[0]}", "groups": ["system:authenticated"]}
            return {"status": {"authenticated": True, "user": user}}
        spec = body["spec"]
        rights = next((rights for name, rights in self.users.values() if name == spec["user"]), frozenset())
        wanted = spec["resourceAttributes"]
        if wanted.get("subresource") == "log":
            allowed = "logs" in rights
        elif wanted["verb"] in ("patch", "create"):
            allowed = "edit" in rights
        elif {names.RUN_SETS: "no arrays", names.RUNS: "no runs"}.get(wanted["resource"]) in rights:
            allowed = False
        elif wanted["resource"] in (names.RUNS, names.RUN_SETS):
            allowed = "*" in rights or (wanted["namespace"] in rights and bool(wanted["namespace"]))
        else:
            allowed = {"nodes": "nodes", names.QUEUES: "queues"}[wanted["resource"]] in rights
        return {"status": {"allowed": allowed}}

    def reviews(self, kind: str) -> int:
        """How often it was asked."""
        return sum(path.endswith(kind) for path, _ in self.asked)
