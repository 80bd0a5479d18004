"""Changes of runs by the page's buttons in a real browser: what is said before, and who is offered them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from harness import browser
from lockstep.api.base.changes import changed
from support.web_desk import Desk

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)

BUTTONS = "[...document.querySelectorAll('.deeds button')].map(each => each.dataset.action)"
SAID = "document.querySelector('#deed-said')?.textContent"


@pytest.mark.parametrize("action", ["checkpoint", "suspend", "cancel"])
async def test_who_may_changes_a_run_after_being_told_what_it_costs(desk: Desk, action: str) -> None:
    tab = desk.tab
    await desk.enter("admin", "runs/research/llama-70b")
    await tab.until(f"!!document.querySelector('[data-action={action}]')")
    await tab.evaluate(f"document.querySelector('[data-action={action}]').click()")
    told = await tab.until("document.querySelector('dialog[open]')?.innerText")
    if action != "checkpoint":
        assert re.search(r"[\d,]+ steps since step \d+", told), told
        assert "gives back 8 nodes" in told
    assert await tab.evaluate("document.activeElement.innerText") == "Leave it as it is"
    await tab.evaluate("document.querySelector('dialog button').click()")
    await tab.until("document.querySelector('dialog') === null")
    assert desk.cluster.api.asked == []
    await tab.evaluate(f"document.querySelector('[data-action={action}]').click()")
    await tab.until("!!document.querySelector('dialog[open]')")
    await tab.evaluate("[...document.querySelectorAll('dialog button')].at(-1).click()")
    await tab.until(f"{SAID}.includes('the operator does the rest')")
    [(method, path, headers, body)] = desk.cluster.api.asked
    assert (method, path.rpartition("/")[2], headers["Authorization"]) == ("PATCH", "llama-70b", "Bearer admin")
    assert body["metadata"]["uid"] == "uid-research-llama-70b"


@pytest.mark.parametrize("action", ["checkpoint", "suspend", "cancel"])
async def test_who_may_not_is_offered_nothing_and_told_by_the_api_server(desk: Desk, action: str) -> None:
    tab = desk.tab
    await desk.enter("tenant", "runs/research/llama-70b")
    await tab.until("!!document.querySelector('[data-key=compare]')")
    assert await tab.evaluate(BUTTONS) == []
    assert await tab.evaluate("document.querySelector('[data-key=logs]')") is None
    desk.cluster.api.may["admin"] = frozenset()  # since the page was told otherwise
    await desk.enter("admin", "runs/research/llama-70b")
    await tab.until(f"!!document.querySelector('[data-action={action}]')")
    await tab.evaluate(f"document.querySelector('[data-action={action}]').click()")
    await tab.until("!!document.querySelector('dialog[open]')")
    await tab.evaluate("[...document.querySelectorAll('dialog button')].at(-1).click()")
    await tab.until(f"{SAID}.includes('ask for the role edit')")


async def test_a_suspended_run_is_resumed_from_the_page(desk: Desk) -> None:
    tab = desk.tab
    index, run = next((i, run) for i, run in enumerate(desk.cluster.runs) if run.name == "llama-70b")
    assert run.spec is not None
    desk.cluster.runs[index] = replace(run, spec=changed(run.spec, suspend=True))
    await desk.enter("admin", "runs/research/llama-70b")
    await tab.until("!!document.querySelector('[data-action=resume]')")
    await tab.evaluate("document.querySelector('[data-action=resume]').click()")
    assert "goes on from step" in await tab.until("document.querySelector('dialog[open]')?.innerText")
    await tab.evaluate("[...document.querySelectorAll('dialog button')].at(-1).click()")
    await tab.until(f"{SAID}.includes('resumed')")
    assert desk.cluster.api.asked[0][3]["spec"] == {"suspend": False}


async def test_an_ended_run_is_gone_on_from_after_it_was_said_from_where_and_what_is_lost(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter("admin", "runs/research/gpt2-debug")
    await tab.until(f"{BUTTONS}.join() === 'retry'")
    await tab.evaluate("document.querySelector('[data-action=retry]').click()")
    told = await tab.until("document.querySelector('dialog[open]')?.innerText")
    for words in ("A new run, gpt2-debug-r2", "from step 400 of gpt2-debug, in the shared tier", "12 steps since step"):
        assert words in told
    assert desk.cluster.api.asked == []
    await tab.evaluate("[...document.querySelectorAll('dialog button')].at(-1).click()")
    await tab.until(f"{SAID}.includes('gpt2-debug-r2 created')")
    made = desk.cluster.api.asked[-1]
    assert (made[0], made[2]["Authorization"], made[3]["metadata"]["name"]) == ("POST", "Bearer admin", "gpt2-debug-r2")
    assert await tab.evaluate("document.querySelector('#deed-said a').hash") == "#/runs/research/gpt2-debug-r2"
    await desk.enter("tenant", "runs/research/gpt2-debug")
    await tab.until("!!document.querySelector('[data-key=compare]')")
    assert await tab.evaluate(BUTTONS) == []


async def test_where_a_retry_begins_is_chosen_and_nothing_is_confirmed_before_it_was_said_what_is_lost(
    desk: Desk,
) -> None:
    tab = desk.tab
    buttons, told = (
        "document.querySelectorAll('dialog button').length",
        "document.querySelector('dialog[open]').innerText",
    )
    await desk.enter("admin", "runs/research/gpt2-debug")
    await tab.until(f"{BUTTONS}.join() === 'retry'")
    await tab.evaluate("document.querySelector('[data-action=retry]').click()")
    await tab.until("!!document.querySelector('dialog[open] fieldset')")
    await tab.evaluate("document.querySelector('dialog [value=step]').click()")
    await tab.until(f"{told}.includes('Which step?') && {buttons} === 1")
    await tab.evaluate(
        "{ const step = document.querySelector('dialog [type=number]'); step.value = 300;"
        " step.dispatchEvent(new Event('input')); }"
    )
    await tab.until(f"{told}.includes('112 steps since step 300') && {buttons} === 2")
    await tab.evaluate("document.querySelector('dialog [value=fresh]').click()")
    await tab.until(f"{told}.includes('begins at step 0') && {told}.includes('412 steps') && {buttons} === 2")
    await tab.evaluate("[...document.querySelectorAll('dialog button')].at(-1).click()")
    await tab.until(f"{SAID}.includes('gpt2-debug-r2 created')")
    assert desk.cluster.api.asked[-1][3]["spec"]["checkpoint"]["start"] == {"mode": "Fresh"}


async def test_a_run_that_cannot_be_gone_on_from_by_itself_says_what_to_type(desk: Desk) -> None:
    tab = desk.tab
    index, run = next((i, run) for i, run in enumerate(desk.cluster.runs) if run.name == "gpt2-debug")
    kept_here = tuple(changed(saved, tier="local") for saved in run.status.checkpoint.latest)
    status = changed(run.status, checkpoint=changed(run.status.checkpoint, latest=kept_here))
    desk.cluster.runs[index] = replace(run, status=status)
    await desk.enter("admin", "runs/research/gpt2-debug")
    await tab.until(f"{BUTTONS}.join() === 'retry'")
    await tab.evaluate("document.querySelector('[data-action=retry]').click()")
    told = await tab.until("document.querySelector('dialog[open]')?.innerText")
    assert "lockstep retry gpt2-debug --fresh" in told
    assert await tab.evaluate("document.querySelectorAll('dialog button').length") == 1


async def test_buttons_come_once_the_operator_answers_again(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter("admin")
    refuse = """
      const fetched = window.fetch;
      window.refused = 0;
      window.fetch = async (url, ...rest) => {
        if (!url.endsWith('/actions') && !url.endsWith('/actions?')) return fetched(url, ...rest);
        if (window.well) return fetched(url, ...rest);
        window.refused += 1;
        return new Response('{"message": "not yet"}', {status: 503});
      };
    """
    await tab.evaluate(refuse)
    await desk.turn_to("runs/research/gpt2-debug")
    await tab.until("window.refused > 0")
    await tab.evaluate("window.well = true")
    await tab.until(f"{BUTTONS}.join() === 'retry'")


async def test_what_was_done_to_a_run_is_said_on_no_other(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter("admin", "runs/research/llama-70b")
    slow = """
      const fetched = window.fetch;
      window.fetch = async (url, options) => {
        if (options.method === 'POST') await new Promise((done) => { window.arrive = done; });
        return fetched(url, options);
      };
    """
    await tab.evaluate(slow)
    await press(desk, "checkpoint")
    await tab.evaluate("[...document.querySelectorAll('dialog button')].at(-1).click()")
    await tab.until("!!window.arrive")
    await desk.turn_to("runs/research/vision-l")
    await tab.evaluate("window.arrive()")
    await tab.evaluate("window.facts = document.querySelector('.facts')")
    await tab.until("window.facts !== document.querySelector('.facts')")
    assert len(desk.cluster.api.asked) == 1
    assert await tab.evaluate(SAID) == ""


async def test_a_dialog_opens_once_gives_the_focus_back_and_goes_with_its_page(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter("admin", "runs/research/llama-70b")
    await tab.until("!!document.querySelector('[data-action=cancel]')")
    await tab.evaluate(
        "{ const cancel = document.querySelector('[data-action=cancel]'); cancel.click(); cancel.click(); }"
    )
    await tab.until("!!document.querySelector('dialog[open]')")
    await tab.evaluate(
        "window.facts = document.querySelector('.facts'); window.said = document.querySelector('#deed-said')"
    )
    await tab.until("window.facts !== document.querySelector('.facts')")
    assert await tab.evaluate("window.said === document.querySelector('#deed-said')")  # a new one is not read aloud
    assert await tab.evaluate("document.querySelectorAll('dialog').length") == 1
    await tab.evaluate("document.querySelector('dialog button').click()")
    await tab.until("document.querySelector('dialog') === null")
    assert await tab.evaluate("document.activeElement.dataset.action") == "cancel"
    await press(desk, "cancel")
    await desk.turn_to("queue")
    assert await tab.evaluate("document.querySelector('dialog')") is None


async def press(desk: Desk, action: str) -> None:
    """Have the dialog of an action opened."""
    await desk.tab.until(f"!!document.querySelector('[data-action={action}]')")
    await desk.tab.evaluate(f"document.querySelector('[data-action={action}]').click()")
    await desk.tab.until("!!document.querySelector('dialog[open]')")
