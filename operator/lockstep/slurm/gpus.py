"""GPUs of a step: how many it has of each node, which ones, and how many tasks follow from them."""

from __future__ import annotations

from typing import AbstractSet, Dict, List, Mapping, NamedTuple, Optional, Sequence

from lockstep.slurm.layout import LayoutError
from lockstep.slurm.sizes import plural


class GpusAsked(NamedTuple):
    """What the options of one component say. None: nothing."""

    total: Optional[int] = None  # --gpus
    per_node: Optional[int] = None  # --gpus-per-node, --gres
    per_task: Optional[int] = None
    ntasks_per_gpu: Optional[int] = None

    def of_node(self, nodes: int) -> Optional[int]:
        """As said of each node, or of all together; None: all of a node. Raises LayoutError."""
        if self.total is None:
            return self.per_node
        if self.total % nodes:
            raise LayoutError(
                f"--gpus={self.total} is not the same on each of {nodes} nodes; write --gpus-per-node, or --nodes"
            )
        each = self.total // nodes
        if self.per_node not in (None, each):
            raise LayoutError(
                f"--gpus={self.total} is {each} on each of {plural(nodes, 'node')}, and --gpus-per-node or --gres says "
                f"{self.per_node}; keep one of them"
            )
        return each

    def tasks(self, nodes: int, have: int) -> Optional[int]:
        """How many follow from them, where each node has so many; None: that is said elsewhere. Raises LayoutError."""
        if self.ntasks_per_gpu:
            each = self.of_node(nodes)
            each = have if each is None else each
            if not each:
                raise LayoutError("--ntasks-per-gpu: the step has no GPUs; write --ntasks-per-node")
            return nodes * each * self.ntasks_per_gpu
        if self.total and self.per_task:
            return max(1, self.total // self.per_task)
        return None

    def wanted(self, counts: Sequence[int], have: int) -> Optional[List[int]]:
        """Of each node of the step, by how many tasks those have; None: it shares all of them. Raises LayoutError."""
        said = self.of_node(len(counts))
        if said is not None:
            found = [said] * len(counts)
        elif self.per_task or self.ntasks_per_gpu:
            found = [self._least(count) for count in counts]
        else:
            return None
        for gpus, count in zip(found, counts):  # noqa: B905, strict is younger than Python 3.8
            needed = self._least(count)
            if needed > gpus:
                need = "needs" if count == 1 else "need"
                words = f"its {plural(count, 'task')} on a node {need} {plural(needed, 'GPU')}, not {gpus}"
                raise LayoutError(f"Unable to create step: {words}")
            if gpus > have:
                words = f"{plural(gpus, 'GPU')} of a node {'is' if gpus == 1 else 'are'} asked for, and each has {have}"
                raise LayoutError(f"Unable to create step: {words}")
        return found

    def _least(self, tasks: int) -> int:
        """What so many tasks of a node need."""
        if self.per_task:
            return tasks * self.per_task
        return -(-tasks // self.ntasks_per_gpu) if self.ntasks_per_gpu else 0


def chosen(
    wanted: Mapping[str, int], taken: Mapping[str, AbstractSet[int]], have: int, *, overlap: bool = False
) -> Optional[Dict[str, List[int]]]:
    """The lowest free ones of each node, by name. None: so many are not free. ``overlap``: others then, too."""
    found = {}
    for node, count in wanted.items():
        if count > have:  # of several components that have no better place
            return None
        used = taken.get(node, frozenset())
        devices = sorted(range(have), key=lambda device: (device in used, device))[:count]
        if not overlap and used & set(devices):
            return None
        found[node] = sorted(devices)
    return found


def of_task(devices: Sequence[int], local: int, asked: GpusAsked) -> Sequence[int]:
    """Of the step's on a node those that one task sees, which is the ``local``th there."""
    if asked.per_task:
        return devices[local * asked.per_task : (local + 1) * asked.per_task]
    if asked.ntasks_per_gpu:
        at = local // asked.ntasks_per_gpu
        return devices[at : at + 1]
    return devices
