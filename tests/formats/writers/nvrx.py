"""NVIDIA Resiliency Extension, local checkpoints: two processes, each with a replica of the other's shard."""

from pathlib import Path

import torch
from nvidia_resiliency_ext.checkpointing.local.basic_state_dict import BasicTensorAwareStateDict, nested_values
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import LocalCheckpointManager
from nvidia_resiliency_ext.checkpointing.local.replication.strategies import CliqueReplicationStrategy

import writers
from writers import only, stamp
from writers.dcp import join

FORM, WORLD, LIBRARIES = "Megatron", 2, ("nvidia-resiliency-ext", "torch")


class State(BasicTensorAwareStateDict):
    """The library's own, which insists on GPU memory."""

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        self.state_dict = state
        self._is_hollow = False

    def restore_tensor_device(self, non_blocking: bool = True) -> None:
        pass


def without_gpu() -> None:
    """Replicas are sent from GPU to GPU, whatever holds them."""
    empty_like = torch.empty_like
    torch.empty_like = lambda tensor, **_: empty_like(tensor)
    torch.Tensor.cuda = lambda tensor: tensor


def keeper(root: Path) -> LocalCheckpointManager:
    join()
    without_gpu()
    return LocalCheckpointManager(root, "session", CliqueReplicationStrategy.from_replication_params(1, 2))


def save(root: Path, steps: list[int], generation: int) -> None:
    kept = keeper(root)
    kept.find_latest()  # as every program does when it starts: from then on each process has its directory
    for step in steps:
        rows, number = 64 * writers.size**2, float(stamp(step, generation))
        kept.save(State({"model": torch.full((rows,), number), "moment": torch.full((rows,), number)}), step)


def load(root: Path, step: int) -> int:
    found, stamp_found = resume(root)
    assert found == step, f"the newest that is whole is {found}"
    return stamp_found


def resume(root: Path) -> tuple[int, int]:
    kept = keeper(root)
    step = kept.find_latest()
    state, _ = kept.load()
    return step, only(
        {int(number) for tensor in nested_values(state.state_dict) for number in tensor.unique().tolist()}
    )
