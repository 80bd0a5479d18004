"""JAX: the command, once per node, with what it is to give to ``jax.distributed.initialize()``.

Of its own accord that reads the coordinator's address alone, and asks a scheduler that it knows for the rest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem
from lockstep.core.pods.launchers.rendezvous import Rendezvous


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Nothing: coordinator, number and id of the process are those of the attempt."""
    return {}


def deciding_ranks(world_size: int) -> range:
    """All: every process takes part in the last step."""
    return range(world_size)


def steps(spec: TrainingRunSpec) -> bool:
    """Only where they are asked for."""
    return spec.launcher.steps


def environment(rendezvous: Rendezvous) -> Mapping[str, str]:
    """Coordinator, number and id of the process."""
    address = rendezvous.address
    host = f"[{address}]" if ":" in address else address
    return {
        "JAX_COORDINATOR_ADDRESS": f"{host}:{rendezvous.port}",
        "JAX_NUM_PROCESSES": str(rendezvous.world),
        "JAX_PROCESS_ID": str(rendezvous.rank),
    }


def command(spec: TrainingRunSpec, rendezvous: Rendezvous) -> Sequence[str]:
    """As typed."""
    return (*spec.entrypoint, *spec.command)


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """A second launcher inside this one would start the processes twice."""
    program = spec.command[0].rpartition("/")[2]
    if program in ("torchrun", "mpirun", "srun"):
        return [Problem("spec.command", f"{program} starts processes itself; leave it out, or leave launcher out")]
    return []
