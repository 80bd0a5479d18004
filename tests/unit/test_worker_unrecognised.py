"""What may be a save and no format recognises is told: of earlier attempts, and of the one that runs; noise is not."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.controller.workers.protocol import decode_report
from lockstep.worker.agent import Worker
from lockstep.worker.checkpoints.inventory import CommitWatch
from lockstep.worker.checkpoints.tiers import scan_tier
from lockstep.worker.checkpoints.unrecognised import (
    LOOK_SECONDS,
    LOOKED_AT,
    LOOKS,
    MOST,
    as_written,
    being_saved,
    left_behind,
)
from lockstep.worker.settings import Settings, Tier, places_of
from lockstep.worker.start import Launch
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age, safetensors_file, torch_file, written

UID = "6f7a1c9e-0000-4111-8222-333344445555"
OTHER_UID = "6f7a1c9e-0000-4111-8222-999944445555"
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
    "small.npy",
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
    "step_30/state.npy": "step_30",
}
MIB = 1 << 20


def settings(root: Path, **changed: object) -> Settings:
    base = Settings(
        operator_url="", namespace="ns", run="one", run_uid=UID, slot=0, incarnation=1, pod_uid="p", command=["true"],
        tiers={"shared": Tier("shared", str(root / "ns" / "one"), 2.0)},
    )  # fmt: skip
    return replace(base, **changed)  # type: ignore[arg-type]


def attempt_of(root: Path, attempt: int = 1) -> Path:
    return root / "ns/one" / UID / f"a{attempt}"


def launch(attempt: int = 1, rank: int = 0) -> Launch:
    return Launch(attempt, rank, 2, "10.1.0.1", 40123, "", "", [])


def names(rows: list[dict[str, object]]) -> list[str]:
    return [os.path.basename(str(row["path"])) for row in rows]


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
    large = 4096 if name.startswith("small") else 2 * MIB
    written(attempt_of(tmp_path) / name, b"" if name.startswith("empty") else b"x" * large)
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


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["train", "--out={mount}/out"], ["ckpt_1.pt"]),
        (["train", "--out", "{mount}/out"], ["ckpt_1.pt"]),
        (["train", "--data={mount}/out"], []),
        (["train", "--init-from", "{mount}/out"], []),
        (["train", "--model-dir", "{mount}/out"], ["ckpt_1.pt"]),
        (["train", "--output_model_path={mount}/out"], ["ckpt_1.pt"]),
        (["train", "--model", "{mount}/out"], []),
        (["train", "--out={mount}/"], []),
        (["train", "--out={mount}/ns/other/" + OTHER_UID + "/a1"], []),
    ],
)
def test_where_the_command_says_that_it_saves_is_looked_at_and_what_it_reads_is_not(
    tmp_path: Path, command: list[str], told: list[str]
) -> None:
    now = time.time()
    torch_file(tmp_path / "out" / "ckpt_1.pt")
    torch_file(tmp_path / "ns/other" / OTHER_UID / "a1" / "ckpt_2.pt")
    given = settings(tmp_path, command=[word.format(mount=tmp_path) for word in command])
    assert names(being_saved(given, 0, 1, now - 60)) == told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("OUTPUT_DIR", ["ckpt_1.pt"]),
        ("SM_MODEL_DIR", ["ckpt_1.pt"]),
        ("DATA_DIR", []),
        ("HF_HOME", []),
        ("HOME", []),
        ("LOCKSTEP_ELSEWHERE", []),
    ],
)
def test_where_the_environment_says_that_it_saves_is_looked_at(tmp_path: Path, name: str, told: list[str]) -> None:
    torch_file(tmp_path / "out" / "ckpt_1.pt")
    given = settings(tmp_path, places=places_of({name: f"{tmp_path}/out"}, {}))
    assert names(being_saved(given, 0, 1, time.time() - 60)) == told
    assert names(left_behind(given, 0)) == told, "the operator knows which of them the program wrote"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("srun python train.py --out={mount}/out", ["ckpt_1.pt"]),
        ("export OUT={mount}/$WHERE", ["ckpt_1.pt"]),
        ("cp -r ${{BASE}}/out x && python train.py", []),
        ("python train.py --data {mount}/out", []),
    ],
)
def test_where_a_batch_script_says_that_it_saves_is_looked_at(
    tmp_path: Path, line: str, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE", "out")
    torch_file(tmp_path / "out" / "ckpt_1.pt")
    given = settings(tmp_path, places=places_of({}, {"places": [line.format(mount=tmp_path)]}))
    assert names(being_saved(given, 0, 1, time.time() - 60)) == told


@pytest.mark.parametrize(("is_mounted", "told"), [(True, ["ckpt_1.pt"]), (False, [])])
def test_with_a_path_of_its_own_it_may_save_anywhere_on_its_claim_too(
    tmp_path: Path, is_mounted: bool, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_file(tmp_path / "out" / "ckpt_1.pt")
    given = settings(
        tmp_path, places=[f"OUT={tmp_path}/out"], tiers={"shared": Tier("shared", str(tmp_path / "our/own"), 2.0)}
    )
    monkeypatch.setattr("os.path.ismount", lambda path: path == "/" or (is_mounted and path == str(tmp_path)))
    assert names(being_saved(given, 0, 1, time.time() - 60)) == told


def test_elsewhere_than_in_an_attempts_directory_only_tensors_may_be_a_save(tmp_path: Path) -> None:
    written(tmp_path / "out" / "state.npy", b"x" * 2 * MIB)
    written(tmp_path / "ns/one" / UID / "state.npy", b"x" * 2 * MIB)
    given = settings(tmp_path, command=["train", f"--out={tmp_path}/out"])
    assert being_saved(given, 0, 1, time.time() - 60) == []


def test_a_spare_looks_too_as_it_may_become_the_rank_that_does(tmp_path: Path) -> None:
    torch_file(attempt_of(tmp_path) / "ckpt.pt")
    assert names(left_behind(settings(tmp_path), -1)) == ["ckpt.pt"]
    assert left_behind(settings(tmp_path), 1) == []


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


def test_what_lies_beside_the_attempts_is_of_no_attempt_and_other_runs_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "ns/one"
    torch_file(root / "mine" / "ckpt.pt")
    torch_file(root / UID / "ckpt.pt")
    torch_file(root / OTHER_UID / "a1" / "ckpt.pt")
    assert sorted((row["attempt"], row["path"]) for row in left_behind(settings(tmp_path), 0)) == [
        (0, str(root / UID / "ckpt.pt")),
        (0, str(root / "mine")),
    ]
    elsewhere = settings(tmp_path, tiers={"shared": Tier("shared", str(root), 2.0)}, run="two")
    assert [row["path"] for row in left_behind(elsewhere, 0)] == [str(root / UID / "ckpt.pt")], (
        "a path for several runs"
    )


def test_while_it_trains_only_what_was_written_since_counts_there_and_where_its_command_says(tmp_path: Path) -> None:
    out = tmp_path / "out"
    age(torch_file(out / "base.pt"))
    age(torch_file(tmp_path / "ns/one" / "base" / "model.pt"))
    one = settings(tmp_path, command=["sh", "-c", f"python train.py --out={out} --data {tmp_path}/data"])
    watch = CommitWatch(one, launch())
    assert watch.poll(over=True).unrecognised == []
    torch_file(out / "ckpt_10.pt")
    torch_file(tmp_path / "somebody-elses" / "ckpt.pt")
    assert watch.poll().unrecognised == [], "it may still be written"
    (row,) = watch.poll().unrecognised
    assert (row["attempt"], row["path"]) == (0, str(out / "ckpt_10.pt"))


def test_in_one_directory_for_all_attempts_what_was_there_before_does_not_count(tmp_path: Path) -> None:
    one = settings(tmp_path, fenced=True)
    root = tmp_path / "ns/one"
    age(torch_file(root / "base.pt"))
    watch = CommitWatch(one, launch())
    assert watch.poll(over=True).unrecognised == []
    torch_file(root / "ckpt.pt")
    assert names(watch.poll(over=True).unrecognised) == ["ckpt.pt"]
    assert {row["attempt"] for row in left_behind(one, 0)} == {0}


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize(("origin", "told"), [("base/llama/step-7", ["ckpt.pt"]), (f"ns/one/{UID}/a1/step-7", [])])
def test_an_attempt_that_began_from_what_others_saved_has_saved_nothing_yet(
    tmp_path: Path, origin: str, told: list[str], fenced: bool
) -> None:
    one = settings(tmp_path, fenced=fenced, start_root=str(tmp_path / "base" / "llama"))
    watch = CommitWatch(one, launch(2)._replace(resume_path=str(tmp_path / origin), resume_step="7"))
    torch_file((tmp_path / "ns/one" if fenced else attempt_of(tmp_path, 2)) / "ckpt.pt")
    assert names(watch.poll(over=True).unrecognised) == told


@pytest.mark.parametrize(("step", "told"), [(None, ["ckpt.pt"]), (7, ["ckpt.pt", "step-9"])])
def test_what_a_program_saves_where_it_was_to_start_from_is_known_unless_a_step_is_named(
    tmp_path: Path, step: int | None, told: list[str]
) -> None:
    out = tmp_path / "base" / "llama"
    age(layouts.dcp(out / "step-7"))
    one = settings(tmp_path, start_root=str(out), start_step=step, command=["train.py", f"--output_dir={out}"])
    watch = CommitWatch(one, launch()._replace(resume_path=str(out / "step-7"), resume_step="7"))
    layouts.dcp(out / "step-9")
    torch_file(out / "ckpt.pt")
    assert sorted(names(watch.poll(over=True).unrecognised)) == told


def test_saves_that_are_begun_and_left_so_are_told_but_the_last_may_still_be_under_way(tmp_path: Path) -> None:
    watch = CommitWatch(settings(tmp_path), launch())
    for step in (10, 20):
        safetensors_file(attempt_of(tmp_path) / f"step-{step}" / "model.safetensors")
        found = watch.poll().unrecognised
    (row,) = found
    assert row["path"].endswith("/step-10")
    assert row["reason"] == "no manifest.json: it was never committed"


def test_with_a_valid_save_of_the_attempt_nobody_looks_any_more(tmp_path: Path) -> None:
    watch = CommitWatch(settings(tmp_path), launch())
    torch_file(attempt_of(tmp_path) / "final.pt")
    assert names(watch.poll(over=True).unrecognised) == ["final.pt"]
    age(layouts.dcp(attempt_of(tmp_path) / "step-30"))
    assert len(watch.poll().rows) == 1
    assert list(watch.poll(over=True).unrecognised) == []


def test_one_rank_looks_at_the_shared_tier(tmp_path: Path) -> None:
    torch_file(attempt_of(tmp_path) / "ckpt.pt")
    assert left_behind(settings(tmp_path), 1) == []
    assert CommitWatch(settings(tmp_path), launch(rank=1)).poll(over=True).unrecognised == []


def test_however_much_lies_there_the_look_ends_and_the_newest_few_are_told(tmp_path: Path) -> None:
    directory = attempt_of(tmp_path)
    directory.mkdir(parents=True)
    for number in range(MOST + 4):
        age(torch_file(directory / f"w_{number:02}.pt"), 1.7e9 + number)
    for number in range(LOOKED_AT):
        (directory / f"log-{number}.txt").touch()
    began = time.monotonic()
    rows = left_behind(settings(tmp_path), 0)
    assert rows is None or 0 < len(rows) <= MOST
    assert time.monotonic() - began < 30.0


BLIND = {"stale": errno.ESTALE, "broken": errno.EIO, "denied": errno.EACCES}
NOTHING_THERE = {"gone": errno.ENOENT, "a file": errno.ENOTDIR}


def test_a_look_that_could_not_see_all_says_nothing_unless_what_it_saw_speaks_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_file(attempt_of(tmp_path, 1) / "ckpt.pt")
    torch_file(tmp_path / "ns/one/beside.pt")
    attempt_of(tmp_path, 2).mkdir()
    scandir = os.scandir

    def told(number: int, blind_to: Path) -> list[str] | None:
        def scan(path: str) -> object:
            if Path(path) == blind_to:
                raise OSError(number, os.strerror(number), path)
            return scandir(path)

        with monkeypatch.context() as patch:
            patch.setattr("lockstep.worker.checkpoints.unrecognised.os.scandir", scan)
            rows = left_behind(settings(tmp_path), 0)
        return None if rows is None else names(rows)

    for number in BLIND.values():
        assert told(number, attempt_of(tmp_path, 1)) is None, "what lies beside may be anybody's"
        assert told(number, tmp_path / "ns/one" / UID) is None
        assert told(number, attempt_of(tmp_path, 2)) == ["ckpt.pt", "beside.pt"]
    for number in NOTHING_THERE.values():
        assert told(number, attempt_of(tmp_path, 1)) == ["beside.pt"]
    monkeypatch.setattr("lockstep.worker.checkpoints.unrecognised.LOOKED_AT", 2)
    assert told(errno.EIO, tmp_path) is None, "it ended before it came to the save"


def test_a_look_while_it_trains_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        torch_file(attempt_of(tmp_path) / f"w_{number}.pt")
    ticks = iter(range(1000))
    monkeypatch.setattr("lockstep.worker.checkpoints.unrecognised.monotonic", lambda: LOOK_SECONDS * next(ticks) / 2)
    assert len(being_saved(settings(tmp_path), 0, 1, 0.0)) < 4
    assert len(left_behind(settings(tmp_path), 0)) == 4, "at the barrier what is not seen would be taken for gone"


def test_links_are_not_followed(tmp_path: Path) -> None:
    torch_file(tmp_path / "elsewhere" / "ckpt.pt")
    attempt_of(tmp_path).mkdir(parents=True)
    (attempt_of(tmp_path) / "data").symlink_to(tmp_path / "elsewhere")
    (attempt_of(tmp_path) / "loop").symlink_to(attempt_of(tmp_path))
    assert left_behind(settings(tmp_path), 0) == []


def test_the_operator_reads_them_bounded_and_a_worker_of_the_release_before_says_nothing() -> None:
    body = (
        b'{"protocol": 1, "runUid": "u", "slot": 0, "incarnation": 1, "podUid": "p", "phase": "Ready", "wall": 1.0,'
        b' "mono": 1.0%s}'
    )
    assert decode_report(body % b"").unrecognised is None
    row = b'{"tier": "shared", "path": "/a/\\u001b[31m%s", "attempt": 1, "reason": "no"}' % (b"x" * 4000)
    told = decode_report(body % (b', "unrecognised": [' + b", ".join([row] * 12) + b"]")).unrecognised
    assert told is not None
    assert len(told) == 8
    assert all(len(each.path) <= 512 and "\x1b" not in each.path for each in told)


def test_a_save_that_is_being_written_is_told_once_nobody_writes_to_it_or_the_program_has_ended(tmp_path: Path) -> None:
    directory = attempt_of(tmp_path) / "30"
    watch = CommitWatch(settings(tmp_path), launch())
    for number in range(3):
        age(safetensors_file(directory / f"part-{number}.safetensors"), 100 + number)
        assert list(watch.poll().unrecognised) == [], "it grows"
    assert names(watch.poll().unrecognised) == ["30"]
    safetensors_file(directory / "part-3.safetensors")
    assert list(watch.poll().unrecognised) == []
    assert names(watch.poll(over=True).unrecognised) == ["30"]


def test_a_save_of_a_known_format_that_begins_with_files_of_none_is_never_told(tmp_path: Path) -> None:
    directory = attempt_of(tmp_path) / "30"
    watch = CommitWatch(settings(tmp_path), launch())
    safetensors_file(directory / "unet.safetensors")
    assert list(watch.poll().unrecognised) == []
    layouts.dcp(directory)
    assert list(watch.poll().unrecognised) == []
    assert list(watch.poll().unrecognised) == []


def test_what_is_written_again_before_each_look_is_told_all_the_same(tmp_path: Path) -> None:
    watch = CommitWatch(settings(tmp_path), launch())
    told = []
    for number in range(LOOKS):
        age(torch_file(attempt_of(tmp_path) / "ckpt.pt"), 100 + number)
        told.append(names(watch.poll().unrecognised))
    assert told == [[]] * (LOOKS - 1) + [["ckpt.pt"]]


def test_at_the_barrier_it_is_known_of_what_the_last_attempt_was_seen_to_write(tmp_path: Path) -> None:
    out = tmp_path / "out"
    one = settings(tmp_path, command=["train.py", f"--out={out}"])
    age(torch_file(out / "base.pt"))
    age(torch_file(attempt_of(tmp_path) / "ckpt_10.pt"))
    watch = CommitWatch(one, launch(2))
    torch_file(out / "ckpt_20.pt")
    torch_file(out / "ckpt_30.pt")
    seen = watch.poll(over=True).unrecognised
    (out / "ckpt_30.pt").unlink()
    rows = as_written(left_behind(one, 0), seen, 2) or []
    told = {os.path.basename(row["path"]): row["attempt"] for row in rows}
    assert told == {"ckpt_10.pt": 1, "base.pt": 0, "ckpt_20.pt": 2}
    blind = as_written(None, seen, 2) or []
    assert {(os.path.basename(row["path"]), row["attempt"]) for row in blind} == {("ckpt_20.pt", 2), ("ckpt_30.pt", 2)}
    assert as_written(None, [], 2) is None


class Watched:
    """Of a program that has ended."""

    watching = True


@pytest.mark.parametrize(("ago", "left", "waits"), [(0.0, 20.0, True), (60.0, 20.0, False), (0.0, 0.0, False)])
def test_a_worker_whose_pod_goes_tells_of_the_last_save_first(
    tmp_path: Path, ago: float, left: float, waits: bool
) -> None:
    worker = Worker(settings(tmp_path, scratch=str(tmp_path)))
    now = time.monotonic()
    worker.phase, worker.exit = "Exited", {"code": 0, "signal": None, "reason": "StoppedOnRequest"}
    worker.terminating, worker.leave_at, worker.ended = True, now + left, now - ago
    worker.training = Watched()  # type: ignore[assignment]
    worker._leave_on_signal()
    assert (worker.leave_with is None) is waits
    worker.training.watching = False
    worker._leave_on_signal()
    assert worker.leave_with == 128 + signal.SIGTERM
