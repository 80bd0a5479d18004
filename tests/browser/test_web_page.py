"""The web page in a real browser: what people see, reach with the keyboard, and are kept from."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harness import browser
from lockstep.api.base.changes import changed
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.web.server import WebPage
from lockstep.controller.workers.listener import Listener
from lockstep.core.model.plan import Event
from lockstep.core.model.worker_report import StackReport, WorkerPhase
from support.screenshots import look_back
from support.web_site import Cluster, busy_cluster, holding, racks, waiting

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"&'


class Desk:
    """A browser, and the page that it looks at."""

    def __init__(self, tab: browser.Page, cluster: Cluster, page: WebPage, url: str, listener: Listener) -> None:
        self.tab = tab
        self.cluster = cluster
        self.page = page
        self.url = url
        self.listener = listener

    async def enter(self, token: str = "admin", page: str = "fleet") -> None:
        """Come in as ``lockstep ui`` lets one in."""
        await self.tab.open(f"{self.url}#token={token}")
        await self.tab.shown("fleet")
        if page != "fleet":
            await self.turn_to(page)

    async def turn_to(self, page: str) -> None:
        """Another page, by its address."""
        await self.tab.evaluate(f"location.hash = '#/{page}'")
        await self.tab.shown({"runs": "run", "arrays": "array"}.get(kind := page.partition("/")[0], kind))


@asynccontextmanager
async def seated(folder: Path, nodes: int = 64) -> AsyncIterator[Desk]:
    cluster = busy_cluster(SystemClock(), nodes)
    async with cluster.api.served():
        page = cluster.page()
        look_back(cluster, page)
        listener = await Listener.open(page.application(), "127.0.0.1", 0, None, page.connections)
        try:
            async with browser.opened(folder) as tab:
                yield Desk(tab, cluster, page, f"http://127.0.0.1:{listener.port}/ui/", listener)
        finally:
            await listener.close()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with seated(tmp_path) as found:
        yield found


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


async def test_what_ended_tells_the_last_that_was_known_of_its_ranks(desk: Desk) -> None:
    await desk.enter("admin", "runs/research/gpt2-debug")
    text = await desk.tab.text()
    assert "No worker was heard of yet" not in text
    assert "Last known, of attempt" in text


async def test_saves_of_what_ended_are_told_as_they_were_last_seen(desk: Desk) -> None:
    await desk.enter("admin", "runs/research/gpt2-debug")
    cells = "[...document.querySelectorAll('table[aria-label=Checkpoints] tbody tr')].map(r => r.innerText)"
    [row] = await desk.tab.evaluate(cells)
    assert "valid on all ranks when they last looked" in row


async def test_who_waits_is_told_to_have_waited_since_it_was_made(desk: Desk) -> None:
    await desk.enter("admin", "runs/research/llama-405b")
    facts = "Object.fromEntries([...document.querySelectorAll('.facts div')].map(e => e.innerText.split('\\n')))"
    legend = "document.querySelector('ul.legend').innerText"
    made = (await desk.tab.evaluate(facts))["Made"].removesuffix(" ago")
    assert f"waiting for nodes {made}" in " ".join((await desk.tab.evaluate(legend)).split())


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


async def test_a_run_shows_attempts_time_loss_checkpoints_ranks_and_events(desk: Desk) -> None:
    await desk.enter("admin", "runs/research/llama-70b")
    text = await desk.tab.text()
    for words in ("Attempt 3 was ended", "NodeLost", "Where the time went", "repeated or lost", "Conditions"):
        assert words in text
    for words in ("Invalid", "did not finish", "a save every 10m", "it is replaced", "8 ranks"):
        assert words in text
    for words in (
        "a step every 1.3 s",
        "in about 2d",
        "the last save stopped training for 11s and was on disk after 64s",
    ):
        assert words in text
    count = "document.querySelectorAll('{}').length"
    assert await desk.tab.evaluate(count.format(".timeline .attempt")) == 4
    assert await desk.tab.evaluate(count.format(".timeline .fail")) == 3
    assert await desk.tab.evaluate(count.format(".loss .line")) == 2  # an earlier attempt, and this one
    assert await desk.tab.evaluate(count.format(".bar rect")) == 9


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


async def test_a_time_of_day_says_of_which_zone(desk: Desk) -> None:
    await desk.enter("admin", "runs/research/llama-70b")
    shown = await desk.tab.evaluate("document.querySelector('.ends span').innerText")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC([+-]\d+(:\d+)?)?", shown), shown


async def test_of_thousands_of_runs_the_largest_are_listed_and_the_rest_counted(desk: Desk) -> None:
    desk.cluster.nodes = racks(2000)
    desk.cluster.runs = [holding("research", f"r{i}", [f"gpu-{i}"]) for i in range(2000)]
    await desk.enter()
    assert await desk.tab.evaluate("document.querySelectorAll('.legend a').length") == 200
    assert "1,800 smaller runs are on the map and not listed" in await desk.tab.text()


async def test_a_filter_says_that_it_sees_what_is_listed(desk: Desk) -> None:
    desk.cluster.runs = [waiting("research", f"r{i}", position=i + 1) for i in range(520)]
    desk.cluster.sets = []
    await desk.enter("admin", "queue")
    typed = "i.value = 'r519'; i.dispatchEvent(new Event('input'))"
    await desk.tab.evaluate(f"const i = document.querySelector('input[type=search]'); {typed}")
    text = await desk.tab.text()
    assert "No run that is listed fits the filter." in text
    assert "20 more are not" in text


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


async def test_a_page_says_when_it_is_not_live_and_recovers_by_itself(desk: Desk) -> None:
    await desk.enter()
    desk.cluster.synced = False
    said = "document.querySelector('#freshness').textContent"
    await desk.tab.until(f"{said}.includes('not seen the whole cluster')")
    assert await desk.tab.evaluate("document.querySelector('#map').dataset.nodes") == "64"  # what was known stays
    desk.cluster.synced, desk.cluster.leads = True, False
    await desk.tab.until(f"{said}.includes('standby') && {said}.includes('live')")


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
