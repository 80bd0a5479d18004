"""The page in a real browser as the operator answers again, late, oddly or not at all."""

from __future__ import annotations

import pytest

from harness import browser
from support.web_desk import Desk

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)


async def test_what_was_chosen_stays_chosen_when_the_page_asks_again(desk: Desk) -> None:
    tab, node = desk.tab, "document.querySelector('#node').innerText"
    await desk.enter()
    await tab.evaluate("document.querySelector('#map').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        await tab.press(key)
    await tab.until(f"{node}.includes('gpu-2')")
    await tab.evaluate("window.told = document.querySelector('#node dl')")
    desk.cluster.runs = [run for run in desk.cluster.runs if run.name != "speech-2"]
    await tab.until("!document.querySelector('main').innerText.includes('speech-2')")
    assert await tab.evaluate("window.told === document.querySelector('#node dl')")  # and is not read aloud again
    desk.cluster.nodes = desk.cluster.nodes[1:]
    await tab.until("document.querySelector('#map').dataset.nodes === '63'")
    assert "gpu-2" in await tab.evaluate(node)

    await desk.turn_to("runs/research/llama-70b")
    await tab.evaluate("document.querySelector('.loss').focus()")
    for _ in range(3):
        await tab.press("ArrowLeft")
    caption = "document.querySelector('figure.curves figcaption').innerText"
    read = await tab.evaluate(caption)
    await tab.evaluate("window.chart = document.querySelector('.loss')")
    await tab.until("window.chart !== document.querySelector('.loss')")
    assert await tab.evaluate(caption) == read
    assert await tab.evaluate("document.activeElement === document.querySelector('.loss')")


async def test_an_answer_that_comes_after_signing_out_is_not_shown(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter()
    late = """
      const fetched = window.fetch;
      window.fetch = async (...all) => {
        const answer = await fetched(...all);
        return new Promise((tell) => { window.arrive = () => tell(answer); });
      };
    """
    await tab.evaluate(late)
    await tab.until("window.arrive !== undefined")
    await tab.evaluate("document.querySelector('#who button').click()")
    await tab.evaluate("window.arrive(); new Promise((done) => setTimeout(done, 200))")
    assert await tab.evaluate("document.querySelector('main').dataset.ready") == "signin"
    assert await tab.evaluate("document.querySelector('#map')") is None


async def test_an_answer_that_cannot_be_drawn_is_not_said_to_be_none(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter()
    odd = "window.fetch = async () => new Response('{}', {headers: {ETag: '1'}})"
    await tab.evaluate(odd)
    await tab.evaluate("location.hash = '#/queue'")
    said = "document.querySelector('#freshness').textContent"
    await tab.until(f"{said}.includes('a defect of it')")
    await tab.evaluate("window.fetch = async () => { throw new TypeError('Failed to fetch') }")
    await tab.until(f"{said}.includes('no answer from the operator')")


async def test_a_page_says_when_it_is_not_live_and_recovers_by_itself(desk: Desk) -> None:
    await desk.enter()
    desk.cluster.synced = False
    said = "document.querySelector('#freshness').textContent"
    await desk.tab.until(f"{said}.includes('not seen the whole cluster')")
    assert await desk.tab.evaluate("document.querySelector('#map').dataset.nodes") == "64"  # what was known stays
    desk.cluster.synced, desk.cluster.leads = True, False
    await desk.tab.until(f"{said}.includes('standby') && {said}.includes('live')")
