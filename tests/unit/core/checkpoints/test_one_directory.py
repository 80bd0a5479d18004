"""With ``layout: Shared`` runs of one path save in one directory: what of it is this run's own."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.checkpoints.inventory import is_own
from lockstep.core.checkpoints.one_directory import is_of_another_run, starts_in_place
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from support.world import World, spec, world

ROOT = "/shared-checkpoints/ns/one"


def world_of(start: str = "", begun: bool = False, layout: str = "Shared") -> World:
    w = world(1)
    tier = {"shared": {"claimName": "lustre"}, "layout": layout}
    status = w.apply("one", spec(1, checkpoint=tier)).status
    w.amend(
        "one",
        resolved=changed(status.resolved, start_root=start),
        totals=changed(status.totals, attempts=int(begun)),
    )
    return w


@pytest.mark.parametrize(
    ("uid", "verdict", "start", "begun", "layout", "theirs"),
    [
        ("other", "Valid", "", True, "Shared", True),
        ("uid-one", "Valid", "", False, "Shared", False),
        # A format that does not say whose it is: this one's only if it ever ran.
        ("", "Valid", "", False, "Shared", True),
        ("", "Valid", "", True, "Shared", False),
        # Somebody saved, and nothing of it is whole: that speaks against step 0.
        ("other", "Invalid", "", False, "Shared", False),
        ("", "Unknown", "", False, "Shared", False),
        # What the spec says to start from, whole or not.
        ("other", "Invalid", ROOT, True, "Shared", True),
        ("", "Unknown", ROOT, False, "Shared", True),
        ("uid-one", "Valid", ROOT, True, "Shared", False),
        ("", "Valid", ROOT, True, "Shared", False),
        ("other", "Valid", "", False, "PerAttempt", False),
    ],
)
def test_whose_it_is_says_the_checkpoint_or_whether_the_run_has_begun(
    uid: str, verdict: str, start: str, begun: bool, layout: str, theirs: bool
) -> None:
    w = world_of(start, begun, layout)
    run = w.runs["one"]
    row = CheckpointReport(
        tier="shared", step=400, path=f"{ROOT}/step-400", verdict=Verdict(verdict), run_uid=uid, committed_at=1.0
    )
    assert is_of_another_run(row, run, run.status) == theirs
    assert is_own(row, w.plan("one")) == (not theirs and uid in ("", "uid-one"))


@pytest.mark.parametrize("committed", [0.0, 1.0, 9_800.0])
def test_a_save_of_a_run_that_has_begun_is_its_own_however_early_its_file_system_dates_it(committed: float) -> None:
    w = world_of("", begun=True)
    run = replace(w.runs["one"], created_at=10_000.0)
    row = CheckpointReport(
        tier="shared", step=400, path=f"{ROOT}/step-400", verdict=Verdict.VALID, committed_at=committed
    )
    assert not is_of_another_run(row, run, run.status)


@pytest.mark.parametrize(
    ("start", "layout", "in_place"),
    [
        (ROOT, "Shared", True),
        (f"{ROOT}/uid-old", "Shared", False),
        ("", "Shared", False),
        (ROOT, "PerAttempt", False),
    ],
)
def test_a_run_starts_in_place_where_it_saves_in_the_directory_that_its_spec_names(
    start: str, layout: str, in_place: bool
) -> None:
    run = world_of(start, layout=layout).runs["one"]
    assert starts_in_place(run, run.status) == in_place
