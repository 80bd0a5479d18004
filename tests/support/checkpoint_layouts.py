"""Checkpoints as the frameworks lay them out, made by hand: no library, no tensors, a few bytes each."""

import hashlib
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LONG_AGO = 1_700_000_000.0
RAY_TRAIN = Path(__file__).parents[1] / "unit" / "worker" / "checkpoints" / "golden" / "ray_train"
"""What Ray Train itself left: its ``experiment``, and ``mtimes.json``."""


def torch_file(path: Path, state: Mapping[str, Any] | None = None, payload: bytes = b"\1" * 300) -> Path:
    """What torch.save writes: a zip archive of a pickle (protocol 2) and the tensors' bytes, not compressed."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(dict(state or {}), protocol=2))
        archive.writestr("archive/data/0", payload)
    return written(path, stream.getvalue())


def safetensors_file(path: Path, size: int = 64) -> Path:
    """One tensor of ``size`` bytes."""
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return written(path, struct.pack("<Q", len(header)) + header + b"\2" * size)


def written(path: Path, data: bytes | str) -> Path:
    """The file, with the directories it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


class _StorageInfo:
    def __init__(self, relative_path: str, offset: int, length: int) -> None:
        self.relative_path, self.offset, self.length = relative_path, offset, length


def dcp(directory: Path, ranks: int = 2, size: int = 100) -> Path:
    """Torch's distributed checkpoint: the data first, .metadata last."""
    for rank in range(ranks):
        written(directory / f"__{rank}_0.distcp", b"\3" * size)
    infos = {rank: _StorageInfo(f"__{rank}_0.distcp", 0, size) for rank in range(ranks)}
    written(directory / ".metadata", pickle.dumps({"storage_data": infos}))
    return directory


def megatron(directory: Path, *, integrity: bool = False) -> Path:
    """Megatron's distributed layout."""
    torch_file(directory / "common.pt")
    dcp(directory)
    written(directory / "metadata.json", '{"sharded_backend": "torch_dist", "common_backend": "torch"}')
    if integrity:
        sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}
        written(directory / "integrity.json", json.dumps({"algorithm": "sha256", "files": sums}))
    return directory


def megatron_by_rank(directory: Path, tensor: int = 2, pipeline: int = 2) -> Path:
    """Megatron's legacy layout, with a distributed optimizer."""
    state = {"args": {"tensor_model_parallel_size": tensor, "pipeline_model_parallel_size": pipeline}}
    for t in range(tensor):
        for p in range(pipeline):
            held = directory / f"mp_rank_{t:02d}_{p:03d}"
            torch_file(held / "model_optim_rng.pt", state)
            torch_file(held / "distrib_optim.pt")
    return directory


def deepspeed(directory: Path, data: int = 2, parallel: int = 2, stage: int = 2, *, known: bool = True) -> Path:
    """ZeRO of a stage. ``known``: the model states say how many ranks there are."""
    counts = {"dp_world_size": data, "mp_world_size": parallel} if known else {}
    for m in range(parallel):
        if stage < 3:
            optimizer = None if stage else {"step": 1}
            torch_file(directory / f"mp_rank_{m:02d}_model_states.pt", {"optimizer": optimizer, **counts})
        for d in range(data):
            rank = f"zero_pp_rank_{d}_mp_rank_{m:02d}"
            if stage == 3:
                torch_file(directory / f"{rank}_model_states.pt", {"optimizer": None, **counts})
            if stage:
                torch_file(directory / f"bf16_{rank}_optim_states.pt")
    return directory


def hugging_face(directory: Path, *, shards: int = 2, ranks: int = 1, step: int | None = None) -> Path:
    """The Trainer's, with sharded weights, the state of ``ranks`` generators, and its own state last."""
    names = [f"model-{n:05d}-of-{shards:05d}.safetensors" for n in range(1, shards + 1)]
    for name in names:
        safetensors_file(directory / name)
    weights = {f"layer.{n}": name for n, name in enumerate(names)}
    written(directory / "model.safetensors.index.json", json.dumps({"weight_map": weights}))
    written(directory / "config.json", '{"model_type": "gpt2"}')
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt"):
        torch_file(directory / name)
    for rank in range(ranks):
        torch_file(directory / (f"rng_state_{rank}.pth" if ranks > 1 else "rng_state.pth"))
    own = step if step is not None else int(directory.name.rpartition("-")[2])
    written(directory / "trainer_state.json", json.dumps({"global_step": own, "best_model_checkpoint": None}))
    return directory


def accelerate(directory: Path, *, ranks: int = 1) -> Path:
    """What Accelerator.save_state writes."""
    safetensors_file(directory / "model.safetensors")
    for name in ("optimizer.bin", "scheduler.bin", *(f"random_states_{rank}.pkl" for rank in range(ranks))):
        torch_file(directory / name)
    return directory


def diffusers(directory: Path) -> Path:
    """The same by a training script of diffusers, which saves the models by a hook, each in its directory."""
    for model in ("unet", "unet_ema"):
        safetensors_file(directory / model / "diffusion_pytorch_model.safetensors")
        written(directory / model / "config.json", "{}")
    for name in ("optimizer.bin", "scheduler.bin", "random_states_0.pkl"):
        torch_file(directory / name)
    return directory


def lightning(path: Path, step: int) -> Path:
    """A .ckpt file."""
    return torch_file(path, {"epoch": 0, "global_step": step, "state_dict": {}})


def lightning_sharded(directory: Path, step: int) -> Path:
    """A .ckpt directory, as of FSDP."""
    dcp(directory)
    torch_file(directory / "meta.pt", {"global_step": step})
    return directory


def nemo(directory: Path) -> Path:
    """NeMo 2."""
    megatron(directory / "weights")
    written(directory / "context/io.json", "{}")
    return directory


def orbax(directory: Path, *, committed: bool = True, success_file: bool = False) -> Path:
    """One item with one process's arrays in OCDBT."""
    item = directory / "default"
    node = b"\x0c\xdb\x20\xde" + struct.pack("<Q", 30) + b"\5" * 18
    written(item / "d/3f890881", node * 3)
    written(item / "ocdbt.process_0/d/8ea73b90", node + b"\4" * 50)
    for held in (item, item / "ocdbt.process_0"):
        written(held / "manifest.ocdbt", b"\x0c\xdb\x3a\x2a" + struct.pack("<Q", 40) + b"\0" * 28)
    written(item / "_METADATA", '{"tree_metadata": {}, "use_ocdbt": true}')
    metadata = {"item_handlers": {"default": "Handler"}, "commit_timestamp_nsecs": 17 if committed else None}
    written(directory / "_CHECKPOINT_METADATA", json.dumps(metadata))
    if success_file:
        written(directory / "commit_success.txt", "done")
    return directory


def nvrx(root: Path, step: int, held: Mapping[int, tuple[int, ...]]) -> None:
    """Local files of one node: the owners whose shards each of its processes holds."""
    for rank, owners in held.items():
        for owner in owners:
            torch_file(root / str(rank) / f"iter_{step:07d}_{owner}_local.pt")


def age(path: Path, at: float = LONG_AGO) -> Path:
    """Date a file, or everything in a directory, back: to one moment, as a save of a second."""
    for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(each, (at, at))
    return path
