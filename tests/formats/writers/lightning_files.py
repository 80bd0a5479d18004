"""Lightning: one process, a file per checkpoint and `last.ckpt`."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader

import writers
from writers import only, stamp

FORM, WORLD, LIBRARIES = "Lightning", 1, ("lightning", "torch")


class Loaded(Exception):  # noqa: N818 (nothing is wrong)
    """Ends training where it would begin: all that is to be loaded is."""

    def __init__(self, step: int, found: set[int]) -> None:
        super().__init__(f"step {step}")
        self.step, self.found = step, found


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(16 * writers.size, 16 * writers.size) for _ in range(2)])

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        for layer in self.layers:
            batch = layer(batch)
        return batch.square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def tensors(module: LightningModule) -> list[torch.Tensor]:
    optimizer: Any = module.optimizers(use_pl_optimizer=False)
    moments = [value for held in optimizer.state.values() for name, value in held.items() if name.startswith("exp_avg")]
    return [*module.parameters(), *moments]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a sharded tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Stamp(Callback):
    def __init__(self, generation: int) -> None:
        self.generation = generation

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *_: Any) -> None:
        with torch.no_grad():
            for tensor in tensors(module):
                tensor.fill_(stamp(trainer.global_step, self.generation))


class ReadAtStart(Callback):
    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        found = {int(number) for tensor in tensors(module) for number in local(tensor).unique().tolist()}
        raise Loaded(trainer.global_step, found)


class SaveAt(ModelCheckpoint):
    """ModelCheckpoint saves every n steps; here n changes."""

    def __init__(self, root: Path, steps: list[int]) -> None:
        super().__init__(dirpath=root, filename="{step}", every_n_train_steps=1, save_top_k=-1, save_last=True)
        self.steps = steps

    def on_train_batch_end(self, trainer: Trainer, *arguments: Any) -> None:
        if trainer.global_step in self.steps:
            super().on_train_batch_end(trainer, *arguments)


def trainer(root: Path, last: int, callbacks: list[Callback]) -> Trainer:
    torch.set_num_threads(1)
    return Trainer(
        max_steps=last, callbacks=callbacks, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=root, use_distributed_sampler=False,
    )  # fmt: skip


def batches() -> DataLoader[torch.Tensor]:
    return DataLoader(torch.ones(64, 16 * writers.size), batch_size=1)  # type: ignore[arg-type]


def save(root: Path, steps: list[int], generation: int) -> None:
    trainer(root, max(steps), [Stamp(generation), SaveAt(root, steps)]).fit(Model(), batches())


def load(root: Path, step: int) -> int:
    return loaded(root, str(root / f"step={step}.ckpt"))[1]


def resume(root: Path) -> tuple[int, int]:
    return loaded(root, "last")


def loaded(root: Path, origin: str) -> tuple[int, int]:
    keeper = SaveAt(root, [])
    try:
        trainer(root, 1_000_000, [ReadAtStart(), keeper]).fit(Model(), batches(), ckpt_path=origin)
    except Loaded as end:
        return end.step, only(end.found)
    raise AssertionError("training did not begin")
