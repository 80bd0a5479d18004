"""Which tasks of a step run on which nodes."""

from __future__ import annotations

import itertools
from typing import AbstractSet, Dict, List, Mapping, NamedTuple, Sequence

MOST_TASKS_OF_NODE = 512  # of a step


class LayoutError(Exception):
    """Why there can be no such step, in srun's words."""


class Layout(NamedTuple):
    """``nodes``: indices of nodes of the job, in the step's order; ``tasks``: ranks on each of them."""

    nodes: Sequence[int]
    tasks: Sequence[Sequence[int]]

    @property
    def counts(self) -> List[int]:
        return [len(ranks) for ranks in self.tasks]

    @property
    def total(self) -> int:
        return sum(self.counts)


class InUse(NamedTuple):
    """What other steps have of the job's nodes, by their names."""

    gpus: Mapping[str, AbstractSet[int]] = {}  # for themselves
    steps: Mapping[str, int] = {}  # how many run there
    sharing: Mapping[str, int] = {}  # and of these, how many have no GPUs for themselves, and so use all


IDLE = InUse()


def layout(nodes: Sequence[int], tasks: int, distribution: str = "block", plane: int = 0) -> Layout:
    """So many tasks on these nodes. ``arbitrary``: a node once for each of its tasks. Raises LayoutError."""
    if not nodes or tasks < 1:
        raise LayoutError("invalid number of tasks or nodes")
    if distribution == "arbitrary":
        by_node: Dict[int, List[int]] = {}
        for rank, node in enumerate(itertools.islice(itertools.cycle(nodes), tasks)):
            by_node.setdefault(node, []).append(rank)
        return Layout(sorted(by_node), [by_node[node] for node in sorted(by_node)])
    nodes = list(nodes)[:tasks]  # none is without a task
    if distribution == "cyclic":
        dealt = [list(range(index, tasks, len(nodes))) for index in range(len(nodes))]
    elif distribution == "plane":
        if plane < 1:
            raise LayoutError("Invalid --distribution specification: plane has no size")
        dealt = [
            [rank for start in range(index * plane, tasks, plane * len(nodes)) for rank in range(start, start + plane)]
            for index in range(len(nodes))
        ]
        dealt = [[rank for rank in ranks if rank < tasks] for ranks in dealt]
        kept = [index for index, ranks in enumerate(dealt) if ranks]
        return Layout([nodes[index] for index in kept], [dealt[index] for index in kept])
    else:
        counts = [len(range(index, tasks, len(nodes))) for index in range(len(nodes))]
        starts = [0, *itertools.accumulate(counts)]
        dealt = [list(range(start, start + count)) for start, count in zip(starts, counts)]  # noqa: B905, strict is younger than Python 3.8
    return Layout(nodes, dealt)
