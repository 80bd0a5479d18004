"""What a worker whose slot has a newer incarnation is told, and what of its words counts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from lockstep.core.model.plan import DesiredPhase, Directive
from support.worker_api import ENDPOINTS, PREPARE, RELEASE, RUN, World, made_material, pod, served


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with served(World(), made_material()) as opened:
        yield opened


async def test_who_is_superseded_is_told_that_the_others_go_on(world: World) -> None:
    await world.say("/v1/register", pod(1))
    world.book.set_directive(RUN, replace(RELEASE, incarnations=(1, 2)))
    answer = (await world.say("/v1/report", pod(1)))[1]
    assert (answer["phase"], answer["superseded"], answer["attempt"]) == ("Stop", True, 1)
    world.book.set_directive(RUN, replace(RELEASE, phase=DesiredPhase.STOP))
    answer = (await world.say("/v1/report", pod(1)))[1]
    assert (answer["phase"], "superseded" in answer) == ("Stop", False)


STEPS = replace(RELEASE, step_ports=(5000, 5001), has_token=True, stop_grace=20)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("directive", "attempt"),
    [
        (None, 1),
        (replace(STEPS, attempt=2), 2),  # of before: it would have it start
        (replace(STEPS, incarnations=(1, 2)), 1),
        (replace(PREPARE, attempt=2, incarnations=(1, 2), stop_grace=20), 2),
    ],
)
async def test_who_is_of_a_past_incarnation_is_told_to_stop_and_counts_for_nothing(
    world: World, endpoint: str, directive: Directive | None, attempt: int
) -> None:
    """As after a failover, or behind a network that is back: no poll of it was open when status said so."""
    if directive is not None:
        await world.say("/v1/register", pod(1))
        world.book.set_directive(RUN, directive)
    world.incarnations[RUN, 1] = 2
    before = world.book.reports(RUN)
    world.woken.clear()
    said = {"phase": "Running", "attempt": 1, "asks": [{"id": "1", "kind": "requeue"}]}
    report = {**world.body(pod(1))["report"], **said}
    status, answer = await world.say(endpoint, pod(1), **said, report=report)
    assert (status, answer["phase"], answer["superseded"], answer["attempt"]) == (200, "Stop", True, attempt)
    assert answer.get("stopGraceSeconds") == (20 if directive else None), "else the worker has one of its own"
    assert (answer["rank"], answer["start"], answer["nodelist"]) == (-1, None, [])
    assert not {"steps", "token", "asked"} & set(answer)
    assert world.book.reports(RUN) == before
    assert (world.woken, world.book.ended(RUN)) == ([], {})


async def test_a_past_incarnation_that_was_told_polls_as_others_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, news = asyncio.Event(), world.book.news

    async def wait_for_news(run_uid: str, seen: int, seconds: float) -> None:
        arrived.set()
        await news(run_uid, seen, seconds)

    monkeypatch.setattr(world.book, "news", wait_for_news)
    world.book.set_directive(RUN, RELEASE)
    world.incarnations[RUN, 1] = 2
    answer = (await world.say("/v1/report", pod(1), epoch=[1, 1], seen=1, waitSeconds=15))[1]
    assert (answer["phase"], arrived.is_set()) == ("Stop", False), "another leader's: at once"
    seen = {"epoch": answer["epoch"], "seen": answer["revision"], "waitSeconds": 15}
    poll = asyncio.ensure_future(world.say("/v1/report", pod(1), **seen))
    await asyncio.wait_for(arrived.wait(), 14)
    world.book.set_directive(RUN, replace(RELEASE, incarnations=(1, 2)))
    answer = (await asyncio.wait_for(poll, 14))[1]
    assert (answer["phase"], answer["revision"]) == ("Stop", 2)
    assert world.book.reports(RUN) == {}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_that_the_program_of_a_past_incarnation_has_ended_is_taken_in(world: World, endpoint: str) -> None:
    world.incarnations[RUN, 1] = 2
    ended = {"phase": "Exited", "attempt": 3}
    report = {**world.body(pod(1))["report"], **ended}
    for _ in range(2):
        assert (await world.say(endpoint, pod(1), **ended, report=report))[0] == 200
    assert (world.book.ended(RUN), world.book.reports(RUN)) == ({pod(1).uid: 3}, {})
    assert world.woken == [RUN], "once"
    world.incarnations[RUN, 0] = 2
    del world.pods[pod(1).uid]
    report["attempt"] = 1
    await world.say(endpoint, pod(0), phase="Exited", attempt=1, report=report)
    assert world.book.ended(RUN) == {pod(0).uid: 1}, "pods that are gone are forgotten"
