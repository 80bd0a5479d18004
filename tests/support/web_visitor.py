"""The page in front of an API server, and somebody who asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from lockstep.controller.web import deeds
from lockstep.controller.web.server import WebPage
from lockstep.controller.workers.listener import Listener
from support import sample_runs
from support.manual_clock import ManualClock
from support.web_site import Cluster, busy_cluster

RUN = "ui/api/runs/research/llama-70b"
UID = "uid-research-llama-70b"


class Visited:
    """The page, what is behind it, and who looks."""

    def __init__(self, cluster: Cluster, page: WebPage, url: str, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.page = page
        self.url = url
        self.session = session

    async def act(
        self,
        action: str,
        token: str = "admin",
        uid: str = UID,
        run: str = RUN,
        name: str = "",
        begin: Mapping[str, object] | None = None,
        **headers: str,
    ) -> Any:
        """Status and words. ``name``: of the run that a retry is to make; ``begin``: where, if anywhere else."""
        sent = {"X-Lockstep-Token": token, deeds.HEADER: "1"} | {k.replace("_", "-"): v for k, v in headers.items()}
        sent = {name: value for name, value in sent.items() if value}
        async with self.session.post(
            f"{self.url}/{run}/actions/{action}", json={"uid": uid, "name": name, **(begin or {})}, headers=sent
        ) as answer:
            return answer.status, (await answer.json())["message"]

    async def get(self, path: str, token: str = "admin") -> Any:
        """Status and body."""
        async with self.session.get(f"{self.url}/{path}", headers={"X-Lockstep-Token": token}) as answer:
            return answer.status, await answer.json()

    def follow(self, rank: int | str = 0, token: str = "admin", run: str = RUN) -> Any:
        """A log as it comes."""
        return self.session.get(f"{self.url}/{run}/ranks/{rank}/log", headers={"X-Lockstep-Token": token})


@asynccontextmanager
async def visited() -> AsyncIterator[Visited]:
    cluster = busy_cluster(ManualClock(sample_runs.NOW), 64)
    async with cluster.api.served():
        page = cluster.page()
        listener = await Listener.open(page.application(), "127.0.0.1", 0, None, page.connections)
        async with aiohttp.ClientSession() as session:
            yield Visited(cluster, page, f"http://127.0.0.1:{listener.port}", session)
        await listener.close()
