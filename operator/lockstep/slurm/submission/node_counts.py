"""How many nodes a job has that does not say so by ``-N``, where its GPUs tell: all of them, and those of a node."""

from __future__ import annotations

from typing import Mapping, Optional

from lockstep.slurm.sizes import gpus_of, plural

MOST_OF_ONE = 8
"""GPUs that a node has mostly, at most."""


def nodes_by_gpus(
    said: Mapping[str, str], ntasks: Optional[int], per_node: Optional[int], per_gpu: Optional[int]
) -> Optional[int]:
    """None: it does not follow. ``said``: options as typed; ``per_node``, ``per_gpu``: tasks."""
    try:
        total = _count(said, "gpus")
        of_node = _first(said, "gpus-per-node", "gres")
        of_task = _first(said, "gpus-per-task", "tres-per-task")
    except ValueError:  # it is refused where it is read
        return None
    if ntasks is not None and total is None:
        total = ntasks * of_task if of_task else -(-ntasks // per_gpu) if per_gpu else None
    if of_node is None and of_task and per_node:
        of_node = per_node * of_task
    return max(1, -(-total // of_node)) if total and of_node else None


def words_for_many(gpus: int) -> str:
    """What is to be said of a job that has all its GPUs on one node only because it says nothing of nodes."""
    words = f"one node with {plural(gpus, 'GPU')} is asked for, as -N is not given"
    if gpus % MOST_OF_ONE:
        return f"{words}; write -N, and --gpus-per-node"
    nodes = gpus // MOST_OF_ONE
    return f"{words}; write -N {nodes} for {plural(nodes, 'node')} of {MOST_OF_ONE}"


def _first(said: Mapping[str, str], *options: str) -> Optional[int]:
    return next((count for count in (_count(said, option) for option in options) if count), None)


def _count(said: Mapping[str, str], option: str) -> Optional[int]:
    found = gpus_of(said.get(option, ""), option) if said.get(option) else None
    return found[0] if found is not None else None
