"""Incremental index of runs by admission state.

A row is about one view of a run. Views are never changed, so what was found of one holds for as long as it is the same
object, and what else an answer rests on says so where it is kept. A cycle over ten thousand pending runs looks at each
of them a few times in passing, and closely only at those that are new or of which something is due.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, count, filterfalse, islice, repeat
from math import inf
from operator import attrgetter, is_, is_not
from typing import Any, NamedTuple, TypeVar

from lockstep.core.admission.cache.entry import Entry, PendingReason, holds_nodes, is_asked, is_pending, lacks_nodes
from lockstep.core.admission.cache.equivalence import EquivalenceClass
from lockstep.core.admission.cache.status_throttle import DueUpdate
from lockstep.core.admission.engine.jobs import Job, RunningJob
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.admission.queueing.queue_rules import QueueRules
from lockstep.core.model.conditions import is_true
from lockstep.core.model.kueue.api_names import LABEL_QUEUE
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.test_only import is_test_only

T = TypeVar("T")
_BY_AGE = attrgetter("place")
_MOST_GAPS, _GAP = 512, 256
_FEW = 100  # up to here to find each its place is cheaper than to sort all of them


class RunRow:
    """One view of a run: what it is by itself, and what cycles have found of it."""

    __slots__ = (
        "_decided",
        "_job",
        "asked",
        "avoids",
        "due",
        "entry",
        "gone",
        "gpu_type",
        "group",
        "held",
        "holds",
        "is_test_only",
        "judge_at",
        "key",
        "lacks",
        "made_of",
        "mask",
        "misled",
        "named_to_kueue",
        "noticed",
        "order",
        "outdated",
        "pending",
        "place",
        "position",
        "queue",
        "related",
        "relimited",
        "reported",
        "reserving",
        "rules",
        "run",
        "running",
        "share",
        "share_key",
        "size",
        "takes",
        "uid",
        "unlimited",
    )

    def __init__(self, run: RunView, decided: list[Entry] | None = None) -> None:
        """``decided``: see ``Entry``."""
        spec, status = run.spec, run.status
        finished = is_true(status, ConditionType.FINISHED)
        self.run = run
        self._decided = decided
        self.entry = Entry(run, status, decided)
        self.uid = run.uid
        self.gone = False  # another view stands for the run, or none
        self.key = run.key
        self.place = run.created_at, self.key
        self.queue = spec.queue if spec is not None else ""
        self.is_test_only = is_test_only(run)
        self.asked = is_asked(run)
        self.lacks = lacks_nodes(run)
        self.pending = is_pending(run)
        self.holds = spec is not None and holds_nodes(run)
        self.takes = () if finished else status.assignment.nodes
        self.gpu_type = status.resolved.gpu_type
        granted, asked = status.admission, spec.time_limit or "" if spec is not None else ""
        self.relimited = self.holds and bool(granted.asked_limit != asked or granted.limited_by)
        self.unlimited = self.holds and granted.time_limit is None
        self.size = sum(map(bool, status.assignment.nodes)) if self.holds else 0
        judged = status.admission.met or status.admission.failed
        self.related = self.pending and spec is not None and bool(spec.depends_on or spec.singleton or judged)
        self.named_to_kueue = status.kueue is not None or LABEL_QUEUE in run.labels
        self.avoids = bool(status.recovery.excluded_nodes)
        self.reserving = status.reservation is not None
        self.noticed = status.preemption is not None
        over = run.deleting or finished
        self.outdated = bool(status.queue.reason) and not (self.pending or self.is_test_only or over)
        # The place in the order, and what holds the run back. As of ``rules``, and until ``judge_at``.
        self.rules: QueueRules | None = None
        self.judge_at = -inf
        self.share_key = share_key(run)
        self.share = 0
        self.order: tuple[object, ...] = ()
        self.misled = False  # its points have moved since they were reported
        self.held: PendingReason | None = None
        # What it asks for. As of ``rules``.
        self.group: EquivalenceClass | None = None
        self._job: Job | None = None
        # Its last pending reason, at which position, and when that is to be reported. As of ``rules``.
        self.reported: PendingReason | None = None
        self.made_of: PendingReason | None = None  # the reason without the estimate; None: it is to be found anew
        self.position = 0
        self.due: DueUpdate | None = None
        # The nodes that it has, and until when. As of a numbering, and of ``rules``.
        self.mask: tuple[object, NodeSet] = (None, EMPTY)
        self.running: tuple[object, QueueRules, RunningJob] | None = None

    @property
    def terms(self) -> EquivalenceClass:
        """What it asks for like all of its group."""
        assert self.group is not None
        return self.group

    @property
    def wanted(self) -> Job:
        """The job that it is, with what its group may have now."""
        group, job = self.group, self._job
        assert group is not None
        if job is None or job.group is not group or job.options is not group.options:
            limits = group.duration, group.min_duration, 0.0, group.latest_end
            job = self._job = Job(self.uid, self.queue, group.options, *limits, group)
        return job

    def forget_decisions(self) -> None:
        """Begin with the run as it is seen."""
        points = self.entry.points
        self.entry = Entry(self.run, self.run.status, self._decided)
        self.entry.points = points
        self.forget_reasons()

    def forget_reasons(self) -> None:
        """Nothing counts that it was found to wait for."""
        self.reported = self.made_of = None


class HeldNodes(NamedTuple):
    """So many runs that hold so many nodes together."""

    runs: int
    nodes: int


class RunIndex:
    """Rows by UID, each in every list that its admission state puts it in."""

    def __init__(self) -> None:
        self.rows: dict[str, RunRow] = {}
        self.keys: dict[str, str] = {}
        self.by_age: list[RunRow] = []
        self.pending: dict[str, RunRow] = {}
        self.pending_in: Counter[str] = Counter()
        """How many of them by queue."""
        self.test_only: dict[str, RunRow] = {}
        self.asked: dict[str, RunRow] = {}
        self.holding: dict[str, RunRow] = {}
        self.held_in: dict[tuple[str, str], HeldNodes] = {}
        """What they come to, by queue and GPU type."""
        self.lacking: dict[str, RunRow] = {}
        self.taking: dict[str, RunRow] = {}
        """Those whose assignment names nodes."""
        self.related: dict[str, RunRow] = {}
        """Those of the pending that name others to wait for."""
        self.named_to_kueue: dict[str, RunRow] = {}
        """Those of the pending that say themselves that Kueue admits them, or were asked for there."""
        self.avoiding: dict[str, RunRow] = {}
        """Those of the pending that recovery keeps off some nodes."""
        self.outdated: dict[str, RunRow] = {}
        """Those no longer pending whose status still has a pending reason."""
        self.reserving: dict[str, RunRow] = {}
        """Those with a reservation."""
        self.relimited: dict[str, RunRow] = {}
        """Those of the holding whose time limit was changed since, or not granted as a whole."""
        self.unlimited: dict[str, RunRow] = {}
        """Those of the holding that were granted no time limit."""
        self.noticed: dict[str, RunRow] = {}
        """Those that were given notice of preemption."""
        self.reported_at: Counter[float] = Counter()
        """Pending runs by the time of their last status update."""
        self.to_report: dict[str, RunRow] = {}
        """Those of the pending whose status is to be written, now or later."""
        self._news: list[RunRow] = []
        self._decided: list[Entry] = []
        self._runs: Sequence[RunView] = ()

    def update(self, runs: Sequence[RunView]) -> None:
        """Index ``runs``, which are all runs now; only what has changed is read."""
        if runs is self._runs:
            return
        gone, come = difference(self._runs, runs)
        new = [RunRow(run, self._decided) for run in come]
        self._runs = runs
        if not gone and not come:
            return
        lost = [row for run in gone if (row := self._drop(run)) is not None]
        lost += [row for new_row in new if (row := self._add(new_row)) is not None]
        self.by_age = with_some(without_some(self.by_age, lost, _BY_AGE), [row for row in new if not row.gone], _BY_AGE)

    def news(self) -> list[RunRow]:
        """Pending ones that came or are gone since this was asked last."""
        news, self._news = self._news, []
        return news

    def forget_decisions(self) -> None:
        """What a cycle decided is in its plan, or came to nothing: runs are again as they are seen."""
        decided = [*self._decided]
        self._decided.clear()
        for entry in decided:
            row = self.rows.get(entry.run.uid)
            if row is not None and row.entry is entry:
                row.forget_decisions()

    def decided(self) -> list[Entry]:
        """Runs whose status is to change, by age."""
        uids = dict.fromkeys(entry.run.uid for entry in self._decided)
        rows = [row for uid in uids if (row := self.rows[uid]).entry.status is not row.run.status]
        return [row.entry for row in sorted(rows, key=_BY_AGE)]

    def _lists(self, row: RunRow) -> Iterable[dict[str, RunRow]]:
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
        if row.is_test_only:
            yield self.test_only
            return
        if row.reserving:
            yield self.reserving
        if row.noticed:
            yield self.noticed
        if row.holds:
            yield self.holding
            if row.relimited:
                yield self.relimited
            if row.unlimited:
                yield self.unlimited
        if row.lacks:
            yield self.lacking
        if row.outdated:
            yield self.outdated

    def _add(self, row: RunRow) -> RunRow | None:
        """The row in whose place it comes. UIDs are unique; should one come twice, the later view counts."""
        known = self.rows.get(row.uid)
        replaced = self._drop(known.run) if known is not None else None
        for rows in self._lists(row):
            rows[row.uid] = row
        self.keys[row.uid] = row.key
        self._count(row, 1)
        if row.pending:
            self._news.append(row)
        return replaced

    def _drop(self, run: RunView) -> RunRow | None:
        row = self.rows.get(run.uid)
        if row is None or row.run is not run:
            return None
        for rows in self._lists(row):
            del rows[row.uid]
        del self.keys[row.uid]
        self._count(row, -1)
        self.to_report.pop(row.uid, None)
        row.gone = True
        if row.pending:
            self._news.append(row)
        return row

    def _count(self, row: RunRow, step: int) -> None:
        self.pending_in[row.queue] += step * row.pending
        if row.pending and (updated := row.run.status.queue.updated) is not None:
            self.reported_at[updated] += step
            if not self.reported_at[updated]:
                del self.reported_at[updated]
        count_held(self.held_in, row, step)


def count_held(held: dict[tuple[str, str], HeldNodes], row: RunRow, step: int) -> None:
    """``row`` holds nodes from now on (1), or no longer (-1)."""
    if not row.holds:
        return
    runs, nodes = held.pop((row.queue, row.gpu_type), (0, 0))
    if runs + step:
        held[row.queue, row.gpu_type] = HeldNodes(runs + step, nodes + step * row.size)


def difference(before: Sequence[T], items: Sequence[T]) -> tuple[list[T], list[T]]:
    """(those gone, those new). What is the same object has not changed; most of them are, at the place they had."""
    old, new = out_of_line(before, items)
    known, found = {*map(id, old)}, {*map(id, new)}
    gone = compress(old, map((known - found).__contains__, map(id, old)))
    come = compress(new, map((found - known).__contains__, map(id, new)))
    return [*{id(item): item for item in gone}.values()], [*{id(item): item for item in come}.values()]


def out_of_line(before: Sequence[T], items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Those of each that are left over when the same objects are matched in order: gone, new, or at another place.

    It is all seen in one passing, unless most of them are others.
    """
    old, new = list[T](), list[T]()
    left_before, left = iter(before), iter(items)
    then = at = 0  # what comes next of each
    for _ in range(_MOST_GAPS):
        alike = next(compress(count(), map(is_not, left_before, left)), None)
        if alike is None:
            alike = min(len(before) - then, len(items) - at)
            return [*old, *before[then + alike :]], [*new, *items[at + alike :]]
        then, at = then + alike, at + alike
        gone, come = _gap(before, then, items, at)
        old += before[then : then + gone]
        new += items[at : at + come]
        if gone != come:  # and those right after are the same
            next(islice(left_before, gone, gone), None)
            next(islice(left, come, come), None)
            gone, come = gone + 1, come + 1
        then, at = then + gone, at + come
    return [*old, *before[then:]], [*new, *items[at:]]


