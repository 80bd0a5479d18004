"""The adaptive window: how it grows, shrinks and hands out its places."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress

import pytest

from lockstep.controller.runtime.in_flight_limit import IN_VAIN, LONGEST_WAIT, SLOW_FOR, AdaptiveWindow, NoPlaceError
from support.manual_clock import ManualClock


def test_the_window_grows_by_a_step_while_answers_stay_fast(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32, step=8, maximum=128)
    for _ in range(32 + 40):
        window.answered("a", 0.01)
    assert window.limit == 48


def test_the_window_never_grows_past_its_maximum(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32, step=8, maximum=64)
    for _ in range(10_000):
        window.answered("a", 0.01)
    assert window.limit == 64


def test_slow_answers_stop_the_growth(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32)
    for _ in range(32):
        window.answered("a", 0.01)
    grown = window.limit
    for number in range(grown * 3):
        window.answered("a", 0.05 if number % 10 == 0 else 0.01)
    assert window.limit == grown


def test_a_server_that_became_slow_for_good_does_not_hold_the_window_down_for_ever(
    clock: ManualClock,
) -> None:
    window = AdaptiveWindow(clock, start=8)
    for _ in range(8):
        window.answered("a", 0.01)
    before = window.limit
    for _ in range(before * 40):
        window.answered("a", 0.05)
    assert window.limit > before


async def test_one_burst_of_refusals_halves_the_window_once(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32)
    async with AsyncExitStack() as held:
        for _ in range(32):
            await held.enter_async_context(window.slot("a"))
        for _ in range(32):
            window.pushed_back("a")
        assert window.limit_of("a") == 16
        window.pushed_back("a")
        assert window.limit_of("a") == 8


async def test_nothing_is_sent_before_the_moment_the_server_asked_for(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock)
    window.pushed_back("a", retry_after=5)
    sent: list[float] = []

    async def send() -> None:
        async with window.slot("a"):
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
        async with window.slot("a"):
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
        async with window.slot("a"):
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


class Writers:
    """Requests that hold their places until they are told otherwise."""

    def __init__(self, window: AdaptiveWindow) -> None:
        self.window = window
        self.tasks: list[asyncio.Task[None]] = []
        self.held: Counter[str] = Counter()
        self.turned_away: Counter[str] = Counter()
        self.order: list[str] = []

    async def begin(self, namespace: str, count: int, until: asyncio.Event | None = None) -> None:
        """So many more of a namespace; ``until``: when they are answered, else never."""
        self.tasks += [asyncio.ensure_future(self._send(namespace, until or asyncio.Event())) for _ in range(count)]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def time_out(self, namespace: str) -> None:
        """All that this namespace has in flight ends without an answer."""
        held = [task for task in self.tasks if task.get_name() == namespace]
        for _ in held:
            self.window.pushed_back(namespace)
        for task in held:
            task.cancel()
            self.tasks.remove(task)
        await self.settle()

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _send(self, namespace: str, until: asyncio.Event) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with self.window.slot(namespace):
                task.set_name(namespace)
                self.held[namespace] += 1
                self.order.append(namespace)
                try:
                    await until.wait()
                finally:
                    self.held[namespace] -= 1
        except NoPlaceError:
            self.turned_away[namespace] += 1


async def test_a_namespace_that_is_alone_has_the_whole_window(clock: ManualClock) -> None:
    writers = Writers(AdaptiveWindow(clock, start=32))
    await writers.begin("a", 100)
    assert writers.held == {"a": 32}
    await writers.end()


async def test_whoever_comes_beside_one_that_fills_the_window_finds_half_of_it_free(clock: ManualClock) -> None:
    writers = Writers(AdaptiveWindow(clock, start=32))
    await writers.begin("a", 100)
    await writers.begin("b", 100)
    assert writers.held == {"a": 32, "b": 16}
    await writers.end()
    assert writers.window.in_flight == 0


async def test_two_that_go_on_writing_come_to_have_half_of_the_window_each(clock: ManualClock) -> None:
    writers = Writers(AdaptiveWindow(clock, start=32))
    batches = [asyncio.Event() for _ in range(4)]
    await writers.begin("a", 32, batches[0])
    await writers.begin("a", 100, batches[1])
    await writers.begin("b", 16, batches[2])
    await writers.begin("b", 100, batches[3])
    batches[0].set()
    await writers.settle()
    assert min(writers.held.values()) == 16
    assert writers.held.total() <= 33
    await writers.end()


async def test_those_who_wait_get_places_in_turn(clock: ManualClock) -> None:
    writers = Writers(AdaptiveWindow(clock, start=2))
    first, now = asyncio.Event(), asyncio.Event()
    now.set()
    await writers.begin("a", 2, first)
    await writers.begin("b", 1, first)
    writers.order.clear()
    await writers.begin("a", 3, now)
    await writers.begin("b", 3, now)
    await writers.begin("c", 3, now)
    first.set()
    await writers.settle()
    assert sorted(writers.order[:3]) == ["a", "b", "c"]
    assert len(writers.order) == 9
    await writers.end()


async def test_one_slow_namespace_has_a_small_limit_of_its_own_and_takes_nothing_from_the_others(
    clock: ManualClock,
) -> None:
    window = AdaptiveWindow(clock, start=32)
    writers = Writers(window)
    for _ in range(4):
        await writers.begin("a", 32)
        await clock.advance(10)
        await writers.time_out("a")
    assert (window.limit_of("a"), window.limit_of("b"), window.limit) == (4, 32, 32)
    assert window.is_slow("a")
    assert not window.is_slow("b")
    await clock.advance(SLOW_FOR)
    assert window.limit_of("a") == 32
    await writers.end()


async def test_where_as_many_namespaces_are_slow_as_are_not_all_of_them_are_held_back(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32)
    for namespace in ("a", "b", "c", "d", "e"):
        window.answered(namespace, 0.01)
    for namespace in ("a", "b"):
        window.pushed_back(namespace)
    assert window.limit == 32
    window.pushed_back("c")
    assert window.limit == 16


async def test_a_slow_namespace_is_let_grow_by_its_own_answers(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32)
    for _ in range(3):
        window.pushed_back("a")
    assert window.limit_of("a") == 4
    for _ in range(4 + 12 + 20 + 28):
        window.answered("a", 0.01)
    assert window.limit_of("a") == 32
    for _ in range(32):
        window.answered("a", 0.01)
    assert window.limit_of("a") == 40


async def test_those_behind_requests_that_end_in_vain_are_not_sent(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32)
    writers = Writers(window)
    await writers.begin("a", 256)
    for _ in range(IN_VAIN - 1):
        window.pushed_back("a")
    window.answered("a", 0.01)
    for _ in range(IN_VAIN - 1):
        window.pushed_back("a")
    window.pushed_back("a", retry_after=1.0)
    await writers.settle()
    assert not writers.turned_away, "some are answered, or have to be patient"
    await writers.time_out("a")
    assert writers.turned_away == {"a": 224}
    await clock.advance(1)
    await writers.begin("a", 9)
    assert writers.held["a"] == window.limit_of("a") == 8, "others find out whether it is over"
    await writers.end()


async def test_of_a_namespace_that_is_slow_both_lanes_count_as_one(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32)
    for lane in ("a", "a/delete", "a", "a/delete"):
        window.pushed_back(lane)
    assert (window.limit, window.limit_of("a"), window.limit_of("a/delete")) == (32, 8, 8)
    window.pushed_back("b")
    assert window.limit == 16


async def test_a_limit_that_is_over_does_not_come_back_with_one_slow_answer(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=32)
    for _ in range(3):
        window.pushed_back("a")
    await clock.advance(SLOW_FOR)
    window.answered("a", 2.5)
    assert window.is_slow("a")
    assert window.limit_of("a") == 32


async def test_the_tries_of_a_write_wait_no_longer_than_one(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=4)
    begun = clock.monotonic()
    for _ in range(4):
        await clock.advance(LONGEST_WAIT / 4 - 1)
        async with window.slot("a", begun):
            window.pushed_back("a")
    window.pushed_back("a", retry_after=30.0)
    with pytest.raises(NoPlaceError):
        async with window.slot("a", begun):
            raise AssertionError("it would have to be patient for longer than is left")
    assert window.in_flight == 0


async def test_nobody_waits_for_a_place_for_minutes(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=4)
    writers = Writers(window)
    answered = asyncio.Event()
    await writers.begin("a", 1, answered)
    await writers.begin("a", 9)
    await clock.advance(LONGEST_WAIT)
    answered.set()
    await writers.settle()
    assert writers.turned_away == {"a": 6}
    await writers.end()


async def test_a_waiter_that_is_cancelled_as_it_is_turned_away_takes_no_place(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock, start=1)
    writers = Writers(window)
    await writers.begin("a", 2)
    for _ in range(IN_VAIN):
        window.pushed_back("a")
    writers.tasks[1].cancel()
    with suppress(asyncio.CancelledError):
        await writers.tasks[1]
    assert window.in_flight == 1
    await writers.end()
    assert window.in_flight == 0


def test_of_namespaces_that_came_to_rest_nothing_is_kept(clock: ManualClock) -> None:
    window = AdaptiveWindow(clock)
    for number in range(1000):
        window.pushed_back(f"n{number}")
        clock._now += 1
    assert len(window._lanes) <= SLOW_FOR + 1
