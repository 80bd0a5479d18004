"""Checkpoints that are not loaded again: a step that a later attempt saved anew is another one."""

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import CheckpointStatus, QuarantinedCheckpoint
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.quarantine import Save, SavesFrom, in_quarantine, is_trusted, quarantined_as

BAD = frozenset({("shared", Save(300, 2)), ("shared", Save(400)), ("local", Save(500, 1))})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Save(300, 2), Save(300, 2), True),
        (Save(300, 2), Save(300, 3), False),
        (Save(300, 2), Save(300), True),
        (Save(300), Save(300), True),
        (Save(300), Save(400), False),
        (Save(300, 2), Save(400, 2), False),
    ],
)
def test_where_an_attempt_is_not_known_the_step_alone_tells_saves_apart(one: Save, other: Save, same: bool) -> None:
    assert one.may_be(other) is same
    assert other.may_be(one) is same


@pytest.mark.parametrize(
    ("tier", "step", "attempt", "bad"),
    [
        ("shared", 300, 2, True),
        ("shared", 300, 3, False),
        ("shared", 300, None, True),
        ("shared", 300, 0, True),
        ("shared", 400, 7, True),
        ("local", 300, 2, False),
        ("local", 500, 1, True),
        ("shared", 301, 2, False),
    ],
)
def test_a_checkpoint_that_may_be_a_bad_one_is_in_quarantine(
    tier: str, step: int, attempt: int | None, bad: bool
) -> None:
    assert in_quarantine(BAD, tier, step, attempt) is bad
    assert not in_quarantine(frozenset(), tier, step, attempt)


@pytest.mark.parametrize(
    ("step", "attempt", "bad"),
    [
        (300, 2, True),
        (900, 1, True),
        (299, 2, False),
        (300, 3, False),
        (300, 0, False),
        (300, None, False),
    ],
)
def test_what_attempts_up_to_one_saved_from_a_step_on_is_in_quarantine_and_no_later_one_s(
    step: int, attempt: int | None, bad: bool
) -> None:
    diverged = frozenset({("shared", SavesFrom(300, 2))})
    assert in_quarantine(diverged, "shared", step, attempt) is bad
    assert not in_quarantine(diverged, "local", step, attempt)


def test_what_is_named_alone_counts_before_what_is_part_of_more() -> None:
    both = frozenset({("shared", SavesFrom(100, 2)), ("shared", Save(300, 2)), ("shared", SavesFrom(200, 3))})
    assert quarantined_as(both, "shared", 300, 2) == Save(300, 2)
    assert quarantined_as(both, "shared", 301, 2) == SavesFrom(100, 2)


@pytest.mark.parametrize(
    ("ceiling", "tier", "step", "attempt", "trusted"),
    [
        (None, "shared", 300, 1, False),
        (None, "shared", 300, 2, True),
        (None, "local", 300, 1, True),
        (200, "shared", 200, 1, True),
        (200, "shared", 250, 1, False),
        (200, "shared", 250, None, False),
        (200, "shared", 250, 2, True),  # saved after the roll back
        (400, "shared", 300, 1, False),
    ],
)
def test_what_is_in_quarantine_or_was_rolled_back_is_not_gone_on_from(
    ceiling: int | None, tier: str, step: int, attempt: int | None, trusted: bool
) -> None:
    bad = QuarantinedCheckpoint(tier="shared", step=300, attempt=1, reason="it failed")
    status = TrainingRunStatus(checkpoint=CheckpointStatus(ceiling=ceiling, quarantined=(bad,)))
    status = changed(status, recovery=changed(status.recovery, diverged_attempt=1))
    assert is_trusted(status, tier, step, attempt) is trusted
