"""What only Hugging Face's Trainer has: its state, an index of shards, and what it writes first."""

from pathlib import Path

import pytest

from lockstep.worker.checkpoints.formats import examine
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age
from support.verdicts import verdict_on


def test_trainer_state_of_another_step_is_invalid(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100", step=90)
    assert verdict_on(path) == ("Invalid", "trainer_state.json says step 90")


def test_a_vanished_shard_of_the_index_is_named(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100")
    (path / "model-00002-of-00002.safetensors").unlink()
    assert verdict_on(path) == ("Invalid", "model-00002-of-00002.safetensors is missing")


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


@pytest.mark.parametrize("left", [[], ["config.json"], ["model-00001-of-00002.safetensors"], ["optimizer.pt"]])
def test_what_the_trainer_began_is_called_by_its_name(tmp_path: Path, left: list[str]) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100")
    for file in path.iterdir():
        if file.name not in left:
            file.unlink()
    finding = examine(str(path))
    assert finding is not None
    assert (finding.format, finding.reason) == ("HuggingFace", "no trainer_state.json: it was never committed")
