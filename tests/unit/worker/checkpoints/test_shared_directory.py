"""What the worker says of the one directory of all attempts, and of the one to start from, over real files."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker.checkpoints import inventory
from lockstep.worker.checkpoints.inventory import CommitWatch, survey
from lockstep.worker.checkpoints.tiers import LOOKED_AT, NEWEST
from lockstep.worker.child.launch import contract_environment
from lockstep.worker.settings import Settings, Tier, is_elsewhere
from lockstep.worker.start import Launch
from support import checkpoint_layouts as layouts
from support.saved_steps import RUN_UID, commit, node


def one_directory(shared: Path, local: Path) -> Settings:
    """A run whose attempts all save in the same directory of the shared tier."""
    return replace(node(shared, local), fenced=True)


def test_with_one_directory_for_all_attempts_that_is_where_each_of_them_saves(tmp_path: Path) -> None:
    local, shared = tmp_path / "local", tmp_path / "shared"
    settings = one_directory(shared, local)
    commit(shared / "step-100")
    (row,) = survey(settings, 3, 0, 2)
    assert (row["verdict"], row["path"], row["attempt"]) == ("Valid", str(shared / "step-100"), 1)
    assert not (shared / RUN_UID).exists()
    environment = contract_environment(settings, Launch(3, 0, 2, "10.1.0.1", 40123, "", "", []))
    assert environment["LOCKSTEP_CHECKPOINT_DIR"] == str(shared)
    assert environment["LOCKSTEP_LOCAL_CHECKPOINT_DIR"] == str(local / RUN_UID / "a3")


def test_what_earlier_attempts_saved_in_the_one_directory_is_not_told_as_this_ones(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-100")
    watch = CommitWatch(one_directory(shared, tmp_path / "local"), Launch(2, 0, 2, "10.1.0.1", 40123, "", "", []))
    assert watch.poll()[:2] == ([], False)
    commit(shared / "step-200", step=200, attempt=2)
    (row,) = watch.poll().rows
    assert (row["step"], row["attempt"]) == (200, 2)
    again = commit(shared / "step-100", {"a.bin": b"anew"}, attempt=2)
    os.utime(again / "manifest.json", (2e9, 2e9))
    assert [row["step"] for row in watch.poll().rows] == [100], "saved again, over the older one"


def test_what_other_runs_saved_in_the_one_directory_is_told_as_theirs_and_hides_nothing_of_its_own(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-100")
    for step in range(400, 450):
        commit(shared / f"step-{step}", step=step, runUID="other")
    rows = survey(one_directory(shared, tmp_path / "local"), 1, 0, 2)
    told = [(row["step"], row["verdict"], row["runUid"]) for row in rows]
    assert told == [*((step, "Valid", "other") for step in range(449, 441, -1)), (100, "Valid", RUN_UID)]


@pytest.mark.slow
@pytest.mark.parametrize("others", [3, 50, LOOKED_AT + 3])
def test_while_it_trains_its_own_saves_are_seen_below_however_many_of_others(tmp_path: Path, others: int) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-100", runUID="before")
    for step in range(400, 400 + others):
        commit(shared / f"step-{step}", step=step, runUID="given-up")
    watch = CommitWatch(one_directory(shared, tmp_path / "local"), Launch(1, 0, 2, "10.1.0.1", 40123, "", "", []))
    layouts.safetensors_file(shared / "step-110" / "model.safetensors")
    assert watch.poll() == ([], True, []), "others that are further do not say that it has gone on"
    commit(shared / "step-110", step=110)
    assert [(row["step"], row["verdict"]) for row in watch.poll().rows] == [(110, "Valid")]
    highest = 399 + others
    os.utime(commit(shared / f"step-{highest}", step=highest) / "manifest.json", (2e9, 2e9))
    assert [(row["step"], row["verdict"]) for row in watch.poll(over=True).rows] == [(highest, "Valid")], (
        "over another's"
    )
    assert watch.poll(over=True).rows == []


def test_what_was_saved_over_among_very_many_of_others_is_seen_within_a_few_looks(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    for step in range(400, 400 + 3 * NEWEST):
        commit(shared / f"step-{step}", step=step, runUID="given-up")
    watch = CommitWatch(one_directory(shared, tmp_path / "local"), Launch(1, 0, 2, "10.1.0.1", 40123, "", "", []))
    assert watch.poll().rows == []
    os.utime(commit(shared / "step-400", step=400) / "manifest.json", (2e9, 2e9))
    assert [row["step"] for _ in range(7) for row in watch.poll().rows] == [400]


def test_what_cannot_be_read_for_a_moment_was_not_saved_by_this_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-400", step=400)
    watch = CommitWatch(one_directory(shared, tmp_path / "local"), Launch(2, 0, 2, "10.1.0.1", 40123, "", "", []))
    with monkeypatch.context() as patched:
        patched.setattr(inventory, "commit_mark", lambda path: None)
        assert watch.poll().rows == []
    assert watch.poll() == ([], False, [])


def test_of_other_runs_saves_beyond_those_that_are_told_no_file_but_the_manifest_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    for step in range(400, 450):
        commit(shared / f"step-{step}", step=step, runUID="other")
    asked: set[str] = set()
    real = os.stat

    def stat(path: Any, *rest: Any, **more: Any) -> os.stat_result:
        asked.add(str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "stat", stat)
    rows = survey(one_directory(shared, tmp_path / "local"), 1, 0, 2)
    looked_into = {path.split("/")[-2] for path in asked if path.endswith("/a.bin")}
    assert looked_into == {f"step-{row['step']}" for row in rows} == {f"step-{step}" for step in range(442, 450)}


def test_what_the_run_to_go_on_from_saved_in_the_one_directory_is_found_below_however_many_of_others(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-100", runUID="before")
    for step in range(400, 450):
        commit(shared / f"step-{step}", step=step, runUID="given-up")
    settings = replace(one_directory(shared, tmp_path / "local"), start_root=str(shared), start_run_uid="before")
    rows = [row for row in survey(settings, 1, 0, 2) if row["runUid"] != "given-up"]
    assert [(row["step"], row["verdict"], row["runUid"]) for row in rows] == [(100, "Valid", "before")]


def test_the_directory_to_start_from_is_listed_whether_it_holds_steps_or_attempts(tmp_path: Path) -> None:
    local, shared, theirs = tmp_path / "local", tmp_path / "shared", tmp_path / "shared" / "other"
    commit(theirs / "step-7", step=7, runUID="other")
    commit(theirs / "a2" / "step-9", step=9, runUID="other")
    settings = replace(node(shared, local), start_root=str(theirs), start_run_uid="other")
    rows = survey(settings, 1, 0, 2)
    assert [(row["step"], row["verdict"], row["runUid"]) for row in rows] == [
        (9, "Valid", "other"),
        (7, "Valid", "other"),
    ]
    assert all(row["tier"] == "shared" for row in rows)
    anybodys = survey(replace(settings, start_run_uid=""), 1, 0, 2)
    assert {row["verdict"] for row in anybodys} == {"Valid"}
    mixed_up = survey(replace(settings, start_run_uid="third"), 1, 0, 2)
    assert {row["verdict"] for row in mixed_up} == {"Invalid"}


def test_a_directory_to_start_from_that_cannot_be_listed_is_unknown(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    theirs = shared / "other"
    theirs.parent.mkdir()
    theirs.write_text("not a directory")
    (row,) = survey(replace(node(shared, tmp_path / "local"), start_root=str(theirs)), 1, 0, 2)
    assert (row["step"], row["verdict"]) == (0, "Unknown")


@pytest.mark.parametrize(
    ("path", "elsewhere"), [("/c/team/step-5", True), ("/c/team/other/step-5", True), ("/c/team/mine/step-5", False)]
)
def test_a_runs_own_one_directory_within_the_one_it_starts_from_is_its_own(path: str, elsewhere: bool) -> None:
    settings = Settings(
        "https://x", "ns", "one", "u", 0, 1, "pod", ("true",), tiers={"shared": Tier("shared", "/c/team/mine", 0.0)},
        start_root="/c/team", fenced=True,
    )  # fmt: skip
    assert is_elsewhere(settings, path) is elsewhere
