"""Every format: whole is valid; torn, cut off, overwritten or changed is not, with the reason; trouble is unknown."""

import json
import os
import re
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from lockstep.api.checkpoint_spec import CheckpointFormat
from lockstep.worker.checkpoints.formats import FORMATS, examine, families, verify_checkpoint
from lockstep.worker.checkpoints.formats.catalogue import MARKERS
from lockstep.worker.checkpoints.formats.examination import commit_mark
from lockstep.worker.checkpoints.tiers import scan_tier
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age

ROOT = Path(__file__).parents[2]
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


def verdict_on(path: Path, form: str = "Auto", **how: Any) -> tuple[str, str]:
    finding = examine(str(path), form=form, **how)
    assert finding is not None
    return finding.verdict, finding.reason


def test_every_format_is_held_to_whole_checkpoints_of_it_and_can_be_asked_for_and_is_documented() -> None:
    """Manifests have tests of their own, and NVRx's files: with ``Megatron`` they are meant as well. Nothing says which
    files Ray Train's have: test_worker_formats_ray_train.py."""
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


# While it trains


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


# What only one format has


def test_deepspeed_counts_the_ranks_that_its_states_name(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5", data=4, parallel=1)
    (path / "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt").unlink()
    verdict, reason = verdict_on(path)
    assert verdict == "Invalid"
    assert reason.startswith("the optimizer states of rank 3/0 is missing (3 of 4x1 are there")
    shutil.rmtree(path)
    finding = examine(str(layouts.deepspeed(path, data=4, parallel=2)))
    assert finding is not None
    assert finding.processes == 8


def test_deepspeed_without_any_optimizer_file_is_invalid_unless_zero_is_off(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5")
    for file in path.glob("*optim_states.pt"):
        file.unlink()
    assert verdict_on(path) == ("Invalid", "there is no optimizer states")


def test_experts_have_their_optimizer_states_in_files_of_their_own(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5", data=1, parallel=1)
    (path / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").rename(path / "expp_rank_0_mp_rank_00_optim_states.pt")
    layouts.torch_file(path / "layer_0_expert_0_mp_rank_00_model_states.pt")
    assert verdict_on(path) == ("Valid", "")


@pytest.mark.parametrize(
    ("pauses", "expected"),
    [
        pytest.param((0.0, 300.0), "Invalid", id="one rank was killed before it overwrote its own"),
        pytest.param((0.0, 50.0), "Valid", id="ranks that are a little apart"),
        pytest.param((50.0, 50.0), "Valid", id="a slow copy takes any time in all"),
    ],
)
def test_deepspeed_with_files_of_two_saves_is_invalid_whatever_latest_says(
    pauses: tuple[float, float], expected: str, tmp_path: Path
) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5", data=3, parallel=1, stage=3)
    for file in path.iterdir():
        rank = int(file.name.partition("_pp_rank_")[2][0])
        age(file, layouts.LONG_AGO + sum(pauses[:rank]))
    (tmp_path / "latest").write_text(path.name)
    verdict, reason = verdict_on(path, "DeepSpeed")
    assert verdict == expected
    assert ("zero_pp_rank_1_mp_rank_00" in reason and "300 s older" in reason) == (expected == "Invalid")


def test_deepspeed_allows_for_a_rank_that_has_much_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = age(layouts.deepspeed(tmp_path / "global_step5", parallel=1))
    own = path / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"  # written after the model states, by rank 0 alone
    age(own, layouts.LONG_AGO + 100.0)
    assert verdict_on(path, "DeepSpeed")[0] == "Invalid"
    share = own.stat().st_size + (path / "mp_rank_00_model_states.pt").stat().st_size
    monkeypatch.setattr(families, "SLOWEST_WRITE", share / 41.0)
    assert verdict_on(path, "DeepSpeed")[0] == "Valid"


def test_lightning_with_deepspeed_is_held_to_deepspeeds_rule(tmp_path: Path) -> None:
    path = tmp_path / "epoch=0-step=9.ckpt"
    layouts.deepspeed(path / "checkpoint", data=2, parallel=1)
    finding = examine(str(path))
    assert finding is not None
    assert (finding.verdict, finding.format, finding.processes) == ("Valid", "Lightning", 2)
    (path / "checkpoint/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert verdict_on(path)[1].startswith("the optimizer states of rank 1/0 is missing")


def test_layers_of_a_pipeline_are_there_for_every_model_rank(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5", data=1, parallel=2)
    for layer in (1, 2, 4):  # one has no parameters
        for rank in range(2):
            layouts.torch_file(path / f"layer_{layer:02d}-model_{rank:02d}-model_states.pt")
    assert verdict_on(path) == ("Valid", "")
    (path / "layer_04-model_00-model_states.pt").unlink()
    assert verdict_on(path)[1].startswith("the layer 4 of rank 0 is missing")


def test_where_no_count_is_known_a_young_save_may_still_go_on(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5", known=False)
    verdict, reason = verdict_on(path)
    assert verdict == "Unknown"
    assert reason.startswith("may still be written: its newest file is 0 s old")
    age(path, time.time() - 11)
    assert verdict_on(path) == ("Valid", "")


def test_a_pointer_written_before_the_other_ranks_were_done_is_no_fault(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5")
    age(layouts.written(tmp_path / "latest", "global_step5"))
    age(path, layouts.LONG_AGO + 40.0)
    assert verdict_on(path) == ("Valid", "")


def test_megatron_is_committed_by_metadata_json_and_not_by_metadata(tmp_path: Path) -> None:
    path = layouts.megatron(tmp_path / "iter_0000100")
    (path / "metadata.json").unlink()
    assert verdict_on(path) == ("Invalid", "no metadata.json: it was never committed")


def test_megatron_counts_the_model_ranks_that_its_arguments_name(tmp_path: Path) -> None:
    path = age(layouts.megatron_by_rank(tmp_path / "iter_0000100", 2, 2))
    shutil.rmtree(path / "mp_rank_00_001")
    shutil.rmtree(path / "mp_rank_01_001")
    assert verdict_on(path)[1].startswith("the model_optim_rng.pt of rank 0/1 is missing (2 of 2x2 are there")


def test_trainer_state_of_another_step_is_invalid(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100", step=90)
    assert verdict_on(path) == ("Invalid", "trainer_state.json says step 90")


def test_a_vanished_shard_of_the_index_is_named(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100")
    (path / "model-00002-of-00002.safetensors").unlink()
    assert verdict_on(path) == ("Invalid", "model-00002-of-00002.safetensors is missing")


def test_hugging_face_with_deepspeed_needs_both_rules(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100")
    (path / "optimizer.pt").unlink()
    layouts.deepspeed(path / "global_step100")
    finding = examine(str(age(path)))
    assert finding is not None
    assert (finding.verdict, finding.format, finding.processes) == ("Valid", "HuggingFace", 4)
    (path / "global_step100/bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt").unlink()
    assert "optimizer states of rank 1/1 is missing" in verdict_on(path)[1]


@pytest.mark.parametrize(
    ("names", "recognised"),
    [
        ((), True),
        (("config.json",), True),
        (("config.json", "generation_config.json"), True),
        (("config.json", "generation_config.json", ".tmp4nfkX0"), True),  # safetensors, in the middle of a file
        (("config.json", "mine.bin"), False),
    ],
)
def test_a_save_of_the_trainer_is_recognised_from_its_first_file_on(
    names: tuple[str, ...], recognised: bool, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint-100"
    path.mkdir()
    for name in names:
        (path / name).write_bytes(b"{}")
    finding = examine(str(path))
    assert (finding.format if finding else None) == ("HuggingFace" if recognised else None)


def test_model_only_checkpoints_of_the_trainer_have_no_training_state(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (path / name).unlink()
    assert verdict_on(path) == ("Valid", "")


def test_fully_sharded_training_has_its_optimizer_in_one_file_or_in_a_directory(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100")
    (path / "optimizer.pt").rename(path / "optimizer.bin")
    assert verdict_on(path) == ("Valid", "")
    (path / "optimizer.bin").unlink()
    layouts.dcp(path / "optimizer_0")
    age(path)
    assert verdict_on(path) == ("Valid", "")
    (path / "optimizer_0/__1_0.distcp").unlink()
    assert verdict_on(path) == ("Invalid", "optimizer_0/__1_0.distcp is missing")


def test_nemos_marker_beside_it_speaks_against_it(tmp_path: Path) -> None:
    path = age(layouts.nemo(tmp_path / "gpt-step=100"))
    (tmp_path / "gpt-step=100-unfinished").touch()
    assert verdict_on(path)[1] == "gpt-step=100-unfinished is beside it: a save or a removal did not end"


@pytest.mark.parametrize("name", ["100.orbax-checkpoint-tmp", "100.orbax-checkpoint-tmp-1699"])
def test_orbaxs_temporary_name_speaks_against_it(tmp_path: Path, name: str) -> None:
    layouts.orbax(tmp_path / "u1/a1" / name)
    (row,) = scan_tier("shared", str(tmp_path), "u1")
    assert (row["step"], row["verdict"], row["format"]) == (100, "Invalid", "Orbax")


def test_orbax_is_committed_by_its_time_or_by_its_file(tmp_path: Path) -> None:
    path = layouts.orbax(tmp_path / "100", committed=False)
    assert verdict_on(path)[1].startswith("it was never committed: _CHECKPOINT_METADATA has no time of commit")
    (path / "commit_success.txt").touch()
    assert verdict_on(path) == ("Valid", "")
    shutil.rmtree(path / "default")
    assert verdict_on(path) == ("Invalid", "default/ is missing")


def test_orbax_arrays_stored_one_by_one_are_looked_for(tmp_path: Path) -> None:
    path = layouts.orbax(tmp_path / "100")
    shutil.rmtree(path / "default")
    leaf = {"key_metadata": [{"key": "model"}, {"key": "w"}], "value_metadata": {"skip_deserialize": False}}
    layouts.written(path / "default/_METADATA", json.dumps({"tree_metadata": {"x": leaf}, "use_ocdbt": False}))
    layouts.written(path / "default/model.w/.zarray", "{}")
    layouts.written(path / "default/model.w/0", b"\5" * 9)
    age(path)
    assert verdict_on(path) == ("Valid", "")
    (path / "default/model.w/.zarray").unlink()
    assert verdict_on(path) == ("Invalid", "default/model.w is missing")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("epoch=1-step=200-val_loss=0.12.ckpt", 200),
        ("epoch=1-step=200-v3.ckpt", 200),
        ("step=200-last.ckpt", 200),
        ("model-7.ckpt", 120),  # the step inside counts, whatever the number is
        ("val_loss=0.12.ckpt", 120),
    ],
)
def test_a_number_in_a_name_is_not_always_the_step(tmp_path: Path, name: str, step: int) -> None:
    layouts.lightning(tmp_path / "u1/a1" / name, 120)
    for form in ("Auto", "Lightning"):
        assert [row["step"] for row in scan_tier("shared", str(tmp_path), "u1", form=form)] == [step]


def test_the_step_of_last_ckpt_is_read_from_inside(tmp_path: Path) -> None:
    layouts.lightning(tmp_path / "u1/a1/last.ckpt", 120)
    layouts.lightning_sharded(tmp_path / "u1/a2/last.ckpt", 70_000)
    layouts.lightning(tmp_path / "u1/a2/hpc_ckpt_3.ckpt", 90)
    (tmp_path / "u1/a2/last-v1.ckpt").symlink_to("hpc_ckpt_3.ckpt")  # links are not followed
    rows = scan_tier("shared", str(tmp_path), "u1", form="Lightning")
    assert [(row["step"], row["verdict"]) for row in rows] == [(70_000, "Valid"), (120, "Valid"), (90, "Valid")]


def test_an_archive_too_large_for_the_old_end_record_is_whole_too(tmp_path: Path) -> None:
    path = layouts.lightning(tmp_path / "large.ckpt", 1)
    data = path.read_bytes()
    end = len(data) - 22
    length, offset = struct.unpack("<II", data[end + 12 : end + 20])
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 2, 2, length, offset)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1)
    old = data[end : end + 8] + b"\xff" * 12 + b"\0\0"
    path.write_bytes(data[:end] + record + locator + old)
    assert verdict_on(path) == verify_checkpoint(str(path)) == ("Valid", "")
    path.write_bytes(data[: end - 9] + record + locator + old)
    assert verdict_on(path) == ("Invalid", "large.ckpt is damaged: its end record leads nowhere")


@pytest.mark.parametrize("name", ["checkpoint-100", "global_step100", "iter_0000100", "100", "step_100"])
@pytest.mark.parametrize(("form", "make"), [("TorchDCP", layouts.dcp), ("Orbax", layouts.orbax)])
def test_files_tell_more_than_names(tmp_path: Path, name: str, form: str, make: Callable[[Path], Path]) -> None:
    make(tmp_path / name)
    finding = examine(str(tmp_path / name))
    assert finding is not None
    assert (finding.verdict, finding.format) == ("Valid", form)


@pytest.mark.parametrize("left", [[], ["config.json"], ["model-00001-of-00002.safetensors"], ["optimizer.pt"]])
def test_what_the_trainer_began_is_called_by_its_name(tmp_path: Path, left: list[str]) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100")
    for file in path.iterdir():
        if file.name not in left:
            file.unlink()
    finding = examine(str(path))
    assert finding is not None
    assert (finding.format, finding.reason) == ("HuggingFace", "no trainer_state.json: it was never committed")


def test_torchs_old_format_cannot_be_told_cut_off(tmp_path: Path) -> None:
    layouts.written(tmp_path / "old.ckpt", b"\x80\x02}q\x00.and bytes")
    assert verdict_on(tmp_path / "old.ckpt") == ("Valid", "")
    layouts.written(tmp_path / "garbage.ckpt", b"\0" * 400)
    assert verdict_on(tmp_path / "garbage.ckpt")[1] == "garbage.ckpt was not written by torch.save, or is cut off"


def test_directories_that_are_no_checkpoints_are_not_mentioned(tmp_path: Path) -> None:
    for name in ("runs-5", "logs", "tmp-checkpoint-4", "checkpoint-3.lockstep-invalid-2", "wandb-run-9"):
        layouts.written(tmp_path / "u1/a1" / name / "events", b"1")
    assert scan_tier("shared", str(tmp_path), "u1") == []
    assert scan_tier("shared", str(tmp_path), "u1", form="HuggingFace") == []


# Local checkpoints with copies of other ranks' shards


def test_local_files_say_whose_shards_the_node_holds(tmp_path: Path) -> None:
    # Two processes a node; this is node 1, and it keeps copies of node 0's.
    layouts.nvrx(tmp_path / "u1/a3/session", 100, {2: (2, 0), 3: (3, 1)})
    layouts.nvrx(tmp_path / "u1/a3/session", 50, {2: (2,), 3: (3, 1)})
    newer, older = scan_tier("local", str(tmp_path), "u1")
    assert newer["path"] == str(tmp_path / "u1/a3/session/iter_0000100")
    assert (newer["verdict"], newer["format"], newer["owners"]) == ("Valid", "NVRxLocal", [0, 1])
    assert (older["step"], older["owners"]) == (50, [1])  # half of node 0 is nothing
    assert verify_checkpoint(newer["path"]) == ("Valid", "")


def test_a_copy_stands_in_for_a_dirty_local_file_but_not_for_one_cut_off(tmp_path: Path) -> None:
    root = tmp_path / "u1/a3"
    layouts.nvrx(root, 100, {0: (0, 1), 1: (1, 0)})
    (root / "1/iter_0000100_1_local.pt").rename(root / "1/iter_0000100_1_local.dirty.pt")
    (row,) = scan_tier("local", str(tmp_path), "u1")
    assert (row["verdict"], row["owners"]) == ("Valid", [0])
    copy = root / "0/iter_0000100_1_local.pt"
    whole = copy.read_bytes()
    copy.write_bytes(whole[:50])  # the loader goes by names
    (row,) = scan_tier("local", str(tmp_path), "u1")
    assert row["reason"] == "0/iter_0000100_1_local.pt is cut off: it has no end record"
    copy.rename(root / "0/iter_0000100_1_local.dirty.pt")
    (row,) = scan_tier("local", str(tmp_path), "u1")
    assert (row["verdict"], row["owners"]) == ("Invalid", [])
    assert commit_mark(row["path"]) is not None
    assert row["reason"] == "0/iter_0000100_1_local.dirty.pt was never committed"
