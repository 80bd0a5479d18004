"""A small model and its data for the recipe."""

import os
from typing import Any

import torch
from lightning import pytorch
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: F401 (for the recipe)
from writers.lightning_files import Model, batches, tensors

from recipes.telling import tell

torch.manual_seed(0)


class Module(Model):
    def on_train_end(self) -> None:
        tell(self.trainer.global_step, tensors(self))

    def train_dataloader(self) -> Any:
        return batches()


model = Module()


def Trainer(**options: Any) -> pytorch.Trainer:  # noqa: N802
    return pytorch.Trainer(
        **options, max_steps=int(os.environ["LAST"]), accelerator="cpu", devices=1, logger=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )  # fmt: skip


# The recipe.
