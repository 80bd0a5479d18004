"""What admission remembers of a run."""

import pytest

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model import admission_record as record
from lockstep.core.model.reasons import StopReason

WAITED = record.record_dependencies(record.record_wait(TrainingRunStatus(), 5.0), ("a Succeeded",), ("b Failed",))


@pytest.mark.parametrize(
    ("reason", "is_ahead", "preemptions"),
    [
        (StopReason.PREEMPTED, True, 1),
        (StopReason.NODES_LOST, True, 0),
        (StopReason.EVICTED_BY_KUEUE, True, 0),
        (StopReason.RESERVATION_LOST, True, 0),
        (StopReason.REQUEUED, False, 0),
        (StopReason.SUSPENDED, False, 0),
    ],
)
def test_who_lost_its_nodes_through_no_wish_of_its_user_keeps_its_age(
    reason: StopReason, is_ahead: bool, preemptions: int
) -> None:
    status = record.record_limit(record.record_first_estimate(WAITED, 9.0), 60, "1m", "")
    after = record.requeue(status, reason).admission
    assert (after.since, after.requeued_for) == ((5.0, reason) if is_ahead else (None, ""))
    assert (after.met, after.failed, after.preemptions) == (("a Succeeded",), ("b Failed",), preemptions)
    assert (after.time_limit, after.asked_limit, after.first_estimate) == (None, "", None)


def test_who_has_its_nodes_is_at_the_head_of_nothing_any_more() -> None:
    status = record.requeue(WAITED, StopReason.PREEMPTED)
    admitted = record.record_admission(status, 5.0, backfilled=True).admission
    assert (admitted.requeued_for, admitted.backfilled, admitted.preemptions) == ("", True, 1)
