"""What else lies in a directory of checkpoints, and ends in a number as they do, takes no place of theirs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker.checkpoints.formats import examine, verify_checkpoint
from lockstep.worker.checkpoints.formats.catalogue import step_of
from lockstep.worker.checkpoints.inventory import CommitWatch, survey
from lockstep.worker.checkpoints.pointers import rewrite_pointers
from lockstep.worker.checkpoints.tiers import ENOUGH_VALID, NEWEST, scan_tier
from lockstep.worker.settings import Settings, Tier
from lockstep.worker.start import Launch
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age

UID = "run-1"
FORMS = {"TorchDCP": layouts.dcp, "DeepSpeed": layouts.deepspeed}
NAMES = {"TorchDCP": "step-{}", "DeepSpeed": "global_step{}"}


def saved(directory: Path, form: str, step: int) -> Path:
    path = directory / NAMES[form].format(step)
    FORMS[form](path)
    return age(path)


def strangers(directory: Path, count: int) -> list[Path]:
    """As TensorBoard makes one for each rank and restart."""
    made = [directory / f"tb_{1732400000 + number}" for number in range(count)]
    for each in made:
        each.mkdir(parents=True)
        (each / "events.out").write_bytes(b"x")
    return made


def settings(root: Path, **changed: object) -> Settings:
    return Settings(
        operator_url="", namespace="ns", run="one", run_uid=UID, slot=0, incarnation=1, pod_uid="p", command=["true"],
        tiers={"shared": Tier("shared", str(root), 2.0)}, **changed,
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", ["own", "Auto"])
def test_however_many_there_are_the_checkpoints_are_found(tmp_path: Path, form: str, asked: str) -> None:
    attempt = tmp_path / UID / "a1"
    strangers(attempt, NEWEST + 8)
    for step in (100, 200):
        saved(attempt, form, step)
    rows = scan_tier("shared", str(tmp_path), UID, form=form if asked == "own" else "Auto")
    assert [row["step"] for row in rows if row["verdict"] == "Valid"] == [200, 100]
    assert len(rows) <= 6


@pytest.mark.parametrize("form", ["TorchDCP", "Auto"])
def test_a_save_is_noticed_among_them_and_they_are_no_save_that_has_begun(tmp_path: Path, form: str) -> None:
    watch = CommitWatch(settings(tmp_path, checkpoint_format=form), Launch(1, 0, 1, "10.1.0.1", 40123, "", "", []))
    attempt = tmp_path / UID / "a1"
    strangers(attempt, NEWEST + 8)
    assert watch.poll()[:2] == ([], False)
    saved(attempt, "TorchDCP", 100)
    assert [row["step"] for row in watch.poll().rows] == [100]


@pytest.mark.parametrize("form", FORMS)
def test_they_keep_their_names_when_pointers_are_rewritten(tmp_path: Path, form: str) -> None:
    saved(tmp_path, form, 100)
    torn = saved(tmp_path, form, 200)
    for file in [torn / ".metadata", *torn.glob("*optim_states.pt")]:
        file.unlink(missing_ok=True)
    others = [*strangers(tmp_path, 2), tmp_path / "data-cache-2024", tmp_path / "hf-export-300"]
    for each in others[2:]:
        layouts.hugging_face(each)
    rewrite_pointers(str(tmp_path), form, 100, 3)
    assert all(each.is_dir() for each in others)
    assert not torn.exists()


def test_a_step_to_start_from_is_found_however_many_newer_ones_there_are(tmp_path: Path) -> None:
    theirs = tmp_path / "base"
    for step in range(100, 100 * (ENOUGH_VALID + 12), 100):
        saved(theirs, "TorchDCP", step)
    one = settings(tmp_path / "own", start_root=str(theirs), start_step=100)
    assert [(row["step"], row["verdict"]) for row in survey(one, 1, 0, 2)] == [(100, "Valid")]


def test_a_step_that_many_attempts_saved_is_one_of_those_to_go_back_to(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        for step in (1000, 1100):
            saved(tmp_path / UID / f"a{attempt}", "TorchDCP", step)
    for step in range(300, 1000, 100):
        saved(tmp_path / UID / "a1", "TorchDCP", step)
    steps = {row["step"] for row in scan_tier("shared", str(tmp_path), UID)}
    assert steps == set(range(400, 1200, 100))


def test_bytes_that_make_no_sense_are_a_verdict_and_keep_nobody_from_the_barrier(tmp_path: Path) -> None:
    directory = layouts.deepspeed(tmp_path / "global_step100")
    file = directory / "mp_rank_00_model_states.pt"
    with zipfile.ZipFile(file) as archive:
        (name, *_) = archive.namelist()
    odd = file.read_bytes().replace(name.encode(), b"\xff" * len(name))
    at = odd.rindex(b"PK\x01\x02")
    file.write_bytes(odd[: at + 8] + b"\x00\x08" + odd[at + 10 :])  # its names are UTF-8, says the flag
    assert examine(str(directory)) is not None
    index = {"weight_map": {"layer": "m\ud800.safetensors"}}
    face = layouts.hugging_face(tmp_path / "checkpoint-7")
    (face / "model.safetensors.index.json").write_text(json.dumps(index))
    finding = examine(str(face))
    assert finding is not None
    assert (finding.verdict, "cannot be made sense of" in finding.reason) == ("Invalid", True)
    assert verify_checkpoint(str(face))[0] == "Invalid"


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-300", 300),
        ("global_step300", 300),
        ("llama-70b-step-300", 300),
        ("checkpoint_7b_step_300", 300),
        ("ckpt1_300", 300),
        ("iter_0000300", 300),
        ("300", 300),
        ("step-2-backup-20251101", None),
        ("checkpoint-100-2025", None),
        ("step_10_seed_42", None),
        ("iter_0000300_old_1", None),
    ],
)
def test_a_number_behind_the_step_is_none(tmp_path: Path, name: str, step: int | None) -> None:
    for form in ("Auto", "TorchDCP"):
        assert step_of(str(tmp_path / name), name, form, is_file=False) == step


def test_of_two_directories_with_one_commit_the_lower_step_is_believed(tmp_path: Path) -> None:
    attempt = tmp_path / UID / "a1"
    for name in ("step-2", "step-20251101"):
        age(layouts.dcp(attempt / name), layouts.LONG_AGO + 0.25)  # as cp -a does
    age(layouts.dcp(attempt / "step-3"), layouts.LONG_AGO + 9.25)
    rows = {row["step"]: (row["verdict"], row["reason"]) for row in scan_tier("shared", str(tmp_path), UID)}
    assert rows == {
        2: ("Valid", ""),
        3: ("Valid", ""),
        20251101: ("Invalid", "is a copy of step-2: it has the same commit"),
    }


LATER = layouts.LONG_AGO + 3600.0


STRANGERS = [
    "README.md", ".nfs000000000001", ".cache/x", "eval_results.json", "default/.nfs01", "default/notes.txt", "x.log",
    "NOTES", "core.123", "events.out.tfevents.1732400000.host", "model.safetensors", "hf/model.safetensors",
    "wandb/run-1/files/media", "default/events.out.tfevents.1", "default/export/model.bin", "default/d/.nfs01",
]  # fmt: skip


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("success_file", [True, False])
def test_what_no_loader_reads_says_nothing_of_an_orbax_checkpoint(
    tmp_path: Path, name: str, success_file: bool
) -> None:
    path = age(layouts.orbax(tmp_path / "100", success_file=success_file))
    age(layouts.written(path / name, "an hour later"), LATER)
    finding = examine(str(path))
    assert finding is not None
    assert (finding.verdict, finding.reason) == ("Valid", "")
    age(layouts.written(path / "default" / "d" / "3f890881", b"\x0c\xdb\x20\xde" + b"\0" * 8), LATER)
    changed = examine(str(path))
    assert changed is not None
    assert changed.verdict == "Invalid", "its data are dated"


ARRAY = {
    "_METADATA": "{}", "params.w/.zarray": "{}", "params.w/0.0": "x", "groups/v/zarr.json": "{}", "groups/v/c/0": "x",
}  # fmt: skip
ITEMS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "arrays one by one": ("default", ARRAY, ("_METADATA", "params.w/0.0", "groups/v/c/0", "groups/v/zarr.json")),
    "no item is named": ("", ARRAY, ("_METADATA", "params.w/0.0", "groups/v/c/0")),
    "an item that is no tree": ("metrics", {"metrics": "{}"}, ("metrics",)),
    "of an old version": ("", {"checkpoint": "x"}, ("checkpoint",)),
}


@pytest.mark.parametrize("case", ITEMS)
def test_what_the_loader_reads_of_an_orbax_checkpoint_is_dated_by_where_it_lies(tmp_path: Path, case: str) -> None:
    item, files, dated = ITEMS[case]
    for number, name in enumerate(("../README", "../x/y.bin", *dated)):
        path = tmp_path / str(number) / "100"
        said = {"item_handlers": {item: "Handler"}} if item else {}
        layouts.written(path / "_CHECKPOINT_METADATA", json.dumps({**said, "commit_timestamp_nsecs": 17}))
        held = path / (item or "default")
        for file, content in files.items():
            layouts.written(held / file, content)
        age(path)
        age(layouts.written(held / name, files.get(name, "a stranger")), LATER)
        finding = examine(str(path))
        assert finding is not None
        told = (finding.verdict, "changed after its commit" in finding.reason)
        assert told == (("Invalid", True) if name in dated else ("Valid", False)), name


def test_a_node_of_orbax_that_is_no_longer_than_nothing_is_not_read_for_ever(tmp_path: Path) -> None:
    path = layouts.orbax(tmp_path / "100")
    layouts.written(path / "default" / "d" / "3f890881", b"\x0c\xdb\x20\xde" + b"\0" * 8)
    finding = examine(str(age(path)))
    assert finding is not None
    assert (finding.verdict, finding.reason) == ("Invalid", "3f890881 is cut off")


@pytest.mark.parametrize(
    ("make", "name", "left"),
    [
        (layouts.dcp, "step-100", "old_7_0.distcp"),
        (layouts.dcp, "step-100", ".nfs01"),
        (layouts.dcp, "step-100", "README.md"),
        (layouts.megatron, "iter_0000100", "README.md"),
        (layouts.deepspeed, "global_step100", "zero_to_fp32.py"),
        (layouts.hugging_face, "checkpoint-100", "README.md"),
        (layouts.hugging_face, "checkpoint-100", "training_args.bin"),
        (layouts.nemo, "gpt-step=100", "context/README.md"),
    ],
)
def test_only_files_that_the_loader_reads_are_dated(tmp_path: Path, make: Any, name: str, left: str) -> None:
    path = tmp_path / name
    make(path)
    age(path)
    age(layouts.torch_file(path / left), LATER)
    finding = examine(str(path))
    assert finding is not None
    assert (finding.verdict, finding.reason) == ("Valid", "")
