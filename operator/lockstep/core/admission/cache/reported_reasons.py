"""Pending reasons of the last cycle, to write only changes."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter

from lockstep.core.admission.cache.entry import PendingReason
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.engine.cycle_result import Wait
from lockstep.core.admission.engine.jobs import Option
from lockstep.core.model.reasons import WaitReason

_BY_ORDER = attrgetter("order")


@dataclass(frozen=True, slots=True)
class ClassReason:
    """The pending reason of a wait, for one group. ``options``: those it names, if no other group shares them.

    ``lasting``: they follow from the wait, and from nothing else that may change from cycle to cycle.
    """

    wait: Wait
    options: tuple[Option, ...] | None
    lacks: tuple[str, WaitReason | None]
    reason: PendingReason
    lasting: bool


@dataclass(slots=True)
class ReportedReasons:
    """All of one cycle. Empty after a cycle that reported nothing or broke off: then every pending run is examined."""

    line: Sequence[RunRow] = ()
    waiting: Set[RunRow] = frozenset()
    """Who is in it."""
    by_queue: Mapping[str, Sequence[RunRow]] = field(default_factory=dict)
    estimated: Sequence[RunRow] = ()
    """Pending runs with an estimated start of their own, apart from their group's."""
    waits: dict[Wait, Wait] = field(default_factory=dict)
    reasons: dict[Hashable, ClassReason] = field(default_factory=dict)
    """By group and the identity of the wait."""
    last_reasons: dict[Hashable, ClassReason] = field(default_factory=dict)
    """By group, the reason of its last run in the queue: mostly that of all of them."""

    def set_order(
        self, line: Sequence[RunRow], moved: Iterable[RunRow], before: "ReportedReasons"
    ) -> Mapping[RunRow, int]:
        """``line`` waits now, by ``RunRow.order``; since the cycle ``before`` those ``moved`` have other orders. The
        positions of those who had others, or did not wait then.

        A position is a place among those of the same queue, 1 the first: no other queue moves it.
        """
        self.line, self.waiting, self.by_queue = line, {*line}, before.by_queue
        positions: dict[RunRow, int] = {}
        if line == before.line:
            return positions
        others = self.waiting ^ before.waiting
        changed = defaultdict[str, set[RunRow]](set)
        for row in (*others, *moved):
            changed[row.queue].add(row)
        by_queue = self.by_queue = dict(before.by_queue)
        for queue, rows in changed.items():
            now = by_queue[queue] = sorted(rows.union(by_queue.get(queue, ())) & self.waiting, key=_BY_ORDER)
            positions.update((row, at) for at, row in enumerate(now, 1) if row.position != at or row in others)
        return positions
