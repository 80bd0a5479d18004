"""MPI: the command on rank 0 alone; ``mpirun`` in it starts the processes of all nodes, as steps.

The others stand by. Hosts, slots, interfaces and the way to start something there are told to mpirun by its
environment, which the worker makes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem

_PROGRAMS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"})
_COUNTS = frozenset({"-n", "-np", "--n", "--np", "-c"})
_OF_ONE_NODE = frozenset({"torchrun"})


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Slots of a node: as asked, else one for each GPU, at least one."""
    asked = spec.launcher.mpi.slots_per_node if spec.launcher.mpi is not None else None
    return {"slotsPerNode": asked or max(gpus_per_node, 1), "standsBy": True}


def deciding_ranks(world_size: int) -> range:
    """Rank 0, where the command is."""
    return range(1)


def steps(spec: TrainingRunSpec) -> bool:
    """Always: mpirun reaches the other nodes by nothing else."""
    return True


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """What leaves the other nodes idle, or does not go with the size of the gang."""
    return list(_problems(spec))


def _problems(spec: TrainingRunSpec) -> Iterator[Problem]:
    program = spec.command[0].rpartition("/")[2]
    if program in _OF_ONE_NODE:
        words = f"launcher.type MPI runs {program} on rank 0 alone, where it starts the processes of one node"
        yield Problem("spec.command", f"{words}; put mpirun in front of the script, or leave launcher out")
    if spec.elastic is not None and program in _PROGRAMS:
        count = next((word for word in spec.command[1:] if word in _COUNTS), None)
        if count is not None:
            words = f"{count} asks for as many processes however many nodes are left; leave it out, and there is one"
            yield Problem("spec.command", f"{words} for each slot, or leave elastic out")
