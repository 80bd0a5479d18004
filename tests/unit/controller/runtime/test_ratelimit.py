"""The token bucket of each sender."""

from lockstep.controller.runtime.ratelimit import RateLimit
from support.manual_clock import ManualClock


async def test_a_burst_is_taken_and_then_only_the_steady_rate() -> None:
    clock = ManualClock()
    limit = RateLimit(clock, per_second=20, burst=40)
    assert [limit.acquire("a") for _ in range(40)] == [0.0] * 40
    assert limit.acquire("a") > 0
    assert limit.acquire("b") == 0.0
    await clock.advance(0.5)
    assert sum(limit.acquire("a") == 0.0 for _ in range(20)) == 10


async def test_senders_gone_quiet_are_forgotten() -> None:
    clock = ManualClock()
    limit = RateLimit(clock)
    for sender in range(1000):
        limit.acquire(f"early-{sender}")
    await clock.advance(60)
    for sender in range(1000):
        limit.acquire(f"late-{sender}")
    assert len(limit) == 1000


async def test_what_cost_more_is_paid_before_the_next() -> None:
    clock = ManualClock()
    limit = RateLimit(clock, per_second=20, burst=40)
    assert limit.acquire("a") == 0.0
    limit.charge("a", 39)
    assert limit.acquire("a") == 1 / 20
    limit.charge("a", 60)
    assert limit.acquire("a") == 61 / 20
    assert limit.acquire("b") == 0.0
    await clock.advance(61 / 20)
    assert limit.acquire("a") == 0.0


async def test_a_debt_is_not_forgotten_with_the_senders_gone_quiet() -> None:
    clock = ManualClock()
    limit = RateLimit(clock, per_second=20, burst=40)
    limit.acquire("debtor")
    limit.charge("debtor", 79)
    await clock.advance(3)
    for sender in range(2000):
        limit.acquire(f"other-{sender}")
    assert sum(limit.acquire("debtor") == 0.0 for _ in range(40)) == 20


async def test_where_senders_are_bounded_the_one_let_in_longest_ago_is_forgotten() -> None:
    clock = ManualClock()
    limit = RateLimit(clock, per_second=1, burst=2, most=3)
    for sender in ("a", "b", "c", "a", "d"):
        assert limit.acquire(sender) == 0.0
    assert len(limit) == 3
    assert limit.acquire("a") > 0  # b was let in before it
    assert [limit.acquire("b"), limit.acquire("b")] == [0.0, 0.0]


async def test_a_debt_is_told_without_taking_anything_and_ends_with_whom_it_is_of() -> None:
    clock = ManualClock()
    limit = RateLimit(clock, per_second=2, burst=10)
    await clock.advance(100)
    limit.charge("a", 10)
    assert limit.debt("a") == 0.0
    limit.charge("a", 3)
    assert [limit.debt("a"), limit.debt("a"), limit.debt("b")] == [1.5, 1.5, 0.0]
    await clock.advance(1)
    assert limit.debt("a") == 0.5
    limit.forget("a")
    assert (limit.debt("a"), len(limit)) == (0.0, 0)


async def test_what_is_charged_after_a_long_rest_counts() -> None:
    clock = ManualClock()
    limit = RateLimit(clock, per_second=1, burst=5)
    limit.charge("a", 1)
    await clock.advance(1000)
    for _ in range(6):
        limit.charge("a", 1)
    assert limit.debt("a") == 1.0


async def test_who_is_only_ever_charged_is_forgotten_too_once_it_owes_nothing() -> None:
    clock = ManualClock()
    limit = RateLimit(clock, per_second=1, burst=5)
    for sender in range(2000):
        limit.charge(f"early-{sender}", 1)
    await clock.advance(60)
    for sender in range(2000):
        limit.charge(f"late-{sender}", 1)
    assert len(limit) < 2500
