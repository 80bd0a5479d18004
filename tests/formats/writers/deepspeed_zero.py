"""DeepSpeed engine, ZeRO stage 1: two processes on gloo, `latest` and a directory per step."""

import os
from pathlib import Path

import deepspeed
import torch
from deepspeed.ops.op_builder.all_ops import ALL_OPS

import writers
from writers import only, stamp

FORM, WORLD, LIBRARIES = "DeepSpeed", 2, ("deepspeed", "torch")
STAGE = 1

# Nothing is compiled: a faster all-reduce takes minutes, and the lock of a build that was killed stops the next one.
# Already asking what could be compiled runs the compiler in every process.
deepspeed.ops.__compatible_ops__ = dict.fromkeys(ALL_OPS, False)


def width() -> int:
    return 16 * writers.size


def engine() -> deepspeed.DeepSpeedEngine:
    torch.set_num_threads(1)
    rank, world = os.environ["WRITER_RANK"], os.environ["WRITER_WORLD"]
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{os.environ['WRITER_STORE']}", rank=int(rank), world_size=int(world)
    )
    deepspeed.init_distributed("gloo", dist_init_required=False)
    model = torch.nn.Sequential(*(torch.nn.Linear(width(), width()) for _ in range(3)))
    config = {
        "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
        "zero_optimization": {"stage": STAGE}, "zero_allow_untested_optimizer": True,
    }  # fmt: skip
    made, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
    return made


def tensors(made: deepspeed.DeepSpeedEngine) -> list[torch.Tensor]:
    optimizer = made.optimizer
    masters = optimizer.single_partition_of_fp32_groups
    moments = [
        value
        for held in optimizer.optimizer.state.values()
        for name, value in held.items()
        if name.startswith("exp_avg")
    ]
    return [*made.module.parameters(), *masters, *moments]


def save(root: Path, steps: list[int], generation: int) -> None:
    made = engine()
    for step in range(1, max(steps) + 1):
        made.backward(made(torch.ones(1, width(), dtype=torch.bfloat16)).square().mean())
        made.step()
        if step in steps:
            with torch.no_grad():
                for tensor in tensors(made):
                    tensor.fill_(stamp(step, generation))
            made.save_checkpoint(str(root), client_state={"step": step})


def load(root: Path, step: int) -> int:
    return loaded(root, f"global_step{step}")[1]


def resume(root: Path) -> tuple[int, int]:
    return loaded(root, None)


def loaded(root: Path, tag: str | None) -> tuple[int, int]:
    made = engine()
    path, state = made.load_checkpoint(str(root), tag=tag)
    assert path is not None, f"nothing was loaded for {tag or 'latest'}"
    found = only({int(number) for tensor in tensors(made) for number in tensor.unique().tolist()})
    assert made.global_steps == state["step"], f"the engine is at {made.global_steps}, its client at {state['step']}"
    return made.global_steps, found
