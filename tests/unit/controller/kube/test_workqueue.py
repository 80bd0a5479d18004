"""The work queue, on a clock that is moved by hand."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key, split_run_key
from support.manual_clock import ManualClock


@pytest.fixture
def queue(clock: ManualClock) -> WorkQueue:
    return WorkQueue(clock)


async def taken(queue: WorkQueue) -> str | None:
    """The next key that is due now, or None."""
    getting = asyncio.ensure_future(queue.get())
    for _ in range(5):
        await asyncio.sleep(0)
    if getting.done():
        return getting.result()
    getting.cancel()
    return None


async def drained(queue: WorkQueue) -> list[str]:
    """Every key that is due now, each worked on successfully."""
    keys = []
    while (key := await taken(queue)) is not None:
        keys.append(key)
        queue.done(key)
    return keys


def test_the_key_of_a_run_names_it_and_reads_back() -> None:
    assert split_run_key(run_key("team", "llama")) == ("team", "llama")
    with pytest.raises(ValueError, match=r"unpack|not the key"):
        split_run_key(CLUSTER_KEY)


async def test_a_key_added_many_times_is_worked_on_once(queue: WorkQueue) -> None:
    for _ in range(5):
        queue.add("run/a/b")
    assert await drained(queue) == ["run/a/b"]


async def test_the_cluster_key_goes_first_and_the_others_as_they_came(queue: WorkQueue) -> None:
    queue.add("run/a/2")
    queue.add("run/a/1")
    queue.add(CLUSTER_KEY)
    assert await drained(queue) == [CLUSTER_KEY, "run/a/2", "run/a/1"]


async def test_a_key_is_never_worked_on_twice_at_a_time_and_comes_again_if_added_meanwhile(
    queue: WorkQueue,
) -> None:
    queue.add("run/a/b")
    assert await queue.get() == "run/a/b"
    queue.add("run/a/b")
    assert await taken(queue) is None
    queue.done("run/a/b")
    assert await drained(queue) == ["run/a/b"]


@pytest.mark.slow
async def test_a_failed_key_backs_off_twice_as_long_each_time_up_to_the_limit(
    queue: WorkQueue, clock: ManualClock
) -> None:
    queue.add("run/a/b")
    delays = []
    for _ in range(12):
        queue.done(await queue.get(), failed=True)
        failed_at = clock.now()
        while (key := await taken(queue)) is None:
            await clock.advance(0.05)
        delays.append(clock.now() - failed_at)
        queue.add(key)
        queue.done(key, failed=True)  # comes at once, for it was added meanwhile
    assert delays[:4] == pytest.approx([0.1, 0.4, 1.6, 6.4], abs=0.06)
    assert max(delays) == pytest.approx(60, abs=0.06)


async def test_a_success_ends_the_back_off(queue: WorkQueue, clock: ManualClock) -> None:
    for _ in range(5):
        queue.add("run/a/b")
        queue.done(await queue.get(), failed=True)
    queue.add("run/a/b")
    queue.done(await queue.get())
    assert queue.failing == 0
    queue.add("run/a/b")
    queue.done(await queue.get(), failed=True)
    await clock.advance(0.11)
    assert await taken(queue) == "run/a/b"


async def test_a_change_does_not_wait_for_the_back_off(queue: WorkQueue) -> None:
    queue.add("run/a/b")
    queue.done(await queue.get(), failed=True)
    queue.add("run/a/b")
    assert await drained(queue) == ["run/a/b"]


async def test_of_several_wake_ups_the_earliest_counts(queue: WorkQueue, clock: ManualClock) -> None:
    queue.wake_at("run/a/b", clock.now() + 30)
    queue.wake_at("run/a/b", clock.now() + 10)
    queue.wake_at("run/a/b", clock.now() + 20)
    getting = asyncio.ensure_future(queue.get())
    await clock.advance(9.9)
    assert not getting.done()
    await clock.advance(0.2)
    assert await getting == "run/a/b"
    queue.done("run/a/b")
    await clock.advance(60)
    assert await drained(queue) == []


async def test_work_before_the_wake_up_drops_it(queue: WorkQueue, clock: ManualClock) -> None:
    queue.wake_at("run/a/b", clock.now() + 10)
    queue.add("run/a/b")
    assert await drained(queue) == ["run/a/b"]
    await clock.advance(20)
    assert await drained(queue) == []


async def test_a_wake_up_asked_for_during_the_work_is_kept(queue: WorkQueue, clock: ManualClock) -> None:
    queue.add("run/a/b")
    await queue.get()
    queue.wake_at("run/a/b", clock.now() + 10)
    await clock.advance(20)
    queue.done("run/a/b")
    assert await drained(queue) == ["run/a/b"]


async def test_the_oldest_due_age_sees_waiting_stuck_and_overdue_keys(queue: WorkQueue, clock: ManualClock) -> None:
    assert queue.oldest_due_age() == 0
    queue.add("run/a/b")
    await clock.advance(5)
    assert queue.oldest_due_age() == 5
    await queue.get()
    await clock.advance(5)
    assert queue.oldest_due_age() == 10
    queue.done("run/a/b")
    assert queue.oldest_due_age() == 0
    queue.wake_at("run/a/b", clock.now() + 10)
    await clock.advance(25)
    assert queue.oldest_due_age() == 15


async def test_workers_share_the_keys_and_survive_failures(queue: WorkQueue, clock: ManualClock) -> None:
    seen: list[str] = []
    at_once = most = 0

    async def work(key: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        seen.append(key)
        if len(seen) == 1:
            raise RuntimeError("the first one fails")

    running = asyncio.ensure_future(queue.run(work, workers=3))
    for number in range(20):
        queue.add(f"run/a/{number}")
    await clock.advance(1)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert set(seen) == {f"run/a/{number}" for number in range(20)}
    assert len(seen) == 21
    assert most == 3


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "wake", "get", "done", "fail", "time"]))))
def test_no_key_is_lost_and_none_is_worked_on_twice_at_a_time(steps: list[tuple[str, str]]) -> None:
    async def play() -> None:
        clock = ManualClock()
        queue = WorkQueue(clock)
        working: list[str] = []
        owed: set[str] = set()  # keys added and not taken since
        for key, step in steps:
            if step == "add":
                queue.add(key)
                owed.add(key)
            elif step == "wake":
                queue.wake_at(key, clock.now() + 1)
                owed.add(key)
            elif step == "time":
                await clock.advance(1)
            elif step == "get" and len(queue):
                taken = await queue.get()
                assert taken not in working
                working.append(taken)
                owed.discard(taken)
            elif step in ("done", "fail") and key in working:
                working.remove(key)
                queue.done(key, failed=step == "fail")
        for key in working:
            queue.done(key)
        await clock.advance(100)
        assert owed <= set(await drained(queue))

    asyncio.run(play())
