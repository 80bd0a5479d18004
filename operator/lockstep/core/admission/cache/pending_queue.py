"""The queue of pending runs in priority order: who is judged anew in a cycle, and everybody's place."""

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from itertools import count, filterfalse
from math import inf
from operator import attrgetter

from lockstep.core.admission.cache.entry import PendingReason
from lockstep.core.admission.cache.run_index import RunIndex, RunRow, with_some, without_some
from lockstep.core.admission.queueing.holds import hold_of
from lockstep.core.admission.queueing.order import Order, order_key
from lockstep.core.admission.queueing.queue_rules import Rulebook
from lockstep.core.model.snapshot import ClusterSnapshot, RefusedAdmission
from lockstep.core.model.tunables import Tunables

_BY_ORDER, _GONE = attrgetter("order"), attrgetter("gone")
_FEW = 64


class PendingQueue:
    """All pending runs in their order, as of the cycle before, and when each of them is to be judged again."""

    def __init__(self) -> None:
        self.moved: Collection[RunRow] = ()
        """Those who have another place than in the cycle before, or had none."""
        self._rows: list[RunRow] = []
        self._version = -1  # of the rules by which rows were judged
        self._shares: dict[tuple[str, str, str], float] = {}
        self._refused: dict[str, RefusedAdmission] = {}
        self._unjudged: dict[RunRow, None] = {}
        self._due: list[tuple[float, int, RunRow]] = []  # a heap; for a row only the one with its ``judge_at`` counts
        self._numbers = count()

    def put_in_order(
        self, run_index: RunIndex, rules: Rulebook, snapshot: ClusterSnapshot, tunables: Tunables, now: float
    ) -> list[RunRow]:
        """All pending runs, the first first, with ``held`` of each: what of its own keeps it back."""
        pending, shares, unjudged = run_index.pending, snapshot.fair_shares, self._unjudged
        news = run_index.news()
        self._find_unjudged(news, run_index, rules, snapshot, tunables, now)
        order = Order(tunables.admission, snapshot.priority_classes, len(snapshot.nodes), now)
        line, self._rows = self._rows, []  # should this break off, all of them are sorted next time
        moved: dict[RunRow, tuple[int, bool, float, str]] = {}
        for row in filterfalse(_GONE, unjudged):
            row.rules = rules.for_queue(row.queue)
            share = shares.get(row.share_key, 1.0)
            row.share = int(tunables.admission.weights.fair_share * share)
            points = row.entry.points = order.points(row.run, share)
            reported = row.run.status.queue
            misled = reported.updated is not None and points.have_moved(reported.factors, tunables.admission.weights)
            if misled is not row.misled:
                row.misled = misled
                row.forget_reasons()  # when its status is to be updated is found anew
            place = order_key(row.run, points)
            if place != row.order:
                moved[row] = place
            hold = hold_of(row.run, snapshot, tunables, now, has_live_pods=False)
            row.held = None if hold is None else PendingReason(hold.reason, hold.message, start=hold.until)
            until = inf if hold is None or hold.until is None else hold.until
            row.judge_at = min(order.lasts_until(row.run), until)
            if row.judge_at < inf:
                heappush(self._due, (row.judge_at, next(self._numbers), row))
        unjudged.clear()
        if len(self._due) > 2 * len(pending) + _FEW:  # most are of rows that are gone or were judged anew
            self._due = [(row.judge_at, next(self._numbers), row) for row in pending.values() if row.judge_at < inf]
            heapify(self._due)
        gone = [*filter(_GONE, news)]
        if gone or moved:
            line = without_some([*line], [*gone, *moved], _BY_ORDER)  # the line of the cycle before is compared with
        self.moved = moved.keys()
        for row in moved:
            row.order = moved[row]
        line = with_some(line, [*moved], _BY_ORDER)
        if len(line) != len(pending):
            line = sorted(pending.values(), key=_BY_ORDER)
        self._rows = line
        return line

    def _find_unjudged(
        self,
        news: list[RunRow],
        run_index: RunIndex,
        rules: Rulebook,
        snapshot: ClusterSnapshot,
        tunables: Tunables,
        now: float,
    ) -> None:
        """Those that are new, of whom anything is due, or whose rules or share are others than they were judged by."""
        unjudged = self._unjudged
        unjudged.update(dict.fromkeys(news))
        if self._version != rules.version:
            self._version = rules.version
            for row in run_index.pending.values():
                if row.rules is not rules.for_queue(row.queue):
                    row.rules, row.group = rules.for_queue(row.queue), None
                    row.forget_reasons()
                    unjudged[row] = None
        weight = tunables.admission.weights.fair_share
        if self._shares != snapshot.fair_shares:
            self._shares = dict(snapshot.fair_shares)
            share_of = self._shares.get
            for row in run_index.pending.values():
                if row.share != int(weight * share_of(row.share_key, 1.0)):
                    unjudged[row] = None
        if self._refused != snapshot.refused:
            for uid in {*self._refused, *snapshot.refused}:
                if self._refused.get(uid) != snapshot.refused.get(uid) and uid in run_index.pending:
                    unjudged[run_index.pending[uid]] = None
            self._refused = dict(snapshot.refused)
        due = self._due
        while due and due[0][0] <= now:
            at, _, row = heappop(due)
            if row.judge_at == at:
                unjudged[row] = None
