"""How far a run has come."""

import pytest

from lockstep.api.run_status import ProgressStatus, TrainingRunStatus
from lockstep.core.run.progress_record import record_longest, record_saved_step, record_step

NOTHING = TrainingRunStatus()


def test_a_step_is_told_with_its_loss_in_short_and_the_pace_since_the_one_before() -> None:
    status = record_step(NOTHING, 10, 250_000, "1.23456789", 100.9, anew=True)
    progress = record_step(status, 1000, 250_000, "1.2", 1090.0, anew=False).progress
    assert (status.progress.loss, status.progress.time, status.progress.pace) == ("1.235", 100.0, ())
    assert (progress.summary, progress.pace) == ("1k/250k", (1_000_000,))


@pytest.mark.parametrize(("step", "kept"), [(9, 10), (10, 10), (11, 11)])
def test_what_was_saved_counts_only_beyond_what_was_reported(step: int, kept: int) -> None:
    status = TrainingRunStatus(progress=ProgressStatus(step=10, time=50.0))
    told = record_saved_step(status, step, 99.0).progress
    assert (told.step, told.time) == (kept, 50.0)
    assert record_saved_step(NOTHING, step, 99.0).progress.time == 99.0


def test_the_longest_intervals_are_written_once() -> None:
    status = record_longest(NOTHING, 30, 600)
    assert (status.progress.longest_interval, status.progress.longest_init) == (30, 600)
    assert record_longest(status, 30, 600) is status
