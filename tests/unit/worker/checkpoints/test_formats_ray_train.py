"""Checkpoints that ``ray.train.report`` has saved: which count, by which step, and what is wrong with others.

``golden/ray_train`` is what Ray 2.60.0 left of a training that reported steps 10 to 40; the workers were lost after the
copy for step 30, before its report had come to be, and started again.
"""

import json
import os
import shutil
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from lockstep.archive.tidy import checkpoints
from lockstep.core.checkpoints.step_names import STATE_THEIR_STEP
from lockstep.worker.checkpoints import previous
from lockstep.worker.checkpoints.formats import examine, verify_checkpoint
from lockstep.worker.checkpoints.formats.ray_train import SNAPSHOT, STEP_WORDS
from lockstep.worker.checkpoints.inventory import CommitWatch
from lockstep.worker.checkpoints.tiers import scan_tier
from lockstep.worker.checkpoints.unrecognised import left_behind
from lockstep.worker.settings import JSON, Settings, Tier
from lockstep.worker.start import Launch
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import LONG_AGO, RAY_TRAIN, age, safetensors_file, torch_file, written

UID = "6f7a1c9e-0000-4111-8222-333344445555"
SAVED = {
    10: "checkpoint_2026-11-27_08-03-11.228109",
    20: "checkpoint_2026-11-27_08-03-17.158830",
    30: "checkpoint_2026-11-27_08-04-52.495303",
    40: "checkpoint_2026-11-27_08-04-55.906764",
}
LOST = "checkpoint_2026-11-27_08-03-27.917752"


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    return tmp_path / "ns" / "one"


@pytest.fixture(
    params=["experiment", "ray_train_run-2026-11-27_08-00-39", "."],
    ids=["named", "named-by-default", "the-attempts-own"],
)
def experiment(request: pytest.FixtureRequest, tier: Path) -> Path:
    """As it was recorded, with its times, in ``a1``."""
    target = tier / UID / "a1" / str(request.param)
    shutil.copytree(RAY_TRAIN / "experiment", target)
    for name, after in json.loads((RAY_TRAIN / "mtimes.json").read_text()).items():
        os.utime(target / name, (LONG_AGO + after, LONG_AGO + after))
    return target


def rows(tier: Path, form: str = "Auto") -> list[JSON]:
    return scan_tier("shared", str(tier), UID, form=form)


def found(tier: Path, form: str = "Auto") -> dict[int, str]:
    return {row["step"]: row["verdict"] for row in rows(tier, form)}


def settings(tier: Path) -> Settings:
    return Settings(
        operator_url="", namespace="ns", run="one", run_uid=UID, slot=0, incarnation=1, pod_uid="p", command=["true"],
        tiers={"shared": Tier("shared", str(tier), 2.0)},
    )  # fmt: skip


def unrecognised(tier: Path) -> dict[str, str]:
    """Why, by name."""
    return {os.path.basename(row["path"]): row["reason"] for row in left_behind(settings(tier), 0)}


def report(experiment: Path, *results: tuple[str, dict[str, Any]], order: list[int] | None = None) -> None:
    """The snapshot after these reports."""
    told = [{"version": 0, "checkpoint_dir_name": name, "metrics": metrics} for name, metrics in results]
    snapshot = {"checkpoint_results": told, "checkpoint_report_indices": order or list(range(len(told)))}
    age(written(experiment / SNAPSHOT, json.dumps(snapshot)))


def saved(experiment: Path, name: str) -> Path:
    return age(torch_file(experiment / name / "model.pt").parent)


# What a real Ray has written


@pytest.mark.parametrize("form", ["Auto", "RayTrain"])
def test_what_was_reported_is_found_with_the_step_of_its_metrics(experiment: Path, tier: Path, form: str) -> None:
    assert {row["step"]: row["path"] for row in rows(tier, form)} == {
        step: os.path.normpath(experiment / name) for step, name in SAVED.items()
    }
    assert {(row["verdict"], row["format"], row["attempt"]) for row in rows(tier, form)} == {("Valid", "RayTrain", 1)}


