"""Plain: the command, once per node, with the rendezvous in its environment."""

from collections.abc import Mapping
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.problems import Problem


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Nothing: all of it is the environment."""
    return {}


def deciding_ranks(world_size: int) -> range:
    """All: every node runs the command to its end."""
    return range(world_size)


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """None: any command will do."""
    return []
