"""Nodes that turn NotReady again and again, as seen since this process began to watch."""

from collections import defaultdict, deque
from collections.abc import Mapping

from lockstep.controller.runtime.clock import Clock
from lockstep.core.model.snapshot import NodeView

WINDOW = 3600.0
"""Seconds that a turn counts for."""
AGAIN = 2
"""Turns within the window from which on a node is named."""
MOST_FLAPPING = 64
"""Nodes that are named for turning NotReady again and again, at most; the worst come first."""
_KEPT = 100


class NodeFlaps:
    """Counts the times that nodes turn NotReady. A node that was NotReady when it was first seen has not turned."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self.losses = 0
        """Nodes that turned NotReady, or were deleted while they were Ready."""

    def observe(self, old: NodeView | None, new: NodeView | None) -> None:
        """A node has changed, from ``old`` to ``new``."""
        if old is None or not old.ready or (new is not None and new.ready):
            return
        self.losses += 1
        self._turns[old.name].append(self._clock.monotonic())

    def recent(self) -> Mapping[str, int]:
        """Turns within the window by node, of those with ``AGAIN`` or more: the worst ``MOST_FLAPPING``."""
        since = self._clock.monotonic() - WINDOW
        for node in [node for node, turns in self._turns.items() if turns[-1] < since]:
            del self._turns[node]
        counts = {node: sum(1 for at in turns if at >= since) for node, turns in self._turns.items()}
        worst = sorted((-count, node) for node, count in counts.items() if count >= AGAIN)
        return {node: -count for count, node in worst[:MOST_FLAPPING]}
