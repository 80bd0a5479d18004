"""Since when the specs of runs have been edited: a pending one keeps its place meanwhile, and not for ever."""

from collections.abc import Mapping

from lockstep.controller.runtime.clock import Clock
from lockstep.core.model.snapshot import EDIT_GRACE, RunView


class Edits:
    """By UID of the run. Whoever edits again within ``EDIT_GRACE`` gains no time by it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[str, tuple[float, float]] = {}  # the first of them, and the last

    def run_changed(self, old: RunView | None, new: RunView | None) -> None:
        """A run is another one."""
        if new is None:
            if old is not None:
                self._times.pop(old.uid, None)
        elif old is not None and old.generation != new.generation:
            now = self._clock.now()
            first, last = self._times.get(new.uid, (now, now))
            self._times[new.uid] = (first if now < last + EDIT_GRACE else now), now

    def current(self) -> Mapping[str, float]:
        """When the first was that no pause follows as long as that, of those whose last was no longer ago."""
        now = self._clock.now()
        self._times = {uid: times for uid, times in self._times.items() if now < times[1] + EDIT_GRACE}
        return {uid: first for uid, (first, _) in self._times.items()}
