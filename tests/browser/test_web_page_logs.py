"""Logs of ranks and stacks of hangs in a real browser, as they come and for whom."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from harness import browser
from lockstep.api.base.changes import changed
from lockstep.core.model.worker_report import StackReport, WorkerPhase
from support.web_desk import HOSTILE, Desk

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)


async def test_the_log_of_a_rank_comes_as_it_is_written(desk: Desk) -> None:
    tab, api = desk.tab, desk.cluster.api
    api.lines = ["step 1 loss 2.5", "\x1b[31mred\x1b[0m", "old\rnew", HOSTILE, *(f"line {i}" for i in range(2500))]
    run = desk.cluster.runs[0]
    stack = StackReport("hang", "train.py:34 all_reduce")
    desk.cluster.reports[run.uid][1] = replace(desk.cluster.reports[run.uid][1], stacks=stack)
    await desk.enter("admin", "logs/research/llama-70b/1")
    log = "document.querySelector('.log').textContent"
    shown = await tab.until(f"{log}.includes('line 2499') && {log}")
    assert shown.startswith("… 504 earlier lines not kept here")
    assert "all_reduce" in await tab.text()
    assert await tab.evaluate("document.querySelector('.log').scrollTop") > 0  # the newest is in sight
    type_in = "const i = document.querySelector('input[type=search]'); i.value = 'line 249'"
    await tab.evaluate(f"{type_in}; i.dispatchEvent(new Event('input'))")
    await tab.until(f"{log}.split('\\n').length === 11")
    api.lines = api.lines[:4]
    await desk.turn_to("logs/research/llama-70b/0")
    await tab.until(f"{log}.includes('red')")
    assert await tab.evaluate(log) == f"step 1 loss 2.5\nred\nnew\n{HOSTILE}"
    assert await tab.evaluate("window.hacked") is None
    async with asyncio.timeout(30):
        while api.following != 1:  # noqa: ASYNC110 (the first stream was given up)
            await asyncio.sleep(0.02)
    said = "document.querySelector('main').innerText"
    api.ended.set()
    await tab.until(f"{said}.includes('it is asked for again')")  # the run trains, so that was not the log's end
    again = "[...document.querySelectorAll('main button')].find((one) => one.textContent === 'Ask now' && !one.hidden)"
    asked = len(api.asked)
    await tab.until(f"{again} && ({again}.click(), true)")
    async with asyncio.timeout(30):
        while len(api.asked) == asked:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    desk.cluster.reports[run.uid][0] = replace(desk.cluster.reports[run.uid][0], phase=WorkerPhase.EXITED)
    await tab.until(f"{said}.includes('It has ended.')")
    await desk.turn_to("queue")
    assert len(desk.page.logs) == 0


async def test_stacks_of_an_earlier_hang_are_opened_beside_the_log(desk: Desk) -> None:
    tab, run = desk.tab, desk.cluster.runs[0]
    first, *others = run.status.attempts
    status = changed(run.status, attempts=(changed(first, stacks="hung-1"), *others))
    desk.cluster.runs[0] = replace(run, status=status)
    rows = [{"ranks": "0-6", "stacks": "train.py:34 all_reduce"}, {"ranks": "7", "stacks": HOSTILE}]
    desk.cluster.api.objects["/api/v1/namespaces/research/configmaps/hung-1"] = {
        "metadata": {},
        "data": {"stacks.json": json.dumps(rows)},
    }
    await desk.enter("admin", "logs/research/llama-70b/1")
    await tab.evaluate("document.querySelector('summary').click()")
    shown = await tab.until(
        "document.querySelectorAll('details pre').length === 2 && document.querySelector('details').innerText"
    )
    assert "Ranks 0-6" in shown
    assert HOSTILE in shown
    assert await tab.evaluate("window.hacked") is None
    desk.cluster.reports[run.uid][1] = replace(desk.cluster.reports[run.uid][1], problem="clock is off")
    await tab.until("document.querySelector('main').innerText.includes('clock is off')")
    assert await tab.evaluate("document.querySelector('details').open")  # also when the page is drawn anew
    assert [each[1] for each in desk.cluster.api.asked].count("/api/v1/namespaces/research/configmaps/hung-1") == 1


async def test_who_may_not_read_logs_is_told_which_right_is_lacking(desk: Desk) -> None:
    await desk.enter("tenant", "logs/research/llama-70b/0")
    assert "You may not get pods/log" in await desk.tab.text()
    assert desk.cluster.api.asked == []


async def test_a_log_that_is_gone_with_its_pod_is_not_asked_for_again(desk: Desk) -> None:
    tab, run = desk.tab, desk.cluster.runs[0]
    desk.cluster.reports[run.uid][0] = replace(desk.cluster.reports[run.uid][0], phase=WorkerPhase.EXITED)
    desk.cluster.api.answer = (404, {"message": "not found", "code": 404})
    await desk.enter("admin", "logs/research/llama-70b/0")
    await tab.until("document.querySelector('main').innerText.includes('its pod is not there')")
    again = "[...document.querySelectorAll('main button')].some((one) => one.textContent === 'Ask now' && !one.hidden)"
    assert not await tab.evaluate(again)


async def test_a_hidden_tab_follows_no_log(desk: Desk) -> None:
    tab, api = desk.tab, desk.cluster.api
    await desk.enter("admin", "logs/research/llama-70b/0")
    await streams(desk, 1)
    turn = "Object.defineProperty(document, 'visibilityState', {{ value: '{}', configurable: true }}); "
    turn += "document.dispatchEvent(new Event('visibilitychange'))"
    await tab.evaluate(turn.format("hidden"))
    await streams(desk, 0)
    api.lines = ["written meanwhile"]
    await tab.evaluate(turn.format("visible"))
    await streams(desk, 1)
    await tab.until("document.querySelector('.log').textContent === 'written meanwhile'")


async def test_of_a_run_that_was_deleted_no_log_is_asked_for(desk: Desk) -> None:
    tab, api, run = desk.tab, desk.cluster.api, desk.cluster.runs[0]
    await desk.enter("admin", "logs/research/llama-70b/0")
    await streams(desk, 1)
    desk.cluster.runs.remove(run)
    await tab.until("document.querySelector('#freshness').textContent.includes('there is no run')")
    await streams(desk, 0)
    assert "step 2" in await tab.evaluate("document.querySelector('.log').textContent")
    desk.cluster.runs.append(run)
    await streams(desk, 1)
    assert len(api.asked) == 2


async def test_a_rank_that_was_rubbed_out_is_not_gone_to(desk: Desk) -> None:
    await desk.enter("admin", "logs/research/llama-70b/1")
    rank = "document.querySelector('input[type=number]')"
    await desk.tab.evaluate(f"{rank}.value = ''; {rank}.dispatchEvent(new Event('change'))")
    assert await desk.tab.evaluate("location.hash") == "#/logs/research/llama-70b/1"
    run = desk.cluster.runs[0]
    assert len(run.status.assignment.nodes) == 8
    fewer = changed(run.status.assignment, nodes=run.status.assignment.nodes[:6], incarnations=(1,) * 6)
    desk.cluster.runs[0] = replace(run, status=changed(run.status, assignment=fewer, state="Recovering"))
    await desk.tab.until(f"{rank}.max === '5'")
    assert "of 6 ranks" in await desk.tab.text()


async def streams(desk: Desk, wanted: int) -> None:
    """Wait until so many logs are followed."""
    async with asyncio.timeout(30):
        while desk.cluster.api.following != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
