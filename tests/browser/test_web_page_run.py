"""The page of a run in a real browser: what it tells of one that trains, waits or has ended."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from harness import browser
from lockstep.api.base.changes import changed
from lockstep.api.run_status import ProgressStatus
from support.web_desk import Desk

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)


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


async def test_a_run_shows_attempts_time_loss_checkpoints_ranks_and_events(desk: Desk) -> None:
    await desk.enter("admin", "runs/research/llama-70b")
    text = await desk.tab.text()
    for words in ("Attempt 3 was ended", "NodeLost", "Where the time went", "repeated or lost", "Conditions"):
        assert words in text
    for words in ("Invalid", "did not finish", "Plan: a save every 10m, as", "it is replaced", "8 ranks"):
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


async def test_a_program_that_neither_reports_steps_nor_asks_when_to_save_is_told_of_both(desk: Desk) -> None:
    index, run = next((i, run) for i, run in enumerate(desk.cluster.runs) if run.name == "llama-70b")
    words = "no step of this attempt was reported yet"
    conditions = tuple(
        changed(each, status="False", reason="NoStepYet", message=words) if each.type == "Progressing" else each
        for each in run.status.conditions
    )
    status = changed(run.status, conditions=conditions, progress=ProgressStatus())
    desk.cluster.runs[index] = replace(run, status=status)
    reports = desk.cluster.reports[run.uid]
    desk.cluster.reports[run.uid] = {
        slot: replace(each, listens=False, progress=None) for slot, each in reports.items()
    }
    await desk.enter("admin", "runs/research/llama-70b")
    text = await desk.tab.text()
    assert text.count("add lockstep_training.report(step)") == 1
    assert "Plan, though no process of it asks when to save: a save every 10m" in text


async def test_a_time_of_day_says_of_which_zone(desk: Desk) -> None:
    await desk.enter("admin", "runs/research/llama-70b")
    shown = await desk.tab.evaluate("document.querySelector('.ends span').innerText")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC([+-]\d+(:\d+)?)?", shown), shown


async def test_a_standby_says_that_it_hears_no_ranks_of_a_run_that_trains(desk: Desk) -> None:
    index, run = next((i, run) for i, run in enumerate(desk.cluster.runs) if run.name == "llama-70b")
    status = changed(run.status, exits=changed(run.status.exits, attempt=4, succeeded="0-2"))
    status = changed(status, resolved=changed(status.resolved, gpu_type=""))
    desk.cluster.runs[index] = replace(run, status=status)
    desk.cluster.reports[run.uid] = {}
    desk.cluster.leads = False
    await desk.enter("admin", "runs/research/llama-70b")
    text = await desk.tab.text()
    assert "A standby answers" in text
    assert "Last known" not in text
    assert "8 a node" in await desk.tab.evaluate("document.querySelector('.facts').textContent")


async def test_sizes_are_told_in_the_unit_that_fits(desk: Desk) -> None:
    await desk.enter()
    sizes = "[0, 1023, 2 ** 20 - 1, 1100 * 2 ** 30, 3 * 2 ** 50].map(bytes)"
    told = await desk.tab.evaluate(f"import('/ui/format.js').then(({{ bytes }}) => {sizes})")
    assert told == ["", "1023 B", "1.0 MiB", "1.1 TiB", "3.0 PiB"]
