"""A browser that has the web page of a made-up cluster before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harness import browser
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.web.server import WebPage
from lockstep.controller.workers.listener import Listener
from support.screenshots import look_back
from support.web_site import Cluster, busy_cluster

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"&'


class Desk:
    """A browser, and the page that it looks at."""

    def __init__(self, tab: browser.Page, cluster: Cluster, page: WebPage, url: str, listener: Listener) -> None:
        self.tab = tab
        self.cluster = cluster
        self.page = page
        self.url = url
        self.listener = listener

    async def enter(self, token: str = "admin", page: str = "fleet") -> None:
        """Come in as ``lockstep ui`` lets one in, also where the tab has another token."""
        await self.tab.open(f"{self.url}#token={token}")
        await self.tab.until("['fleet', 'choice'].includes(document.querySelector('main')?.dataset.ready)")
        await self.tab.evaluate("document.querySelector('main [data-choice=use]')?.click()")
        await self.tab.shown("fleet")
        if page != "fleet":
            await self.turn_to(page)

    async def turn_to(self, page: str) -> None:
        """Another page, by its address."""
        await self.tab.evaluate(f"location.hash = '#/{page}'")
        await self.tab.shown({"runs": "run", "arrays": "array"}.get(kind := page.partition("/")[0], kind))


@asynccontextmanager
async def seated(folder: Path, nodes: int = 64) -> AsyncIterator[Desk]:
    cluster = busy_cluster(SystemClock(), nodes)
    async with cluster.api.served():
        page = cluster.page()
        look_back(cluster, page)
        listener = await Listener.open(page.application(), "127.0.0.1", 0, None, page.connections)
        try:
            async with browser.opened(folder) as tab:
                yield Desk(tab, cluster, page, f"http://127.0.0.1:{listener.port}/ui/", listener)
        finally:
            await listener.close()