def test_no_two_of_them_are_taken_for_copies_of_one_another(experiment: Path, tier: Path) -> None:
    assert len({row["committedAt"] for row in rows(tier)}) == len(SAVED)
    assert {row["bytes"] for row in rows(tier)} == {213}


def test_a_copy_whose_report_never_came_to_be_is_no_checkpoint_and_is_told_of_by_nobody(
    experiment: Path, tier: Path
) -> None:
    finding = examine(str(experiment / LOST))
    assert finding is not None
    assert (finding.verdict, finding.reason) == ("Invalid", f"{SNAPSHOT} does not name it: never committed")
    torch_file(experiment / LOST / "model.pt")
    assert unrecognised(tier) == {}


def test_a_first_save_that_was_cut_off_keeps_nothing_from_beginning_at_step_0(tier: Path) -> None:
    """Ray has marked the directory before it copies into it."""
    experiment = tier / UID / "a1" / "experiment"
    written(experiment / ".validate_storage_marker", "")
    saved(experiment, SAVED[10])
    assert (found(tier), unrecognised(tier)) == ({}, {})


def test_without_a_snapshot_that_can_be_read_all_are_told_as_unrecognised(experiment: Path, tier: Path) -> None:
    """It is not written in one piece; what it named is nothing to begin anew over."""
    for name in SAVED.values():
        saved(experiment, name)
    snapshot = experiment / SNAPSHOT
    snapshot.write_bytes(snapshot.read_bytes()[:200])
    assert found(tier) == {}
    told = dict.fromkeys(SAVED.values(), f"{SNAPSHOT} beside it cannot be read")
    assert unrecognised(tier) == told
    endless = '{"checkpoint_results": [1], "checkpoint_report_indices": [1e999]}'
    odd = '{"checkpoint_results": [1], "checkpoint_report_indices": [0]}'
    for text in ("", "[]", "{}", odd, endless, "[" * 100_000):
        snapshot.write_text(text)
        assert found(tier) == {}, text[:40]
        assert unrecognised(tier) == told


@pytest.mark.parametrize("inside", ["model.pt", "checkpoint/global_step10/model.pt"])
def test_the_worker_tells_a_commit_when_the_report_has_come_to_be(tier: Path, inside: str) -> None:
    (tier / UID / "a1").mkdir(parents=True)
    watch = CommitWatch(settings(tier), Launch(1, 0, 1, "10.1.0.1", 40123, "", "", []))
    experiment = tier / UID / "a1" / "experiment"
    torch_file(experiment / SAVED[10] / inside)
    age(experiment / SAVED[10])
    assert watch.poll().rows == []
    report(experiment, (SAVED[10], {"step": 10}))
    assert [(row["step"], row["verdict"]) for row in watch.poll().rows] == [(10, "Valid")]
    assert watch.poll().rows == []


# Which number is the step


@pytest.mark.parametrize("word", STEP_WORDS)
def test_the_step_is_what_the_metrics_call_so(tier: Path, word: str) -> None:
    experiment = tier / UID / "a1" / "any"
    saved(experiment, SAVED[10])
    report(experiment, (SAVED[10], {"loss": 1, word: 300}))
    assert found(tier) == {300: "Valid"}


def test_a_step_comes_before_an_epoch(tier: Path) -> None:
    experiment = tier / UID / "a1" / "any"
    saved(experiment, SAVED[10])
    report(experiment, (SAVED[10], {"epoch": 2, "step": 300}))
    assert found(tier) == {300: "Valid"}


