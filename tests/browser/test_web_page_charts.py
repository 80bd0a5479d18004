"""Curves of losses and timelines of attempts in a real browser: axes, numbers, shades, and runs compared."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

import pytest

from harness import browser
from lockstep.api.base.changes import changed
from support.screenshots import look_back
from support.web_desk import Desk

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)

SCALE = "document.querySelector('.loss').dataset.scale"


@pytest.mark.parametrize(("ends_at", "scale"), [("4e-9", "log"), ("1.9", "linear"), ("-0.5", "linear")])
async def test_a_loss_over_more_than_two_decades_has_a_log_axis_and_a_switch(
    desk: Desk, ends_at: str, scale: str
) -> None:
    see_loss(desk, 99_999, ends_at)
    tab = desk.tab
    await desk.enter("admin", "runs/research/llama-70b")
    assert await tab.evaluate(SCALE) == scale
    switch = "[...document.querySelectorAll('button')].find(each => each.innerText === 'log scale')"
    if ends_at.startswith("-"):
        assert await tab.evaluate(f"{switch} === undefined")  # it has no logarithm
        return
    await tab.evaluate(f"{switch}.click()")
    other = {"log": "linear", "linear": "log"}[scale]
    assert await tab.evaluate(SCALE) == other
    assert await tab.evaluate("document.activeElement.innerText") == "log scale"
    await tab.evaluate("window.chart = document.querySelector('.loss')")
    see_loss(desk, 100_001, ends_at)
    await tab.until("window.chart !== document.querySelector('.loss')")
    assert await tab.evaluate(SCALE) == other  # what was chosen stays
    assert await tab.evaluate("document.querySelector('.loss').outerHTML.includes('NaN')") is False


@pytest.mark.parametrize(
    ("steps", "losses"),
    [
        ([1, 2], [0.3, 0.30000000000000004]),
        ([1, 2], [1e16, 1e16 + 2]),
        ([1, 2], [5e-324, 1e-323]),
        ([1, 2], [1e-300, 1.7976931348623157e308]),
        ([1, 2], [-1.7976931348623157e308, 1.7976931348623157e308]),
        ([2**53 - 1, 2**53], [2.0, 1.0]),
        ([2**53, 2**53 + 2], [2.0, 1.0]),
    ],
)
async def test_whatever_numbers_a_run_reports_its_chart_is_drawn(
    desk: Desk, steps: list[int], losses: list[float]
) -> None:
    await desk.enter()
    series = json.dumps([{"name": "", "step": steps, "value": losses, "attempt": [1, 1]}])
    drawn = f"curves({series}, 'any', 'Loss').querySelectorAll('text').length"
    async with asyncio.timeout(60):
        labels = await desk.tab.evaluate(f"import('/ui/losses.js').then(({{curves}}) => {drawn})")
    assert 0 < labels < 20


async def test_a_value_that_stands_alone_is_drawn_as_a_point(desk: Desk) -> None:
    await desk.enter()
    alone = {"name": "", "step": [1, 2, 3, 4, 5], "value": [2.0, None, 1.5, 1.4, 1.3], "attempt": [1, 1, 1, 1, 2]}
    kinds = "[...chart.querySelectorAll('.line')].map((each) => each.tagName)"
    drawn = f"{{ const chart = curves([{json.dumps(alone)}], 'any', 'Loss'); return {kinds}; }}"
    assert await desk.tab.evaluate(f"import('/ui/losses.js').then(({{ curves }}) => {drawn})") == [
        "circle",
        "path",
        "circle",
    ]


async def test_a_loss_is_told_in_four_digits(desk: Desk) -> None:
    see_loss(desk, 99_999, "8.712142118838528e-12")
    await desk.enter("admin", "runs/research/llama-70b")
    text = await desk.tab.text()
    assert "8.712e-12" in text
    assert "8.7121" not in text


def see_loss(desk: Desk, step: int, loss: str) -> None:
    """As if every rank had said so just now."""
    index, run = next((i, run) for i, run in enumerate(desk.cluster.runs) if run.name == "llama-70b")
    now = desk.cluster.clock.now()
    told = changed(run.status.progress, step=step, loss=loss, time=now)
    desk.cluster.runs[index] = replace(run, status=changed(run.status, progress=told))
    desk.cluster.reports[run.uid] = {}
    desk.page.losses.update()


async def test_runs_are_compared_by_their_address(desk: Desk) -> None:
    tab = desk.tab
    look_back(desk.cluster, desk.page, "vision-l")
    await desk.enter("admin", "compare/research/llama-70b")
    typed = "const i = document.querySelector('form input'); i.value = 'research/vision-l'"
    await tab.evaluate(f"{typed}; document.querySelector('form button').click()")
    await tab.until("location.hash === '#/compare/research/llama-70b,research/vision-l'")
    await tab.until("document.querySelectorAll('.curves').length === 2")
    assert await tab.evaluate("document.querySelectorAll('.curves .line.s1').length") >= 2
    strokes = "[...document.querySelectorAll('.curves .line')].map(each => getComputedStyle(each).stroke)"
    assert len(set(await tab.evaluate(strokes))) == 2  # told apart by colour, and by their dashes
    read = await tab.evaluate("document.querySelector('figcaption').innerText")
    assert re.fullmatch(r"step [\d,]+, research/llama-70b [\d.]+; research/vision-l [\d.]+", read), read
    await tab.evaluate("document.querySelector('[data-key^=without]').click()")
    await tab.until("location.hash === '#/compare/research/vision-l'")


async def test_a_compared_run_that_is_gone_is_named_and_may_be_left_out(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter("admin", "compare/research/llama-70b,research/gone")
    await tab.until("document.querySelectorAll('.compared tbody tr').length === 1")
    assert "research/gone: " in await tab.evaluate("document.querySelector('.compared').innerText")
    await tab.evaluate("document.querySelector('[data-key=\"without research/gone\"]').click()")
    await tab.until("location.hash === '#/compare/research/llama-70b'")


async def test_a_run_that_reports_no_step_is_compared_without_one(desk: Desk) -> None:
    await desk.enter("admin", "compare/research/llama-405b")
    cells = "[...document.querySelectorAll('.compared tbody td')].map(each => each.innerText)"
    assert (await desk.tab.evaluate(cells))[3] == ""


async def test_each_attempt_is_shaded_by_what_its_time_went_to(desk: Desk) -> None:
    await desk.enter("admin", "runs/research/llama-70b")
    parts = await desk.tab.evaluate(
        "[...document.querySelectorAll('.timeline [data-bucket]')].map(p => p.dataset.bucket)"
    )
    ended = ["loading", "productive", "lostWork", "detect"]
    assert parts == [
        *("provision", "init", *ended[1:]),
        *("restart", *ended),
        *("restart", *ended),
        *("restart", "loading", "productive"),
    ]
    boxes = """[...document.querySelectorAll('.timeline .attempt, .timeline [data-bucket=lostWork]')]
      .map(each => each.getBBox()).map(({x, width, height}) => [x, x + width, height])"""
    drawn = await desk.tab.evaluate(boxes)
    for attempt, lost in zip(drawn[:3], drawn[4:], strict=True):
        assert attempt[0] < lost[0] < lost[1]
        assert lost[1] == pytest.approx(attempt[1], abs=1)  # it lies at the end
        assert lost[2] == attempt[2] / 2  # and is lower than what counts: one need not see its colour
    said = await desk.tab.evaluate("[...document.querySelectorAll('.timeline title')].map(t => t.textContent)")
    read = await desk.tab.evaluate("[...document.querySelectorAll('figure ul.sr li')].map(t => t.textContent)")
    for words in (
        "before attempt 1: pods and images, 3m",
        "attempt 1: repeated or lost, about 15m",
        "after attempt 1: until seen, 20s",
    ):
        assert words in said
        assert words in read
    assert any(re.fullmatch(r"attempt 4: training, \d+\w+ so far", words) for words in read)
    legend = await desk.tab.evaluate("document.querySelector('figure ul.legend').innerText")
    assert "repeated or lost" in legend
    assert "suspended" not in legend
    cells = "[...document.querySelectorAll('table[aria-label=Attempts] tbody tr')].map(r => r.cells[5].innerText)"
    assert [" ".join(cell.split()) for cell in await desk.tab.evaluate(cells)] == [
        "",
        "700 about 14m",
        "700 about 14m",
        "700 about 15m",
    ]


async def test_an_end_that_no_rank_caused_is_not_marked_as_a_failure(desk: Desk) -> None:
    index, run = next((i, run) for i, run in enumerate(desk.cluster.runs) if run.name == "llama-70b")
    first, second, *others = run.status.attempts
    asked_for = changed(second, cause="Requested", rank=None, seen_at=None)
    attempts = (changed(first, rank=0), asked_for, *others)
    desk.cluster.runs[index] = replace(run, status=changed(run.status, attempts=attempts))
    await desk.enter("admin", "runs/research/llama-70b")
    marks = "[...document.querySelectorAll('.timeline .fail title')].map(t => t.textContent)"
    assert await desk.tab.evaluate(marks) == ["attempt 1: Hang", "attempt 3: NodeLost"]


async def test_what_status_does_not_tell_of_an_attempt_is_not_shaded(desk: Desk) -> None:
    await desk.enter("admin", "runs/research/gpt2-debug")
    count = "document.querySelectorAll('{}').length"
    assert await desk.tab.evaluate(count.format(".timeline .attempt")) == 2
    assert await desk.tab.evaluate(count.format(".timeline [data-bucket]")) == 0
    cells = "[...document.querySelectorAll('table[aria-label=Attempts] tbody tr')].map(r => r.cells[5].innerText)"
    assert await desk.tab.evaluate(cells) == ["not known", "61"]  # and nothing of how long they took
