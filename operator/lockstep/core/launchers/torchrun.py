"""Torchrun: ``torchrun`` with its rendezvous options, put in front of the command by the worker."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.problems import Problem

_REMEDY = "write command: [train.py], or keep the command as it is and leave launcher out"


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Processes per node (as asked, else one per GPU, at least one), and how many words stay in front of torchrun."""
    asked = spec.launcher.torchrun.nproc_per_node if spec.launcher.torchrun is not None else None
    return {"nprocPerNode": asked or max(gpus_per_node, 1), "entrypoint": len(spec.entrypoint)}


def deciding_ranks(world_size: int) -> range:
    """All: every node's torchrun ends with its own processes' code."""
    return range(world_size)


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """The command must not start torchrun once more."""
    if _starts_torchrun(spec.command):
        return [Problem("spec.command", f"launcher.type Torchrun starts torchrun itself; {_REMEDY}")]
    return []


def _starts_torchrun(command: Sequence[str]) -> bool:
    if command[0].rpartition("/")[2] == "torchrun":
        return True
    return _is_python(command[0]) and any(
        flag == "-m" and module.startswith(("torch.distributed.run", "torch.distributed.launch"))
        for flag, module in pairwise(command)
    )


def _is_python(program: str) -> bool:
    return program.rpartition("/")[2].startswith("python")
