"""Saves of Accelerate, and single files of torch.save: found by name, judged by what they are, torn ones refused."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lockstep.api.checkpoint_spec import CheckpointSpec
from lockstep.worker.checkpoints.formats import examine
from lockstep.worker.checkpoints.inventory import CommitWatch
from lockstep.worker.checkpoints.tiers import scan_tier
from lockstep.worker.checkpoints.unrecognised import left_behind
from lockstep.worker.settings import Settings, Tier
from lockstep.worker.start import Launch
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age, torch_file, written
from support.values import not_none

UID = "run-1"
SHARED = {"shared": {"claimName": "lustre"}}


def form_of(pattern: str) -> str:
    return CheckpointSpec.model_validate({**SHARED, "pattern": pattern}).named_format


def found(root: Path, form: str) -> dict[int, tuple[str, str]]:
    rows = scan_tier("shared", str(root), UID, form=form)
    assert all(row["format"] in ("Torch", "Accelerate") for row in rows)
    return {row["step"]: (os.path.basename(row["path"]), row["verdict"]) for row in rows}


@pytest.mark.parametrize(
    ("pattern", "names", "steps"),
    [
        ("ckpt_{step}.pt", ["ckpt_10.pt", "ckpt_20.pt", "ema_30.pt", "ckpt_40.pt.tmp", "xckpt_50.pt"], [10, 20]),
        ("model.{step}.pth.tar", ["model.7.pth.tar", "modelx8.pth.tar"], [7]),
        ("{step}", ["12", "ckpt_13.pt"], [12]),
        ("it[0-9]*({step}).bin", ["it[0-9]*(3).bin", "it0(4).bin"], [3]),
        ("", ["ckpt_10.pt", "step-20.pth", "notes_30.txt", "best.pt", "step-2-backup-2025.pt"], [10, 20]),
    ],
)
def test_files_are_found_by_the_pattern_and_nothing_else_is(
    tmp_path: Path, pattern: str, names: list[str], steps: list[int]
) -> None:
    for name in names:
        age(torch_file(tmp_path / UID / "a1" / name))
    form = form_of(pattern) if pattern else "Torch"
    assert sorted(found(tmp_path, form)) == steps
    assert found(tmp_path, "Auto") == {}, "which of several files the program loads, its user alone knows"


@pytest.mark.parametrize("key", ["iter_num", "global_step", "step"])
def test_under_a_fixed_name_the_step_is_read_inside_as_nano_gpt_writes_it(tmp_path: Path, key: str) -> None:
    path = torch_file(tmp_path / UID / "a1" / "ckpt.pt", {"model": {}, key: 2000, "config": {"n_layer": 12}})
    torch_file(tmp_path / UID / "a1" / "other.pt", {key: 3000})
    assert found(tmp_path, form_of("ckpt.pt")) == {2000: ("ckpt.pt", "Valid")}
    path.write_bytes(path.read_bytes()[:-30])
    assert found(tmp_path, form_of("ckpt.pt")) == {}, "overwritten in place and cut off: its step is lost with it"


def test_a_whole_file_of_a_fixed_name_that_has_no_step_inside_is_told_with_what_to_save(tmp_path: Path) -> None:
    settings = Settings(
        operator_url="", namespace="ns", run="one", run_uid=UID, slot=0, incarnation=1, pod_uid="p", command=["true"],
        tiers={"shared": Tier("shared", str(tmp_path), 2.0)}, checkpoint_format=form_of("ckpt.pt"),
    )  # fmt: skip
    path = torch_file(tmp_path / UID / "a1" / "ckpt.pt", {"model": {}, "optimizer": {"step": 75}, "epoch": 3})
    (row,) = not_none(left_behind(settings, 0))
    assert "no step inside (iter_num, global_step, step, iteration, steps): save one" in row["reason"]
    torch_file(path, {"model": {}, "optimizer": {"step": 75}, "step": 300})
    assert left_behind(settings, 0) == []
    assert found(tmp_path, settings.checkpoint_format) == {300: ("ckpt.pt", "Valid")}


def test_a_torn_file_is_invalid_and_one_that_is_saved_while_it_trains_is_told(tmp_path: Path) -> None:
    settings = Settings(
        operator_url="", namespace="ns", run="one", run_uid=UID, slot=0, incarnation=1, pod_uid="p", command=["true"],
        tiers={"shared": Tier("shared", str(tmp_path), 2.0)}, checkpoint_format=form_of("ckpt_{step}.pt"),
    )  # fmt: skip
    watch = CommitWatch(settings, Launch(1, 0, 1, "10.1.0.1", 40123, "", "", []))
    path = torch_file(tmp_path / UID / "a1" / "ckpt_10.pt")
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert watch.poll()[:2] == ([], True)
    assert found(tmp_path, settings.checkpoint_format) == {10: ("ckpt_10.pt", "Invalid")}
    assert left_behind(settings, 0) == [], "the inventory has it"
    path.write_bytes(whole)
    assert [row["step"] for row in watch.poll().rows] == [10]
    torch_file(path.parent / "best.pt")
    assert [os.path.basename(row["path"]) for row in left_behind(settings, 0)] == ["best.pt"]


def test_no_name_makes_a_pattern_slow() -> None:
    form = form_of("a" * 60 + "{step}" + "a" * 60)
    began = time.monotonic()
    for _ in range(1000):
        assert examine("/nowhere/" + "a" * 255, form=form) is not None
    assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("name", ["step_30", "checkpoint_30", "checkpoint-30", "step-30"])
@pytest.mark.parametrize("form", ["Auto", "Accelerate"])
def test_saves_of_accelerate_are_resumed_from_whatever_their_scripts_call_them(
    tmp_path: Path, name: str, form: str
) -> None:
    make = layouts.diffusers if name == "checkpoint-30" else layouts.accelerate
    age(make(tmp_path / UID / "a1" / name))
    assert found(tmp_path, form) == {30: (name, "Valid")}


def accelerate(tmp_path: Path, name: str = "step_30") -> Path:
    return age(layouts.accelerate(tmp_path / name, ranks=2))


def test_what_other_ranks_and_custom_objects_write_later_may_be_younger_but_has_to_be_whole(tmp_path: Path) -> None:
    path = accelerate(tmp_path)
    for name in ("random_states_1.pkl", "custom_checkpoint_0.pkl"):
        age(torch_file(path / name), layouts.LONG_AGO + 30.0)
    finding = examine(str(path))
    assert finding is not None
    assert (finding.verdict, finding.format) == ("Valid", "Accelerate")
    (path / "custom_checkpoint_0.pkl").write_bytes(b"PK\x03\x04torn")
    torn = examine(str(path))
    assert torn is not None
    assert torn.verdict == "Invalid"


def test_a_second_save_over_the_first_that_was_cut_off_is_seen(tmp_path: Path) -> None:
    path = accelerate(tmp_path)
    age(path / "model.safetensors", layouts.LONG_AGO + 60.0)
    finding = examine(str(path))
    assert finding is not None
    assert "model.safetensors changed after its commit" in finding.reason


def test_a_save_that_was_cut_off_before_the_random_states_was_never_committed(tmp_path: Path) -> None:
    for name in ("step_30", "checkpoint_30"):
        path = accelerate(tmp_path, name)
        for file in path.glob("random_states_*"):
            file.unlink()
        finding = examine(str(path))
        assert finding is not None
        assert (finding.verdict, finding.format) == ("Invalid", "Accelerate")
        assert finding.reason == "no random_states_0.pkl: it was never committed"


def test_with_fsdp_the_directories_inside_are_held_to_dcps_rule(tmp_path: Path) -> None:
    path = tmp_path / "step_30"
    for name in ("pytorch_model_fsdp_0", "optimizer_0"):
        layouts.dcp(path / name)
    torch_file(path / "random_states_0.pkl")
    age(path)
    assert examine(str(path)).verdict == "Valid"  # type: ignore[union-attr]
    (path / "optimizer_0" / ".metadata").unlink()
    assert examine(str(path)).verdict == "Invalid"  # type: ignore[union-attr]


def test_a_trainers_checkpoint_stays_one_of_hugging_face(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100")
    age(written(path / "random_states_0.pkl", torch_file(tmp_path / "x").read_bytes()))
    age(path)
    finding = examine(str(path))
    assert finding is not None
    assert (finding.format, finding.verdict) == ("HuggingFace", "Valid")
