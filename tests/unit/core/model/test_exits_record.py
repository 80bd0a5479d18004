"""What status keeps of the ends of ranks."""

from lockstep.api.run_status import ExitsStatus, TrainingRunStatus
from lockstep.core.model.exits_record import forget_exits, record_exits


def test_ends_are_those_of_the_current_attempt() -> None:
    before = TrainingRunStatus(attempt=2, exits=ExitsStatus(attempt=1, succeeded="7", first="rank 7"))
    status = record_exits(before, {0, 1, 3}, "rank 1 ended")
    assert status.exits == ExitsStatus(attempt=2, succeeded="0-1,3", first="rank 1 ended")
    assert forget_exits(status).exits == ExitsStatus()