@pytest.mark.parametrize("metrics", [{}, {"loss": 0.5}, {"step": "ten"}, {"step": 1.5}, {"step": -1}, {"step": True}])
def test_metrics_that_name_no_step_make_it_unrecognised(tier: Path, metrics: dict[str, Any]) -> None:
    experiment = tier / UID / "a1" / "any"
    saved(experiment, SAVED[10])
    report(experiment, (SAVED[10], metrics))
    why = 'no step in its metrics: add "step" to those of ray.train.report'
    assert (found(tier), unrecognised(tier)) == ({}, {SAVED[10]: why})


def test_of_several_with_one_step_the_last_that_was_reported_counts(tier: Path) -> None:
    """As of two reports in one epoch; Ray keeps them in the order of a score where it is told to."""
    experiment = tier / UID / "a1" / "any"
    for name in (SAVED[10], SAVED[20], SAVED[30]):
        saved(experiment, name)
    later, earlier, other = (SAVED[10], {"epoch": 1}), (SAVED[20], {"epoch": 1}), (SAVED[30], {"epoch": 0})
    report(experiment, later, earlier, other, order=[2, 1, 0])
    assert [(row["step"], os.path.basename(row["path"])) for row in rows(tier)] == [(1, SAVED[10]), (0, SAVED[30])]
    report(experiment, later, earlier, (SAVED[20], {"epoch": 2}))
    assert [(row["step"], os.path.basename(row["path"])) for row in rows(tier)] == [(2, SAVED[20]), (1, SAVED[10])]
    report(experiment, later, earlier, later)
    assert [(row["step"], os.path.basename(row["path"])) for row in rows(tier)] == [(1, SAVED[10])]
    assert unrecognised(tier) == {}


def test_names_of_the_programs_own_say_no_other_step_than_the_metrics(tier: Path) -> None:
    experiment = tier / UID / "a1" / "any"
    saved(experiment, "checkpoint_epoch_3")
    report(experiment, ("checkpoint_epoch_3", {"epoch": 3, "step": 3000}))
    assert found(tier) == {3000: "Valid"}
    report(experiment, ("checkpoint_epoch_3", {"loss": 1}))
    assert found(tier) == {3: "Valid"}


def test_a_manifest_inside_takes_precedence(tier: Path) -> None:
    experiment = tier / UID / "a1" / "any"
    (experiment / "step-60").mkdir(parents=True)
    file = {"name": "weight", "bytes": 1, "crc32": f"{zlib.crc32(b'1'):08x}"}
    manifest = {"format": "lockstep/1", "runUID": UID, "attempt": 1, "step": 60, "world": 0, "files": [file]}
    written(experiment / "step-60" / "weight", "1")
    written(experiment / "step-60" / "manifest.json", json.dumps(manifest))
    report(experiment, ("step-60", {"epoch": 3}))
    (row,) = rows(tier)
    assert (row["step"], row["verdict"], row["format"]) == (60, "Valid", "Manifest")


def test_a_snapshot_names_nothing_outside_of_its_directory(tier: Path) -> None:
    saved(tier / UID / "a1", "elsewhere")
    experiment = tier / UID / "a1" / "any"
    report(experiment, ("../elsewhere", {"step": 10}), ("/etc", {"step": 20}), ("", {"step": 30}))
    assert found(tier) == {}


def test_a_step_beyond_all_bounds_is_in_no_inventory(tier: Path) -> None:
    experiment = tier / UID / "a1" / "any"
    saved(experiment, SAVED[10])
    report(experiment, (SAVED[10], {"step": 1 << 60}))
    assert found(tier) == {}


def test_the_step_is_believed_as_one_that_is_stated() -> None:
    assert "RayTrain" in STATE_THEIR_STEP
    assert "RayTrain" in previous.STATE_THEIR_STEP


# What can be wrong with one that was reported


