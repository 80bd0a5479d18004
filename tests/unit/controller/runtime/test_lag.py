"""How slow the operator and the API server are, as it measures it, and what is left undone for it."""

import asyncio

import pytest

from lockstep.controller.runtime.lag import LOOK_EVERY, LagMeter, Slowness
from support.manual_clock import ManualClock


async def stall(clock: ManualClock, seconds: float) -> None:
    """The loop does nothing else for so long."""
    await asyncio.sleep(0)
    clock._now += seconds
    await clock.advance(0)


@pytest.mark.parametrize(("seconds", "told"), [(0.3, 0.0), (5.0, 4.75)])
@pytest.mark.parametrize(("times", "slow"), [(1, False), (2, False), (3, True)])
async def test_a_loop_that_stands_still_has_not_listened_and_is_slow_when_it_often_does(
    clock: ManualClock, seconds: float, told: float, times: int, slow: bool
) -> None:
    meter = LagMeter(clock)
    watching = asyncio.ensure_future(meter.watch())
    await clock.advance(10)
    assert not meter.lag().allowance
    for _ in range(times):
        await stall(clock, seconds)
    assert meter.lag().loop == pytest.approx(told if slow else 0.0)
    assert meter.lag().deaf_since(clock.now() - 60) == pytest.approx(times * told)
    await clock.advance(61)
    assert not meter.lag().loop, "of late it was not"
    assert meter.lag().deaf_since(clock.now() - 600) == pytest.approx(times * told), "and yet then nobody was heard"
    watching.cancel()


@pytest.mark.parametrize(
    ("writes", "told"),
    [
        ([], 0.0),
        ([15.0] * 2, 0.0),
        ([15.0] * 3, 15.0),
        ([0.01] * 9, 0.0),
        ([0.01] * 9 + [15.0], 0.0),
        ([3.0] * 9 + [0.01] * 3, 3.0),
    ],
)
async def test_writes_are_slow_when_half_of_them_are(clock: ManualClock, writes: list[float], told: float) -> None:
    meter = LagMeter(clock)
    for seconds in writes:
        meter.wrote("team", seconds)
    assert meter.lag().write == told
    assert meter.is_overloaded() is bool(told)
    await clock.advance(61)
    assert not meter.is_overloaded()


@pytest.mark.slow
async def test_what_is_remembered_of_a_loop_that_is_always_late_is_bounded(clock: ManualClock) -> None:
    meter = LagMeter(clock)
    watching = asyncio.ensure_future(meter.watch())
    await clock.advance(LOOK_EVERY)
    for _ in range(700):
        await stall(clock, 0.9)
    assert 0 < len(meter.lag().deaf) <= 512
    watching.cancel()


async def test_people_are_told_what_was_measured_in_the_last_minute_usual_or_not(clock: ManualClock) -> None:
    meter = LagMeter(clock)
    assert meter.slowness() == Slowness()
    watching = asyncio.ensure_future(meter.watch())
    await clock.advance(LOOK_EVERY)
    await stall(clock, 0.45)
    for seconds in (0.01, 0.2, 0.3):
        meter.wrote("team", seconds)
        meter.placed("team", 10 * seconds)
    told = meter.slowness()
    assert (told.loop, told.write, told.placing) == pytest.approx((0.2, 0.2, 2.0))
    assert not told.allowance
    for _ in range(9):
        meter.wrote("team", 4.0)
    assert meter.slowness().write == 4.0
    await clock.advance(1)
    assert meter.slowness().allowance == 40.0
    await clock.advance(61)
    assert meter.slowness() == Slowness()
    watching.cancel()


async def test_writes_that_are_slow_now_are_seen_though_many_were_fast_a_while_ago(clock: ManualClock) -> None:
    meter = LagMeter(clock)
    for _ in range(200):
        meter.wrote("team", 0.01)
    await clock.advance(12)
    for slow in range(3):
        assert not meter.is_overloaded(), slow
        meter.wrote("team", 4.0)
        await clock.advance(1)
    assert meter.lag().write == 4.0
    for _ in range(200):
        meter.wrote("team", 0.01)
        await clock.advance(0.1)
    assert not meter.is_overloaded(), "it is fast again"


@pytest.mark.parametrize(
    ("slow_in", "told"),
    [
        pytest.param(["a"], 0.0, id="one of several namespaces"),
        pytest.param(["a", "b", "c"], 9.0, id="most of them"),
        pytest.param(["", "a", "b", "c", "d"], 9.0, id="everywhere"),
    ],
)
async def test_a_namespace_whose_writes_are_held_up_moves_nobody_elses_deadlines(
    clock: ManualClock, slow_in: list[str], told: float
) -> None:
    meter = LagMeter(clock)
    for second in range(180):
        for place in ("", "a", "b", "c", "d"):
            often = 60 if place == "b" else 30  # as progress is written, in an overload less often
            for _ in range(9 if place == "a" else second % often == 0):
                meter.wrote(place, 9.0 if place in slow_in else 0.01)
        await clock.advance(1)
        assert meter.lag().write == pytest.approx(told)


async def test_two_namespaces_are_as_slow_as_the_faster_of_them(clock: ManualClock) -> None:
    meter = LagMeter(clock)
    meter.wrote("calm", 0.01)
    for _ in range(100):
        meter.wrote("held up", 9.0)
        await clock.advance(1)
        assert not meter.is_overloaded(), "the other has its say though it writes less than once a minute"
    await clock.advance(100)
    assert not meter.is_overloaded()


async def test_of_many_namespaces_those_written_to_last_are_remembered(clock: ManualClock) -> None:
    meter = LagMeter(clock)
    for number in range(1000):
        for _ in range(100):
            meter.wrote(f"ns-{number}", 1.0)
    assert 0 < sum(map(len, meter._writes._known.values())) <= 128 * 64
    assert "ns-999" in meter._writes._known


@pytest.mark.parametrize(
    ("seconds", "times", "told"), [(1.0, 9, 0.0), (30.0, 2, 0.0), (30.0, 3, 30.0)], ids=["usual", "hardly ever", "slow"]
)
async def test_kube_scheduler_is_slow_when_half_of_the_pods_wait_for_it(
    clock: ManualClock, seconds: float, times: int, told: float
) -> None:
    meter = LagMeter(clock)
    for _ in range(times):
        meter.placed("team", seconds)
    lag = meter.lag()
    assert (lag.placing, lag.placing_allowance) == (told, min(300.0, 10 * told))
    assert not lag.allowance, "of the operator and its API server it says nothing"
    assert not meter.is_overloaded()
    await clock.advance(61)
    assert not meter.lag().placing


@pytest.mark.parametrize(("slow_in", "told"), [("a", 0.0), ("ab", 0.0), ("abc", 20.0)])
async def test_a_namespace_whose_pods_wait_moves_nobody_elses_deadlines(
    clock: ManualClock, slow_in: str, told: float
) -> None:
    meter = LagMeter(clock)
    for place in "abcde":
        for _ in range(200 if place == "a" else 3):
            meter.placed(place, 20.0 if place in slow_in else 0.0)
    assert meter.lag().placing == told