def _gap(before: Sequence[T], then: int, items: Sequence[T], at: int) -> tuple[int, int]:
    """How many are gone from ``then`` on, and how many have come at ``at``: some of either, up to what is the same in
    both, or one in the place of another."""
    if all(map(is_, before[then + 1 : then + 2], items[at + 1 : at + 2])):
        return 1, 1
    gone, come = _ahead(items[at], before, then), _ahead(before[then], items, at)
    if not gone and not come:
        return 1, 1
    return (gone, 0) if gone and (not come or gone <= come) else (0, come)


def _ahead(item: T, line: Sequence[T], at: int) -> int:
    """By how many places ``item`` comes after ``at``; 0: it is not among the next."""
    return next(compress(count(1), map(is_, islice(line, at + 1, at + _GAP), repeat(item))), 0)


def with_some(rows: list[RunRow], more: Sequence[RunRow], key: Callable[[RunRow], Any]) -> list[RunRow]:
    """``rows``, which are in the order of ``key``, with some ``more``. What is given may be changed."""
    if len(more) > _FEW:
        return sorted([*rows, *more], key=key)
    for row in more:
        insort(rows, row, key=key)
    return rows


def without_some(rows: list[RunRow], lost: Sequence[RunRow], key: Callable[[RunRow], Any]) -> list[RunRow]:
    """``rows``, which are in the order of ``key``, without those that are ``lost``. What is given may be changed."""
    if len(lost) > _FEW:
        return [*filterfalse({*lost}.__contains__, rows)]
    for row in lost:
        at, place = bisect_left(rows, key(row), key=key), key(row)
        while at < len(rows) and key(rows[at]) == place:
            if rows[at] is row:
                del rows[at]
            else:
                at += 1
    return rows
