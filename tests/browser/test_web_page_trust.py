"""Signing in and out in a real browser, what a viewer may not see, and what is not taken for HTML."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness import browser
from lockstep.api.base.changes import changed
from lockstep.core.model.plan import Event
from support.web_desk import HOSTILE, Desk
from support.web_views import waiting

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)


async def test_one_signs_in_with_a_token_and_out_again(desk: Desk) -> None:
    tab = desk.tab
    await tab.open(desk.url)
    await tab.shown("signin")
    assert await tab.evaluate("document.activeElement.id") == "token"
    sign_in = "document.querySelector('#token').value = '{}'; document.querySelector('form button').click()"
    await tab.evaluate(sign_in.format("forged"))
    await tab.until("document.querySelector('[role=alert]')?.textContent.includes('does not accept')")
    await tab.evaluate(sign_in.format("tenant"))
    await tab.shown("fleet")
    await tab.evaluate("location.reload()")  # the tab keeps it
    await tab.until("document.querySelector('main')?.dataset.ready === 'fleet' && performance.now() < 9e9")
    await tab.until("document.querySelector('#who').innerText.includes('tim')")
    await tab.evaluate("document.querySelector('#who button').click()")
    await tab.shown("signin")
    assert await tab.evaluate("sessionStorage.length") == 0
    assert await tab.evaluate("document.cookie + localStorage.length") == "0"


async def test_a_token_handed_over_in_the_address_does_not_stay_there(desk: Desk) -> None:
    await desk.enter("admin")
    assert await desk.tab.evaluate("location.hash") == "#/fleet"
    assert "admin" not in await desk.tab.evaluate("location.href")


async def test_a_token_in_the_address_takes_the_place_of_another_only_when_asked_to(desk: Desk) -> None:
    tab, name = desk.tab, "document.querySelector('#who').innerText"
    await desk.enter("tenant")
    await tab.until(f"{name}.includes('tim')")
    choose = "document.querySelector('main [data-choice={}]').click()"
    await tab.evaluate("location.hash = '#token=admin'")
    await tab.shown("choice")
    assert "another token" in await tab.text()
    assert await tab.evaluate("sessionStorage.getItem('lockstep-token')") == "tenant"
    assert await tab.evaluate("location.hash") == "#/fleet"
    await tab.evaluate(choose.format("stay"))
    await tab.shown("fleet")
    assert "tim" in await tab.evaluate(name)
    await tab.evaluate("location.hash = '#token=admin'")
    await tab.shown("choice")
    await tab.evaluate(choose.format("use"))
    await tab.shown("fleet")
    await tab.until(f"{name}.includes('ada')")


async def test_who_looks_is_named_once_the_operator_can_tell(desk: Desk) -> None:
    tab = desk.tab
    await desk.enter()
    await tab.until("document.querySelector('#who').innerText.includes('ada')")
    await tab.evaluate("document.querySelector('#who button').click()")
    refuse = """
      const fetched = window.fetch;
      window.fetch = async (url, ...rest) => {
        if (!url.endsWith('/me') || window.refused) return fetched(url, ...rest);
        window.refused = true;
        return new Response('{"message": "not yet"}', {status: 503});
      };
    """
    await tab.evaluate(refuse)
    await tab.evaluate(
        "document.querySelector('#token').value = 'admin'; document.querySelector('form button').click()"
    )
    await tab.until("window.refused")
    assert "Sign out" in await tab.evaluate("document.querySelector('#who').innerText")
    await tab.until("document.querySelector('#who').innerText.includes('ada')")


async def test_what_belongs_to_others_is_nowhere_in_the_document(desk: Desk) -> None:
    await desk.enter("tenant")
    document = "document.documentElement.outerHTML"
    assert "products" not in await desk.tab.evaluate(document)
    assert "runs that you may not see" in await desk.tab.text()
    await desk.turn_to("queue")
    shown = await desk.tab.text()
    assert "products/ads-v9" in shown  # its queue's visibility is Full
    assert "1 run of other namespaces waits here as well" in shown
    assert "secret-project" not in await desk.tab.evaluate(document)
    await desk.tab.evaluate("location.hash = '#/runs/products/moe-16x'")
    await desk.tab.until("document.querySelector('[role=alert]')?.textContent.includes('may not get trainingruns')")


async def test_nothing_that_a_cluster_says_is_taken_for_html(desk: Desk) -> None:
    cluster = desk.cluster
    cluster.runs.append(
        waiting("research", "evil", message=HOSTILE, reason=HOSTILE, assumption=HOSTILE, blockedBy=[HOSTILE])
    )
    index, run = next((i, run) for i, run in enumerate(cluster.runs) if run.name == "llama-70b")
    attempts = tuple(changed(a, message=HOSTILE, cause=HOSTILE, node=HOSTILE) for a in run.status.attempts)
    cluster.runs[index] = replace(run, status=changed(run.status, attempts=attempts, state=HOSTILE))
    cluster.said.keep(run.uid, Event("Warning", HOSTILE, "Act", HOSTILE), cluster.clock.now())
    cluster.nodes[3] = replace(cluster.nodes[3], drain=HOSTILE)
    for page in ("fleet", "queue", "runs/research/llama-70b", "runs/research/evil"):
        await desk.enter("admin", page)
        assert "<img src=x" in await desk.tab.text()
        assert await desk.tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert await desk.tab.evaluate("window.hacked") is None
