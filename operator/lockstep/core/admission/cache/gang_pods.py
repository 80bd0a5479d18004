"""Index of gang pods by run and by node, updated from one cycle to the next."""

from collections import Counter
from collections.abc import Iterable, Mapping

from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.snapshot import PodView, maybe_changed
from lockstep.core.placement.node_index import NodeIndex
from lockstep.core.placement.node_order import Numbering


class GangPodIndex:
    """Those that were seen last."""

    def __init__(self) -> None:
        self.by_run: dict[str, list[PodView]] = {}
        """Pods of a run that it owns."""
        self._pods: dict[str, PodView] = {}  # by UID
        self._live: Counter[str] = Counter()
        self._staying: Counter[str] = Counter()
        self._moved: set[str] = set()  # nodes whose counts have changed since the sets were made
        self._numbering: Numbering | None = None
        self._sets = (EMPTY, EMPTY)

    def update(self, pods: Iterable[PodView], changed: Mapping[str, PodView | None] | None = None) -> None:
        """These are all pods now. ``changed``: see ``maybe_changed``."""
        for uid, pod in maybe_changed(changed, pods, self._pods).items():
            known = self._pods.get(uid)
            if pod is known:
                continue
            if known is not None:
                self._drop(known)
            if pod is not None:
                self._pods[uid] = pod
                self._count(pod, 1)
                if pod.owner_uid == pod.run_uid:
                    self.by_run.setdefault(pod.run_uid, []).append(pod)

    def nodes(self, index: NodeIndex) -> tuple[NodeSet, NodeSet]:
        """Nodes with (pods that have not ended, pods that have not and that nobody deletes)."""
        if self._numbering is not index.numbering:
            self._numbering = index.numbering
            self._sets = index.mask(+self._live), index.mask(+self._staying)
        elif self._moved:
            moved = index.mask(self._moved)
            live = index.mask(name for name in self._moved if self._live[name])
            staying = index.mask(name for name in self._moved if self._staying[name])
            before = self._sets
            self._sets = before[0] & ~moved | live, before[1] & ~moved | staying
        self._moved = set()
        return self._sets

    def _drop(self, pod: PodView) -> None:
        del self._pods[pod.uid]
        self._count(pod, -1)
        if pod.owner_uid == pod.run_uid:
            left = self.by_run[pod.run_uid]
            left.remove(pod)
            if not left:
                del self.by_run[pod.run_uid]

    def _count(self, pod: PodView, step: int) -> None:
        if pod.is_terminal:
            return
        for counts in (self._live,) if pod.deleting else (self._live, self._staying):
            counts[pod.node] += step
            if not counts[pod.node]:
                del counts[pod.node]
        self._moved.add(pod.node)
