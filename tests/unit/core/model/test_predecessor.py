"""Whose saves a run goes on from, where those of several lie in one directory."""

import pytest

from lockstep.api.lineage_status import PreviousRun
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.predecessor import predecessor

SAVED = PreviousRun(name="one", uid="a", saved=100)
SAVED_NOTHING = PreviousRun(name="one", uid="b")


@pytest.mark.parametrize(
    ("previous", "found"),
    [
        ((), None),
        ((SAVED_NOTHING,), None),
        ((SAVED,), SAVED),
        ((SAVED_NOTHING, SAVED, PreviousRun(name="one", uid="c", saved=5000)), SAVED),
        ((PreviousRun(name="one", uid="", saved=100),), None),
    ],
)
def test_it_is_the_last_one_before_it_that_has_saved(
    previous: tuple[PreviousRun, ...], found: PreviousRun | None
) -> None:
    assert predecessor(TrainingRunStatus(previous=previous)) == found
