"""How many workers wait at once for writes of pods in a namespace that is slow: the others are for everybody else."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import UnreachableError

MOST_OF_A_SLOW_ONE = 4
"""Of the 16 that there are if nothing else is configured."""


class PodTurns:
    """Looks that write pods, or have one judged, by the lane of what they write (``pods_lane``)."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def take(self, lane: str) -> Iterator[None]:
        """For one look. Raises UnreachableError where enough of them wait: it comes again after a back-off."""
        if self._under_way[lane] >= MOST_OF_A_SLOW_ONE and self._kube.window.is_slow(lane):
            raise UnreachableError(f"pods of {lane}: not written now, as others before them take too long")
        self._under_way[lane] += 1
        try:
            yield
        finally:
            self._under_way[lane] -= 1
            if not self._under_way[lane]:
                del self._under_way[lane]
