"""Answers of the web page leave the operator most of its time."""

import asyncio
import threading

import pytest

from lockstep.controller.web.threads import LONGEST_REST, MOST_WAITING, REST, BusyError, WorkerThreads
from support.manual_clock import ManualClock


class Bench:
    """Where answers are made, each of which takes ``cost`` CPU seconds."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cost = 0.5
        self.used = 0.0
        self.aside = WorkerThreads(self.clock, lambda: self.used)
        self.made: list[int] = []

    def ask(self, number: int) -> asyncio.Task[int]:
        def work() -> int:
            self.used += self.cost
            self.made.append(number)
            return number

        return asyncio.create_task(self.aside.make(work))


async def test_all_who_look_together_have_a_quarter_of_a_core() -> None:
    bench = Bench()
    asked = [bench.ask(number) for number in range(3)]
    await asked[0]
    for number in (1, 2):
        await bench.clock.advance(1.0)
        assert len(bench.made) == number
        await bench.clock.advance(REST * bench.cost - 1.0)
        await asked[number]
    assert bench.made == [0, 1, 2]


async def test_nobody_waits_for_what_was_made_long_ago() -> None:
    bench = Bench()
    bench.cost = 1000.0
    await bench.ask(1)
    await bench.clock.advance(LONGEST_REST)
    assert await bench.ask(2) == 2


async def test_who_asks_while_very_many_wait_is_told_when_to_come_again() -> None:
    bench = Bench()
    bench.cost = 0.0  # nothing to rest from
    asked = [bench.ask(number) for number in range(MOST_WAITING)]
    late = bench.ask(-1)
    assert await asyncio.gather(*asked) == [*range(MOST_WAITING)]
    with pytest.raises(BusyError) as refused:
        await late
    assert refused.value.seconds > 0
    assert await bench.ask(1) == 1


async def test_it_rests_from_what_failed_as_well() -> None:
    bench = Bench()

    def work() -> int:
        bench.used += 1.0
        raise ValueError("defect")

    with pytest.raises(ValueError, match="defect"):
        await bench.aside.make(work)
    later = bench.ask(1)
    await bench.clock.advance(REST - 0.1)
    assert not later.done()
    await bench.clock.advance(0.2)
    assert await later == 1


async def test_work_is_done_off_the_event_loop() -> None:
    assert await Bench().aside.make(threading.get_ident) != threading.get_ident()
