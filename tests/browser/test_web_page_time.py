"""The page in a real browser as time goes by: what is drawn anew, and what is left alone."""

from __future__ import annotations

import pytest

from harness import browser
from support.web_desk import Desk

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)

A_MINUTE_LATER = "{ const since = performance.now.bind(performance); performance.now = () => since() + 60_000; }"


@pytest.mark.parametrize(("page", "told"), [("runs/research/gpt2-debug", ".facts"), ("queue", "main section")])
async def test_ages_go_on_where_nothing_else_changes(desk: Desk, page: str, told: str) -> None:
    tab = desk.tab
    desk.cluster.runs = [run for run in desk.cluster.runs if run.name == "gpt2-debug"]
    await desk.enter("admin", page)
    await tab.evaluate(f"window.told = document.querySelector('{told}')")
    await tab.evaluate(A_MINUTE_LATER)
    await tab.until(f"window.told !== document.querySelector('{told}')")
