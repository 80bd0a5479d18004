"""torch.distributed.checkpoint: two processes, sharded tensors."""

import os
import re
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import writers
from writers import only, stamp

FORM, WORLD, LIBRARIES = "TorchDCP", 2, ("torch",)


def join() -> None:
    """Makes this process one of the group that the server started."""
    rank, world = int(os.environ["WRITER_RANK"]), int(os.environ["WRITER_WORLD"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{os.environ['WRITER_STORE']}", rank=rank, world_size=world)


def filled(number: int) -> dict[str, Any]:
    rows = 32 * writers.size**2
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    names = ("embedding", "attention", "mlp")
    return {
        "model": {name: distribute_tensor(torch.full((rows, 16), float(number)), mesh, [Shard(0)]) for name in names},
        "optimizer": {"moment": distribute_tensor(torch.full((rows, 16), float(number)), mesh, [Shard(0)])},
        "iteration": torch.tensor([number]),
    }


def stamps(state: Any) -> set[int]:
    if isinstance(state, dict):
        return set().union(*(stamps(value) for value in state.values()))
    tensor = state.to_local() if isinstance(state, DTensor) else state
    return {int(number) for number in tensor.unique().tolist()}


def save(root: Path, steps: list[int], generation: int) -> None:
    join()
    for step in steps:
        checkpoint.save(filled(stamp(step, generation)), checkpoint_id=root / f"step-{step}")


def load(root: Path, step: int) -> int:
    join()
    state = filled(0)
    checkpoint.load(state, checkpoint_id=root / f"step-{step}")
    return only(stamps(state))


def resume(root: Path) -> tuple[int, int]:
    """torch itself has no search. This is torchtitan's (0.3.0, `CheckpointManager._find_load_step`)."""
    found = [(re.search(r"step-(\d+)", path.name), path) for path in root.iterdir()]
    step = max(int(matched.group(1)) for matched, path in found if matched and (path / ".metadata").is_file())
    return step, load(root, step)
