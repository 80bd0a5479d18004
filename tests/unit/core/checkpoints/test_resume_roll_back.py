"""Where a run resumes whose training went wrong: up to the step that it rolls back to, or from before."""

from dataclasses import replace

import pytest

from lockstep.core.checkpoints.resume import ResumeKind, choose_resume
from lockstep.core.checkpoints.verdicts import Check
from lockstep.core.model.quarantine import Save
from lockstep.core.model.tiers import SHARED
from lockstep.core.model.worker_report import Verdict
from support.resume_candidates import CONTEXT, DURING_GRACE, checkpoint, decide


def test_where_everything_was_saved_after_training_went_wrong_it_is_said_so() -> None:
    decision = decide(checkpoint(SHARED, 120), checkpoint(SHARED, 110), ceiling=99)
    assert (decision.kind, decision.reason) == (ResumeKind.BLOCKED, "NothingToGoBackTo")
    assert "went wrong after step 99" in decision.message
    assert "from step 110 on" in decision.message
    torn = decide(checkpoint(SHARED, 90, Verdict.INVALID), ceiling=99)
    assert torn.reason == "NoValidCheckpoint"


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, 108),
        ({"mode": "Fresh"}, 108),
        ({"mode": "Require"}, 108),
        ({"diverged_from": 108}, None),
        ({"diverged_from": 0}, None),
        ({"diverged_from": 0, "diverged_attempt": 1}, 115),
        ({"quarantine": frozenset({(SHARED, Save(108, 1))})}, 109),
        ({"quarantine": frozenset({(SHARED, Save(108, 1)), (SHARED, Save(109, 1))})}, None),
    ],
)
def test_where_nothing_is_left_up_to_the_ceiling_the_oldest_of_before_it_went_wrong_is_gone_back_to(
    changes: dict[str, object], step: int | None
) -> None:
    found = [checkpoint(SHARED, each) for each in (120, 110, 109, 108)]
    found += [checkpoint(SHARED, 115, attempt=2), checkpoint(SHARED, 90, Verdict.INVALID)]
    decision = decide(*found, **{"ceiling": 99, "diverged_from": 110} | changes)
    assert (decision.choice and decision.choice.step) == step
    if step is None:
        assert decision.reason == "NothingToGoBackTo"
    else:
        assert decision.kind is ResumeKind.RESUME
        assert decision.message.endswith(", as nothing that was saved up to step 99 is left")


def test_what_is_gone_back_to_instead_is_read_first_and_passed_over_where_that_fails() -> None:
    older, newer = checkpoint(SHARED, 108), checkpoint(SHARED, 109)
    context = replace(CONTEXT, ceiling=99, diverged_from=110)
    first = choose_resume([older, newer], {}, context, DURING_GRACE)
    assert (first.kind, first.choice) == (ResumeKind.VERIFY, older)
    checks = {(SHARED, older.path): Check(Verdict.INVALID, "torn")}
    second = choose_resume([older, newer], checks, context, DURING_GRACE)
    assert (second.kind, second.choice) == (ResumeKind.VERIFY, newer)


def test_what_went_wrong_is_not_gone_back_to_for_one_that_was_saved_since_and_cannot_be_read() -> None:
    wrong, since = checkpoint(SHARED, 110), checkpoint(SHARED, 115, attempt=2)
    context = replace(CONTEXT, ceiling=99, diverged_from=100, diverged_attempt=1)
    checks = {(SHARED, wrong.path): Check(Verdict.VALID, "")}
    assert choose_resume([wrong, since], checks, context, 1e9).kind is ResumeKind.BLOCKED


@pytest.mark.parametrize(("ceiling", "step"), [(110, 110), (109, 100)])
def test_the_step_that_a_run_rolls_back_to_may_itself_be_resumed_from(ceiling: int, step: int) -> None:
    decision = decide(checkpoint(SHARED, 110), checkpoint(SHARED, 100), ceiling=ceiling)
    assert decision.choice is not None
    assert decision.choice.step == step