def test_a_file_that_is_cut_off_is_seen_where_it_says_its_end(tier: Path) -> None:
    experiment = tier / UID / "a1" / "any"
    path = saved(experiment, SAVED[10])
    safetensors_file(path / "checkpoint" / "model.safetensors")
    layouts.dcp(path / "sharded")
    age(path)
    report(experiment, (SAVED[10], {"step": 10}))
    assert found(tier) == {10: "Valid"}
    for name in ("model.pt", "checkpoint/model.safetensors", "sharded/__0_0.distcp"):
        file = path / name
        data = file.read_bytes()
        for left in (len(data) // 2, 0):
            age(written(file, data[:left]))
            assert found(tier) == {10: "Invalid"}, f"{left} bytes of {name}"
        age(written(file, data))
    (path / "sharded/__1_0.distcp").unlink()
    assert rows(tier)[0]["reason"] == "sharded/__1_0.distcp is missing"


def test_a_flipped_bit_is_found_where_there_are_checksums(tier: Path) -> None:
    path = saved(tier / UID / "a1" / "any", SAVED[10])
    report(path.parent, (SAVED[10], {"step": 10}))
    file = path / "model.pt"
    file.write_bytes(file.read_bytes().replace(b"\1\1\1", b"\1\2\1", 1))
    age(path)
    assert found(tier) == {10: "Valid"}
    assert verify_checkpoint(str(path))[0] == "Invalid"


def test_a_directory_that_was_emptied_is_invalid(tier: Path) -> None:
    experiment = tier / UID / "a1" / "any"
    written(experiment / SAVED[10] / ".metadata.json", "{}")
    report(experiment, (SAVED[10], {"step": 10}))
    assert rows(tier)[0]["reason"] == "there is nothing in it"


def test_one_that_is_overwritten_in_place_is_invalid_until_it_is_reported_again(tier: Path) -> None:
    experiment = tier / UID / "a1" / "any"
    path = saved(experiment, "latest-1")
    report(experiment, ("latest-1", {"step": 10}))
    age(path, LONG_AGO + 60)
    (row,) = rows(tier)
    assert (row["verdict"], row["asCopied"]) == ("Invalid", True)
    assert "changed after its commit" in row["reason"]
    age(experiment / SNAPSHOT, LONG_AGO + 61)
    assert found(tier) == {10: "Valid"}


def test_what_cannot_be_read_is_no_evidence_that_nothing_is_there(
    experiment: Path, tier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = experiment / SNAPSHOT
    snapshot.write_text(snapshot.read_text() + " ")  # another one than is remembered

    def stale(path: Any, *arguments: Any, **options: Any) -> Any:
        if str(path).endswith(SNAPSHOT):
            raise OSError(116, "Stale file handle", str(path))
        return real(path, *arguments, **options)

    real = os.stat
    monkeypatch.setattr(os, "stat", stale)
    with pytest.raises(OSError, match="Stale"):
        rows(tier)


# Elsewhere


def test_other_named_formats_leave_it_alone(experiment: Path, tier: Path) -> None:
    assert found(tier, "HuggingFace") == {}


def test_retention_sees_it(experiment: Path, tier: Path) -> None:
    assert {(each.step, each.verdict.value) for each in checkpoints(tier, UID)} == {(step, "Valid") for step in SAVED}


def test_another_run_starts_from_the_directory_of_the_run_or_of_the_experiment(experiment: Path, tier: Path) -> None:
    for root in (tier / UID, experiment, experiment / ".."):
        told = scan_tier("shared", os.path.normpath(root), "", layout="Any")
        assert sorted(row["step"] for row in told) == sorted(SAVED), root


def test_in_one_directory_for_all_attempts_it_is_found_too(tier: Path) -> None:
    experiment = tier / "a-name"
    saved(experiment, SAVED[10])
    report(experiment, (SAVED[10], {"step": 10}))
    (row,) = scan_tier("shared", str(tier), UID, layout="Shared")
    assert (row["step"], row["verdict"], row["attempt"]) == (10, "Valid", 0)
    assert time.time() > row["committedAt"] > 0
