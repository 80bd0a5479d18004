"""What status keeps of a stop under way."""

from lockstep.api.run_status import StopStatus, TrainingRunStatus
from lockstep.core.model.reasons import StopReason
from lockstep.core.run.stop_record import end_save_of_stop, forget_stop, record_stop, turn_stop

NOTHING = TrainingRunStatus()


def test_a_stop_is_on_record_until_it_is_over_and_its_words_are_bounded() -> None:
    status = record_stop(NOTHING, StopReason.SUSPENDED, "x" * 600, 10.0, 40.0, save="s1")
    assert status.stop == StopStatus(reason="Suspended", message="x" * 512, time=10.0, deadline=40.0, save="s1")
    assert forget_stop(status) == NOTHING


def test_a_stop_that_ends_otherwise_began_when_it_did() -> None:
    status = record_stop(NOTHING, StopReason.SUSPENDED, "words", 10.0, 40.0, save="s1")
    assert turn_stop(status, StopReason.CANCELLED, "y" * 600).stop == StopStatus(
        reason="Cancelled", message="y" * 512, time=10.0, deadline=40.0, save="s1"
    )


def test_a_stop_whose_save_is_over_has_another_end() -> None:
    status = record_stop(NOTHING, StopReason.SUSPENDED, "words", 10.0, 40.0, save="s1")
    assert end_save_of_stop(status, 25.0) == record_stop(NOTHING, StopReason.SUSPENDED, "words", 10.0, 25.0)
