"""Data-parallel training with PyTorch and gloo, started by torchrun. It saves as docs/checkpoints.md shows it.

Each rank learns from data of its own, and gradients are averaged by DistributedDataParallel: a loss tells of all
ranks. Every step's loss and weights are kept, so that a resumed run can be compared with itself.
"""

import argparse
import json
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import lockstep_training as lockstep
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def write_durably(path: Path, write: Callable[[BinaryIO], object]) -> dict[str, object]:
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb+") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
        size, crc = file.seek(0, os.SEEK_END), 0
        file.seek(0)
        while chunk := file.read(1 << 24):
            crc = zlib.crc32(chunk, crc)
    os.rename(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    return {"name": path.name, "bytes": size, "crc32": f"{crc:08x}"}


def save(state: dict[str, object], step: int) -> None:
    directory = Path(os.environ["LOCKSTEP_CHECKPOINT_DIR"], f"step-{step}")
    directory.mkdir(parents=True, exist_ok=True)
    entry = write_durably(directory / f"rank-{dist.get_rank()}.pt", lambda file: torch.save(state, file))
    entries = [None] * dist.get_world_size()
    dist.all_gather_object(entries, entry)
    if dist.get_rank() == 0:
        manifest = {
            "format": "lockstep/1",
            "runUID": os.environ["LOCKSTEP_RUN_UID"],
            "attempt": int(os.environ["LOCKSTEP_ATTEMPT"]),
            "step": step,
            "world": int(os.environ["LOCKSTEP_NNODES"]),
            "files": entries,
        }
        write_durably(directory / "manifest.json", lambda file: file.write(json.dumps(manifest).encode()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--step-delay", type=float, default=0.1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    done, resume = 0, lockstep.resume_path()
    if resume:
        saved = torch.load(f"{resume}/rank-{dist.get_rank()}.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = int(os.environ["LOCKSTEP_RESUME_STEP"])
    rank = dist.get_rank()
    print(f"torch {torch.__version__}, {dist.get_backend()}, rank {rank} begins after step {done}", flush=True)
    lineage = Path(os.environ["LOCKSTEP_CHECKPOINT_DIR"], f"lineage-rank{rank}.jsonl")
    for step in range(done + 1, args.steps + 1):
        chance = torch.Generator().manual_seed(1000 * step + rank)
        inputs = torch.randn(64, 16, generator=chance)
        optimizer.zero_grad()
        loss = (model(inputs).squeeze(1) - inputs.sum(1)).square().mean()
        loss.backward()
        optimizer.step()
        weights = model.module.weight.flatten().tolist()
        with lineage.open("a") as lines:
            lines.write(json.dumps({"step": step, "loss": repr(loss.item()), "weights": weights}) + "\n")
        if rank == 0:
            lockstep.report(step, loss.item(), args.steps)
        time.sleep(args.step_delay)
        if step % args.save_every == 0 or step == args.steps:
            save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
