"""The line of those who wait: who is judged anew in a pass, and everybody's place."""

from math import inf
from operator import attrgetter

from lockstep.core.admission.entry import Reason
from lockstep.core.admission.holds import hold_of
from lockstep.core.admission.memory import Memory
from lockstep.core.admission.order import Order, order_key
from lockstep.core.admission.roll import Row
from lockstep.core.snapshot import ClusterSnapshot
from lockstep.core.tunables import Tunables

_BY_ORDER = attrgetter("order")


def put_in_order(memory: Memory, snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> list[Row]:
    """All pending runs, the first first, with ``held`` of each: what of its own keeps it back."""
    pending, rules, shares = memory.roll.pending, memory.rules, snapshot.fair_shares
    if memory.judged != (version := rules.version):
        memory.judged = version
        for row in pending.values():
            if row.rules is not rules.of(row.queue):
                row.rules, row.said, row.ground, row.judge_at = rules.of(row.queue), None, None, -inf
    weight = tunables.admission.weights.fair_share
    if memory.shares != shares:
        memory.shares = dict(shares)
        share_of = shares.get
        for row in pending.values():
            if row.share != int(weight * share_of(row.share_key, 1.0)):
                row.judge_at = -inf
    order = Order(tunables.admission, snapshot.priority_classes, len(snapshot.nodes), now)
    due = [row for row in pending.values() if row.judge_at <= now]
    for row in due:
        row.rules = rules.of(row.queue)
        share = shares.get(row.share_key, 1.0)
        row.share = int(weight * share)
        points = row.entry.points = order.points(row.run, share)
        row.order = order_key(row.run, points)
        hold = hold_of(row.run, snapshot, tunables, now, has_live_pods=False)
        row.held = None if hold is None else Reason(hold.reason, hold.message, start=hold.until)
        until = inf if hold is None or hold.until is None else hold.until
        row.judge_at = min(order.lasts_until(row.run), until)
    if due or memory.lined_up != memory.roll.changes:
        memory.lined_up = memory.roll.changes
        before = {row.uid: row for row in memory.in_order}
        known = [row for uid, row in before.items() if pending.get(uid) is row]
        known += [row for uid, row in pending.items() if before.get(uid) is not row]
        known.sort(key=_BY_ORDER)
        memory.in_order = known
    return memory.in_order
