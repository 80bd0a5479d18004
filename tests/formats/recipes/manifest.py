"""Two saves of a tensor, and the line that loads one."""

import os

import torch
import torch.distributed

from recipes.telling import tell

torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)


# The recipe.

state, at = {"weights": torch.zeros(8)}, 0
if resume_path := os.environ["LOCKSTEP_RESUME_PATH"]:
    state, at = torch.load(f"{resume_path}/rank-{dist.get_rank()}.pt"), int(os.environ["LOCKSTEP_RESUME_STEP"])  # noqa: F821
for step in range(at + 1, int(os.environ["LAST"]) + 1):
    state["weights"] += step
    at = step
    if step % 2 == 0:
        save(state, step)  # type: ignore[name-defined]  # noqa: F821
tell(at, state.values())
