"""Accelerate's ``save_state`` in one process, into the folders that diffusers' scripts call it with."""

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

import writers
from writers import only, stamp

FORM, WORLD, LIBRARIES = "Accelerate", 1, ("accelerate", "safetensors", "torch")
WIDTH = 32  # the optimizer's state is larger than that of the random numbers


torch_save = torch.save


def save_seen(found: Any, path: Any, *arguments: Any, **options: Any) -> None:
    """torch.save, which else opens its files where no hook sees it: kills are aimed by these openings."""
    with open(path, "wb") as file:
        torch_save(found, file, *arguments, **options)


def prepared() -> tuple[Accelerator, Any, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width = WIDTH * writers.size
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Linear(width, width))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    accelerator = Accelerator(cpu=True)
    model, optimizer, _ = accelerator.prepare(model, optimizer, scheduler)
    return accelerator, model, optimizer


def tensors(model: Any, optimizer: Any) -> list[torch.Tensor]:
    states = optimizer.optimizer.state.values()
    moments = [value for held in states for name, value in held.items() if name.startswith("exp_avg")]
    return [*model.parameters(), *moments]


def save(root: Path, steps: list[int], generation: int) -> None:
    torch.save = save_seen
    accelerator, model, optimizer = prepared()
    for step in steps:
        accelerator.backward(model(torch.ones(1, WIDTH * writers.size)).square().mean())
        optimizer.step()
        with torch.no_grad():
            for tensor in tensors(model, optimizer):
                tensor.fill_(stamp(step, generation))
        accelerator.save_state(str(root / f"checkpoint-{step}"))


def load(root: Path, step: int) -> int:
    accelerator, model, optimizer = prepared()
    accelerator.load_state(str(root / f"checkpoint-{step}"))
    return only({int(number) for tensor in tensors(model, optimizer) for number in tensor.unique().tolist()})


def resume(root: Path) -> tuple[int, int]:
    """As diffusers' scripts do with ``--resume_from_checkpoint=latest``."""
    step = max(int(path.name.partition("-")[2]) for path in root.iterdir() if path.name.startswith("checkpoint"))
    return step, load(root, step)
