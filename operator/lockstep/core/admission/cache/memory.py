"""What one admission cycle keeps for the next: nothing that cannot be worked out anew.

Whatever is kept says what it rests on, and is looked up by that or thrown away with it:

| kept | rests on | goes |
|---|---|---|
| a row (``run_index``) | one view of a run | when the run changes (``snapshot.changes``) |
| its points and what holds it back | the rules of its queue, its share, time | with any of them |
| its place in the line (``pending_queue``) | its points | when they have changed: it is taken out and put in again |
| an equivalence class (``groups``) | what its runs ask for, the rules of their queue | with the last run |
| options (``EquivalenceClass.options``) | nodes, those that come back, those that failed | with ``node_version`` |
| its pending reason (``RunRow.reported``) | that of its class (``made_of``), position, estimate, rules | with any |
| the order of pending runs (``ReportedReasons.line``) | who came, went or ``moved`` | with the next cycle |
| waits (``ReportedReasons.waits``) | nothing: equal ones stand for each other | with the next cycle |
| reasons of a class (``ReportedReasons.reasons``) | its wait, what nodes lack, its own options | with the next cycle |
| where pods are (``pods``) | views of pods | when a pod changes (``snapshot.changes``) |
| the status of queues (``reported_queues``) | their view, their figures, the rules | with any of them |
| estimates (``start_estimates``) | nothing: they are up to half a minute old | when newer ones are complete |
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import TypeVar, cast
from weakref import WeakValueDictionary

from lockstep.core.admission.cache.equivalence import EquivalenceClass, NodeRequest
from lockstep.core.admission.cache.excluded_runs import ExcludedObject, ExcludedRun, ObjectKey
from lockstep.core.admission.cache.gang_pods import GangPodIndex
from lockstep.core.admission.cache.pending_queue import PendingQueue
from lockstep.core.admission.cache.reported_reasons import ReportedReasons
from lockstep.core.admission.cache.run_index import RunIndex
from lockstep.core.admission.cache.start_estimates import StartEstimates
from lockstep.core.admission.queueing.queue_rules import Rulebook
from lockstep.core.model.node_set import NodeSet
from lockstep.core.model.snapshot import ClusterSnapshot
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_index import NodeIndex

T = TypeVar("T")

_MOST_SHARED = 4096


@dataclass(frozen=True, slots=True)
class ReportedQueueStatus:
    """What the status of a queue was found to lack: nothing (``complete``), or something that is ``due`` then.
    GPU-hours alone are no reason to speak: ``due`` is None."""

    rests_on: object
    hours: int | None
    due: float | None
    complete: bool


@dataclass(slots=True)
class CycleMemory:
    """What cycles keep for each other, for as long as one process admits."""

    run_index: RunIndex = field(default_factory=RunIndex)
    rules: Rulebook = field(default_factory=Rulebook)
    pods: GangPodIndex = field(default_factory=GangPodIndex)
    start_estimates: StartEstimates = field(default_factory=StartEstimates)
    index: NodeIndex | None = None
    node_version: object = None
    """Another object whenever anything of the nodes is new that options rest on."""
    pending_queue: PendingQueue = field(default_factory=PendingQueue)
    reported: ReportedReasons = field(default_factory=ReportedReasons)
    """Pending reasons that the last cycle found."""
    reported_queues: dict[str, ReportedQueueStatus] = field(default_factory=dict)
    excluded_runs: Mapping[str, ExcludedRun] = field(default_factory=dict)
    """By UID, runs that no cycle can be decided with."""
    excluded_objects: Mapping[ObjectKey, ExcludedObject] = field(default_factory=dict)
    """Likewise pods, nodes and queues."""
    answering: tuple[float, float] = (-inf, -inf)
    """When those were answered last who only ask, and until when that is enough of it."""
    wishes: WeakValueDictionary[Hashable, NodeRequest] = field(default_factory=WeakValueDictionary)
    groups: WeakValueDictionary[Hashable, EquivalenceClass] = field(default_factory=WeakValueDictionary)
    _rests_on: object = None
    _now: float = -inf
    _version: int = 0
    _by_rules: dict[Hashable, object] = field(default_factory=dict)
    _by_nodes: dict[Hashable, object] = field(default_factory=dict)

    def observe(self, snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> RunIndex:
        """All runs. When time goes back nothing counts that was judged by it."""
        self.rules.update(snapshot, tunables, anew=now < self._now)
        self._now = now
        if self._version != self.rules.version:
            self._version = self.rules.version
            self._by_rules.clear()
        self.run_index.update(snapshot.runs, snapshot.changes.runs)
        self.pods.update(snapshot.gang_pods, snapshot.changes.pods)
        return self.run_index

    def forget(self) -> None:
        """All but what no cycle can be decided with: the last one failed, and may have left anything half done."""
        fresh = CycleMemory(excluded_runs=self.excluded_runs, excluded_objects=self.excluded_objects)
        for known in fields(self):
            setattr(self, known.name, getattr(fresh, known.name))

    def observe_nodes(self, index: NodeIndex, suspects: Mapping[str, str], returning: NodeSet) -> None:
        """What options rest on, in this cycle."""
        rests_on = self._version, suspects, returning
        if self.index is not index or self._rests_on != rests_on:
            self.node_version = object()
            self._rests_on = rests_on
            self._by_nodes.clear()
        self.index = index

    def by_rules(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once while the rules are the same."""
        return _known(self._by_rules, key, make)

    def by_nodes(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once while no node changes that matters."""
        return _known(self._by_nodes, key, make)


def _known(known: dict[Hashable, object], key: Hashable, make: Callable[[], T]) -> T:
    found = known.get(key)
    if found is None:
        if len(known) >= _MOST_SHARED:
            del known[next(iter(known))]
        found = known[key] = make()
    return cast("T", found)
