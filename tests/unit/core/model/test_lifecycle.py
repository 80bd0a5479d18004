"""The phase of a run, read off its status."""

import pytest

from lockstep.api.run_status import AssignmentStatus, Condition, StartRecord, StopStatus, TrainingRunStatus
from lockstep.core.model.assignment import assigned
from lockstep.core.model.lifecycle import TRANSITIONS, Phase, phase_of

HELD = assigned(AssignmentStatus(), ["n1"])
OVER = (Condition(type="Finished", status="True", reason="Cancelled", last_transition_time=0),)
NOT_OVER = (Condition(type="Finished", status="False", reason="Running", last_transition_time=0),)
STOP = StopStatus.model_construct(reason="Suspended")


def start(attempt: int) -> StartRecord:
    return StartRecord.model_construct(attempt=attempt)


@pytest.mark.parametrize(
    ("status", "suspended", "phase"),
    [
        (TrainingRunStatus(), False, Phase.PENDING),
        (TrainingRunStatus(), True, Phase.SUSPENDED),
        (TrainingRunStatus(conditions=NOT_OVER), False, Phase.PENDING),
        (TrainingRunStatus(attempt=1, assignment=HELD), False, Phase.LAUNCHING),
        (TrainingRunStatus(attempt=1, assignment=HELD), True, Phase.LAUNCHING),
        (TrainingRunStatus(assignment=AssignmentStatus(config_map="big")), False, Phase.LAUNCHING),
        (TrainingRunStatus(attempt=1, assignment=HELD, start=start(1)), False, Phase.RUNNING),
        (TrainingRunStatus(attempt=2, assignment=HELD, start=start(1)), False, Phase.RECOVERING),
        (TrainingRunStatus(attempt=1, start=start(1)), False, Phase.PENDING),
        (TrainingRunStatus(attempt=1, assignment=HELD, start=start(1), stop=STOP), False, Phase.STOPPING),
        (TrainingRunStatus(stop=STOP), True, Phase.STOPPING),
        (TrainingRunStatus(conditions=OVER, stop=STOP, assignment=HELD), False, Phase.FINISHED),
        (TrainingRunStatus(conditions=OVER), True, Phase.FINISHED),
    ],
)
def test_the_phase_follows_from_status_and_suspend(status: TrainingRunStatus, suspended: bool, phase: Phase) -> None:
    assert phase_of(status, suspended) is phase


def test_every_phase_is_left_but_the_last_and_none_for_itself() -> None:
    assert {before for before, _, _ in TRANSITIONS} == set(Phase) - {Phase.FINISHED}
    assert {after for _, _, after in TRANSITIONS} == set(Phase)
    assert all(before is not after for before, _, after in TRANSITIONS)
