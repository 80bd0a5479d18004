"""Every format: whole is valid; torn, cut off, overwritten or changed is not, with the reason; trouble is unknown."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from lockstep.api.checkpoint_spec import CheckpointFormat
from lockstep.worker.checkpoints.formats import FORMATS, examine, verify_checkpoint
from lockstep.worker.checkpoints.formats.catalogue import MARKERS
from lockstep.worker.checkpoints.formats.examination import commit_mark
from lockstep.worker.checkpoints.tiers import scan_tier
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age
from support.verdicts import verdict_on

ROOT = Path(__file__).parents[4]
WHOLE: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    # case: (format, name, how it is made)
    "dcp": ("TorchDCP", "step-100", layouts.dcp),
    "megatron": ("Megatron", "iter_0000100", layouts.megatron),
    "megatron-integrity": ("Megatron", "iter_0000100", lambda path: layouts.megatron(path, integrity=True)),
    "megatron-by-rank": ("Megatron", "iter_0000100", layouts.megatron_by_rank),
    "zero-1": ("DeepSpeed", "global_step100", lambda path: layouts.deepspeed(path, stage=1)),
    "zero-3": ("DeepSpeed", "global_step100", lambda path: layouts.deepspeed(path, stage=3)),
    "zero-off": ("DeepSpeed", "global_step100", lambda path: layouts.deepspeed(path, stage=0)),
    "hugging-face": ("HuggingFace", "checkpoint-100", layouts.hugging_face),
    "hugging-face-ranks": ("HuggingFace", "checkpoint-100", lambda path: layouts.hugging_face(path, ranks=3)),
    "accelerate": ("Accelerate", "step_100", layouts.accelerate),
    "accelerate-ranks": ("Accelerate", "checkpoint_100", lambda path: layouts.accelerate(path, ranks=3)),
    "diffusers": ("Accelerate", "checkpoint-100", layouts.diffusers),
    "torch": ("Torch", "ckpt_100.pt", layouts.torch_file),
    "lightning": ("Lightning", "epoch=0-step=100.ckpt", lambda path: layouts.lightning(path, 100)),
    "lightning-sharded": ("Lightning", "epoch=0-step=100.ckpt", lambda path: layouts.lightning_sharded(path, 100)),
    "nemo": ("NeMo", "gpt--val_loss=0.00-step=100-consumed_samples=800.0-last", layouts.nemo),
    "orbax": ("Orbax", "100", layouts.orbax),
    "orbax-success-file": ("Orbax", "100", lambda path: layouts.orbax(path, success_file=True)),
}


@pytest.fixture(params=WHOLE)
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """(format, path) of a checkpoint with nothing wrong, saved long ago."""
    form, name, make = WHOLE[request.param]
    path = tmp_path / "u1/a1" / name
    make(path)
    return form, age(path)


def test_every_format_is_held_to_whole_checkpoints_of_it_and_can_be_asked_for_and_is_documented() -> None:
    """Manifests have tests of their own, and NVRx's files: with ``Megatron`` they are meant as well. Nothing says which
    files Ray Train's have: test_formats_ray_train.py."""
    table = (ROOT / "docs/checkpoints.md").read_text().partition("\n## Formats\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    assert set(FORMATS) == {form for form, _, _ in WHOLE.values()} | {"Manifest", "NVRxLocal", "RayTrain"}, (
        "each needs a line in WHOLE"
    )
    assert {*FORMATS, "Auto"} == {*get_args(CheckpointFormat), "NVRxLocal"}, (
        "CheckpointFormat of api/checkpoint_spec.py needs each"
    )
    assert set(FORMATS) - {"NVRxLocal"} == told, "each needs a row in docs/checkpoints.md"


def test_a_whole_checkpoint_is_valid_and_recognised_by_its_files(whole: tuple[str, Path]) -> None:
    form, path = whole
    finding = examine(str(path))
    assert finding is not None
    assert (finding.verdict, finding.reason, finding.format) == ("Valid", "", form)
    assert finding.bytes > 0
    assert finding.committed_at == layouts.LONG_AGO
    assert verify_checkpoint(str(path)) == verify_checkpoint(str(path), form=form) == ("Valid", "")


