"""What only DeepSpeed has, also within Lightning and the Trainer: ranks that are counted, and files of two saves."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.worker.checkpoints.formats import examine, families
from lockstep.worker.checkpoints.formats.containers import pickled_facts
from lockstep.worker.checkpoints.formats.examination import commit_mark
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
    verdict, reason = verdict_on(path)
    assert (verdict, reason.partition(":")[0]) == ("Unknown", "may still be written")  # of how many, nothing says
    assert verdict_on(age(path)) == ("Valid", "")


def experts(path: Path, *, zero: bool, counts: tuple[int, ...] = (2, 3), divided: int = 0) -> Path:
    """Two MoE layers on two data ranks, each of which has some of the experts."""
    layouts.deepspeed(path, data=2, parallel=1, stage=2)
    state = {"dp_world_size": 2, "mp_world_size": 1, "num_experts": list(counts)}
    state |= {"optimizer": None} if zero else {}
    layouts.torch_file(path / "mp_rank_00_model_states.pt", state)
    for layer, count in enumerate(counts):
        for expert in range(count):
            layouts.torch_file(path / f"layer_{layer}_expert_{expert}_mp_rank_00_model_states.pt")
    if not zero:
        for rank in range(2):
            (path / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").unlink()
            group = {"name": f"ep_size_{divided}" if divided else "of my own"}
            layouts.torch_file(path / f"expp_rank_{rank}_mp_rank_00_optim_states.pt", {"param_groups": [group]})
    return age(path)


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("counts", [(2, 3), (2,)])
def test_all_experts_that_the_model_states_count_have_a_file(
    zero: bool, counts: tuple[int, ...], tmp_path: Path
) -> None:
    path = experts(tmp_path / "global_step5", zero=zero, counts=counts)
    assert verdict_on(path) == ("Valid", "")
    last = path / f"layer_{len(counts) - 1}_expert_{counts[-1] - 1}_mp_rank_00_model_states.pt"
    last.unlink()
    verdict, reason = verdict_on(path)
    assert verdict == "Invalid"
    assert f"the experts of layer {len(counts) - 1} of rank {counts[-1] - 1} is missing" in reason


def test_a_number_of_experts_in_the_programs_own_arguments_asks_for_no_expert(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5", data=2, parallel=1)
    state = {"optimizer": None, "dp_world_size": 2, "mp_world_size": 1, "args": {"num_experts": [1]}}
    layouts.torch_file(path / "mp_rank_00_model_states.pt", state)
    assert verdict_on(path) == ("Valid", "")


def test_optimizer_states_of_experts_have_no_gap(tmp_path: Path) -> None:
    path = experts(tmp_path / "global_step5", zero=False)
    (path / "expp_rank_0_mp_rank_00_optim_states.pt").unlink()
    assert "the experts' optimizer states of rank 0/0 is missing" in verdict_on(path)[1]
    (path / "expp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert verdict_on(path)[1] == "there is no experts' optimizer states"


@pytest.mark.parametrize(("divided", "verdict"), [(2, "Invalid"), (0, "Valid"), (512, "Valid")])
def test_optimizer_states_of_experts_say_among_how_many_ranks_these_are_divided(
    divided: int, verdict: str, tmp_path: Path
) -> None:
    path = experts(tmp_path / "global_step5", zero=False, divided=divided)
    assert verdict_on(path) == ("Valid", "")
    (path / "expp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert verdict_on(path)[0] == verdict  # there are no more than two data ranks


@pytest.mark.parametrize("number", [-1, -(2**31)])
def test_a_number_of_ranks_below_none_says_nothing(number: int, tmp_path: Path) -> None:
    path = layouts.torch_file(tmp_path / "x.pt", {"dp_world_size": number, "mp_world_size": 2**31 - 1})
    assert pickled_facts(str(path), "dp_world_size", "mp_world_size") == {"mp_world_size": 2**31 - 1}


def offloaded(path: Path, ranks: int = 2) -> Path:
    """ZeRO-Infinity: what lay on the nodes' NVMe, copied after each rank's states, with the times that it had there."""
    layouts.deepspeed(path, data=2, parallel=1, stage=3)
    for rank in range(ranks):
        for name in ("0_9", "exp_avg-0_9", "exp_avg_sq-0_9"):
            layouts.written(path / f"offloaded_tensors/rank{rank:02d}/{name}.tensor.swp", b"x" * 1000)
    return age(path)


def test_tensors_from_nvme_may_still_be_copied_whatever_their_times(tmp_path: Path) -> None:
    verdict, reason = verdict_on(offloaded(tmp_path / "global_step5"))
    assert (verdict, reason.partition(":")[0]) == ("Unknown", "may still be written")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda path: shutil.rmtree(path / "offloaded_tensors/rank01"), "the offloaded tensors of rank 1 is missing"),
        (lambda path: (path / "offloaded_tensors/rank01/0_9.tensor.swp").unlink(), "rank01/0_9.tensor.swp is missing"),
        (
            lambda path: (path / "offloaded_tensors/rank01/0_9.tensor.swp").write_bytes(b"x" * 500),
            "rank01/0_9.tensor.swp has 500 bytes, other",
        ),
        (
            lambda path: [file.write_bytes(b"") for file in path.rglob("0_9.tensor.swp")],
            "offloaded_tensors/rank00/0_9.tensor.swp is empty",
        ),
        (lambda path: None, ""),
    ],
)
def test_tensors_from_nvme_are_there_for_every_rank(
    broken: Callable[[Path], object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "SETTLE_SECONDS", 0.0)
    path = offloaded(tmp_path / "global_step5")
    broken(path)
    verdict, reason = verdict_on(path)
    assert (verdict, words in reason) == ("Invalid" if words else "Valid", True)


@pytest.mark.parametrize("inside", ["", "checkpoint"])  # the latter is Lightning's
def test_a_save_is_another_one_as_long_as_tensors_from_nvme_are_copied(inside: str, tmp_path: Path) -> None:
    path = tmp_path / "epoch=0-step=9.ckpt"
    file = offloaded(path / inside) / "offloaded_tensors/rank01/0_9.tensor.swp"
    before = commit_mark(str(path))
    age(layouts.written(file, b"x" * 2000))
    assert None is not before != commit_mark(str(path)) is not None


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


def test_layers_that_data_ranks_without_states_of_their_own_write_may_be_yet_to_come(tmp_path: Path) -> None:
    path = layouts.deepspeed(tmp_path / "global_step5", data=2, parallel=1, stage=0)
    for layer in (0, 3):
        layouts.torch_file(path / f"layer_{layer:02d}-model_00-model_states.pt")
    assert verdict_on(path)[0] == "Unknown"
    assert verdict_on(age(path)) == ("Valid", "")  # those between may have no parameters


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
