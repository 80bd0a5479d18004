"""What earlier runs of the same name left in the shared tier is told, the newest valid save of each."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.controller.workers.protocol import decode_report
from lockstep.core.checkpoints.step_names import STATE_THEIR_STEP, believed_up_to
from lockstep.worker.checkpoints import previous
from lockstep.worker.checkpoints.inventory import survey
from lockstep.worker.checkpoints.previous import MARKER, MOST, RUNS_LOOKED_INTO, SAVES_COMPARED, previous_saves
from lockstep.worker.settings import Settings, Tier
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age, written

OWN = "6f7a1c9e-0000-4111-8222-333344445555"
EARLIER = "6f7a1c9e-0000-4111-8222-99994444%04d"


def settings(root: Path, **changed: object) -> Settings:
    base = Settings(
        operator_url="", namespace="ns", run="one", run_uid=OWN, slot=0, incarnation=1, pod_uid="p", command=["true"],
        tiers={"shared": Tier("shared", str(root / "ns" / "one"), 2.0)},
    )  # fmt: skip
    return replace(base, **changed)  # type: ignore[arg-type]


def saved(
    root: Path, step: int, *, uid: str = EARLIER % 1, attempt: int = 1, at: float = 1e9, path: str = "ns/one"
) -> Path:
    directory = root / path / uid / f"a{attempt}" / f"step-{step}"
    directory.mkdir(parents=True)
    layouts.dcp(directory)
    for file in directory.iterdir():
        age(file, at)
    return directory


def test_the_newest_valid_save_of_each_earlier_run_is_told_the_last_one_first(tmp_path: Path) -> None:
    saved(tmp_path, 30, attempt=1)
    newest = saved(tmp_path, 40, attempt=2)
    torn = saved(tmp_path, 50, attempt=2)
    (torn / ".metadata").unlink()
    later = saved(tmp_path, 7, uid=EARLIER % 2, at=1.1e9)
    assert previous_saves(settings(tmp_path)) == [
        {"runUid": EARLIER % 2, "step": 7, "path": str(later)},
        {"runUid": EARLIER % 1, "step": 40, "path": str(newest)},
    ]


def test_a_directory_that_only_ends_in_a_date_is_no_newer_save(tmp_path: Path) -> None:
    newest = saved(tmp_path, 40)
    saved(tmp_path, 20251101)
    assert previous_saves(settings(tmp_path)) == [{"runUid": EARLIER % 1, "step": 40, "path": str(newest)}]


def test_where_nothing_else_is_there_it_is_told(tmp_path: Path) -> None:
    only = saved(tmp_path, 20251101)
    assert [row["path"] for row in previous_saves(settings(tmp_path))] == [str(only)]


@given(st.lists(st.one_of(st.integers(0, 10**15), st.sampled_from((110, 20251101, 20251102, 2025110112))), max_size=8))
def test_names_are_believed_as_the_operator_believes_them(steps: list[int]) -> None:
    beyond, believed = previous._beyond_all_steps(sorted(steps, reverse=True)), believed_up_to(steps, 0)
    assert beyond == (math.inf if believed is None else believed + 1)
    assert set(previous.STATE_THEIR_STEP) == STATE_THEIR_STEP


@pytest.mark.parametrize(
    "changed",
    [
        {"fenced": True},  # what is there is in the inventory
        {"start_root": "/shared-checkpoints/ns/base/x"},  # its user has said what to begin from
        {"run": "two"},  # the path is not that of its name: others may save there, too
        {"run_uid": EARLIER % 1},  # they are its own
        {"tiers": {}},
    ],
)
def test_what_says_nothing_about_an_earlier_run_is_not_told(tmp_path: Path, changed: dict[str, object]) -> None:
    saved(tmp_path, 40)
    assert previous_saves(settings(tmp_path))
    assert previous_saves(settings(tmp_path, **changed)) == []


def of_ones_own(root: Path, **changed: object) -> Settings:
    """With ``checkpoint.shared.path: team/llama``."""
    return settings(root, tiers={"shared": Tier("shared", str(root / "team/llama"), 2.0)}, **changed)


@pytest.mark.parametrize(
    ("earlier", "told"),
    [({}, True), ({"run": "two"}, False), ({"namespace": "other"}, False), ({"slot": 3}, True)],
    ids=["the name", "another name", "another namespace", "by whichever pod"],
)
def test_in_a_path_of_the_users_own_a_run_of_the_same_name_finds_what_the_earlier_one_saved(
    tmp_path: Path, earlier: dict[str, object], told: bool
) -> None:
    survey(of_ones_own(tmp_path, run_uid=EARLIER % 1, **earlier), 1, 0, 2)  # it prepared itself for its first attempt
    newest = saved(tmp_path, 40, path="team/llama", attempt=2)
    row = {"runUid": EARLIER % 1, "step": 40, "path": str(newest)}
    assert previous_saves(of_ones_own(tmp_path)) == ([row] if told else [])
    mine = tmp_path / "team/llama" / (EARLIER % 1)
    assert sorted(each.name for each in mine.iterdir()) == [MARKER, "a1", "a2"], "the draft is gone"


def test_one_rank_marks_the_directory_of_a_run_and_only_where_its_path_does_not_say(tmp_path: Path) -> None:
    survey(of_ones_own(tmp_path), 1, 1, 2)
    assert not list(tmp_path.rglob(MARKER)), "rank 1 leaves it to rank 0"
    survey(settings(tmp_path), 1, 0, 2)
    survey(of_ones_own(tmp_path, fenced=True), 1, 0, 2)
    assert not list(tmp_path.rglob(MARKER)), "the path says it, or all save in it"
    survey(of_ones_own(tmp_path), 1, 0, 2)
    marker = tmp_path / "team/llama" / OWN / MARKER
    assert marker.read_text() == "ns/one\n"
    marker.write_text("ns/o")
    survey(of_ones_own(tmp_path), 2, 0, 2)
    assert marker.read_text() == "ns/one\n", "what was cut short is written again"


def test_where_no_marker_can_be_written_the_run_trains_all_the_same(tmp_path: Path) -> None:
    marker = tmp_path / "team/llama" / OWN / MARKER
    marker.mkdir(parents=True)
    assert survey(of_ones_own(tmp_path), 1, 0, 2) == []
    assert marker.is_dir()


def test_a_marker_that_is_no_plain_file_or_says_more_is_none(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("ns/one\n")
    for number in range(1, 6):
        saved(tmp_path, number, uid=EARLIER % number, path="team/llama")
    markers = {number: tmp_path / "team/llama" / (EARLIER % number) / MARKER for number in range(1, 6)}
    markers[1].symlink_to(tmp_path / "elsewhere")
    os.mkfifo(markers[2])
    markers[3].mkdir()
    markers[4].write_text("ns/one\n" + "x" * (1 << 20))
    assert previous_saves(of_ones_own(tmp_path)) == []
    markers[5].write_text("ns/one\n")
    assert [each["step"] for each in previous_saves(of_ones_own(tmp_path))] == [5]


def test_of_the_runs_that_share_a_path_only_so_many_are_asked_whose_they_are(tmp_path: Path) -> None:
    saved(tmp_path, 40, path="team/llama")
    root = tmp_path / "team/llama"
    (root / (EARLIER % 1) / MARKER).write_text("ns/one\n")
    os.utime(root / (EARLIER % 1), (1e9, 1e9))
    for number in range(2, RUNS_LOOKED_INTO + 1):
        (root / (EARLIER % number)).mkdir()
    assert len(previous_saves(of_ones_own(tmp_path))) == 1, "other runs of the path do not hide it"
    (root / (EARLIER % 0)).mkdir()
    assert previous_saves(of_ones_own(tmp_path)) == []


@pytest.mark.parametrize("form", ["Auto", "Torch"])
def test_a_marker_is_no_checkpoint_where_a_run_starts_from_that_directory(tmp_path: Path, form: str) -> None:
    earlier = of_ones_own(tmp_path, run_uid=EARLIER % 1)
    survey(earlier, 1, 0, 2)
    root = str(tmp_path / "team/llama" / (EARLIER % 1))
    assert survey(of_ones_own(tmp_path, start_root=root, checkpoint_format=form), 1, 0, 2) == []


def test_tries_that_left_no_valid_save_do_not_hide_what_one_before_them_saved(tmp_path: Path) -> None:
    newest = saved(tmp_path, 40)
    os.utime(tmp_path / "ns/one" / (EARLIER % 1), (1e9, 1e9))
    for number in range(2, 2 + SAVES_COMPARED):
        (tmp_path / "ns/one" / (EARLIER % number) / "a1").mkdir(parents=True)
    for number in range(20, 20 + SAVES_COMPARED):
        (saved(tmp_path, 9, uid=EARLIER % number) / ".metadata").unlink()
    assert previous_saves(settings(tmp_path)) == [{"runUid": EARLIER % 1, "step": 40, "path": str(newest)}]


def test_what_is_no_save_of_a_run_is_passed_over_and_no_link_is_followed(tmp_path: Path) -> None:
    elsewhere = saved(tmp_path / "other", 40).parents[1]
    root = tmp_path / "ns/one"
    root.mkdir(parents=True)
    os.symlink(elsewhere, root / (EARLIER % 3))
    written(root / (EARLIER % 4) / "a1" / "step-9" / "notes.txt", "nothing")
    written(root / "exports" / "a1" / "model.pt", "no run")
    (root / (EARLIER % 5)).write_text("a file")
    assert previous_saves(settings(tmp_path)) == []


def test_of_very_many_a_few_are_told_and_the_operator_takes_them(tmp_path: Path) -> None:
    for number in range(MOST + 3):
        saved(tmp_path, 10 + number, uid=EARLIER % number, at=1e9 + number)
    found = previous_saves(settings(tmp_path))
    assert len(found) == MOST
    sent = {"phase": "Ready", "wall": 1, "mono": 1, "previousSaves": [*found, *found]}
    about = {"protocol": 1, "namespace": "ns", "run": "one", "runUid": OWN, "slot": 0, "podUid": "p"}
    taken = decode_report(json.dumps(about | {"state": sent} | sent | {"incarnation": 1}).encode()).previous_saves
    assert [(each.run_uid, each.step) for each in taken] == [(each["runUid"], each["step"]) for each in found]
