"""What may be a save and no format recognises is told; noise is not, nor what a known format began."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.worker.checkpoints.inventory import CommitWatch
from lockstep.worker.checkpoints.tiers import scan_tier
from lockstep.worker.checkpoints.unrecognised import left_behind
from lockstep.worker.settings import Tier
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import safetensors_file, torch_file, written
from support.unrecognised_saves import MIB, UID, attempt_of, launch, names, settings

NOISE = [
    "train.log",
    "events.out.tfevents.1732400000.host.1.0",
    "config.json",
    "step_30.json",
    "empty.pt",
    "training_args.bin",
    "tokenizer.pkl",
    "tb/events.out.tfevents.1",
    ".cache/model.safetensors",
    "hf_cache/hub/models--gpt2/model.safetensors",
    "hub/models--gpt2/snapshots/1/model.safetensors",
    "wandb/run-1/files/media.pt",
    "tmp-checkpoint-30/model.safetensors",
    "__pycache__/train.cpython-311.pyc",
    ".nfs0001.pt",
    "step-20.lockstep-invalid-2/model.pt",
    "profile/trace.json",
    "core.1234",
    "tmp_ckpt.pt",
    "ckpt_10.tmp.pt",
    "memory_snapshot_0.pkl",
    "cached_features_train.pt",
    "slurm-12.out",
    "train.log.3",
    "trace.json.gz",
    "events.tfevents.17",
    "plugins/profile/2026_11_26/host.xplane.pb",
    "profile/rank0",
    "core",
    "core.python.1234",
    "nccl_trace_rank_0",
    "samples/grid.png",
    "report.nsys-rep",
    "jit_cache/step-cache",
    "inductor/kernel.so",
    "metrics.csv",
    "tokenizer.model",
    "shards/data.arrow",
    "stdout",
    "comm_traces/iteration_10/rank_0",
    "xla/module_0.jit_step.hlo.pb",
    "train.bin",
    "train.npy",
    "val.zip",
    "meta.pkl",
    *(SMALL := ("small.npy", "train.pt", "config.pt", "meta.safetensors")),
]
SAVES = {
    "ckpt_30.pt": "ckpt_30.pt",
    "ckpt.pt": "ckpt.pt",
    "checkpoint.pth.tar": "checkpoint.pth.tar",
    "checkpoint_30": "checkpoint_30",
    "state.npz": "state.npz",
    "last/weights.bin": "last",
    "lightning_logs/version_0/checkpoints/model.pth": "lightning_logs",
    "traced_model.pt": "traced_model.pt",
    "train.pth.tar": "train.pth.tar",
    "val.best.pt": "val.best.pt",
    "train.epoch=3.ckpt": "train.epoch=3.ckpt",
}
# Larger than what says something of a program, and of no suffix that is known.
LARGE = {
    "state.npy": "state.npy",
    "last/params.eqx": "last",
    "final.nemo": "final.nemo",
    "weights": "weights",
    "model.tar": "model.tar",
    "state.pickle": "state.pickle",
    "partial_fc.joblib": "partial_fc.joblib",
    "a/b/c/d/e/f/state.params": "a",
    "30/c/0/0": "30",
    "train.pt": "train.pt",
    "test.ckpt": "test.ckpt",
    "last/config.pth": "last",
    "meta.safetensors": "meta.safetensors",
    "core.pt": "core.pt",
    "train.h5": "train.h5",
    "step_30/state.npy": "step_30",
}


@pytest.mark.parametrize("name", SAVES)
def test_what_may_be_a_save_of_an_earlier_attempt_is_told_with_its_name(tmp_path: Path, name: str) -> None:
    torch_file(attempt_of(tmp_path) / name)
    (row,) = left_behind(settings(tmp_path), 0)
    assert row == {
        "tier": "shared", "attempt": 1, "path": str(attempt_of(tmp_path) / SAVES[name]),
        "reason": "no format that Lockstep knows",
    }  # fmt: skip
    (same,) = CommitWatch(settings(tmp_path), launch()).poll(over=True).unrecognised
    assert same == row, "and while the attempt runs"


@pytest.mark.parametrize("name", LARGE)
def test_in_an_attempts_own_directory_whatever_is_large_may_be_a_save(tmp_path: Path, name: str) -> None:
    written(attempt_of(tmp_path) / name, b"x" * MIB)
    (row,) = left_behind(settings(tmp_path), 0)
    assert row["path"] == str(attempt_of(tmp_path) / LARGE[name])
    (same,) = CommitWatch(settings(tmp_path), launch()).poll(over=True).unrecognised
    assert same == row, "and while the attempt runs"


def test_chunks_are_large_by_their_sum(tmp_path: Path) -> None:
    for number in range(3):
        written(attempt_of(tmp_path) / "state" / "c" / str(number), b"x" * (MIB // 4))
    assert left_behind(settings(tmp_path), 0) == []
    written(attempt_of(tmp_path) / "state" / "c" / "3", b"x" * (MIB // 4))
    assert names(left_behind(settings(tmp_path), 0)) == ["state"]


@pytest.mark.parametrize("name", ["step-{}/state.npy", "step-{}/c/0/0"])
def test_a_directory_with_a_step_of_whatever_is_large_is_a_save_that_was_begun(tmp_path: Path, name: str) -> None:
    watch = CommitWatch(settings(tmp_path), launch())
    for step in (10, 20):
        written(attempt_of(tmp_path) / name.format(step), b"x" * MIB)
    assert [row["format"] for row in scan_tier("shared", str(tmp_path / "ns/one"), UID)] == ["Manifest", "Manifest"]
    (row,) = watch.poll().unrecognised
    assert row["reason"] == "no manifest.json: it was never committed"


@pytest.mark.parametrize("name", NOISE)
def test_logs_descriptions_caches_and_empty_files_are_no_saves(tmp_path: Path, name: str) -> None:
    size = 0 if name.startswith("empty") else 4096 if name in SMALL else 2 * MIB
    written(attempt_of(tmp_path) / name, b"x" * size)
    assert left_behind(settings(tmp_path), 0) == []
    assert CommitWatch(settings(tmp_path), launch()).poll(over=True).unrecognised == []


@pytest.mark.parametrize("form", ["Auto", "TorchDCP", "Manifest"])
@pytest.mark.parametrize(
    "files", [("profile_10/trace.json", "profile_20/trace.json"), ("rank-0/log.txt", "rank-1/log.txt"), ("100/a.png",)]
)
def test_numbered_directories_without_tensors_are_no_begun_saves(
    tmp_path: Path, files: tuple[str, ...], form: str
) -> None:
    for name in files:
        written(attempt_of(tmp_path) / name, b"x" * 9000)
    found = scan_tier("shared", str(tmp_path / "ns/one"), UID, form=form)
    assert {row["format"] for row in found} <= {""}
    given = settings(tmp_path, checkpoint_format=form)
    assert left_behind(given, 0) == []
    assert CommitWatch(given, launch()).poll(over=True).unrecognised == []


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("Manifest", "step_300/rank0.pt"),
        ("Manifest", "ckpt_300/rank0.pt"),
        ("Accelerate", "step-10/model.safetensors"),
        ("Torch:ckpt.pt", "ckpt.pt"),
        ("Torch:ckpt_{step}.pt", "ckpt_10.pt"),
    ],
)
def test_the_first_save_of_the_format_that_was_named_is_none_while_it_is_written(
    tmp_path: Path, form: str, name: str
) -> None:
    written(attempt_of(tmp_path) / name, b"half of it" * 900)
    given = settings(tmp_path, checkpoint_format=form)
    assert left_behind(given, 0) == []
    assert CommitWatch(given, launch()).poll(over=True).unrecognised == []


def test_what_an_inventory_has_is_not_told_again_and_with_another_format_named_it_is(tmp_path: Path) -> None:
    layouts.dcp(attempt_of(tmp_path) / "step-30")
    written(attempt_of(tmp_path) / "step-20" / "rank-0.pt", b"torn")
    assert left_behind(settings(tmp_path), 0) == []
    # Of Orbax and DeepSpeed step-20 may be a name of their own, of one that is being written.
    for form, told in (("HuggingFace", ["step-20", "step-30"]), ("Orbax", ["step-30"]), ("DeepSpeed", ["step-30"])):
        rows = left_behind(settings(tmp_path, checkpoint_format=form), 0)
        assert sorted(names(rows)) == told, form


TORN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "dcp": ("step-30", layouts.dcp, ".metadata"),
    "megatron": ("iter_0000030", layouts.megatron, "metadata.json"),
    "megatron-by-rank": ("iter_0000030", layouts.megatron_by_rank, "mp_rank_01_001/model_optim_rng.pt"),
    "deepspeed": ("global_step30", layouts.deepspeed, "mp_rank_00_model_states.pt"),
    "hugging-face": ("checkpoint-30", layouts.hugging_face, "trainer_state.json"),
    "lightning": ("epoch=0-step=30.ckpt", lambda path: written(path, b"PK\x03\x04"), ""),
    "lightning-sharded": ("epoch=0-step=30.ckpt", lambda path: layouts.lightning_sharded(path, 30), "meta.pt"),
    "nemo": ("gpt-step=30", layouts.nemo, "weights/metadata.json"),
    "orbax": ("30.orbax-checkpoint-tmp-17", layouts.orbax, ""),
    "accelerate": ("step_30", layouts.accelerate, "random_states_0.pkl"),
    "accelerate-fsdp": ("step_30", lambda path: layouts.dcp(path / "pytorch_model_fsdp_0"), ""),
    "diffusers": ("checkpoint-30", lambda path: safetensors_file(path / "unet" / "model.safetensors"), ""),
    "manifest": ("step-30", lambda path: torch_file(path / "rank-0.pt"), ""),
}


@pytest.mark.parametrize("case", TORN)
def test_a_save_of_a_known_format_that_was_cut_off_is_recognised_as_one(tmp_path: Path, case: str) -> None:
    name, make, lacks = TORN[case]
    make(attempt_of(tmp_path) / name)
    if lacks:
        (attempt_of(tmp_path) / name / lacks).unlink()
    assert left_behind(settings(tmp_path), 0) == []
    assert list(CommitWatch(settings(tmp_path), launch()).poll(over=True).unrecognised) == []


def test_a_directory_called_by_a_number_alone_is_told_where_no_format_knows_what_it_holds(tmp_path: Path) -> None:
    safetensors_file(attempt_of(tmp_path) / "30" / "unet.safetensors")
    assert names(left_behind(settings(tmp_path), 0)) == ["30"]


def test_local_managers_files_are_recognised_in_the_local_tier(tmp_path: Path) -> None:
    root = tmp_path / "ns/one"
    layouts.nvrx(root / UID / "a1", 30, {0: (0,)})
    one = settings(tmp_path, tiers={"local": Tier("local", str(root), 1.0)})
    assert left_behind(one, 0) == []
