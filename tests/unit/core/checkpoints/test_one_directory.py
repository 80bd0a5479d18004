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
        tier="shared", step=400, path=f"{ROOT}/step-400", verdict=Verdict(verdict), run_uid=uid, committed_at=w.now
    )
    assert is_of_another_run(row, run, run.status) == theirs
    assert is_own(row, w.plan("one")) == (not theirs and uid in ("", "uid-one"))


BEGAN = 10_000.0


@pytest.mark.parametrize(
    ("committed", "uid", "start", "first", "theirs"),
    [
        (BEGAN - 61.0, "", "", BEGAN, True),
        (BEGAN - 59.0, "", "", BEGAN, False),  # clocks may be so far apart
        (BEGAN - 61.0, "uid-one", "", BEGAN, False),  # a copy of its own
        (BEGAN - 61.0, "", ROOT, BEGAN, False),  # it went on from there
        (0.0, "", "", BEGAN, False),  # nobody knows when
        (BEGAN - 61.0, "", "", None, False),  # an earlier release has begun it: created long before
        (1.0, "", "", None, True),
    ],
)
def test_what_lay_there_before_the_first_start_is_another_runs(
    committed: float, uid: str, start: str, first: float | None, theirs: bool
) -> None:
    w = world_of(start, begun=True)
    w.amend("one", totals=changed(w.status("one").totals, first_started_at=first))
    run = replace(w.runs["one"], created_at=BEGAN - 5_000.0)
    row = CheckpointReport(
        tier="shared", step=5000, path=f"{ROOT}/step-5000", verdict=Verdict.VALID, run_uid=uid, committed_at=committed
    )
    assert is_of_another_run(row, run, run.status) == theirs


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
