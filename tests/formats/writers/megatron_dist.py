"""Megatron-Core distributed checkpointing (`torch_dist`): two processes.

The core writes the files of a step. `iter_…/` and the tracker are the training script's: here as in
`megatron.training.checkpointing`, which is not on PyPI.
"""

import queue
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedTensor
from megatron.core.dist_checkpointing.strategies import filesystem_async

import writers
from writers import only, stamp
from writers.dcp import join, stamps

FORM, WORLD, LIBRARIES = "Megatron", 2, ("megatron-core", "torch")
TRACKER = "latest_checkpointed_iteration.txt"


def sharded(number: int) -> dict[str, Any]:
    rank, world = dist.get_rank(), dist.get_world_size()
    names = ("embedding", "attention", "mlp", "moment")
    state: dict[str, Any] = {
        name: ShardedTensor.from_rank_offsets(
            name, torch.full((16 * writers.size**2, 16), float(number)), (0, rank, world)
        )
        for name in names
    }
    return {**state, "iteration": torch.tensor([number])}


def begin() -> None:
    join()
    # The core asks for the GPU even when nothing is on one.
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: torch.device("cpu")
    filesystem_async._results_queue = queue.Queue()  # else a process that imports torch anew for every save
    parallel_state.initialize_model_parallel()


def save(root: Path, steps: list[int], generation: int) -> None:
    begin()
    for step in steps:
        directory = root / f"iter_{step:07d}"
        if dist.get_rank() == 0:
            directory.mkdir(parents=True, exist_ok=True)
        dist.barrier()
        dist_checkpointing.save(sharded(stamp(step, generation)), str(directory))
        if dist.get_rank() == 0:
            with open(root / TRACKER, "w") as tracker:
                tracker.write(str(step))
        dist.barrier()


def load(root: Path, step: int) -> int:
    begin()
    return only(stamps(dist_checkpointing.load(sharded(0), str(root / f"iter_{step:07d}"))))


def resume(root: Path) -> tuple[int, int]:
    step = int((root / TRACKER).read_text())
    return step, load(root, step)
