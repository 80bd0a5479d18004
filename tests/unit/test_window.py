"""The adaptive window: how it grows, shrinks and hands out its places."""

import asyncio

import pytest

from lockstep.controller.runtime.in_flight_limit import AdaptiveWindow
from support.manual_clock import ManualClock


def test_the_window_grows_by_a_step_while_answers_stay_fast(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32, step=8, maximum=128)
    for _ in range(32 + 40):
        window.answered(0.01)
    assert window.limit == 48


def test_the_window_never_grows_past_its_maximum(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32, step=8, maximum=64)
    for _ in range(10_000):
        window.answered(0.01)
    assert window.limit == 64


def test_slow_answers_stop_the_growth(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32)
    for _ in range(32):
        window.answered(0.01)
    grown = window.limit
    for number in range(grown * 3):
        window.answered(0.05 if number % 10 == 0 else 0.01)
    assert window.limit == grown


def test_a_server_that_became_slow_for_good_does_not_hold_the_window_down_for_ever(
    clock: ManualClock,
) -> None:
    window = AdaptiveWindow(clock, start=8)
    for _ in range(8):
        window.answered(0.01)
    before = window.limit
    for _ in range(before * 40):
        window.answered(0.05)
    assert window.limit > before


async def test_one_burst_of_refusals_halves_the_window_once(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32)
    window.in_flight = 32
    for _ in range(32):
        window.pushed_back()
    assert window.limit == 16
    window.pushed_back()
    assert window.limit == 8


async def test_nothing_is_sent_before_the_moment_the_server_asked_for(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock)
    window.pushed_back(retry_after=5)
    sent: list[float] = []

    async def send() -> None:
        async with window.slot():
            sent.append(clock.monotonic())

    begun = clock.monotonic()
    sending = asyncio.ensure_future(send())
    await clock.advance(4.9)
    assert sent == []
    await clock.advance(0.2)
    await sending
    assert sent[0] - begun == pytest.approx(5)


async def test_places_are_given_first_come_first_served_and_never_too_many(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=2)
    order: list[int] = []
    most = 0

    async def send(number: int) -> None:
        nonlocal most
        async with window.slot():
            most = max(most, window.in_flight)
            order.append(number)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(send(number))
    assert order == list(range(20))
    assert most == 2
    assert window.in_flight == 0


async def test_a_cancelled_waiter_passes_its_place_on(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=1)
    served: list[str] = []

    async def send(name: str, hold: asyncio.Event) -> None:
        async with window.slot():
            served.append(name)
            await hold.wait()

    first, other = asyncio.Event(), asyncio.Event()
    other.set()
    tasks = [
        asyncio.ensure_future(send("first", first)),
        asyncio.ensure_future(send("second", other)),
        asyncio.ensure_future(send("third", other)),
    ]
    await asyncio.sleep(0)
    first.set()
    await asyncio.sleep(0)  # the place is on its way to the second one
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert served in (["first", "third"], ["first", "second", "third"])
    assert window.in_flight == 0
