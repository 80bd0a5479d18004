"""The book of reports: how polls are counted, and what answers them."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from lockstep.controller.workers.reports import POLL_GRACE, UnregisteredError
from lockstep.controller.workers.trust import SenderClaim
from support.report_desk import CLAIM, PREPARE, RUN, Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_poll_that_breaks_off_no_longer_counts_as_arrival(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with suppress(ConnectionError), desk.book.poll(CLAIM):
        assert desk.book.reports(RUN)[0].polling
        raise ConnectionError
    assert not desk.book.reports(RUN)[0].polling


async def test_an_answered_poll_counts_until_the_worker_had_time_to_reconnect(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with desk.book.poll(CLAIM):
        pass
    assert desk.book.reports(RUN)[0].polling
    await desk.clock.advance(POLL_GRACE)
    assert not desk.book.reports(RUN)[0].polling


async def test_of_two_polls_the_one_that_breaks_off_does_not_end_the_other(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with desk.book.poll(CLAIM):
        with suppress(ConnectionError), desk.book.poll(CLAIM):
            raise ConnectionError
        assert desk.book.reports(RUN)[0].polling


async def test_registering_again_keeps_count_of_the_polls_still_open(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with suppress(ConnectionError), desk.book.poll(CLAIM):
        desk.register(phase="Ready", readyFor=1)
        raise ConnectionError
    assert not desk.book.reports(RUN)[0].polling


async def test_coming_back_to_the_barrier_wakes_a_decision(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with suppress(ConnectionError), desk.book.poll(CLAIM):
        raise ConnectionError
    desk.wakes()
    with desk.book.poll(CLAIM):
        assert desk.wakes() == 1


async def test_a_new_directive_wakes_every_poller_and_the_same_one_none(desk: Desk) -> None:
    claims = [SenderClaim(RUN, slot, 1, f"pod-{slot}") for slot in range(2)]
    for claim in claims:
        desk.register(claim)
    desk.book.set_directive(RUN, PREPARE)

    async def poll(claim: SenderClaim) -> float:
        with desk.book.poll(claim):
            await desk.book.news(RUN, 1, 15)
        return desk.clock.now()

    polls = [asyncio.ensure_future(poll(claim)) for claim in claims]
    await desk.clock.advance(5)
    desk.book.set_directive(RUN, replace(PREPARE))
    await desk.clock.advance(5)
    assert not any(poll.done() for poll in polls)
    desk.book.set_directive(RUN, replace(PREPARE, attempt=2))
    assert await asyncio.gather(*polls) == [1010.0, 1010.0]
    orders = desk.book.orders(RUN)
    assert orders is not None
    assert (orders.revision, orders.directive.attempt) == (2, 2)


async def test_a_poll_without_news_ends_when_its_time_is_up(desk: Desk) -> None:
    desk.register()
    poll = asyncio.ensure_future(desk.book.news(RUN, 0, 15))
    await desk.clock.advance(14.9)
    assert not poll.done()
    await desk.clock.advance(0.1)
    assert poll.done()


async def test_who_has_not_seen_the_current_revision_is_answered_at_once(desk: Desk) -> None:
    desk.register()
    desk.book.set_directive(RUN, PREPARE)
    await asyncio.wait_for(desk.book.news(RUN, 0, 15), 20)


async def test_forgetting_a_run_answers_its_pollers(desk: Desk) -> None:
    desk.register()
    poll = asyncio.ensure_future(desk.book.news(RUN, 0, 15))
    await desk.clock.advance(1)
    desk.book.retain(["another"])
    await asyncio.wait_for(poll, 20)
    assert desk.book.reports(RUN) == {}
    with pytest.raises(UnregisteredError):
        desk.report()
