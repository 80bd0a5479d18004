"""What retention lets go: by table, and what it never does whatever is asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.checkpoints.retention import RetentionPolicy, StoredCheckpoint, to_prune
from lockstep.core.model.quarantine import Save, SavesFrom
from lockstep.core.model.worker_report import Verdict

UID, OTHER = "run", "other-run"
DAY = 86_400.0


def stored(step: int, attempt: int = 1, verdict: Verdict = Verdict.VALID, uid: str = UID) -> StoredCheckpoint:
    return StoredCheckpoint(step, attempt, uid, f"a{attempt}/step-{step}", verdict, time=step * DAY)


FIVE = [stored(step) for step in (100, 200, 300, 400, 500)]


@pytest.mark.parametrize(
    ("policy", "options", "gone"),
    [
        (None, {}, []),
        (RetentionPolicy(1), {}, [100, 200, 300, 400]),
        (RetentionPolicy(2), {}, [100, 200, 300]),
        (RetentionPolicy(9), {}, []),
        (RetentionPolicy(1, keep_every=200), {}, [100, 300]),
        (RetentionPolicy(1, keep_for=150 * DAY), {}, [100, 200, 300]),
        (RetentionPolicy(1), {"pinned": frozenset({"a1/step-200"})}, [100, 300, 400]),
        (RetentionPolicy(1), {"pinned": frozenset({"step-200", "step-50"})}, [100, 300, 400]),
        (RetentionPolicy(1), {"quarantined": frozenset({Save(500)})}, [100, 200, 300, 500]),
        (RetentionPolicy(1), {"quarantined": frozenset({Save(500, 1)})}, [100, 200, 300, 500]),
        (RetentionPolicy(1), {"quarantined": frozenset({SavesFrom(400, 1)})}, [100, 200, 400, 500]),
        (RetentionPolicy(1), {"quarantined": frozenset({Save(500, 2)})}, [100, 200, 300, 400]),
        (RetentionPolicy(1), {"quarantined": frozenset(Save(step) for step in (100, 200, 300, 400, 500))}, []),
    ],
)
def test_what_goes(
    policy: RetentionPolicy | None, options: dict[str, frozenset[str] | frozenset[Save]], gone: list[int]
) -> None:
    pruned = to_prune(FIVE, policy, run_uid=UID, now=500 * DAY, **options)  # type: ignore[arg-type]
    assert [each.step for each in pruned] == gone


@pytest.mark.parametrize(("other", "reached"), [(20251101, 0), (20251101, 520), (251101, 520)])
def test_a_number_that_is_no_step_stays_and_takes_no_place_of_one_that_is(other: int, reached: int) -> None:
    pruned = to_prune([*FIVE, stored(other)], RetentionPolicy(2), run_uid=UID, now=0.0, reached=reached)
    assert [each.step for each in pruned] == [100, 200, 300]


def test_after_a_roll_back_the_newest_and_the_highest_both_stay() -> None:
    held = [stored(100), stored(300), stored(120, attempt=2), stored(130, attempt=2)]
    pruned = to_prune(held, RetentionPolicy(1), run_uid=UID, now=0.0)
    assert [(each.attempt, each.step) for each in pruned] == [(1, 100), (2, 120)]


# a1/step-500 is quarantined; the run went back to 400 and came to 500 again
@pytest.mark.parametrize(
    ("resaved", "quarantined", "gone"),
    [
        (3, Save(500, 1), [(1, 400)]),
        (3, Save(500), [(1, 500), (3, 500)]),  # by whom cannot be told
        (0, Save(500, 1), [(0, 500), (1, 500)]),  # of one directory for all attempts
        (3, Save(500, 3), [(1, 400)]),
    ],
)
def test_a_step_saved_anew_by_a_later_attempt_is_kept_for_what_it_is(
    resaved: int, quarantined: Save, gone: list[tuple[int, int]]
) -> None:
    held = [stored(400), stored(500), stored(500, attempt=resaved)]
    pruned = to_prune(held, RetentionPolicy(1), run_uid=UID, now=0.0, quarantined=frozenset({quarantined}))
    assert [(each.attempt, each.step) for each in pruned] == gone


checkpoint = st.builds(
    stored,
    st.integers(0, 30),
    st.integers(0, 4),
    st.sampled_from(Verdict),
    st.sampled_from((UID, OTHER)),
)
policies = st.builds(
    RetentionPolicy,
    st.integers(1, 5),
    st.none() | st.integers(1, 10),
    st.none() | st.floats(0, 40 * DAY),
)


@given(
    st.lists(checkpoint, max_size=25),
    policies,
    st.floats(0, 60 * DAY),
    st.frozensets(st.sampled_from([f"a{attempt}/step-{step}" for attempt in range(5) for step in range(31)])),
    st.frozensets(st.builds(Save, st.integers(0, 30), st.integers(0, 4)), max_size=16),
)
def test_whatever_the_policy_nothing_is_lost_that_recovery_rests_on(
    held: list[StoredCheckpoint],
    policy: RetentionPolicy,
    now: float,
    pinned: frozenset[str],
    quarantined: frozenset[Save],
) -> None:
    gone = to_prune(held, policy, run_uid=UID, now=now, pinned=pinned, quarantined=quarantined)
    assert all(each.run_uid == UID and each.verdict is Verdict.VALID for each in gone)
    assert not {each.path for each in gone} & pinned
    sound = [each for each in held if each.run_uid == UID and each.verdict is Verdict.VALID]
    sound = [
        each
        for each in sound
        if not any(
            bad.step == each.step and (not bad.attempt or not each.attempt or bad.attempt == each.attempt)
            for bad in quarantined
        )
    ]
    left = [each for each in sound if each not in gone]
    assert bool(left) == bool(sound)
    if sound:
        assert max(each.step for each in left) == max(each.step for each in sound)
    else:
        assert gone == ()
    # A second pass finds nothing more: what was kept is kept.
    after = [each for each in held if each not in gone]
    assert to_prune(after, policy, run_uid=UID, now=now, pinned=pinned, quarantined=quarantined) == ()
