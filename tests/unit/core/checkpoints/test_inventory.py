"""Whose checkpoints the workers see, and which of them are the newest that can be loaded."""

from dataclasses import replace

import pytest
from msgspec import structs

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import SavedCheckpoint
from lockstep.core.checkpoints.checkpoint_record import record_latest
from lockstep.core.checkpoints.inventory import (
    candidates,
    committed_step,
    foreign_candidates,
    is_foreign,
    is_own,
    latest_valid,
    rank_view,
    seen_candidates,
)
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from support.world import World, world_with_gang

ROOT = "/shared/ns/other"


@pytest.mark.parametrize(
    ("path", "root", "is_theirs"),
    [
        (f"{ROOT}/step-5", ROOT, True),
        (f"{ROOT}/a2/step-5", ROOT, True),
        (f"{ROOT}/experiment/checkpoint_5", ROOT, True),
        (f"{ROOT}/a2/experiment/checkpoint_5", ROOT, True),
        ("/shared/ns/another/step-5", ROOT, False),
        (f"{ROOT}-2/step-5", ROOT, False),
        ("/shared/ns/one/uid-one/step-5", "/shared/ns/one/uid-one", False),
        ("/shared/step-5", "", False),
    ],
)
def test_what_lies_in_the_directory_to_start_from_is_not_the_runs_own(path: str, root: str, is_theirs: bool) -> None:
    assert is_foreign(path, root, world_with_gang(1).runs["one"]) is is_theirs


@pytest.mark.parametrize(
    ("path", "is_theirs"),
    [("step-5", True), ("team/other/step-5", True), ("team/mine/step-5", False), ("team/mine/experiment/c_5", False)],
)
def test_its_own_one_directory_within_that_is_the_runs_own(path: str, is_theirs: bool) -> None:
    checkpoint = {"shared": {"claimName": "lustre", "path": "team/mine"}, "layout": "Shared"}
    run = world_with_gang(1, checkpoint=checkpoint).runs["one"]
    assert is_foreign(f"/shared-checkpoints/{path}", "/shared-checkpoints", run) is is_theirs


def row(step: int, path: str = "", uid: str = "uid-one", verdict: Verdict = Verdict.VALID) -> CheckpointReport:
    path = path or f"/shared/ns/one/{step}"
    return CheckpointReport("shared", step, path, verdict, attempt=1, world=2, run_uid=uid, committed_at=1.0)


@pytest.mark.parametrize(
    ("seen", "own"),
    [
        (row(5), True),
        (row(5, uid="uid-other"), False),
        (row(5, uid=""), True),
        (row(5, f"{ROOT}/step-5", uid=""), False),
    ],
)
def test_a_checkpoint_is_the_runs_own_by_what_it_says_or_else_by_where_it_lies(
    seen: CheckpointReport, own: bool
) -> None:
    w = world_with_gang(2)
    w.amend("one", resolved=changed(w.status("one").resolved, start_root=ROOT))
    assert is_own(seen, w.plan("one")) is own


def seen_by_all(*rows: CheckpointReport) -> World:
    w = world_with_gang(2)
    reports = w.reports[w.runs["one"].uid]
    for slot, report in reports.items():
        reports[slot] = replace(report, inventory=rows)
    return w


@pytest.mark.parametrize(
    ("known", "rows", "newest"),
    [
        (None, (), None),
        (None, (row(5),), 5),
        (None, (row(5), row(7)), 7),
        (None, (row(5), row(7, verdict=Verdict.INVALID)), 5),
        (9, (row(5),), 9),
        (3, (row(5),), 5),
        (3, (), 3),
    ],
)
def test_what_status_has_stays_until_something_newer_is_seen(
    known: int | None, rows: tuple[CheckpointReport, ...], newest: int | None
) -> None:
    w = seen_by_all(*rows)
    status = w.status("one")
    if known is not None:
        saved = SavedCheckpoint(tier="shared", step=known, path=f"/shared/ns/one/{known}", attempt=1)
        status = record_latest(status, (saved,))
    snapshot = w.snapshot("one")
    assert [saved.step for saved in latest_valid(snapshot, status)] == ([] if newest is None else [newest])
    assert committed_step(snapshot, status) == (newest or 0)
    assert known not in {found.step for found in seen_candidates(snapshot, status)}


DATE = 20251101


def by_name(step: int) -> CheckpointReport:
    return structs.replace(row(step, f"/shared/ns/one/backup-{step}"), format="TorchDCP")


@pytest.mark.parametrize(
    ("steps", "reached", "newest"),
    [
        ((110, DATE), 120, 110),
        ((110, DATE), 0, 110),  # by the others there
        ((110, 1200), 120, 1200),
        ((DATE,), 120, DATE),  # nothing speaks against it
    ],
)
@pytest.mark.parametrize("known", [None, DATE])
def test_a_number_that_is_no_step_is_no_latest_step_also_where_it_was_taken_for_one(
    steps: tuple[int, ...], reached: int, newest: int, known: int | None
) -> None:
    w = seen_by_all(*map(by_name, steps))
    status = w.status("one")
    status = changed(status, progress=changed(status.progress, step=reached))
    if known in steps:
        taken = SavedCheckpoint(tier="shared", step=DATE, path=f"/shared/ns/one/backup-{DATE}", attempt=1)
        status = record_latest(status, (taken,))
    snapshot = w.snapshot("one")
    assert [saved.step for saved in latest_valid(snapshot, status)] == [newest]
    assert committed_step(snapshot, status) == newest
    doubted = [found.step for found in seen_candidates(snapshot, status) if found.doubted]
    assert doubted == [step for step in steps if step > newest]


def test_own_and_foreign_checkpoints_are_told_apart() -> None:
    w = seen_by_all(row(5), row(8, f"{ROOT}/step-8", uid="uid-other"))
    resolved = changed(w.status("one").resolved, start_root=ROOT, start_run_uid="uid-other")
    w.amend("one", resolved=resolved)
    snapshot, status = w.snapshot("one"), w.status("one")
    assert [found.step for found in candidates(snapshot, status)] == [5]
    assert [found.step for found in foreign_candidates(snapshot, status)] == [8]


def test_a_report_of_an_earlier_incarnation_is_of_no_rank() -> None:
    w = world_with_gang(2)
    assignment = w.status("one").assignment
    w.amend("one", assignment=changed(assignment, incarnations=(assignment.incarnations[0], 9)))
    view = rank_view(w.snapshot("one"), w.status("one"))
    assert (view.nodes, sorted(view.reports)) == (assignment.nodes, [0])
