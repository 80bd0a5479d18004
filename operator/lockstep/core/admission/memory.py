"""What one admission pass leaves to the next: nothing that cannot be worked out anew.

A row is about one view of a run. Views are never changed, so what was found of one holds for as long as it is the same
object. What else an answer rests on is counted in eras: a new one begins when any of it is not what it was.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import TypeVar, cast

from lockstep.core.admission.entry import holds_nodes, is_asked, is_pending, lacks_nodes
from lockstep.core.admission.holds import Hold
from lockstep.core.admission.jobs import Job
from lockstep.core.admission.order import Order, Points, order_key, share_key
from lockstep.core.conditions import is_true
from lockstep.core.node_index import NodeIndex
from lockstep.core.snapshot import ClusterSnapshot, PodView, RunView
from lockstep.core.trial import is_trial
from lockstep.core.tunables import Tunables

T = TypeVar("T")

_MOST_SHARED = 4096
_BY_AGE = attrgetter("place")


class Row:
    """One view of a run: what it is by itself, and what passes have found of it."""

    __slots__ = (
        "asked",
        "held",
        "hold",
        "hold_era",
        "holds",
        "job",
        "job_era",
        "judged_era",
        "key",
        "lacks",
        "order",
        "over",
        "pending",
        "place",
        "points",
        "points_era",
        "points_until",
        "queue",
        "related",
        "run",
        "share",
        "share_key",
        "takes",
        "trial",
        "wish",
    )

    def __init__(self, run: RunView) -> None:
        self.run = run
        self.key = run.key
        self.place = run.created_at, self.key
        self.queue = run.spec.queue if run.spec is not None else ""
        self.trial = is_trial(run)
        self.asked = is_asked(run)
        self.lacks = lacks_nodes(run)
        self.pending = is_pending(run)
        self.holds = run.spec is not None and holds_nodes(run)
        finished = is_true(run.status, "Finished")
        self.over = run.deleting or finished
        self.takes = () if finished else run.status.assignment.nodes
        self.related = run.spec is not None and bool(run.spec.depends_on or run.spec.singleton)
        self.share_key: tuple[str, str, str] | None = None
        self.points: Points | None = None
        self.points_era = self.hold_era = self.job_era = self.judged_era = -1
        self.points_until = self.share = 0.0
        self.order: tuple[object, ...] = ()
        self.hold: Hold | None = None
        self.wish: Hashable = None
        self.job: Job | None = None
        self.held: tuple[object, int] = (None, 0)

    def points_at(self, now: float, era: int, shares: Mapping[tuple[str, str, str], float], order: Order) -> Points:
        """The points of the run, which waits, and with them its place in the order."""
        if self.share_key is None:
            self.share_key = share_key(self.run)
        share = shares.get(self.share_key, 1.0)
        points = self.points
        if points is None or self.points_era != era or self.share != share or now >= self.points_until:
            self.points = points = order.points(self.run, share)
            self.points_era, self.share, self.points_until = era, share, order.lasts_until(self.run)
            self.order = order_key(self.run, points)
        return points


@dataclass(slots=True)
class Memory:
    """Kept for as long as one process admits. ``rows``: by UID, of all runs there are."""

    index: NodeIndex | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    forecast_at: float | None = None
    estimates: Mapping[str, float] = field(default_factory=dict)
    era: int = 0
    """Of queues, classes, labels, GPU-hours, settings and the number of nodes: what runs are judged by."""
    ground_era: int = 0
    """Of these and of the nodes: what options rest on."""
    pods: tuple[PodView, ...] = ()
    _rules: object = None
    _ground: object = None
    _now: float = -inf
    _seen: list[Row] = field(default_factory=list)
    _in_order: list[Row] = field(default_factory=list)
    _shared: dict[Hashable, object] = field(default_factory=dict)
    _on_ground: dict[Hashable, object] = field(default_factory=dict)
    _pods_facts: dict[Hashable, object] = field(default_factory=dict)

    def look(self, snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> Sequence[Row]:
        """The rows of all runs, by age."""
        rules = (
            tunables,
            dict(snapshot.queues),
            dict(snapshot.namespace_labels),
            dict(snapshot.priority_classes),
            dict(snapshot.gpu_hours),
            len(snapshot.nodes),
        )
        if now < self._now or self._rules != rules:
            self.era += 1
            self._rules = rules
            self._shared.clear()
        self._now = now
        known, rows = self.rows.get, []
        for run in snapshot.runs:
            row = known(run.uid)
            if row is None or row.run is not run:
                row = Row(run)
            rows.append(row)
        if rows != self._seen:
            self._seen = rows
            self.rows = {row.run.uid: row for row in rows}
            self.keys = {row.run.uid: row.key for row in rows}
            self._in_order = sorted(rows, key=_BY_AGE)
        return self._in_order

    def look_at_ground(self, index: NodeIndex, suspects: Mapping[str, str], returning: int) -> None:
        """What options rest on, in this pass."""
        ground = self.era, suspects, returning
        if self.index is not index or self._ground != ground:
            self.ground_era += 1
            self._ground = ground
            self._on_ground.clear()
        self.index = index

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once in an era."""
        return _known(self._shared, key, make)

    def on_ground(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once while no node changes that matters."""
        return _known(self._on_ground, key, make)

    def of_pods(self, pods: tuple[PodView, ...], key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once while the pods of gangs are these."""
        if self.pods is not pods and self.pods != pods:
            self._pods_facts.clear()
        self.pods = pods
        return _known(self._pods_facts, key, make)


def _known(known: dict[Hashable, object], key: Hashable, make: Callable[[], T]) -> T:
    found = known.get(key)
    if found is None:
        if len(known) >= _MOST_SHARED:
            del known[next(iter(known))]
        found = known[key] = make()
    return cast("T", found)
