"""Maintenance windows as claims on nodes: nothing is stopped for one, and nothing starts that would overrun it."""

from collections.abc import Iterator

from lockstep.core.admission.jobs import NO_LIMIT, Claim
from lockstep.core.admission.settings import MaintenanceWindow
from lockstep.core.node_index import NodeIndex

OWNER = "window:"
"""What the owners of such claims begin with; the window's name follows."""
_MOST_OCCURRENCES = 64


def window_claims(windows: tuple[MaintenanceWindow, ...], index: NodeIndex, now: float) -> tuple[Claim, ...]:
    """Every occurrence that has not ended, as far ahead as a run without a time limit is taken to last."""
    return tuple(
        Claim(start, start + window.seconds, nodes, OWNER + window.name)
        for window in windows
        if (nodes := _nodes(window, index))
        for start in _starts(window, now)
    )


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


def _nodes(window: MaintenanceWindow, index: NodeIndex) -> int:
    if not window.nodes and not window.node_selector:
        return index.everything
    named = index.mask(window.nodes)
    return named | (index.with_labels(window.node_selector) if window.node_selector else 0)
