"""The page in a real browser as time goes by: what is drawn anew, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness import browser
from lockstep.api.base.changes import changed
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


async def test_what_is_selected_stays_until_it_is_let_go(desk: Desk) -> None:
    tab = desk.tab
    index, run = next((i, run) for i, run in enumerate(desk.cluster.runs) if run.name == "llama-70b")
    await desk.enter("admin", "runs/research/llama-70b")
    await tab.evaluate("getSelection().selectAllChildren(document.querySelector('main h1'))")
    news = changed(run.status, state="Failed", reason="SomethingElse")
    desk.cluster.runs[index] = replace(run, status=news)
    said = "document.querySelector('#freshness').textContent"
    await tab.until(f"{said}.includes('text is selected')")
    assert await tab.evaluate("getSelection().toString()") == "llama-70b"
    assert "SomethingElse" not in await tab.text()
    await tab.evaluate("getSelection().removeAllRanges()")
    await tab.until("document.querySelector('main').innerText.includes('SomethingElse')")
    assert "selected" not in await tab.evaluate(said)


async def test_a_table_stays_where_it_was_moved_to(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter("admin", "runs/research/llama-70b")
    await tab.evaluate(
        "{ const sheet = new CSSStyleSheet(); sheet.replaceSync('.scroll { width: 150px }');"
        " document.adoptedStyleSheets = [sheet]; }"
    )
    table = "document.querySelector('table[aria-label=Attempts]').parentElement"
    await tab.evaluate(f"window.table = {table}; window.table.scrollLeft = 40")
    assert await tab.evaluate("window.table.scrollLeft") == 40
    await tab.until(f"window.table !== {table}")
    assert await tab.evaluate(f"{table}.scrollLeft") == 40
