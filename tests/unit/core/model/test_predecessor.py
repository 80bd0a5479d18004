"""Whose saves a run goes on from, where those of several lie in one directory."""

import pytest

from lockstep.api.lineage_status import PreviousRun
from lockstep.api.run_status import ResolvedStatus, TrainingRunStatus
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.predecessor import predecessor

BEGUN = "2026-11-01T00:00:00Z"
SAVED = PreviousRun(name="one", uid="a", saved=100)
SAVED_NOTHING = PreviousRun(name="one", uid="b")
LATER = PreviousRun(name="one", uid="c", saved=5000)


@pytest.mark.parametrize(
    ("previous", "named", "there", "found"),
    [
        ((), "", (), ""),
        ((SAVED_NOTHING,), "", (), ""),
        ((SAVED,), "", (), "a"),
        ((SAVED_NOTHING, SAVED, LATER), "", (), "a"),
        ((PreviousRun(name="one", uid="", saved=100),), "", (), ""),
        ((SAVED_NOTHING, SAVED), "", ("a", "b"), "b"),  # its record is from before it saved
        ((SAVED_NOTHING, SAVED), "b", ("a", "b"), "b"),
        ((SAVED, SAVED_NOTHING), "b", ("b",), "b"),
        ((SAVED, LATER), "c", (), "c"),
        ((), "d", ("d",), "d"),
        ((SAVED,), "d", (), "a"),  # of it nothing is there
    ],
)
def test_it_is_the_last_one_before_it_that_has_saved(
    previous: tuple[PreviousRun, ...], named: str, there: tuple[str, ...], found: str
) -> None:
    status = TrainingRunStatus(previous=previous, resolved=ResolvedStatus(start_run="x", start_run_uid=named))
    before = predecessor(status, there)
    assert (before.uid if before is not None else "") == found


@pytest.mark.parametrize("edited", [{"startRunUid": "x" * 65}, {"startRunUid": "d", "startRun": "x" * 254}])
def test_a_status_that_somebody_has_edited_names_nobody_where_no_record_could(edited: dict[str, str]) -> None:
    metadata = {"name": "one", "namespace": "a", "uid": "u", "resourceVersion": "1", "creationTimestamp": BEGUN}
    run = parse_run({"metadata": metadata, "status": {"resolved": edited}})
    assert predecessor(run.status, {*edited.values()}) is None
