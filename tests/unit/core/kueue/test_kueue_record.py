"""What status keeps of a run that Kueue admits."""

from lockstep.api.kueue_status import KueueStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.kueue import kueue_record as record
from lockstep.core.model.kueue.workload import Admission, PodSetUpdate, WorkloadView

NOTHING = TrainingRunStatus()
WORKLOAD = WorkloadView("ns", "w", "u", "7", admission=Admission("shared", "gang", 1, (), None))


def test_of_a_reservation_that_is_given_up_only_its_workload_stays_known() -> None:
    status = record.record_choice(NOTHING, "team", "Label")
    status = record.record_reservation(status, WORKLOAD, {"placed": "true"}, PodSetUpdate(""))
    assert status.kueue is not None
    assert (status.kueue.workload_uid, status.kueue.annotations["placed"]) == ("u", "true")
    given_up = record.give_up_reservation(status)
    assert given_up.kueue == KueueStatus(queue="team", chosen_by="Label", given_up="u")
    assert record.forget_kueue(given_up) == NOTHING


def test_of_a_run_that_is_not_kueues_nothing_is_given_up() -> None:
    assert record.give_up_reservation(NOTHING) is NOTHING
