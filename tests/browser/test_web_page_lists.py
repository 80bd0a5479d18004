"""The queue and arrays in a real browser: who waits and why, what is counted, and what a filter sees."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from harness import browser
from lockstep.api.base.changes import changed
from support.web_desk import Desk
from support.web_views import waiting

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)


async def test_the_default_queue_counts_what_is_held_and_a_queue_of_a_cancelled_typo_is_none(desk: Desk) -> None:
    tab, cluster = desk.tab, desk.cluster
    cluster.queues = [each for each in cluster.queues if each.name != "default"]
    index, run = next((i, run) for i, run in enumerate(cluster.runs) if run.name == "gpt2-debug")
    assert run.spec is not None
    cluster.runs[index] = replace(run, spec=changed(run.spec, queue="reserch"))
    await desk.enter("admin", "queue")
    text = await tab.text()
    held = sum(len(each.status.assignment.nodes) for each in cluster.runs if each.name != "gpt2-debug")
    assert re.search(rf"Queue default\n+{held} nodes in use by \d+ runs", text), text
    assert "Queue reserch" not in text


async def test_why_runs_wait_and_until_when_can_be_read_and_filtered(desk: Desk) -> None:
    await desk.enter("tenant", "queue")
    text = await desk.tab.text()
    assert "Resources: for nodes to become free" in text
    assert "if every run uses its whole time limit" in text
    filter_for = (
        "const i = document.querySelector('input[type=search]'); i.value = '{}'; i.dispatchEvent(new Event('input'))"
    )
    await desk.tab.evaluate(filter_for.format("quota"))
    text = await desk.tab.text()
    assert "distill-3b" in text
    assert "tokenizer-sweep" not in text


async def test_an_array_is_a_row_in_the_queue_and_a_page_of_its_own(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter("tenant", "queue")
    assert "research/lr-sweep_[45-99%8]" in await tab.text()
    assert "43/100" in await tab.text()
    await tab.evaluate("[...document.querySelectorAll('main a')].find(a => a.innerText.includes('lr-sweep_[')).click()")
    await tab.shown("array")
    text = await tab.text()
    assert "0-40" in text
    assert "at most 8 at once" in text
    assert "made 4 runs" in text
    await tab.evaluate("[...document.querySelectorAll('main a')].find(a => a.innerText === 'lr-sweep-45').click()")
    await tab.shown("run")
    assert await tab.evaluate("[...document.querySelectorAll('dd a')].map(a => a.hash)") == [
        "#/arrays/research/lr-sweep"
    ]


async def test_a_filter_says_that_it_sees_what_is_listed(desk: Desk) -> None:
    desk.cluster.runs = [waiting("research", f"r{i}", position=i + 1) for i in range(520)]
    desk.cluster.sets = []
    await desk.enter("admin", "queue")
    typed = "i.value = 'r519'; i.dispatchEvent(new Event('input'))"
    await desk.tab.evaluate(f"const i = document.querySelector('input[type=search]'); {typed}")
    text = await desk.tab.text()
    assert "No run that is listed fits the filter." in text
    assert "20 more are not" in text
