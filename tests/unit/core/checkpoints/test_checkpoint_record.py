"""What is recorded of checkpoints, and that nothing else of the status changes with it."""

from collections.abc import Callable

import pytest

from lockstep.api.checkpoint_status import (
    ArchiveStatus,
    CadenceStatus,
    DivergedSaves,
    PointingStatus,
    QuarantinedCheckpoint,
    RejectedCandidate,
    SavedCheckpoint,
    SaveStatus,
)
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints import checkpoint_record as record
from support.world import world_with_gang

SAVED = SavedCheckpoint(tier="shared", step=5, path="/shared/5")
SAVE = SaveStatus(id="s", attempt=1, reason="Requested")
CADENCE = CadenceStatus(interval=60)
ARCHIVE = ArchiveStatus(uri="s3://b")
POINTING = PointingStatus(attempt=1, path="/shared/5", step=5, slot=0, time=1.0)
BAD = QuarantinedCheckpoint(tier="shared", step=5, reason="x")
REJECTED = RejectedCandidate(tier="shared", step=5, reason="x")


def resume(status: TrainingRunStatus) -> TrainingRunStatus:
    return record.record_resume(status, SAVED, rejected=(), words="w", cadence=CADENCE, retention=None)


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        (lambda s: record.record_latest(s, (SAVED,)), {"latest": (SAVED,)}),
        (lambda s: record.record_save(s, SAVE), {"save": SAVE}),
        (lambda s: record.record_cadence(s, CADENCE), {"cadence": CADENCE}),
        (lambda s: record.record_archive(s, ARCHIVE), {"archive": ARCHIVE}),
        (lambda s: record.record_pointing(s, POINTING), {"pointing": POINTING}),
        (lambda s: record.record_quarantine(s, (BAD,)), {"quarantined": (BAD,)}),
        (lambda s: record.record_diverged(s, 5, 1), {"diverged": (DivergedSaves(step=5, attempt=1),)}),
        (lambda s: record.record_ceiling(s, 7), {"ceiling": 7}),
        (lambda s: record.record_no_choice(s, (REJECTED,), "w"), {"rejected": (REJECTED,), "choice": "w"}),
        (resume, {"resume": SAVED, "rejected": (), "choice": "w", "cadence": CADENCE, "local_retention": None}),
    ],
)
def test_each_verb_writes_its_own_fields(
    verb: Callable[[TrainingRunStatus], TrainingRunStatus], fields: dict[str, object]
) -> None:
    before = world_with_gang(1).status("one")
    after = verb(before)
    kept = dict(before.checkpoint)
    assert dict(after.checkpoint) == {**kept, **fields}
    assert {**dict(after), "checkpoint": 0} == {**dict(before), "checkpoint": 0}


def test_what_went_wrong_is_kept_in_bounds_and_each_once() -> None:
    status = world_with_gang(1).status("one")
    for attempt in range(1, 20):
        status = record.record_diverged(status, 100 * attempt, attempt)
    told = [(entry.step, entry.attempt) for entry in status.checkpoint.diverged]
    assert told == [(100 * attempt, attempt) for attempt in range(4, 20)]
    status = record.record_diverged(status, 500, 20)  # with all that earlier ones saved from there on
    assert [(entry.step, entry.attempt) for entry in status.checkpoint.diverged] == [(400, 4), (500, 20)]
