"""What one admission pass leaves to the next: nothing that cannot be worked out anew.

Whatever is kept says what it rests on, and is looked up by that or thrown away with it:

| kept | rests on | goes |
|---|---|---|
| a row (``roll``) | one view of a run | when another object stands for the run |
| its points and what holds it back | the rules of its queue, its share, time | with any of them |
| its place in the line (``line``) | its points | when they have changed: it is taken out and put in again |
| a group (``group``) | what its runs ask for, the rules of their queue | with the last of the runs |
| options (``Group.options``) | nodes, those that come back, those that failed | with ``ground`` |
| what it waits for in words (``Row.said``) | its group's words (``made_of``), position, estimate, rules | with any |
| who waited in which order (``Said.line``) | nothing: compared by identity, queue by queue | with the next pass |
| what was waited for (``Said.waits``) | nothing: equal ones stand for each other | with the next pass |
| words of a group (``Said.words``) | its wait, what nodes lack, its options if not shared | with the next pass |
| where pods are (``pod_book``) | views of pods | pod by pod |
| what queues were found to say | their view, their figures, the rules | with any of them |
| estimates (``forecast``) | nothing: they are up to half a minute old | when newer ones are complete |
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar, cast
from weakref import WeakValueDictionary

from lockstep.core.admission.cache.equivalence import Group, Wish
from lockstep.core.admission.cache.excluded_runs import LeftOut
from lockstep.core.admission.cache.gang_pods import PodBook
from lockstep.core.admission.cache.pending_queue import Line
from lockstep.core.admission.cache.reported_reasons import Said
from lockstep.core.admission.cache.run_index import Roll
from lockstep.core.admission.cache.start_estimates import Forecast
from lockstep.core.admission.queueing.queue_rules import Rulebook
from lockstep.core.model.node_set import NodeSet
from lockstep.core.model.snapshot import ClusterSnapshot
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_index import NodeIndex

T = TypeVar("T")

_MOST_SHARED = 4096


@dataclass(frozen=True, slots=True)
class QueueSaid:
    """What the status of a queue was found to lack: nothing (``complete``), or something that is ``due`` then.
    GPU-hours alone are no reason to speak: ``due`` is None."""

    rests_on: object
    hours: int | None
    due: float | None
    complete: bool


@dataclass(slots=True)
class Memory:
    """Kept for as long as one process admits."""

    roll: Roll = field(default_factory=Roll)
    rules: Rulebook = field(default_factory=Rulebook)
    pods: PodBook = field(default_factory=PodBook)
    forecast: Forecast = field(default_factory=Forecast)
    index: NodeIndex | None = None
    ground: object = None
    """Another object whenever anything of the nodes is new that options rest on."""
    line: Line = field(default_factory=Line)
    said: Said = field(default_factory=Said)
    """What the pass before found to tell those who wait."""
    queues_said: dict[str, QueueSaid] = field(default_factory=dict)
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    """By UID, runs that no pass can be decided with."""
    wishes: WeakValueDictionary[Hashable, Wish] = field(default_factory=WeakValueDictionary)
    groups: WeakValueDictionary[Hashable, Group] = field(default_factory=WeakValueDictionary)
    _rests_on: object = None
    _now: float = -inf
    _version: int = 0
    _by_rules: dict[Hashable, object] = field(default_factory=dict)
    _by_ground: dict[Hashable, object] = field(default_factory=dict)

    def look(self, snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> Roll:
        """All runs. When time goes back nothing counts that was judged by it."""
        self.rules.see(snapshot, tunables, anew=now < self._now)
        self._now = now
        if self._version != self.rules.version:
            self._version = self.rules.version
            self._by_rules.clear()
        self.roll.see(snapshot.runs)
        self.pods.see(snapshot.gang_pods)
        return self.roll

    def look_at_ground(self, index: NodeIndex, suspects: Mapping[str, str], returning: NodeSet) -> None:
        """What options rest on, in this pass."""
        rests_on = self._version, suspects, returning
        if self.index is not index or self._rests_on != rests_on:
            self.ground = object()
            self._rests_on = rests_on
            self._by_ground.clear()
        self.index = index

    def by_rules(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once while the rules are the same."""
        return _known(self._by_rules, key, make)

    def by_ground(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once while no node changes that matters."""
        return _known(self._by_ground, key, make)

    def anew(self) -> "Memory":
        """One that knows nothing but the estimates as they are: what it decides is what this one has to."""
        return Memory(forecast=self.forecast.settled())


def _known(known: dict[Hashable, object], key: Hashable, make: Callable[[], T]) -> T:
    found = known.get(key)
    if found is None:
        if len(known) >= _MOST_SHARED:
            del known[next(iter(known))]
        found = known[key] = make()
    return cast("T", found)
