"""Lightning's sharded checkpoints (ModelParallelStrategy): two processes, DCP files and `meta.pt`."""

import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from writers import lightning_files, only
from writers.lightning_files import Loaded, ReadAtStart, SaveAt, Stamp, batches

FORM, WORLD, LIBRARIES = "Lightning", 2, ("lightning", "torch")


class Model(lightning_files.Model):
    def configure_model(self) -> None:
        for layer in self.layers:
            fully_shard(layer, mesh=self.device_mesh["data_parallel"])  # type: ignore[index]
        fully_shard(self, mesh=self.device_mesh["data_parallel"])  # type: ignore[index]


class Environment(LightningEnvironment):
    """Processes that were started already."""

    creates_processes_externally = True


def trainer(root: Path, last: int, callbacks: list[Any]) -> Trainer:
    torch.set_num_threads(1)
    rank, world = os.environ["WRITER_RANK"], os.environ["WRITER_WORLD"]
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{os.environ['WRITER_STORE']}", rank=int(rank), world_size=int(world)
    )
    os.environ.update(LOCAL_RANK=rank, NODE_RANK="0")
    return Trainer(
        max_steps=last, callbacks=callbacks, accelerator="cpu", devices=int(world), plugins=[Environment()],
        strategy=ModelParallelStrategy(data_parallel_size=int(world), tensor_parallel_size=1), logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=root, use_distributed_sampler=False,
    )  # fmt: skip


def save(root: Path, steps: list[int], generation: int) -> None:
    trainer(root, max(steps), [Stamp(generation), SaveAt(root, steps)]).fit(Model(), batches())


def load(root: Path, step: int) -> int:
    return loaded(root, str(root / f"step={step}.ckpt"))[1]


def resume(root: Path) -> tuple[int, int]:
    return loaded(root, "last")


def loaded(root: Path, origin: str) -> tuple[int, int]:
    try:
        trainer(root, 1_000_000, [ReadAtStart(), SaveAt(root, [])]).fit(Model(), batches(), ckpt_path=origin)
    except Loaded as end:
        return end.step, only(end.found)
    raise AssertionError("training did not begin")
