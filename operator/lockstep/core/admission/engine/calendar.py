"""Node calendar: which nodes are free when, with releases at the ends of running jobs, and claims for a while."""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from lockstep.core.admission.engine.jobs import OVERDUE, Choose, NodeClaim
from lockstep.core.model.node_set import EMPTY, NodeSet

_MOST_TALLIES = 8


@dataclass(slots=True)
class _Tally:
    """Numbers of nodes in one set.

    ``released``: per release, -1 until it is counted; ``since``: when so many are; ``claimed``: per stretch.
    """

    nodes: NodeSet
    released: list[int]
    claimed: list[int]
    since: dict[int, float] = field(default_factory=dict)


class Calendar:
    """Free nodes from ``now`` on.

    Nodes become free at the ends of those who hold them, and stay so but for claims. So a job that starts at s
    finds what is released by s less all that is claimed within its duration. Nodes in neither ``free`` nor ``ends``
    never become free.
    """

    def __init__(
        self, now: float, free: NodeSet, ends: Iterable[tuple[float, NodeSet]], claims: Iterable[NodeClaim] = ()
    ) -> None:
        self.now = now
        self._free, self._ends = free, tuple(ends)
        self._owned: list[NodeClaim] = []
        holders = sorted((end if end > now else now + OVERDUE, nodes) for end, nodes in self._ends)
        # From the last to the first, so that a node that two hold is free after both.
        held = EMPTY
        masks: list[NodeSet] = []
        times: list[float] = []
        for end, nodes in reversed(holders):
            if not times or times[-1] != end:
                times.append(end)
                masks.append(held)
            held |= nodes
        everything = free | held
        self._release_times = [now, *reversed(times)]
        self._released = [everything ^ mask for mask in chain((held,), reversed(masks))]
        # Stretches of time between which claims change: stretch i lasts from times[i] to times[i + 1].
        self._times = [now]
        self._claimed = [EMPTY]
        self._claimed_from_now: list[NodeSet] = []  # by stretch: claimed in any up to it
        self._moments = list(self._release_times)
        self._counts_from_now: dict[tuple[int, int], int] = {}
        self._counts_at_last: dict[int, int] = {}
        self._tallies: dict[NodeSet, _Tally] = {}
        for claim in claims:
            self.claim(claim)

    def without(self, owner: str) -> "Calendar":
        """As it were without the claims of ``owner``."""
        others = (claim for claim in self._owned if claim.owner != owner)
        return Calendar(self.now, self._free, self._ends, others)

    def claim(self, claim: NodeClaim) -> None:
        """The nodes of ``claim`` are nobody else's while it lasts."""
        start, end = max(self.now, claim.start), claim.end
        if end <= start:
            return
        if self._tallies and claim.nodes & ~self.free(start, end):
            self._tallies.clear()  # they count what is both free and claimed
        self._owned.append(claim)
        first, last = self._stretch_from(start), self._stretch_from(end)
        self._claimed[first:last] = [claimed | claim.nodes for claimed in self._claimed[first:last]]
        del self._claimed_from_now[first:]
        self._counts_from_now.clear()
        if not math.isinf(end):
            insort(self._moments, end)
        for tally in self._tallies.values():
            count = (tally.nodes & claim.nodes).bit_count()
            if count:
                tally.claimed[first:last] = [claimed + count for claimed in tally.claimed[first:last]]

    def free(self, start: float, end: float) -> NodeSet:
        """The nodes that are free from ``start`` until ``end``."""
        released = self._released_by(start)
        claimed = self._claimed_within(start, end)
        return released ^ (released & claimed)

    @property
    def at_last(self) -> NodeSet:
        """All nodes that are ever free."""
        return self._released[-1]

    def count_at_last(self, nodes: NodeSet) -> int:
        """How many of ``nodes`` are ever free. Remembered by the identity of ``nodes``, which must last."""
        count = self._counts_at_last.get(id(nodes))
        if count is None:
            count = self._counts_at_last[id(nodes)] = (self.at_last & nodes).bit_count()
        return count

    def count_from_now(self, end: float, nodes: NodeSet) -> int:
        """How many of ``nodes`` are free until ``end``. Remembered by the identity of ``nodes``, which must last."""
        key = bisect_left(self._times, end), id(nodes)
        count = self._counts_from_now.get(key)
        if count is None:
            count = self._counts_from_now[key] = (self.free(self.now, end) & nodes).bit_count()
        return count

    def moments(self, after: float) -> list[float]:
        """When a job could start that cannot before: ``after``, ends of runs and of claims; ascending."""
        return [after, *self._moments[bisect_right(self._moments, after) :]]

    def changes(self, after: float, before: float) -> list[float]:
        """When claims change between the two, ascending: a job that ends then may find more than one that goes on."""
        return self._times[bisect_right(self._times, after) : bisect_left(self._times, before)]

    def earliest(
        self, eligible: NodeSet, count: int, length: float, after: float, latest: float, choose: Choose, *, strict: bool
    ) -> tuple[float, NodeSet] | None:
        """The first start from ``after`` to ``latest`` at which ``count`` nodes are free for ``length``.

        ``choose`` finds them among those that are free; unless it is ``strict`` it always does where there are so many.
        """
        starts = self.moments(after)
        tally = self._tally(eligible)
        index, step = 0, 1
        while index < len(starts):
            enough = self._enough(tally, count, length, starts[index])
            if math.isinf(enough) or enough > latest:
                return None
            index = bisect_left(starts, enough, index)
            # Starts index..last are ruled out at once when not even what is free at the last of them will do,
            # less only what is claimed in the time that they all share.
            last = min(index + step, len(starts)) - 1
            if last < index:
                return None
            usable = self.free(starts[last], starts[index] + length) & eligible
            if usable.bit_count() < count or (strict and choose(usable) is None):
                index, step = last + 1, step * 2
            elif last > index:
                step //= 2
            else:
                nodes = choose(usable) if starts[index] <= latest else None
                return None if nodes is None else (starts[index], nodes)
        return None

    def _enough(self, tally: _Tally, count: int, length: float, start: float) -> float:
        """The first time from ``start`` on at which mere numbers do not forbid to start; infinity: never."""
        times, claimed, released = self._times, tally.claimed, tally.since
        stretch, end, last = bisect_right(times, start) - 1, start + length, len(times) - 1
        while stretch <= last and (time := times[stretch]) < end:
            wanted = count + claimed[stretch]
            since = released.get(wanted)
            if since is None:
                since = released[wanted] = self._released_since(tally, wanted)
            if since > start and since > time:
                until = times[stretch + 1] if stretch < last else math.inf
                start = min(since, until)
                end = start + length
                if since < until:
                    continue
            stretch += 1
        return start

    def _released_since(self, tally: _Tally, count: int) -> float:
        """When ``count`` nodes are released, claimed or not; infinity: never."""
        released, low, high = tally.released, 0, len(tally.released)
        while low < high:
            middle = (low + high) // 2
            found = released[middle]
            if found < 0:
                found = released[middle] = (self._released[middle] & tally.nodes).bit_count()
            if found < count:
                low = middle + 1
            else:
                high = middle
        return self._release_times[low] if low < len(released) else math.inf

    def _tally(self, eligible: NodeSet) -> _Tally:
        """Numbers of the ``eligible`` nodes or, when there are too many tallies, of a set that they are in."""
        nodes = eligible & self._released[-1]
        tally = self._tallies.get(nodes)
        if tally is None and len(self._tallies) >= _MOST_TALLIES:
            nodes = self._released[-1]
            wider = (tally for tally in self._tallies.values() if tally.nodes & eligible == eligible & nodes)
            tally = next(wider, None)
        if tally is None:
            # What is claimed while somebody else still holds it is not free either way, and counts once.
            claimed = [
                (claimed & nodes & self._released_by(time)).bit_count() if claimed else 0
                for time, claimed in zip(self._times, self._claimed, strict=True)
            ]
            tally = self._tallies[nodes] = _Tally(nodes, [-1] * len(self._released), claimed)
        return tally

    def _released_by(self, time: float) -> NodeSet:
        return self._released[bisect_right(self._release_times, time) - 1]

    def _claimed_within(self, start: float, end: float) -> NodeSet:
        last = bisect_left(self._times, end)
        if start <= self.now:
            known = self._claimed_from_now
            while len(known) < last:
                known.append(self._claimed[len(known)] | (known[-1] if known else EMPTY))
            return known[last - 1] if last else EMPTY
        claimed = EMPTY
        for mask in self._claimed[bisect_right(self._times, start) - 1 : last]:
            claimed |= mask
        return claimed

    def _stretch_from(self, time: float) -> int:
        """The stretch that begins at ``time``, made if there is none."""
        index = bisect_left(self._times, time)
        if index == len(self._times) or self._times[index] != time:
            self._times.insert(index, time)
            self._claimed.insert(index, self._claimed[index - 1])
            del self._claimed_from_now[index:]
            for tally in self._tallies.values():
                tally.claimed.insert(index, tally.claimed[index - 1])
        return index
