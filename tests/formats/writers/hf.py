"""HuggingFace Trainer: one process, weights in several safetensors files."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

import writers
from writers import only, stamp

FORM, WORLD, LIBRARIES = "HuggingFace", 1, ("transformers", "accelerate", "safetensors", "torch")


def shape() -> LlamaConfig:
    width = 8 * writers.size
    return LlamaConfig(
        vocab_size=16, hidden_size=width, intermediate_size=width, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2,
    )  # fmt: skip


class Loaded(Exception):  # noqa: N818 (nothing is wrong)
    """Ends training where it would begin: all that is to be loaded is."""

    def __init__(self, step: int, found: set[int]) -> None:
        super().__init__(f"step {step}")
        self.step, self.found = step, found


class Model(LlamaForCausalLM):
    def save_pretrained(self, *arguments: Any, **options: Any) -> None:
        super().save_pretrained(
            *arguments, **{**options, "max_shard_size": f"{writers.size**2}KB"}
        )  # several files of a tiny model


class Words(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.full((4,), index % 16)
        return {"input_ids": words, "labels": words}


class SaveAt(TrainerCallback):
    def __init__(self, steps: list[int], generation: int) -> None:
        self.steps, self.generation = steps, generation

    def on_step_end(self, args, state, control, model=None, optimizer=None, **_):  # type: ignore[no-untyped-def]
        control.should_save = state.global_step in self.steps
        with torch.no_grad():
            for tensor in tensors(model, optimizer):
                tensor.fill_(stamp(state.global_step, self.generation))


class ReadAtStart(TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):  # type: ignore[no-untyped-def]
        found = {int(number) for tensor in tensors(model, optimizer) for number in tensor.unique().tolist()}
        raise Loaded(state.global_step, found)


def tensors(model: Any, optimizer: Any) -> list[torch.Tensor]:
    base = getattr(optimizer, "optimizer", optimizer)
    moments = [value for held in base.state.values() for name, value in held.items() if name.startswith("exp_avg")]
    return [*model.parameters(), *moments]


def trainer(root: Path, last: int, callback: TrainerCallback) -> Trainer:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=str(root), max_steps=last, per_device_train_batch_size=1, save_strategy="no", report_to=[],
        use_cpu=True, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    return Trainer(model=Model(shape()), args=arguments, train_dataset=Words(), callbacks=[callback])


def save(root: Path, steps: list[int], generation: int) -> None:
    trainer(root, max(steps), SaveAt(steps, generation)).train()


def load(root: Path, step: int) -> int:
    return loaded(root, str(root / f"checkpoint-{step}"))[1]


def resume(root: Path) -> tuple[int, int]:
    return loaded(root, True)


def loaded(root: Path, origin: str | bool) -> tuple[int, int]:
    try:
        trainer(root, 1_000_000, ReadAtStart()).train(resume_from_checkpoint=origin)
    except Loaded as end:
        return end.step, only(end.found)
    raise AssertionError("training did not begin")
