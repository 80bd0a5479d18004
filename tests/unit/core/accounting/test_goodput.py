"""Where the time went: every moment in one bucket, however the facts come."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.accounting.goodput import (
    MOST_MARKS,
    MOST_RECOVERIES,
    Bucket,
    Ended,
    Entered,
    Fact,
    Failed,
    GoodputAccount,
    GoodputStage,
    Mark,
    Saved,
    Started,
    Stepped,
    after,
    buckets,
    ettr,
    opened,
    runtime_goodput,
    whole_seconds,
)
from support.goodput_reference import partition


def folded(facts: list[Fact], submitted: float = 0.0) -> GoodputAccount:
    account = opened(submitted)
    for fact in facts:
        account = after(account, fact)
    return account


def seconds(parts: dict[Bucket, int]) -> dict[str, float]:
    return {bucket.value: amount / 1000 for bucket, amount in parts.items() if amount}


def trained(start: float, first: int, last: int, save_every: int = 10) -> Iterator[Fact]:
    """Steps of 10 s that end with ``last``, a save of 5 s after every tenth."""
    at = start
    yield Stepped(at, first - 1)
    for step in range(first, last + 1):
        at += 10
        yield Stepped(at, step)
        if step % save_every == 0:
            at += 5
            yield Saved(at, step, 5.0)


REFERENCE: list[Fact] = [
    Entered(60, GoodputStage.PROVISION),
    Started(120, 0, resumed=False),
    *trained(180, 1, 25),
    Failed(445, seen=455),
    Started(515, 20, resumed=True),
    *trained(545, 21, 40),
    Ended(755, 40),
]
EXPECTED = {
    "productive": 400,
    "queue": 60,
    "provision": 60,
    "init": 60,
    "save_block": 20,
    "lost_work": 55,
    "detect": 10,
    "restart": 60,
    "loading": 30,
}


def test_the_reference_timeline() -> None:
    account = folded(REFERENCE)
    parts = buckets(account, 1e9)
    assert seconds(parts) == EXPECTED
    assert sum(parts.values()) == 755_000
    assert ettr(parts) == pytest.approx(0.5298, abs=5e-5)
    assert runtime_goodput(parts) == pytest.approx(0.5755, abs=5e-5)
    assert (account.failures, account.steps_lost, account.recoveries, account.steps) == (1, 5, (100,), 40)


def test_the_reference_timeline_seen_as_a_whole() -> None:
    assert seconds(partition(0.0, REFERENCE, 1e9)) == EXPECTED


def test_saves_heard_of_late_end_in_the_same_account() -> None:
    late: list[Fact] = []
    held: list[Fact] = []
    for fact in REFERENCE:
        if isinstance(fact, Saved):
            held.append(fact)
            continue
        late.append(fact)
        if isinstance(fact, Stepped) and held and fact.step >= held[0].step + 2:  # type: ignore[union-attr]
            late.append(held.pop(0))
    late[-1:] = [*held, late[-1]]
    assert seconds(buckets(folded(late), 1e9)) == EXPECTED


def test_what_is_under_way_counts_as_what_it_will_be() -> None:
    account = folded(REFERENCE[:12])
    assert seconds(buckets(account, 284.0))["productive"] == 104.0
    assert buckets(account, 284.0) != buckets(account, 285.0)
    assert seconds(buckets(opened(7.0), 9.5)) == {"queue": 2.5}


def test_going_back_further_than_the_last_save_costs_more() -> None:
    facts = REFERENCE[: REFERENCE.index(Started(515, 20, resumed=True))]
    account = folded([*facts, Started(515, 10, resumed=True)])
    assert seconds(buckets(account, 515))["lost_work"] == 155
    assert account.steps_lost == 15


def test_a_checkpoint_newer_than_the_last_reported_step_loses_nothing_reported() -> None:
    facts = REFERENCE[: REFERENCE.index(Started(515, 20, resumed=True))]
    account = folded([*facts, Started(515, 26, resumed=True)])
    assert seconds(buckets(account, 515))["lost_work"] == 5
    assert (account.steps_lost, account.steps) == (0, 26)


def test_a_run_that_began_at_another_ones_step_counts_its_own_steps() -> None:
    account = folded([Started(1, 500, resumed=True), Stepped(2, 500), Stepped(12, 510)])
    assert account.steps == 10
    assert seconds(buckets(account, 12)) == {"queue": 1, "loading": 1, "productive": 10}


def test_the_end_of_a_failed_run_takes_back_what_was_never_saved() -> None:
    account = folded([*REFERENCE[:-1], Ended(760, 30)])
    assert seconds(buckets(account, 1e9))["productive"] == 300
    assert sum(buckets(account, 1e9).values()) == 760_000


def test_a_hang_counts_as_detection_since_its_last_step() -> None:
    account = folded([Started(0, 0, resumed=False), Stepped(10, 0), Stepped(20, 1), Failed(20, seen=200)])
    assert seconds(buckets(account, 230)) == {"init": 10, "productive": 10, "detect": 180, "restart": 30}


def test_a_failure_while_nothing_runs_changes_no_bucket() -> None:
    account = folded([Entered(10, GoodputStage.PROVISION), Failed(20, seen=25)])
    assert seconds(buckets(account, 30)) == {"queue": 10, "provision": 20}
    assert account.failures == 0


def test_failing_twice_before_a_step_is_one_long_recovery() -> None:
    account = folded(
        [
            Started(0, 0, resumed=False),
            Stepped(10, 0),
            Failed(20, seen=21),
            Started(30, 0, resumed=False),
            Failed(40, seen=41),
            Started(50, 0, resumed=False),
            Stepped(60, 0),
        ]
    )
    assert (account.failures, account.recoveries) == (2, (40,))


def test_suspension_is_no_part_of_a_recovery_nor_of_ettr() -> None:
    account = folded(
        [
            Started(0, 0, resumed=False),
            Stepped(0, 0),
            Stepped(100, 10),
            Failed(100, seen=100),
            Entered(100, GoodputStage.SUSPENDED),
            Entered(1000, GoodputStage.QUEUE),
            Started(1000, 10, resumed=True),
            Stepped(1000, 10),
        ]
    )
    assert account.recoveries == ()
    assert ettr(buckets(account, 1000)) == 1.0


def test_what_is_told_after_the_end_is_not_heard() -> None:
    account = folded(REFERENCE)
    assert after(account, Stepped(900, 50)) is account


def test_a_step_told_twice_counts_once() -> None:
    account = folded([Started(0, 0, resumed=False), Stepped(5, 0), Stepped(15, 1)])
    assert after(account, Stepped(20, 1)) is account
    assert after(account, Stepped(20, 0)) is account


def test_marks_and_recoveries_stay_bounded() -> None:
    facts: list[Fact] = []
    for attempt in range(100):
        at = attempt * 1000.0
        facts += [Started(at, 5 * attempt, resumed=True)]
        facts += [Stepped(at + 10 * step, 5 * attempt + step) for step in range(1, 10)]
        facts += [Failed(at + 95, seen=at + 96)]
    account = folded(facts)
    assert len(account.marks) == MOST_MARKS
    assert len(account.recoveries) == MOST_RECOVERIES


def test_seconds_add_up_though_each_part_is_rounded() -> None:
    parts = dict.fromkeys(Bucket, 600)
    assert sum(whole_seconds(parts).values()) == 6600 * 1 // 1000
    assert set(whole_seconds(parts).values()) <= {0, 1}


stages = st.sampled_from(
    [GoodputStage.QUEUE, GoodputStage.PROVISION, GoodputStage.RESTART, GoodputStage.SUSPENDED, GoodputStage.OTHER]
)
moments = st.floats(0.0, 10_000.0).map(lambda at: round(at, 3))
steps = st.integers(0, 200)
messy: st.SearchStrategy[Fact] = st.one_of(
    st.builds(Entered, moments, stages),
    st.builds(Started, moments, steps, st.booleans()),
    st.builds(Stepped, moments, steps),
    st.builds(Saved, moments, steps, st.floats(-10.0, 500.0)),
    st.builds(Failed, moments, moments),
)


@given(st.lists(messy, max_size=120), moments, st.none() | st.builds(Ended, moments, steps))
def test_buckets_add_up_to_the_wall_whatever_is_told(facts: list[Fact], now: float, end: Ended | None) -> None:
    account = folded([*facts, *([end] if end else [])], submitted=100.0)
    parts = buckets(account, now)
    wall = account.since - 100_000 if end else max(account.since, round(now * 1000)) - 100_000
    assert sum(parts.values()) == wall
    assert all(amount >= 0 for amount in parts.values())
    assert sum(whole_seconds(parts).values()) == wall // 1000
    assert 0.0 <= ettr(parts) <= 1.0
    assert 0.0 <= ettr(parts) <= runtime_goodput(parts) <= 1.0
    assert account.marks[-1].productive == account.closed[list(Bucket).index(Bucket.PRODUCTIVE)]
    assert list(account.marks) == sorted(account.marks, key=lambda mark: (mark.step, mark.productive))
    assert account.marks[0].productive == 0


@st.composite
def lives(draw: st.DrawFn, *, even: bool) -> list[Fact]:
    """The life of a run as it can happen; with ``even`` steps its length is not bounded by the marks kept."""
    at, known, facts = 0.0, [0], []
    resumed = False

    def later(least: int, most: int) -> float:
        nonlocal at
        at = round(at + draw(st.integers(least, most)) / 1000, 3)
        return at

    for _ in range(draw(st.integers(1, 6))):
        facts.append(Entered(later(0, 9000), draw(stages)))
        facts.append(Started(later(0, 9000), known[-1], resumed=resumed))
        step = known[-1]
        facts.append(Stepped(later(0, 9000), step))
        for _ in range(draw(st.integers(0, 30 if even else 5))):
            done = draw(st.integers(1, 7)) if even else 1
            at = round(at + done, 3) if even else later(1, 5000)
            step += done
            facts.append(Stepped(at, step))
            known.append(step)
            if draw(st.booleans()):
                facts.append(Saved(later(3, 3), step, 0.003))
        if draw(st.booleans()):
            broke = later(0, 900)
            facts.append(Failed(broke, seen=later(0, 9000)))
        back = draw(st.integers(0, known[-1])) if even else draw(st.sampled_from(known))
        known = sorted({*(step for step in known if step < back), back})
        resumed = back > 0
    if draw(st.booleans()):
        facts.append(Ended(later(0, 900), draw(st.sampled_from([None, known[-1], known[0]]))))
    return facts


@given(lives(even=False) | lives(even=True))
def test_counting_as_one_goes_equals_looking_back_on_everything(facts: list[Fact]) -> None:
    end = 10.0 + max(math.ceil(fact.at) for fact in facts)
    assert seconds(buckets(folded(facts), end)) == seconds(partition(0.0, facts, end))


def test_marks_between_which_steps_count_as_equal() -> None:
    account = folded([Started(0, 0, resumed=False), Stepped(0, 0), Stepped(100, 10), Started(100, 4, resumed=True)])
    assert account.marks == (Mark(0, 0), Mark(4, 40_000))
