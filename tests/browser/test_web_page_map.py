"""The map of racks in a real browser: with the keyboard, with thousands of runs, with 16,384 nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness import browser
from support.web_desk import Desk, seated
from support.web_views import holding, racks

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)


async def test_the_rack_map_is_read_with_the_keyboard_alone(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter()
    assert await tab.evaluate("document.querySelector('#map').dataset.nodes") == "64"
    await tab.press("Tab")
    assert await tab.evaluate("document.activeElement.className") == "skip"
    for _ in range(12):
        if await tab.evaluate("document.activeElement.id") == "map":
            break
        await tab.press("Tab")
    await tab.press("ArrowRight")
    await tab.press("ArrowRight")
    node = "document.querySelector('#node').innerText"
    told = await tab.until(f"{node}.includes('gpu-1') && {node}")
    assert "research/llama-70b, rank 1" in " ".join(told.split())
    await tab.press("ArrowDown")
    await tab.until(f"{node}.includes('gpu-5')")  # racks of 16 are four by four
    assert "Unhealthy" in await tab.evaluate(node)
    await tab.press("Enter")
    await tab.shown("run")
    assert "llama-70b" in await tab.text()


async def test_of_thousands_of_runs_the_largest_are_listed_and_the_rest_counted(desk: Desk) -> None:
    desk.cluster.nodes = racks(2000)
    desk.cluster.runs = [holding("research", f"r{i}", [f"gpu-{i}"]) for i in range(2000)]
    await desk.enter()
    assert await desk.tab.evaluate("document.querySelectorAll('.legend a').length") == 200
    assert "1,800 smaller runs are on the map and not listed" in await desk.tab.text()


async def test_sixteen_thousand_nodes_are_drawn_and_pointed_at(tmp_path: Path) -> None:
    async with seated(tmp_path, 16_384) as desk:
        await desk.enter()
        assert await desk.tab.evaluate("document.querySelector('#map').dataset.nodes") == "16384"
        await desk.tab.evaluate("document.querySelector('#map').focus()")
        began = asyncio.get_running_loop().time()
        for _ in range(10):
            await desk.tab.press("End")
            await desk.tab.press("ArrowLeft")
        await desk.tab.until("document.querySelector('#node').innerText.includes('gpu-16382')")
        assert asyncio.get_running_loop().time() - began < 120  # of twenty key presses, on a busy machine