def test_it_is_found_in_its_attempt_with_its_step(whole: tuple[str, Path], tmp_path: Path) -> None:
    form, path = whole
    for asked in ("Auto", form) if form != "Torch" else (form,):  # which file the program loads, its user alone knows
        (row,) = scan_tier("shared", str(tmp_path), "u1", form=asked)
        assert (row["step"], row["path"], row["format"], row["attempt"]) == (100, str(path), form, 1)
    (row,) = scan_tier("shared", str(path.parent), "u1", form=form, layout="Shared")
    assert (row["step"], row["attempt"]) == (100, 0)


# What a loader does without. Of any other file a loss or a cut has to be noticed.
UNNEEDED = {"config.json", "training_args.bin", "integrity.json", "io.json", "commit_success.txt"}
# Orbax: what a manifest refers to cannot be read, and its step metadata is optional.
UNKNOWABLE = {"8ea73b90", "_CHECKPOINT_METADATA", "_METADATA"}
# Nothing says how many ranks there were.
UNTOLD = {"rng_state_2.pth", "random_states_2.pkl", "scheduler.bin"}


def test_without_any_one_of_its_files_it_is_invalid(whole: tuple[str, Path]) -> None:
    form, path = whole
    if path.is_file():
        return
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        if file.name in UNNEEDED | UNKNOWABLE | UNTOLD or file.parent.name.startswith("ocdbt.process_"):
            continue
        aside = path.parent / "aside"
        file.rename(aside)
        verdict, reason = verdict_on(path, form)
        assert verdict == "Invalid", f"without {file}; what no loader needs is in UNNEEDED"
        if "never committed" in reason:  # else a save that goes on is told from one that has ended by luck alone
            assert file.name in {os.path.basename(marker) for marker in MARKERS}, f"{file} belongs to FORMAT's markers"
        aside.rename(file)
    assert verdict_on(path, form) == ("Valid", "")


CUT = "what no loader needs is in UNNEEDED, and a marker has to hold something by which it is known to be whole"


def test_with_any_one_of_its_files_cut_in_half_it_is_invalid(whole: tuple[str, Path]) -> None:
    form, path = whole
    for file in sorted(each for each in [path, *path.rglob("*")] if each.is_file()):
        if file.name in UNNEEDED | {"8ea73b90"} - {"config.json", "training_args.bin"}:
            continue  # values do not say how long they are
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
        age(file)
        assert verify_checkpoint(str(path), form=form)[0] == "Invalid", f"half of {file}; {CUT}"
        file.write_bytes(data)
        age(file)
    assert verdict_on(path, form) == ("Valid", "")


def test_a_file_rewritten_after_the_commit_makes_it_invalid(whole: tuple[str, Path]) -> None:
    form, path = whole
    if path.is_file():
        return  # one file has no order
    (path.parent / ("latest" if form == "DeepSpeed" else "latest_checkpointed_iteration.txt")).write_text(
        path.name if form == "DeepSpeed" else "100"
    )
    age(path.parent)
    data = [
        file
        for file in path.rglob("*")
        if (file.suffix in (".distcp", ".safetensors", ".pt") and file.name not in ("meta.pt", "common.pt"))
        or file.parent.name == "d"
    ]
    assert data
    for file in data:
        age(file, layouts.LONG_AGO + 120.0)
        verdict, reason = verdict_on(path, form)
        assert verdict == "Invalid", file
        assert "changed after its commit" in reason or "overwritten" in reason
        age(file)


def test_clocks_may_be_apart_as_far_as_is_allowed(whole: tuple[str, Path]) -> None:
    form, path = whole
    for file in path.rglob("*.distcp"):
        age(file, layouts.LONG_AGO + 30.0)
        assert verdict_on(path, form, skew=60.0) == ("Valid", "")
        assert verdict_on(path, form, skew=2.0)[0] == "Invalid"


