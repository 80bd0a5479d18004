"""Incremental index of runs by admission state.

A row is about one view of a run. Views are never changed, so what was found of one holds for as long as it is the same
object, and what else an answer rests on says so where it is kept. A cycle over ten thousand pending runs looks at each
of them a few times in passing, and closely only at those that are new or of which something is due.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

from lockstep.core.admission.cache.entry import (
    Entry,
    PendingReason,
    holds_nodes,
    is_asked,
    is_pending,
    is_unjudged,
    lacks_nodes,
)
from lockstep.core.admission.cache.equivalence import EquivalenceClass
from lockstep.core.admission.cache.status_throttle import DueUpdate
from lockstep.core.admission.engine.jobs import Job, RunningJob
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.admission.queueing.queue_rules import QueueRules
from lockstep.core.model.conditions import is_true
from lockstep.core.model.kept_nodes import nodes_kept
from lockstep.core.model.kueue.api_names import LABEL_QUEUE
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import RunView, maybe_changed
from lockstep.core.model.test_only import is_test_only

_BY_AGE = attrgetter("place")
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
        "unjudged",
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
        self.queue = queue_of(run)
        self.is_test_only = is_test_only(run)
        self.asked = is_asked(run)
        self.lacks = lacks_nodes(run)
        self.pending = is_pending(run)
        self.unjudged = self.pending and is_unjudged(run)
        self.holds = spec is not None and holds_nodes(run)
        self.takes = () if finished else status.assignment.nodes
        self.gpu_type = status.resolved.gpu_type
        granted, asked = status.admission, spec.time_limit or "" if spec is not None else ""
        self.relimited = self.holds and not run.spec_error and bool(granted.asked_limit != asked or granted.limited_by)
        self.unlimited = self.holds and not run.spec_error and granted.time_limit is None
        self.size = sum(map(bool, status.assignment.nodes)) if self.holds else nodes_kept(status)
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
            job = self._job = Job(self.uid, self.queue, group.options, *limits, group, group.may_start)
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
        self.unjudged: dict[str, RunRow] = {}
        """Those of the pending that were edited, and may not start until they are judged."""
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

    def update(self, runs: Iterable[RunView], changed: Mapping[str, RunView | None] | None = None) -> None:
        """Index ``runs``, which are all runs now. ``changed``: see ``maybe_changed``."""
        others = [
            (uid, None if run is None else RunRow(run, self._decided))
            for uid, run in maybe_changed(changed, runs, self.rows).items()
            if run is not (self.rows[uid].run if uid in self.rows else None)
        ]
        if not others:
            return
        gone = [row for uid, _ in others if (row := self._drop(uid)) is not None]
        come = [row for _, row in others if row is not None]
        for row in come:
            self._add(row)
        self.by_age = with_some(without_some(self.by_age, gone, _BY_AGE), come, _BY_AGE)

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
            if row.unjudged:
                yield self.unjudged
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

    def _add(self, row: RunRow) -> None:
        for rows in self._lists(row):
            rows[row.uid] = row
        self.keys[row.uid] = row.key
        self._count(row, 1)
        if row.pending:
            self._news.append(row)

    def _drop(self, uid: str) -> RunRow | None:
        row = self.rows.get(uid)
        if row is None:
            return None
        for rows in self._lists(row):
            del rows[uid]
        del self.keys[uid]
        self._count(row, -1)
        self.to_report.pop(uid, None)
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
    """``row`` holds nodes from now on (1), or no longer (-1); be it that they are kept for debugging."""
    if not (row.holds or row.size):
        return
    runs, nodes = held.pop((row.queue, row.gpu_type), (0, 0))
    if runs + step:
        held[row.queue, row.gpu_type] = HeldNodes(runs + step, nodes + step * row.size)


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
