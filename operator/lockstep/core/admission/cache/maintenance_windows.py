"""Maintenance windows as node claims: nothing is stopped for one, and nothing starts that would overrun it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lockstep.api.base.times import to_rfc3339
from lockstep.core.admission.cache.entry import PendingReason
from lockstep.core.admission.engine.jobs import NO_LIMIT, NodeClaim
from lockstep.core.model.admission_settings import MaintenanceWindow
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.reasons import WaitReason
from lockstep.core.placement.node_index import NodeIndex

OWNER = "window:"
"""What the owners of such claims begin with; the window's name follows."""
_MOST_OCCURRENCES = 64


@dataclass(frozen=True, slots=True)
class MaintenanceConflict:
    """Maintenance that a gang would be in, or run into, on nodes that it does not have yet.

    ``claims`` are those in its way from ``now`` until it ``ends``; times in Unix seconds.
    """

    claims: tuple[NodeClaim, ...] = ()
    now: float = 0.0
    ends: float = 0.0

    @property
    def nodes(self) -> NodeSet:
        """None of these are for it."""
        return nodes_of(self.claims)

    def reason(self, nodes: NodeSet) -> PendingReason:
        """Why it does not get ``nodes``, some of which are closed to it."""
        inside = [claim for claim in self.claims if claim.nodes & nodes] or self.claims
        first = min(inside, key=lambda claim: claim.start)
        name, begins, over = first.owner.removeprefix(OWNER), to_rfc3339(first.begins), to_rfc3339(first.end)
        when = f"until {over}" if first.begins <= self.now else f"from {begins} on, before the run ends"
        words = f"the free nodes are in the maintenance window {name} {when}"
        return PendingReason(
            WaitReason.WINDOW, words, start=clear_from(self.claims, nodes, self.now, self.ends - self.now)
        )


def closing(claims: Iterable[NodeClaim], now: float, ends: float) -> MaintenanceConflict:
    """What of the maintenance ``claims`` is in the way of a gang that ``ends`` then, or is about to."""
    ends = max(ends, now)
    return MaintenanceConflict(overrun(claims, now, ends), now, ends)


def window_claims(
    windows: tuple[MaintenanceWindow, ...], index: NodeIndex, now: float, stop: float
) -> tuple[NodeClaim, ...]:
    """Every occurrence that has not ended, as far ahead as a run without a time limit is taken to last.

    Each claims its nodes ``stop`` seconds before it begins: a run that is stopped by its time limit may take as long.
    """
    return tuple(
        NodeClaim(start - stop, start + window.seconds, nodes, OWNER + window.name, stop)
        for window in windows
        if (nodes := _nodes(window, index))
        for start in _starts(window, now)
    )


def overrun(claims: Iterable[NodeClaim], start: float, end: float) -> tuple[NodeClaim, ...]:
    """Those of ``claims`` that who has nodes from ``start`` until ``end`` would overrun, or be in, on their nodes."""
    return tuple(claim for claim in claims if claim.start < end and start < claim.end)


def nodes_of(claims: Iterable[NodeClaim]) -> NodeSet:
    """All nodes of ``claims``."""
    nodes = EMPTY
    for claim in claims:
        nodes |= claim.nodes
    return nodes


def clear_from(claims: Sequence[NodeClaim], nodes: NodeSet, start: float, length: float) -> float:
    """The first time from ``start`` on, in seconds, at which none of ``nodes`` is claimed for ``length`` seconds."""
    times = [start, *sorted(claim.end for claim in claims if claim.end > start)]
    return next(at for at in times if not nodes & nodes_of(overrun(claims, at, at + length)))


def _starts(window: MaintenanceWindow, now: float) -> Iterator[float]:
    """Starts of the occurrences that end after ``now``, ascending and bounded."""
    if window.every <= 0:
        if window.start + window.seconds > now:
            yield window.start
        return
    passed = max(0, int((now - window.start - window.seconds) // window.every) + 1)
    for number in range(passed, passed + _MOST_OCCURRENCES):
        start = window.start + number * window.every
        if start > now + NO_LIMIT:
            return
        yield start


def _nodes(window: MaintenanceWindow, index: NodeIndex) -> NodeSet:
    if not window.nodes and not window.node_selector:
        return index.everything
    named = index.mask(window.nodes)
    return named | (index.with_labels(window.node_selector) if window.node_selector else EMPTY)
