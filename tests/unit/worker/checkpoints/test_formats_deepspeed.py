"""What only DeepSpeed has, also within Lightning and the Trainer: ranks that are counted, and files of two saves."""

import shutil
import time
from pathlib import Path

import pytest

from lockstep.worker.checkpoints.formats import examine, families
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age
from support.verdicts import verdict_on


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


def test_hugging_face_with_deepspeed_needs_both_rules(tmp_path: Path) -> None:
    path = layouts.hugging_face(tmp_path / "checkpoint-100")
    (path / "optimizer.pt").unlink()
    layouts.deepspeed(path / "global_step100")
    finding = examine(str(age(path)))
    assert finding is not None
    assert (finding.verdict, finding.format, finding.processes) == ("Valid", "HuggingFace", 4)
    (path / "global_step100/bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt").unlink()
    assert "optimizer states of rank 1/1 is missing" in verdict_on(path)[1]
