"""A cycle that remembers nothing of the cycles before, to hold one that does against."""

from collections.abc import Callable, Iterator, Mapping

from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.start_estimates import StartEstimates
from lockstep.core.admission.engine.cycle_result import Estimate


class SettledEstimates(StartEstimates):
    """Estimates that are never refreshed."""

    def refresh(self, now: float, begin: Callable[[], Iterator[tuple[str, Estimate]]]) -> Mapping[str, float]:
        return self.estimates


def anew(memory: CycleMemory) -> CycleMemory:
    """One that knows nothing but the estimates as they are: what it decides is what ``memory`` has to."""
    settled = SettledEstimates(memory.start_estimates.begun, memory.start_estimates.estimates)
    settled.wake_at = memory.start_estimates.wake_at
    return CycleMemory(start_estimates=settled)
