"""Pending reasons of the last cycle, to write only changes."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from operator import attrgetter, ne

from lockstep.core.admission.cache.entry import PendingReason
from lockstep.core.admission.cache.run_index import RunRow, out_of_line
from lockstep.core.admission.engine.cycle_result import Wait
from lockstep.core.admission.engine.jobs import Option

_BY_ORDER, _POSITION = attrgetter("order"), attrgetter("position")


@dataclass(frozen=True, slots=True)
class ClassReason:
    """The pending reason of a wait, for one group. ``options``: those it names, if no other group shares them.

    ``lasting``: they follow from the wait, and from nothing else that may change from cycle to cycle.
    """

    wait: Wait
    options: tuple[Option, ...] | None
    lacks: tuple[str, bool]
    reason: PendingReason
    lasting: bool


@dataclass(slots=True)
class ReportedReasons:
    """All of one cycle. Empty after a cycle that reported nothing or broke off: then every pending run is examined."""

    line: Sequence[RunRow] = ()
    by_queue: Mapping[str, Sequence[RunRow]] = field(default_factory=dict)
    estimated: Sequence[RunRow] = ()
    """Pending runs with an estimated start of their own, apart from their group's."""
    waits: dict[Wait, Wait] = field(default_factory=dict)
    reasons: dict[Hashable, ClassReason] = field(default_factory=dict)
    """By group and the identity of the wait."""
    last_reasons: dict[Hashable, ClassReason] = field(default_factory=dict)
    """By group, the reason of its last run in the queue: mostly that of all of them."""

    def set_order(self, line: Sequence[RunRow], before: "ReportedReasons") -> Mapping[RunRow, int]:
        """``line`` waits now, by ``RunRow.order``. The positions of those who had others, or did not wait, in the cycle
        ``before``.

        A position is a place among those of the same queue, 1 the first: no other queue moves it.
        """
        self.line, self.by_queue = line, before.by_queue
        then, now = out_of_line(before.line, line)
        if not now and not then:
            return {}
        come, gone = {*now}.difference(then), {*then}.difference(now)
        changed = defaultdict[str, list[RunRow]](list)
        for row in {*now, *then}:
            changed[row.queue].append(row)
        by_queue = self.by_queue = dict(before.by_queue)
        moved: dict[RunRow, int] = {}
        for queue, others in changed.items():
            rows = by_queue[queue] = sorted({*by_queue.get(queue, ()), *others} - gone, key=_BY_ORDER)
            moved.update(compress(zip(rows, count(1)), map(ne, map(_POSITION, rows), count(1))))
            if not come.isdisjoint(others):
                moved.update((row, at) for at, row in enumerate(rows, 1) if row in come)
        return moved
