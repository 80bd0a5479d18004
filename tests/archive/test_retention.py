"""What is removed from the archive and from the shared tier, and what never is."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from harness.object_store import RUN_UID, S3Server, run_job, save
from lockstep.archive import catalog
from lockstep.archive.record import RECORD_NAME, ArchiveKey
from lockstep.archive.store import ObjectStore
from lockstep.archive.tidy import checkpoints, tidy
from lockstep.archive.upload import upload
from lockstep.core.checkpoints.retention import RetentionPolicy
from lockstep.core.model.quarantine import Save
from lockstep.core.model.worker_report import Verdict
from support.checkpoint_layouts import RAY_TRAIN, age

OTHER_UID = "ffffffff-0000-4000-8000-000000000002"


@pytest.fixture
def published(store: ObjectStore, tmp_path: Path) -> list[ArchiveKey]:
    places = []
    for attempt, step in ((1, 100), (1, 200), (2, 300), (2, 400)):
        path = save(tmp_path / "s" / f"a{attempt}" / f"step-{step}", {"w": os.urandom(64)}, step=step, attempt=attempt)
        places.append(ArchiveKey(RUN_UID, attempt, step))
        upload(store, path, places[-1])
    other = save(tmp_path / "s" / "other" / "step-50", {"w": b"theirs"}, step=50, attempt=1, uid=OTHER_UID)
    upload(store, other, ArchiveKey(OTHER_UID, 1, 50))
    return places


def held(store: ObjectStore, run_uid: str = RUN_UID) -> list[str]:
    return [entry.place.label for entry in catalog.entries(store, run_uid) if entry.verdict is Verdict.VALID]


def test_the_newest_stay_and_another_runs_are_not_touched(store: ObjectStore, published: list[ArchiveKey]) -> None:
    pruned = catalog.prune(store, RUN_UID, RetentionPolicy(2), now=time.time())
    assert [place.label for place in pruned.checkpoints] == ["a1/step-100", "a1/step-200"]
    assert held(store) == ["a2/step-400", "a2/step-300"]
    assert held(store, OTHER_UID) == ["a1/step-50"]
    assert list(store.objects(published[0].prefix)) == []


def test_the_last_valid_one_stays_whatever_the_policy(store: ObjectStore, published: list[ArchiveKey]) -> None:
    for place in published[1:]:
        store.delete([place.record])
    catalog.prune(store, RUN_UID, RetentionPolicy(1), now=time.time() + 3e7)
    assert held(store) == ["a1/step-100"]


def test_a_dry_run_only_tells(store: ObjectStore, published: list[ArchiveKey]) -> None:
    pruned = catalog.prune(store, RUN_UID, RetentionPolicy(1), now=time.time(), dry_run=True)
    assert len(pruned.checkpoints) == 3
    assert len(held(store)) == 4


def test_what_an_abandoned_upload_left_goes_after_a_week(store: ObjectStore, published: list[ArchiveKey]) -> None:
    abandoned = ArchiveKey(RUN_UID, 3, 500)
    store.put(abandoned.part("w", 0, "00000000"), b"x")
    foreign = published[3].part("w", 7, "00000000")  # of a source that had other contents then
    store.put(foreign, b"x")
    now = time.time()
    assert catalog.prune(store, RUN_UID, None, now=now).leftovers == 0
    assert catalog.prune(store, RUN_UID, None, now=now + catalog.ABANDONED_AFTER + 60).leftovers == 2
    assert list(store.objects(abandoned.prefix)) == []
    assert len(held(store)) == 4


def test_a_checkpoint_without_its_record_is_listed_as_not_published(
    store: ObjectStore, published: list[ArchiveKey], server: S3Server, uri: str
) -> None:
    store.delete([published[3].record])
    listed = run_job(server, "list", "--uri", uri)
    lines = listed.stdout.splitlines()
    assert "Invalid" in lines[0]
    assert RECORD_NAME in lines[0]
    told = json.loads(lines[-1])["published"]
    assert [(each["attempt"], each["step"]) for each in told] == [(2, 300), (1, 200), (1, 100)]


def test_what_is_left_in_the_archive_is_told(published: list[ArchiveKey], server: S3Server, uri: str) -> None:
    keep = ["--keep-last", "1", "--keep-every", "200", "--pin", "a1/step-100"]
    ended = run_job(server, "prune", "--uri", uri, *keep)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["pruned"] == 1
    assert [(each["attempt"], each["step"]) for each in told["published"]] == [(2, 400), (1, 200), (1, 100)]


@pytest.mark.parametrize(
    ("quarantined", "left"),
    [
        ("a1/step-400", ["a2/step-400"]),
        ("a2/step-400", ["a2/step-300"]),
        ("400", ["a2/step-300"]),
        ("a1/step-100+", ["a2/step-400"]),
        ("a2/step-300+", ["a1/step-200"]),
    ],
)
def test_what_was_saved_anew_counts_although_the_step_went_wrong_before(
    store: ObjectStore, published: list[ArchiveKey], server: S3Server, uri: str, quarantined: str, left: list[str]
) -> None:
    ended = run_job(server, "prune", "--uri", uri, "--keep-last", "1", "--quarantined", quarantined)
    assert ended.returncode == 0, ended.stderr
    assert held(store) == left


def test_a_save_that_is_misnamed_is_refused_with_the_remedy(server: S3Server, uri: str) -> None:
    ended = run_job(server, "prune", "--uri", uri, "--keep-last", "1", "--quarantined", "step-300")
    assert ended.returncode == 64
    assert "write it as a2/step-300, or 300 for that step of any attempt" in ended.stderr


def test_the_shared_tier_is_thinned_by_the_same_policy(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    for attempt, step in ((1, 100), (1, 200), (2, 300)):
        save(root / RUN_UID / f"a{attempt}" / f"step-{step}", {"w": b"w"}, step=step, attempt=attempt)
    torn = root / RUN_UID / "a1" / "step-250"
    torn.mkdir()
    save(root / OTHER_UID / "a1" / "step-100", {"w": b"w"}, step=100, attempt=1, uid=OTHER_UID)
    interrupted = root / RUN_UID / "a1" / ".step-50.removed"
    interrupted.mkdir()
    gone = tidy(root, RUN_UID, RetentionPolicy(1), now=time.time(), pinned=frozenset({str(torn)}), say=lambda _: None)
    assert [(each.attempt, each.step) for each in gone] == [(1, 100), (1, 200)]
    assert sorted(path.name for path in (root / RUN_UID / "a1").iterdir()) == ["step-250"], "a torn one is evidence"
    assert (root / RUN_UID / "a2" / "step-300").is_dir()
    assert (root / OTHER_UID / "a1" / "step-100").is_dir()


def test_what_ray_train_has_reported_is_thinned_too_and_no_half_of_it_stays(tmp_path: Path) -> None:
    experiment = tmp_path / RUN_UID / "a1" / "experiment"
    age(Path(shutil.copytree(RAY_TRAIN / "experiment", experiment)))
    (experiment / ".checkpoint_2026-11-27_08-00-00.000000.removed").mkdir()
    kept = tmp_path / RUN_UID / "a1" / "step-7" / ".of-the-program.removed"
    kept.mkdir(parents=True)
    gone = tidy(tmp_path, RUN_UID, RetentionPolicy(2), now=0.0, say=lambda _: None)
    assert [(each.attempt, each.step) for each in gone] == [(1, 10), (1, 20)]
    assert len([*experiment.glob("checkpoint_*-*")]) == 3, "the two newest, and what was never reported"
    assert [path.name for path in experiment.glob(".*.removed")] == []
    assert kept.is_dir()


def test_a_step_that_was_trained_again_stays_on_the_shared_tier(tmp_path: Path) -> None:
    for attempt, step in ((1, 100), (1, 200), (3, 200)):
        path = tmp_path / RUN_UID / f"a{attempt}" / f"step-{step}"
        save(path, {"w": b"w"}, step=step, attempt=attempt)
    bad = frozenset({Save(200, 1)})
    gone = tidy(tmp_path, RUN_UID, RetentionPolicy(1), now=0.0, quarantined=bad, say=lambda _: None)
    assert [(each.attempt, each.step) for each in gone] == [(1, 100)]
    assert (tmp_path / RUN_UID / "a3" / "step-200").is_dir()


def test_in_one_directory_for_all_only_what_says_that_it_is_ours_goes(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        save(tmp_path / f"step-{step}", {"w": b"w"}, step=step)
    save(tmp_path / "step-50", {"w": b"w"}, step=50, uid=OTHER_UID)
    held_before = {each.step: each.verdict for each in checkpoints(tmp_path, RUN_UID, layout="Shared")}
    assert held_before[50] is not Verdict.VALID
    gone = tidy(tmp_path, RUN_UID, RetentionPolicy(2), now=0.0, layout="Shared", say=lambda _: None)
    assert [each.step for each in gone] == [100]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-200", "step-300", "step-50"]
