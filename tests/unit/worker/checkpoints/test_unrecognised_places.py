"""Where saves that no format recognises are looked for, and whose they are."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lockstep.worker.checkpoints.inventory import CommitWatch
from lockstep.worker.checkpoints.unrecognised import being_saved, left_behind
from lockstep.worker.settings import Tier, places_of
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age, torch_file, written
from support.unrecognised_saves import MIB, OTHER_UID, UID, attempt_of, launch, names, settings


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


def test_links_are_not_followed(tmp_path: Path) -> None:
    torch_file(tmp_path / "elsewhere" / "ckpt.pt")
    attempt_of(tmp_path).mkdir(parents=True)
    (attempt_of(tmp_path) / "data").symlink_to(tmp_path / "elsewhere")
    (attempt_of(tmp_path) / "loop").symlink_to(attempt_of(tmp_path))
    assert left_behind(settings(tmp_path), 0) == []
