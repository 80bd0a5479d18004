"""The pictures of docs/web.md: `make screenshots`."""

from __future__ import annotations

import asyncio
import math
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from harness import browser
from lockstep.api.base.changes import changed
from lockstep.controller.web.server import WebPage
from lockstep.controller.workers.listener import Listener
from support import sample_runs
from support.manual_clock import ManualClock
from support.web_site import Cluster, busy_cluster

FOLDER = Path(__file__).parents[2] / "docs" / "images"
SHOTS = (
    ("web-fleet", "fleet", "fleet", "light", 512, (1360, 860)),
    ("web-fleet-16384", "fleet", "fleet", "dark", 16_384, (1360, 860)),
    ("web-queue", "queue", "queue", "light", 512, (1360, 760)),
    ("web-run", "runs/research/llama-70b", "run", "light", 512, (1240, 800)),
)
"""Name, address, page, theme, nodes, size of the window."""


def look_back(cluster: Cluster, page: WebPage, name: str = "llama-70b") -> None:
    """As if the page had watched this run for a day: its loss falls, and once it goes back."""
    dice = random.Random(3)
    index = next(i for i, run in enumerate(cluster.runs) if run.name == name)
    last = cluster.runs[index]
    reports = cluster.reports.pop(last.uid)
    end = last.status.progress.step
    for i in range(240):
        step = int(end * (i + 12) / 252) - (3000 if 150 <= i < 156 else 0)
        loss = 1.98 + 2.4 * math.exp(-step / (end / 5)) + dice.gauss(0, 0.012)
        attempt = 3 if i < 150 else 4
        told = changed(last.status.progress, step=step, loss=f"{loss:.4f}", time=1.0 + i)
        status = changed(last.status, progress=told, attempt=attempt)
        cluster.runs[index] = replace(last, status=status)
        page.losses.update()
    cluster.runs[index] = last
    cluster.reports[last.uid] = reports


async def _shoot(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as profile:
        async with browser.opened(Path(profile)) as tab:
            for name, path, key, theme, nodes, (width, height) in SHOTS:
                cluster = busy_cluster(ManualClock(sample_runs.NOW), nodes)
                page = cluster.page()
                look_back(cluster, page)
                listener = await Listener.open(page.application(), "127.0.0.1", 0, None, page.connections)
                token = "tenant" if path == "queue" else "admin"
                await tab.size(width, height)
                await tab.theme(theme)
                await tab.open(f"http://127.0.0.1:{listener.port}/ui/#token={token}")
                await tab.shown("fleet")
                await tab.evaluate(f"location.hash = '#/{path}'")
                await tab.shown(key)
                if path == "fleet":
                    await tab.evaluate("document.querySelector('#map').focus({ preventScroll: true })")
                    for _ in range(38):
                        await tab.press("ArrowRight")
                picture = await tab.picture()
                (folder / f"{name}.png").write_bytes(picture)
                print(f"{name}.png: {len(picture) // 1000} kB{''.join(f'; {p}' for p in tab.problems)}")
                await tab.open("about:blank")
                await listener.close()


def main() -> int:
    """Write them, or say what lacks."""
    if browser.program() is None:
        print(browser.MISSING)
        return 1
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(exist_ok=True, parents=True)
    asyncio.run(_shoot(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
