"""Logs and stacks through the page, by the viewer's own token: rights, limits, and what is said."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import Condition
from lockstep.controller.web import logs
from lockstep.core.model.assignment import released
from lockstep.core.model.worker_report import StackReport, WorkerPhase
from support.web_views import report
from support.web_visitor import RUN, UID, Visited, visited


@pytest.fixture
async def site() -> AsyncIterator[Visited]:
    async with visited() as found:
        yield found


async def test_a_log_is_passed_on_as_it_is_written_by_the_viewers_token(site: Visited) -> None:
    async with site.follow(1) as answer:
        assert (answer.status, answer.content_type) == (200, "text/plain")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert await answer.content.readline() == b"step 1\n"  # while it goes on
        site.api.ended.set()
        assert await answer.content.read() == b"step 2\n"
    [(_, path, headers, query)] = site.api.asked
    assert path == "/api/v1/namespaces/research/pods/llama-70b-uid-r-1-1/log"
    assert headers["Authorization"] == "Bearer admin"
    assert query == {"container": "trainer", "follow": "true", "tailLines": str(logs.TAIL_LINES)}


async def test_who_may_not_read_logs_gets_none_and_no_stack(site: Visited) -> None:
    site.cluster.reports[UID][1] = report(1, "gpu-1", 9, now=0.0, stacks=StackReport("h", "train.py:34 all_reduce"))
    async with site.follow(1, "tenant") as answer:
        assert answer.status == 403
        assert "pods/log" in await answer.text()
    assert (await site.get(f"{RUN}/ranks/1"))[1]["stack"] == "train.py:34 all_reduce"
    _, told = await site.get(f"{RUN}/ranks/1", "tenant")
    assert (told["mayRead"], told["stack"]) == (False, "")


STACKS = "/api/v1/namespaces/research/configmaps/llama-70b-stacks-1"


def hung_once(site: Visited, rows: Any) -> None:
    """Its first attempt did, and ``rows`` are in the ConfigMap of that."""
    run = site.cluster.runs[0]
    first, *others = run.status.attempts
    attempts = (changed(first, stacks="llama-70b-stacks-1"), *others)
    site.cluster.runs[0] = replace(run, status=changed(run.status, attempts=attempts))
    text = rows if isinstance(rows, str) else json.dumps(rows)
    site.api.objects[STACKS] = {"metadata": {"name": "x"}, "data": {"stacks.json": text}}


async def test_stacks_of_earlier_hangs_are_read_by_the_viewers_token(site: Visited) -> None:
    hung_once(site, [{"ranks": "0-6", "stacks": "train.py:34 all_reduce"}, {"ranks": "7", "stacks": "data.py:9 read"}])
    assert (await site.get(f"{RUN}/ranks/1"))[1]["hangs"] == [1]
    assert await site.get(f"{RUN}/stacks/1") == (
        200,
        {"groups": [{"ranks": "0-6", "text": "train.py:34 all_reduce"}, {"ranks": "7", "text": "data.py:9 read"}]},
    )
    [(_, path, headers, _)] = site.api.asked
    assert (path, headers["Authorization"]) == (STACKS, "Bearer admin")


@pytest.mark.parametrize(
    ("attempt", "token", "status", "words"),
    [
        ("2", "admin", 404, "no stacks of attempt 2"),
        ("x" * 50, "admin", 404, "no stacks of attempt xxxxxxxxxx of"),
        ("1", "tenant", 403, "you may not get configmaps in namespace research; ask for the role view"),
        ("1", "gone", 404, "ConfigMap llama-70b-stacks-1 is not there any more"),
    ],
)
async def test_stacks_that_there_are_not_or_not_for_the_viewer_are_told(
    site: Visited, attempt: str, token: str, status: int, words: str
) -> None:
    hung_once(site, [])
    if token == "gone":
        del site.api.objects[STACKS]
    got, body = await site.get(f"{RUN}/stacks/{attempt}", "tenant" if token == "tenant" else "admin")
    assert (got, words in body["message"]) == (status, True)


@pytest.mark.parametrize(
    "rows", ["", "[" * 5000, "{}", [1], [{"ranks": 1, "stacks": "x"}], [{"stacks": "x"}], "null", '"x"']
)
async def test_stacks_that_somebody_wrote_to_hurt_show_nothing(site: Visited, rows: Any) -> None:
    hung_once(site, rows)
    assert await site.get(f"{RUN}/stacks/1") == (200, {"groups": []})
    site.api.objects[STACKS]["data"] = []
    assert await site.get(f"{RUN}/stacks/1") == (200, {"groups": []})


async def test_of_stacks_no_more_is_shown_than_fits(site: Visited) -> None:
    hung_once(site, [{"ranks": "0", "stacks": "x" * 9000}] * 100)
    _, body = await site.get(f"{RUN}/stacks/1")
    assert [len(each["text"]) for each in body["groups"]] == [4096] * 64
    hung_once(site, "x" * (1 << 20))
    assert (await site.get(f"{RUN}/stacks/1"))[0] == 503


@pytest.mark.parametrize("rank", ["-1", "8", "99999999999", "0x1", "²"])
async def test_a_rank_that_there_is_not_is_no_path(site: Visited, rank: str) -> None:
    async with site.follow(rank) as answer:
        assert answer.status == 404
    assert site.api.asked == []


@pytest.mark.parametrize("assignment", [{"nodes": (), "incarnations": ()}, {"incarnations": (1,)}])
async def test_a_run_without_nodes_that_make_sense_has_no_log(site: Visited, assignment: Any) -> None:
    run = site.cluster.runs[0]
    status = changed(run.status, assignment=changed(run.status.assignment, **assignment))
    site.cluster.runs[0] = replace(run, status=status)
    async with site.follow(1) as answer:
        assert (answer.status, "no nodes yet" in await answer.text()) == (404, True)
    assert site.api.asked == []


async def test_a_run_that_gave_its_nodes_back_has_the_logs_of_its_last_pods(site: Visited) -> None:
    run = site.cluster.runs[0]
    status = changed(run.status, assignment=released(run.status.assignment))
    site.cluster.runs[0] = replace(run, status=changed(status, resolved=changed(status.resolved, nodes=2)))
    site.api.ended.set()
    async with site.follow(1) as answer:
        assert await answer.read() == b"step 1\nstep 2\n"
    async with site.follow(2) as answer:
        assert answer.status == 404
    assert (await site.get(f"{RUN}/ranks/1"))[1]["node"] == ""


@pytest.mark.parametrize(
    ("answer", "status"), [((400, {"message": "waiting to start"}), 409), ((404, {"message": "gone"}), 404)]
)
async def test_a_pod_without_a_log_is_told(site: Visited, answer: Any, status: int) -> None:
    site.api.answer = answer
    async with site.follow() as told:
        assert told.status == status


async def test_one_viewer_follows_no_more_than_a_few_logs_and_whoever_leaves_makes_room(site: Visited) -> None:
    streams = [await site.follow(rank % 2) for rank in range(logs.STREAMS_OF_ONE)]
    async with site.follow() as answer:
        assert answer.status == 429
    streams.pop().close()  # nothing is written meanwhile, and it is noticed all the same
    async with asyncio.timeout(30):
        full = logs.STREAMS_OF_ONE
        while len(site.page.logs) == full or site.api.following == full:  # noqa: ASYNC110 (two counts, no event)
            await asyncio.sleep(0.02)
    async with site.follow() as answer:
        assert answer.status == 200
    for stream in streams:
        stream.close()


async def test_one_namespace_takes_not_all_streams_by_however_many_accounts(
    site: Visited, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "STREAMS_OF_NAMESPACE", 2)
    streams = [await site.follow(rank) for rank in range(2)]
    async with site.follow(token="tenant") as answer:  # who follows none so far
        assert (answer.status, "namespace research" in await answer.text()) == (429, True)
    streams.append(await site.follow(run="ui/api/runs/products/search-ranker"))
    assert [stream.status for stream in streams] == [200, 200, 200]
    for stream in streams:
        stream.close()


async def test_a_log_comes_no_faster_than_its_bytes_are_allowed(site: Visited, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "x" * 1023
    site.api.lines = [line] * int(logs.BURST // 1024 + 2048)  # two MiB beyond what comes at once
    site.api.ended.set()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(site.cluster.clock, "sleep", sleep)
    async with site.follow() as answer:
        assert len(await answer.read()) == 1024 * len(site.api.lines)
    assert max(slept) > 7.0  # by then two MiB are owed, of 256 KiB a second


async def test_a_log_that_breaks_off_behind_the_operator_is_passed_on_as_one_that_does(site: Visited) -> None:
    site.api.breaks = True
    async with site.follow() as answer:
        assert answer.status == 200
        site.api.ended.set()
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


@pytest.mark.parametrize(
    ("phase", "run", "ended"),
    [
        (WorkerPhase.RUNNING, "trains", False),
        (WorkerPhase.READY, "trains", False),
        (WorkerPhase.EXITED, "trains", True),
        (None, "trains", False),
        (None, "gave its nodes back", True),
        (WorkerPhase.RUNNING, "has ended", True),
    ],
)
async def test_a_log_has_an_end_once_its_process_or_its_run_has(
    site: Visited, phase: WorkerPhase | None, run: str, ended: bool
) -> None:
    reports = site.cluster.reports[UID]
    if phase is None:
        del reports[1]
    else:
        reports[1] = replace(reports[1], phase=phase)
    found = site.cluster.runs[0]
    status = found.status
    if run == "gave its nodes back":
        status = changed(status, assignment=released(status.assignment))
        status = changed(status, resolved=changed(status.resolved, nodes=2))
    elif run == "has ended":
        over = Condition(type="Finished", status="True", reason="Failed", last_transition_time=0.0)
        status = changed(status, conditions=(over,))
    site.cluster.runs[0] = replace(found, status=status)
    assert (await site.get(f"{RUN}/ranks/1"))[1]["ended"] is ended


@pytest.mark.slow
async def test_a_stream_ends_after_a_while_and_is_judged_anew(site: Visited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LONGEST", 0.3)
    async with site.follow() as answer:
        assert await answer.read() == b"step 1\nstep 2\n"
    assert len(site.page.logs) == 0
    site.api.may["admin"] = frozenset()
    async with site.follow() as answer:
        assert answer.status == 403
