"""What earlier runs of the same name left in the shared tier is told, the newest valid save of each."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.controller.workers.protocol import decode_report
from lockstep.worker.checkpoints.previous import MOST, previous_saves
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


def saved(root: Path, step: int, *, uid: str = EARLIER % 1, attempt: int = 1, at: float = 1e9) -> Path:
    directory = root / "ns/one" / uid / f"a{attempt}" / f"step-{step}"
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


@pytest.mark.parametrize(
    "changed",
    [
        {"fenced": True},  # all runs of one directory save in it: what is there is its own
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
