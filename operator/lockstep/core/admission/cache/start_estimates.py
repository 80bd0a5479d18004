"""Estimated starts of pending runs, a few of them refreshed in each cycle.

All of it at once takes longer than a cycle over ten thousand pending runs, and no estimate is reported more often
than once a minute. So each cycle works out the starts of a few, by what was known when the first of them was looked at.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from lockstep.core.admission.engine.cycle_result import Estimate

LIVES = 30.0
"""Seconds for which estimates count; those that took longer to work out count for twice that time."""
STEP = 1.0
"""Seconds between two cycles while there are more to be worked out."""
SHARE = 8
"""Starts that one cycle works out."""


class StartEstimates:
    """``begun``: as of when the estimates are; None: there are none. ``share``: how many one cycle works out."""

    def __init__(
        self, begun: float | None = None, estimates: Mapping[str, float] | None = None, share: int | None = SHARE
    ) -> None:
        self.begun = begun
        self.estimates: Mapping[str, float] = estimates or {}
        """Start by UID, where it is known."""
        self.wake_at = 0.0
        """When the next cycle is due, as long as any run is pending."""
        self._due = self._rests_until = 0.0
        self._left: Iterator[tuple[str, Estimate]] | None = None
        self._found: dict[str, float | None] = {}
        self._share = share

    def refresh(self, now: float, begin: Callable[[], Iterator[tuple[str, Estimate]]]) -> Mapping[str, float]:
        """The estimates, some of them new. ``begin`` gives all of them, each worked out when it is asked for."""
        if self._left is None and (self.begun is None or now < self.begun or now >= self._due):
            self.begun, self._left, self._found = now, begin(), {}
        if self._left is not None:
            some = {uid: each.start for uid, each in islice(self._left, self._share)}
            self._found |= some
            known = {uid: start for uid, start in {**self.estimates, **some}.items() if start is not None}
            if self._share is None or len(some) < self._share:
                known = {uid: start for uid, start in known.items() if uid in self._found}
                self._left = None
                begun = now if self.begun is None else self.begun
                self._rests_until = max(begun + LIVES, now + (now - begun))
                # So few are worked out with every cycle, so that who has come or moved up is told its start at once.
                few = self._share is not None and len(self._found) < self._share
                self._due = now if few else self._rests_until
            self.estimates = known
        self.wake_at = now + STEP if self._left is not None else self._rests_until
        return self.estimates
