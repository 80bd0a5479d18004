"""What a framework's loader follows leads to the chosen step afterwards; nothing is deleted; twice is once."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.worker.checkpoints import pointers
from lockstep.worker.checkpoints.formats import examine
from lockstep.worker.checkpoints.pointers import PointerError, rewrite_pointers
from lockstep.worker.checkpoints.tiers import attempt_steps
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age

SAVES: dict[str, tuple[str, Callable[[Path], object]]] = {
    # format: (name of a step, how one is saved)
    "TorchDCP": ("step-{}", layouts.dcp),
    "Megatron": ("iter_{:07d}", layouts.megatron),
    "DeepSpeed": ("global_step{}", layouts.deepspeed),
    "HuggingFace": ("checkpoint-{}", layouts.hugging_face),
    "NeMo": ("gpt-step={}", layouts.nemo),
    "Orbax": ("{}", layouts.orbax),
}


def save(directory: Path, form: str, step: int) -> Path:
    name, make = SAVES[form]
    path = directory / name.format(step)
    make(path)
    return age(path)


def tear(path: Path) -> Path:
    """What a save that was cut off leaves."""
    for name in (".metadata", "metadata.json", "weights/metadata.json", "trainer_state.json", "_CHECKPOINT_METADATA"):
        (path / name).unlink(missing_ok=True)
    for half in [*path.glob("zero*"), *path.glob("bf16*")]:
        half.unlink()
    if (path / "default").exists():
        path.rename(path.with_name(path.name + ".orbax-checkpoint-tmp"))
    return path


def everything(directory: Path) -> set[bytes]:
    """The data of all files, wherever they are now."""
    return {path.read_bytes() for path in directory.rglob("*") if path.is_file() and not path.is_symlink()}


@pytest.mark.parametrize("form", SAVES)
@pytest.mark.parametrize("asked", ["own", "Auto"])
def test_a_torn_newer_step_is_out_of_the_way_and_nothing_is_lost(tmp_path: Path, form: str, asked: str) -> None:
    chosen = save(tmp_path, form, 100)
    save(tmp_path, form, 50)
    torn = tear(save(tmp_path, form, 200))
    (tmp_path / "latest").write_text(torn.name)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("")
    before = everything(tmp_path)
    how = form if asked == "own" else asked
    done = rewrite_pointers(str(tmp_path), how, 100, attempt=3)
    aside = f"{torn.name.replace('step-', 'step_')}.lockstep-invalid-3"
    assert any(line.endswith(aside) or "tmp.lockstep-invalid-3" in line for line in done)
    assert sorted(step for step, _, _ in attempt_steps(str(tmp_path), 0, form=form)) == [50, 100]
    assert {*before, b"global_step100", b"100"} >= everything(tmp_path) >= before - {b"", torn.name.encode()}
    finding = examine(str(chosen), form=form)
    assert finding is not None
    assert finding.verdict == "Valid"
    assert rewrite_pointers(str(tmp_path), how, 100, attempt=3) == []


def test_megatrons_tracker_names_the_step(tmp_path: Path) -> None:
    save(tmp_path, "Megatron", 100)
    newer = save(tmp_path, "Megatron", 200)
    assert rewrite_pointers(str(tmp_path), "Megatron", 100, 3) == ["latest_checkpointed_iteration.txt = 100"]
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "100"
    assert newer.exists()  # whole, and no loader looks at it


def test_deepspeeds_latest_names_the_tag(tmp_path: Path) -> None:
    save(tmp_path, "DeepSpeed", 100)
    assert rewrite_pointers(str(tmp_path), "DeepSpeed", 100, 3) == ["latest = global_step100"]
    assert (tmp_path / "latest").read_text() == "global_step100"


@pytest.mark.parametrize("form", ["HuggingFace", "Orbax", "TorchDCP"])
def test_where_the_loader_takes_the_highest_whole_ones_are_passed_over_too(tmp_path: Path, form: str) -> None:
    save(tmp_path, form, 100)
    newer = save(tmp_path, form, 200)
    rewrite_pointers(str(tmp_path), form, 100, 3)
    assert not newer.exists()
    (aside,) = tmp_path.glob("*.lockstep-passed-over-3")
    assert aside.name.startswith(newer.name.replace("step-", "step_"))
    assert not re.search(r"step-(\d+)", aside.name), "torchtitan would take it for a checkpoint"


def test_a_newer_step_that_cannot_be_judged_stays_and_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, "HuggingFace", 100)
    newer = save(tmp_path, "HuggingFace", 200)
    real = os.scandir

    def stale(path: str) -> object:
        if str(path).endswith("-200"):
            raise OSError(116, "Stale file handle", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", stale)
    with pytest.raises(PointerError, match="checkpoint-200 is newer and cannot be judged: Stale"):
        rewrite_pointers(str(tmp_path), "HuggingFace", 100, 3)
    assert newer.is_dir()


@pytest.mark.parametrize("form", SAVES)
def test_a_step_that_is_not_whole_is_never_pointed_at(tmp_path: Path, form: str) -> None:
    (tmp_path / "latest").write_text("before")
    with pytest.raises(PointerError, match="there is no checkpoint of step 100"):
        rewrite_pointers(str(tmp_path), form, 100, 3)
    tear(save(tmp_path, form, 100))
    with pytest.raises(PointerError):
        rewrite_pointers(str(tmp_path), form, 100, 3)
    assert (tmp_path / "latest").read_text() == "before"


def test_what_was_put_aside_before_is_not_overwritten(tmp_path: Path) -> None:
    save(tmp_path, "HuggingFace", 100)
    for _ in range(3):
        tear(save(tmp_path, "HuggingFace", 200))
        rewrite_pointers(str(tmp_path), "HuggingFace", 100, 3)
    aside = sorted(path.name for path in tmp_path.glob("checkpoint-200*"))
    assert aside == [f"checkpoint-200.lockstep-invalid-3{n}" for n in ("", "-2", "-3")]


@pytest.mark.parametrize("name", ["checkpoint-{}", "checkpoint_{}"])
def test_no_name_over_which_accelerate_or_diffusers_would_stumble_is_given_to_what_is_put_aside(
    tmp_path: Path, name: str
) -> None:
    for step in (100, 200, 300):
        layouts.accelerate(tmp_path / name.format(step))
    (tmp_path / name.format(300) / "random_states_0.pkl").unlink()
    assert len(rewrite_pointers(str(tmp_path), "Accelerate", 100, 3)) == 2
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 3
    # What their own searches do (load_state without a folder; --resume_from_checkpoint=latest).
    assert max(names, key=lambda each: int(re.findall("[0-9]+", each)[0])) == name.format(100)
    assert [each for each in names if each.startswith("checkpoint")] == [name.format(100)]


def test_no_name_that_torchtitan_would_load_is_given_to_what_is_put_aside_again(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "step-9").mkdir()
        pointers._put_aside(str(tmp_path / "step-9"), "invalid", 3)
    assert {path.name for path in tmp_path.iterdir()} == {"step_9.lockstep-invalid-3", "step_9.lockstep-invalid-3-2"}


def test_huggingface_with_deepspeed_has_a_pointer_inside(tmp_path: Path) -> None:
    path = save(tmp_path, "HuggingFace", 100)
    age(layouts.deepspeed(path / "global_step100"))
    (path / "latest").write_text("garb")
    assert rewrite_pointers(str(tmp_path), "HuggingFace", 100, 3) == ["latest = global_step100"]
    assert (path / "latest").read_text() == "global_step100"


def lightning(directory: Path, **steps: int) -> None:
    for name, step in steps.items():
        age(layouts.lightning(directory / f"{name.replace('_', '-')}.ckpt", step), layouts.LONG_AGO + step)


def test_lightnings_last_becomes_a_link_to_the_chosen(tmp_path: Path) -> None:
    age(layouts.lightning(tmp_path / "epoch=0-step=100.ckpt", 100))
    torn = age(layouts.lightning(tmp_path / "epoch=0-step=200.ckpt", 200))
    torn.write_bytes(torn.read_bytes()[:99])
    lightning(tmp_path, last=200)
    done = rewrite_pointers(str(tmp_path), "Lightning", 100, 3)
    assert "last.ckpt -> epoch=0-step=100.ckpt" in done
    assert os.readlink(tmp_path / "last.ckpt") == "epoch=0-step=100.ckpt"
    assert (tmp_path / "epoch=0-step=200.ckpt.lockstep-invalid-3").exists()
    assert (tmp_path / "last.ckpt.lockstep-passed-over-3").exists()
    assert rewrite_pointers(str(tmp_path), "Lightning", 100, 3) == []


def test_lightnings_last_that_is_the_chosen_stays_and_is_alone(tmp_path: Path) -> None:
    lightning(tmp_path, last=100, last_v1=90)
    (tmp_path / "last-v2.ckpt").symlink_to("last-v1.ckpt")
    rewrite_pointers(str(tmp_path), "Lightning", 100, 3)
    assert not (tmp_path / "last.ckpt").is_symlink()
    assert [path.name for path in tmp_path.glob("last*.ckpt")] == ["last.ckpt"]
    # The older one is still a checkpoint that can be resumed from.
    found = {step: Path(path).name for step, _, path in attempt_steps(str(tmp_path), 0, form="Lightning")}
    assert found == {100: "last.ckpt", 90: "kept-last-v1-step=90.ckpt"}


def test_nemos_last_is_the_chosen_alone(tmp_path: Path) -> None:
    age(layouts.nemo(tmp_path / "gpt-step=100"))
    age(layouts.nemo(tmp_path / "gpt-step=90-last"))
    tear(age(layouts.nemo(tmp_path / "gpt-step=200-last")))
    rewrite_pointers(str(tmp_path), "NeMo", 100, 3)
    assert [path.name for path in tmp_path.glob("*last")] == ["gpt-step=100-last"]
    assert os.readlink(tmp_path / "gpt-step=100-last") == "gpt-step=100"
    assert (tmp_path / "gpt-step=90").is_dir()
    assert rewrite_pointers(str(tmp_path), "NeMo", 100, 3) == []


class CutError(Exception):
    """The worker was killed here."""


@pytest.mark.parametrize("form", [*SAVES, "Lightning"])
def test_cut_off_anywhere_and_repeated_it_comes_to_the_same_end(tmp_path: Path, form: str) -> None:
    def prepare(directory: Path) -> Path:
        if form == "Lightning":
            directory.mkdir()
            age(layouts.lightning(directory / "epoch=0-step=100.ckpt", 100))
            lightning(directory, last=200, last_v1=50)
        else:
            save(directory, form, 100)
            tear(save(directory, form, 200))
            tear(save(directory, form, 300))
        return directory

    def names(directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())

    untouched = prepare(tmp_path / "at-once")
    rewrite_pointers(str(untouched), form, 100, 3)
    for cut in range(12):
        directory = prepare(tmp_path / f"cut-{cut}")
        left = cut

        def step(real: Callable[..., None]) -> Callable[..., None]:
            def counted(*arguments: object) -> None:
                nonlocal left
                if left == 0:
                    raise CutError
                left -= 1
                real(*arguments)

            return counted

        with pytest.MonkeyPatch.context() as patched:
            for name in ("rename", "replace", "symlink", "fsync"):
                patched.setattr(pointers.os, name, step(getattr(os, name)))
            try:
                rewrite_pointers(str(directory), form, 100, 3)
                survived = True
            except CutError:
                survived = False
        rewrite_pointers(str(directory), form, 100, 3)
        assert names(directory) == names(untouched)
        if survived:
            break
    else:
        raise AssertionError("there are more points to cut at")