def test_what_cannot_be_read_is_unknown(whole: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    form, path = whole

    def stale(*arguments: Any, **options: Any) -> Any:
        raise OSError(116, "Stale file handle", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", stale)
        assert verdict_on(path, form) == ("Unknown", f"Stale file handle: {path}")
    monkeypatch.setattr(os, "stat", stale)
    assert verdict_on(path, form)[0] == "Unknown"


def test_a_flipped_bit_is_found_where_there_are_checksums(whole: tuple[str, Path]) -> None:
    form, path = whole
    summed = [file for file in [path, *path.rglob("*")] if file.is_file() and file.suffix in (".pt", ".pth", ".ckpt")]
    if (path / "integrity.json").exists():
        summed += path.glob("*.distcp")
    for file in summed:
        data = bytearray(file.read_bytes())
        at = data.index(b"\1\1\1\1\1\1") if b"\1\1\1\1\1\1" in data else 10
        data[at] ^= 0x40
        file.write_bytes(bytes(data))
        age(file)
        assert verdict_on(path, form)[0] == "Valid", file  # nothing of it is read
        assert verify_checkpoint(str(path), form=form)[0] == "Invalid", file
        data[at] ^= 0x40
        file.write_bytes(bytes(data))
        age(file)


def test_each_rank_opens_its_share_of_the_files(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5", data=3, parallel=1)
    broken = path / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    broken.write_bytes(broken.read_bytes()[:-30])
    verdicts = [verdict_on(path, share=share, of=4) for share in range(4)]
    assert verdicts.count(("Valid", "")) == 3
    assert ("Invalid", f"{broken.name} is cut off: it has no end record") in verdicts


def test_each_rank_verifies_its_share(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5", data=3, parallel=1)
    broken = path / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    data = bytearray(broken.read_bytes())
    data[data.index(b"\1\1\1\1")] = 7
    broken.write_bytes(bytes(data))
    assert [verify_checkpoint(str(path), share, 4)[0] for share in range(4)] == ["Valid", "Invalid", "Valid", "Valid"]


def test_a_commit_is_told_from_another_and_from_none(whole: tuple[str, Path], tmp_path: Path) -> None:
    _, path = whole
    mark = commit_mark(str(path))
    assert mark is not None
    assert commit_mark(str(path)) == mark
    for file in [path, *path.rglob("*")]:
        if file.is_file():
            age(file, layouts.LONG_AGO + 7.0)
    assert commit_mark(str(path)) != mark
    assert commit_mark(str(tmp_path / "none")) is None


def test_what_other_ranks_add_after_the_commit_is_looked_at_again(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100", ranks=3)
    late = path / "rng_state_1.pth"
    data = late.read_bytes()
    late.unlink()
    age(path)
    mark = commit_mark(str(path))
    assert verdict_on(path)[0] == "Invalid"
    late.write_bytes(data)
    assert commit_mark(str(path)) != mark
    age(late, layouts.LONG_AGO + 20.0)  # of its own
    assert verdict_on(path) == ("Valid", "")


def test_what_is_called_unfinished_is_not_committed_yet(tmp_path: Path) -> None:
    assert commit_mark(str(layouts.orbax(tmp_path / "100.orbax-checkpoint-tmp"))) is None
    path = layouts.nemo(tmp_path / "gpt-step=100")
    marker = layouts.written(tmp_path / "gpt-step=100-unfinished", "")
    assert commit_mark(str(path)) is None
    marker.unlink()
    assert commit_mark(str(path)) is not None


@pytest.mark.parametrize("name", ["checkpoint-100", "global_step100", "iter_0000100", "100", "step_100"])
@pytest.mark.parametrize(("form", "make"), [("TorchDCP", layouts.dcp), ("Orbax", layouts.orbax)])
def test_files_tell_more_than_names(tmp_path: Path, name: str, form: str, make: Callable[[Path], Path]) -> None:
    make(tmp_path / name)
    finding = examine(str(tmp_path / name))
    assert finding is not None
    assert (finding.verdict, finding.format) == ("Valid", form)


def test_directories_that_are_no_checkpoints_are_not_mentioned(tmp_path: Path) -> None:
    for name in ("runs-5", "logs", "tmp-checkpoint-4", "checkpoint-3.lockstep-invalid-2", "wandb-run-9"):
        layouts.written(tmp_path / "u1/a1" / name / "events", b"1")
    assert scan_tier("shared", str(tmp_path), "u1") == []
    assert scan_tier("shared", str(tmp_path), "u1", form="HuggingFace") == []
