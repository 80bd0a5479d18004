"""A loss that jumps and stays where it jumped to."""

from __future__ import annotations

import collections
import statistics
from typing import Deque, List, Optional

REMEMBERED = 64  # losses
ENOUGH = 20  # of them, before anything is called a jump
DEVIATIONS = 10.0  # of the median: what noise does not reach
SMALLEST_DEVIATION = 0.01  # of the median, where the loss hardly moves at all
PERSISTS = 3  # losses in a row: a single bad batch passes by itself


class LossWatch:
    """Knows the usual losses by their median and the median of their distances from it.

    Only jumps upwards count.
    """

    def __init__(self) -> None:
        self._usual: Deque[float] = collections.deque(maxlen=REMEMBERED)
        self._jumped: List[float] = []

    def seen(self, loss: float) -> Optional[str]:
        """Take in the next loss, a finite number. What happened in words, at the third of a jump."""
        if len(self._usual) >= ENOUGH:
            median = statistics.median(self._usual)
            deviation = statistics.median(abs(usual - median) for usual in self._usual)
            limit = median + DEVIATIONS * max(deviation, SMALLEST_DEVIATION * abs(median))
            if loss > limit:
                self._jumped.append(loss)
                if len(self._jumped) < PERSISTS:
                    return None
                self._usual.clear()  # what is usual from now on has to be learnt anew
                self._usual.extend(self._jumped)
                self._jumped = []
                return f"loss {loss:.4g} for {PERSISTS} steps in a row, usual are {median:.4g} and at most {limit:.4g}"
        self._jumped = []
        self._usual.append(loss)
        return None
