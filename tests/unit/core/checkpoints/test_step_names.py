"""A number that ends a name is a step where it may be one: by what was reported, or by the other names."""

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AttemptStatus, TrainingRunStatus
from lockstep.core.checkpoints.step_names import believed_up_to, reached_step, without_doubtful
from lockstep.core.checkpoints.verdicts import Candidate
from lockstep.core.model.worker_report import Verdict

DATE = 20251101


@pytest.mark.parametrize(
    ("steps", "reached", "believed"),
    [
        ([110, DATE], 120, 1240),
        ([110, DATE], 500, 2000),
        ([1_000, 20_000], 120, 10_000),
        ([100, 5_000, 10_000], 5_000, 100_000),  # keeps the first, and saves on
        ([1_000, 5_000, 9_000, 11_000], 73, 110_000),  # counts other steps in its names, and kept an early one
        ([1_000, 5_000, 9_000, DATE], 73, 90_000),
        ([DATE], 120, None),  # nothing agrees with the reports: it may count otherwise in its names
        ([1_000_000, 2_000_000], 120, None),
        ([], 120, None),
        ([110, DATE], 0, DATE - 1),
        ([110, DATE, DATE + 1], 0, DATE - 1),
        ([110, 2025110112], 0, 2025110111),
        ([110, 20251301], 0, None),  # no month
        ([10**9, 99 * 10**9, 10**11], 0, None),  # who counts tokens, and kept the first
        ([110, 19_000_000], 0, None),
        ([110, DATE, 30_000_000], 0, None),
        ([3_000_000, DATE], 0, None),
        ([3_000_000, DATE, 20_990_101], 0, None),
        ([0, DATE], 0, None),
        ([DATE], 0, None),
        ([DATE, DATE + 1], 0, None),
        ([], 0, None),
    ],
)
def test_a_number_is_doubted_that_stands_out(steps: list[int], reached: int, believed: int | None) -> None:
    assert believed_up_to(steps, reached) == believed


def named(step: int, **fields: object) -> Candidate:
    given: dict[str, object] = {"verdict": Verdict.VALID, "format": "TorchDCP", **fields}
    return Candidate("shared", step, f"/shared/{step}", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "doubted"),
    [
        (named(DATE), True),
        (named(DATE, verdict=Verdict.UNKNOWN), True),
        (named(DATE, verdict=Verdict.UNKNOWN, look_again=(1,)), True),  # nobody need look again
        (named(DATE, format="HuggingFace"), False),  # says inside which step it is
        (named(DATE, verdict=Verdict.INVALID, reason="torn"), False),
        (named(DATE, verdict=Verdict.UNKNOWN, format=""), False),  # of what nobody sees the format isn't known
        (named(1200), False),
    ],
)
def test_what_is_doubted_is_no_checkpoint_and_says_why(other: Candidate, doubted: bool) -> None:
    first, last = without_doubtful((other, named(110)), 120)
    assert last == named(110)
    assert first.doubted is doubted
    if doubted:
        words = "is called step 20251101, and no more than step 120 was ever reported: that number is no step"
        assert (first.verdict, first.reason, first.look_again) == (Verdict.INVALID, words, ())
    else:
        assert first == other


def test_without_reports_only_the_date_is_doubted() -> None:
    unknown = named(5_000, verdict=Verdict.UNKNOWN)
    assert [each.doubted for each in without_doubtful((named(DATE), unknown, named(110)), 0)] == [True, False, False]


def test_without_reports_the_words_are_of_the_others() -> None:
    (first, _) = without_doubtful((named(DATE), named(110)), 0)
    assert (
        first.reason == "is called step 20251101, which reads as a date, far beyond the others: that number is no step"
    )


@pytest.mark.parametrize(
    ("step", "total", "before", "reached"),
    [(0, None, (), 0), (7, None, (), 7), (7, 50, (), 50), (7, 50, (90, None), 90)],
)
def test_what_was_reached_is_what_was_reported_in_any_attempt_or_is_to_be_done(
    step: int, total: int | None, before: tuple[int | None, ...], reached: int
) -> None:
    status = TrainingRunStatus()
    attempts = tuple(AttemptStatus(number=number, last_step=last) for number, last in enumerate(before, 1))
    progress = changed(status.progress, step=step, total_steps=total)
    assert reached_step(changed(status, progress=progress, attempts=attempts)) == reached
