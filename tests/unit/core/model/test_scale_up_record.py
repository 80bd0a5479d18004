"""What a run asks the autoscaler for."""

from lockstep.api.run_status import ScaleUpStatus, TrainingRunStatus
from lockstep.core.model import scale_up_record as record
from support.values import not_none

NOTHING = TrainingRunStatus()
ASKED = ScaleUpStatus(by="ProvisioningRequest", nodes=4)


def test_a_request_that_failed_is_made_again_under_another_number() -> None:
    status = record.put_off_scale_up(record.record_scale_up(NOTHING, ASKED), 60.0)
    assert not_none(status.scale_up).retry_at == 60.0
    again = not_none(record.ask_again(status).scale_up)
    assert (again.attempt, again.retry_at, again.nodes) == (2, None, 4)


def test_what_is_withdrawn_is_kept_until_nothing_of_it_is_left() -> None:
    status = record.withdraw_scale_up(record.record_scale_up(NOTHING, ASKED))
    assert (not_none(status.scale_up).nodes, not_none(status.scale_up).by) == (0, ASKED.by)
    assert record.withdraw_scale_up(status) is status
    assert record.withdraw_scale_up(NOTHING) is NOTHING
    assert record.forget_scale_up(status) == NOTHING
