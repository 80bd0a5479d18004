"""What a refusal is made of, and the rules that spec and pod template share."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec

_RENDEZVOUS = frozenset(
    {
        "MASTER_ADDR",
        "MASTER_PORT",
        "NNODES",
        "NODE_RANK",
        "PET_NNODES",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_NUM_PROCESSES",
        "JAX_PROCESS_ID",
    }
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a spec: the field's path and words that name the remedy."""

    field: str
    message: str


def lockstep_mounts(spec: TrainingRunSpec) -> frozenset[str]:
    """Where Lockstep mounts volumes of its own into the training container."""
    paths = {names.WORKER_MOUNT, names.WORKER_SCRATCH, names.TOKEN_MOUNT, "/dev/shm"}
    if spec.checkpoint is not None and spec.checkpoint.shared is not None:
        paths.add(names.SHARED_CHECKPOINTS_MOUNT)
    if spec.checkpoint is not None and spec.checkpoint.local is not None:
        paths.add(names.LOCAL_CHECKPOINTS_MOUNT)
    return frozenset(paths)


def reserved_variable(name: str) -> bool:
    """Whether Lockstep sets this variable, at every start anew."""
    return name.startswith(("LOCKSTEP_", "PET_RDZV_")) or name in _RENDEZVOUS
