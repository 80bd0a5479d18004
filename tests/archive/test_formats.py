"""Checkpoints that the frameworks' own libraries wrote come back from the archive as what they were."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from lockstep.archive.record import ArchiveKey
from lockstep.archive.restore import restore
from lockstep.archive.store import ObjectStore
from lockstep.archive.upload import upload
from lockstep.worker.checkpoints import formats
from lockstep.worker.checkpoints.tiers import attempt_steps, scan_tier
from support.checkpoint_layouts import RAY_TRAIN, age

UID = "run-uid"
SAVED_AT = 1_795_000_000.0
FIXTURES = Path(__file__).resolve().parents[1] / "formats" / "fixtures"
SHARED_LAYOUTS = sorted(path.parent for path in FIXTURES.glob("*/whole") if path.parent.name != "nvrx")  # local only


@pytest.mark.parametrize("layout", SHARED_LAYOUTS, ids=lambda path: path.name)
def test_what_a_library_wrote_is_found_and_valid_after_its_way_through_the_archive(
    layout: Path, tmp_path: Path
) -> None:
    saved = tmp_path / UID / "a1"
    shutil.copytree(layout / "whole" / "tree", saved)
    for name, seconds in json.loads((layout / "whole" / "mtimes.json").read_text()).items():
        os.utime(saved / name, (SAVED_AT + seconds, SAVED_AT + seconds))
    store = ObjectStore(MemoryStore())
    found = list(attempt_steps(str(saved), 1, tier="shared"))
    assert found
    for step, attempt, path in found:
        finding = formats.examine(path)
        assert finding is not None
        assert finding.verdict == formats.VALID, finding.reason
        place = ArchiveKey(UID, attempt, step)
        upload(store, Path(path), place, part_bytes=1000, say=lambda _: None)
        target = tmp_path / UID / "a0"
        restored = restore(store, place, target, say=lambda _: None)
        assert restored.record.format == finding.format
        rows = scan_tier("shared", str(tmp_path), UID)
        mine = [row for row in rows if row["path"] == str(restored.path)]
        assert [(row["step"], row["verdict"], row["format"]) for row in mine] == [(step, "Valid", finding.format)]


def test_what_ray_train_reported_is_found_without_its_report_after_its_way_through_the_archive(tmp_path: Path) -> None:
    saved = tmp_path / UID / "a1" / "experiment"
    age(Path(shutil.copytree(RAY_TRAIN / "experiment", saved)))
    store = ObjectStore(MemoryStore())
    for step, attempt, path in list(attempt_steps(str(saved.parent), 1, tier="shared")):
        place = ArchiveKey(UID, attempt, step)
        upload(store, Path(path), place, part_bytes=1000, say=lambda _: None)
    shutil.rmtree(saved)
    for step in (10, 20, 30, 40):
        restored = restore(store, ArchiveKey(UID, 1, step), tmp_path / UID / "a0", say=lambda _: None)
        assert json.loads((restored.path / "state.json").read_text()) == {"step": step}
        assert restore(store, ArchiveKey(UID, 1, step), tmp_path / UID / "a0", say=lambda _: None).already
    for form in ("Auto", "RayTrain"):
        rows = scan_tier("shared", str(tmp_path), UID, form=form)
        assert [(row["step"], row["verdict"], row["format"]) for row in rows] == [
            (step, "Valid", "RayTrain") for step in (40, 30, 20, 10)
        ]
