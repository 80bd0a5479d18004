"""Plain: the command, once per node, with the rendezvous in its environment."""

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem
from lockstep.core.pods.launchers.rendezvous import Rendezvous


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Nothing: all of it is the environment."""
    return {}


def deciding_ranks(world_size: int) -> range:
    """All: every node runs the command to its end."""
    return range(world_size)


def steps(spec: TrainingRunSpec) -> bool:
    """Only where they are asked for."""
    return spec.launcher.steps


def environment(rendezvous: Rendezvous) -> Mapping[str, str]:
    """What torch.distributed and torchrun read."""
    world, rank = str(rendezvous.world), str(rendezvous.rank)
    address, port = rendezvous.address, str(rendezvous.port)
    variables = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "NNODES": world,
        "NODE_RANK": rank,
        "PET_NNODES": world,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_RDZV_BACKEND": "static",
    }
    return variables | ({"PET_NPROC_PER_NODE": str(rendezvous.gpus)} if rendezvous.gpus else {})


def command(spec: TrainingRunSpec, rendezvous: Rendezvous) -> Sequence[str]:
    """As typed."""
    return (*spec.entrypoint, *spec.command)


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """None: any command will do."""
    return []
