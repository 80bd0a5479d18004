"""All runs, sorted into what a pass does with them, and kept up by what has changed since the pass before.

A row is about one view of a run. Views are never changed, so what was found of one holds for as long as it is the same
object, and what else an answer rests on says so where it is kept. A pass over ten thousand runs that wait looks at each
of them a few times in passing, and closely only at those that are new or of which something is due.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import TypeVar

from lockstep.core.admission.entry import Entry, Reason, holds_nodes, is_asked, is_pending, lacks_nodes
from lockstep.core.admission.group import Group
from lockstep.core.admission.jobs import Job, Running
from lockstep.core.admission.order import share_key
from lockstep.core.admission.queue_rules import QueueRules
from lockstep.core.conditions import is_true
from lockstep.core.kueue.words import LABEL_QUEUE
from lockstep.core.snapshot import RunView
from lockstep.core.trial import is_trial

T = TypeVar("T")
_BY_AGE = attrgetter("place")


class Row:
    """One view of a run: what it is by itself, and what passes have found of it."""

    __slots__ = (
        "asked",
        "avoids",
        "due",
        "entry",
        "ground",
        "group",
        "held",
        "holds",
        "judge_at",
        "key",
        "lacks",
        "mask",
        "named_to_kueue",
        "order",
        "outdated",
        "pending",
        "place",
        "queue",
        "related",
        "rules",
        "run",
        "running",
        "said",
        "share",
        "share_key",
        "size",
        "takes",
        "trial",
        "uid",
        "wanted",
    )

    wanted: Job

    def __init__(self, run: RunView) -> None:
        spec, status = run.spec, run.status
        finished = is_true(status, "Finished")
        self.run = run
        self.entry = Entry(run, status)
        self.uid = run.uid
        self.key = run.key
        self.place = run.created_at, self.key
        self.queue = spec.queue if spec is not None else ""
        self.trial = is_trial(run)
        self.asked = is_asked(run)
        self.lacks = lacks_nodes(run)
        self.pending = is_pending(run)
        self.holds = spec is not None and holds_nodes(run)
        self.takes = () if finished else status.assignment.nodes
        self.size = sum(map(bool, status.assignment.nodes)) if self.holds else 0
        self.related = self.pending and spec is not None and bool(spec.depends_on or spec.singleton)
        self.named_to_kueue = status.kueue is not None or LABEL_QUEUE in run.labels
        self.avoids = bool(status.recovery.excluded_nodes)
        over = run.deleting or finished
        self.outdated = bool(status.queue.reason) and not (self.pending or self.trial or over)
        # The place in the order, and what holds the run back. As of ``rules``, and until ``judge_at``.
        self.rules: QueueRules | None = None
        self.judge_at = -inf
        self.share_key = share_key(run)
        self.share = 0
        self.order: tuple[object, ...] = ()
        self.held: Reason | None = None
        # What it asks for: ``wanted``, for as long as ``ground`` is that of the pass.
        self.group: Group | None = None
        self.ground: object = None
        # What it was found to wait for last, at which position, and when it is to be told so. As of ``rules``.
        self.said: tuple[Reason, int] | None = None
        self.due: float | None = None
        # The nodes that it has, and until when. As of a numbering, and of ``rules``.
        self.mask: tuple[object, int] = (None, 0)
        self.running: tuple[object, QueueRules, Running] | None = None

    def forget_decisions(self) -> None:
        """Begin with the run as it is seen."""
        points = self.entry.points
        self.entry = Entry(self.run, self.run.status)
        self.entry.points = points


class Roll:
    """Rows by UID, each in every list that it belongs to."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.keys: dict[str, str] = {}
        self.by_age: list[Row] = []
        self.pending: dict[str, Row] = {}
        self.asked: dict[str, Row] = {}
        self.holding: dict[str, Row] = {}
        self.lacking: dict[str, Row] = {}
        self.taking: dict[str, Row] = {}
        """Those whose assignment names nodes."""
        self.related: dict[str, Row] = {}
        """Those of the pending that name others to wait for."""
        self.named_to_kueue: dict[str, Row] = {}
        """Those of the pending that say themselves that Kueue admits them, or were asked for there."""
        self.avoiding: dict[str, Row] = {}
        """Those of the pending that recovery keeps off some nodes."""
        self.outdated: dict[str, Row] = {}
        """Those that wait for nothing any more and say so still."""
        self.changes = 0
        """How often anything was new."""
        self._views: Mapping[int, RunView] = {}
        self._runs: Sequence[RunView] = ()

    def see(self, runs: Sequence[RunView]) -> None:
        """These are all runs now."""
        if runs is self._runs:
            return
        gone, come, self._views = difference(self._views, runs)
        self._runs = runs
        if not gone and not come:
            return
        for run in gone:
            self._drop(run)
        for run in come:
            self._add(Row(run))
        left = [row for row in self.by_age if self.rows.get(row.uid) is row]
        new = {run.uid: self.rows[run.uid] for run in come}
        self.by_age = sorted([*left, *new.values()], key=_BY_AGE)
        self.changes += 1

    def _lists(self, row: Row) -> Iterable[dict[str, Row]]:
        yield self.rows
        if row.pending:
            yield self.pending
            if row.related:
                yield self.related
            if row.named_to_kueue:
                yield self.named_to_kueue
            if row.avoids:
                yield self.avoiding
        if row.asked:
            yield self.asked
        if row.takes:
            yield self.taking
        if row.trial:
            return
        if row.holds:
            yield self.holding
        if row.lacks:
            yield self.lacking
        if row.outdated:
            yield self.outdated

    def _add(self, row: Row) -> None:
        known = self.rows.get(row.uid)
        if known is not None:  # UIDs are unique; should one come twice, the later view counts
            self._drop(known.run)
        for rows in self._lists(row):
            rows[row.uid] = row
        self.keys[row.uid] = row.key

    def _drop(self, run: RunView) -> None:
        row = self.rows.get(run.uid)
        if row is None or row.run is not run:
            return
        for rows in self._lists(row):
            del rows[row.uid]
        del self.keys[row.uid]


def difference(before: Mapping[int, T], items: Sequence[T]) -> tuple[list[T], list[T], Mapping[int, T]]:
    """(those gone, those new, all by identity). What is the same object has not changed: ``before`` keeps its items,
    so that no other can have got the identity of one of them."""
    found = dict(zip(map(id, items), items, strict=True))
    gone = [before[key] for key in before.keys() - found.keys()]
    return gone, [found[key] for key in found.keys() - before.keys()], found
