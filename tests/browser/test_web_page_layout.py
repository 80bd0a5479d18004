"""What all pages look like in a real browser: narrow screens, light and dark, nothing out of sight."""

from __future__ import annotations

import pytest

from harness import browser
from support.web_desk import Desk

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)


async def test_on_a_narrow_screen_nothing_is_beyond_the_edge(desk: Desk) -> None:
    await desk.tab.size(390, 800)
    for page in ("queue", "runs/research/llama-70b"):
        await desk.enter("admin", page)
        beyond = """[...document.querySelectorAll('main td, main th, main p, main a, main .scroll')]
          .filter(each => each.getBoundingClientRect().right > innerWidth && !each.closest('thead')
            || (each.className === 'scroll' && each.scrollWidth > each.clientWidth + 1))
          .map(each => each.outerHTML.slice(0, 100))"""
        assert await desk.tab.evaluate(beyond) == []
    why = "document.querySelector('td[data-label=Why\\\\ it\\\\ waits]')"
    await desk.turn_to("queue")
    assert await desk.tab.evaluate(f"getComputedStyle({why}, '::before').content") == '"Why it waits: "'


async def test_of_an_array_the_part_that_runs_can_be_seen(desk: Desk) -> None:
    await desk.enter("tenant", "arrays/research/lr-sweep")
    desk_parts = "[...document.querySelectorAll('.bar rect')].map(each => getComputedStyle(each).fill)"
    behind = await desk.tab.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor")
    assert behind not in await desk.tab.evaluate(desk_parts)


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_no_page_breaks_its_own_rules_or_complains(desk: Desk, theme: str) -> None:
    await desk.tab.theme(theme)
    for width in (1360, 420):
        await desk.tab.size(width, 800)
        for page in (
            "fleet",
            "queue",
            "runs/research/llama-70b",
            "runs/research/gpt2-debug",
            "runs/research/llama-405b",
            "arrays/research/lr-sweep",
            "logs/research/llama-70b/0",
            "compare/research/llama-70b,research/vision-l",
        ):
            await desk.enter("admin", page)
            await desk.tab.picture()
            assert await desk.tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), (page, width)
    assert desk.tab.problems == []
