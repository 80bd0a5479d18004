"""A loss that jumps and stays where it jumped to."""

from __future__ import annotations

import collections
import statistics
from typing import Deque, List, NamedTuple, Optional, Tuple

REMEMBERED = 64  # losses
ENOUGH = 20  # of them, before anything is called a jump
DEVIATIONS = 10.0  # of the median: what noise does not reach
SMALLEST_DEVIATION = 0.01  # of the median, where the loss hardly moves at all
PERSISTS = 3  # losses in a row: a single bad batch passes by itself


class Jump(NamedTuple):
    """``step``: of the first loss of it. ``words``: what happened."""

    step: int
    words: str


class LossWatch:
    """Knows the usual losses by their median and the median of their distances from it.

    Only jumps upwards count.
    """

    def __init__(self) -> None:
        self._usual: Deque[float] = collections.deque(maxlen=REMEMBERED)
        self._jumped: List[Tuple[int, float]] = []  # steps and losses

    def seen(self, step: int, loss: float) -> Optional[Jump]:
        """Take in the next loss, a finite number. The jump, at its third loss."""
        if len(self._usual) >= ENOUGH:
            median = statistics.median(self._usual)
            deviation = statistics.median(abs(usual - median) for usual in self._usual)
            limit = median + DEVIATIONS * max(deviation, SMALLEST_DEVIATION * abs(median))
            if loss > limit:
                self._jumped.append((step, loss))
                if len(self._jumped) < PERSISTS:
                    return None
                self._usual.clear()  # what is usual from now on has to be learnt anew
                self._usual.extend(high for _, high in self._jumped)
                first, self._jumped = self._jumped[0][0], []
                usual = f"usual are {median:.4g} and at most {limit:.4g}"
                return Jump(first, f"loss {loss:.4g}, the last of {PERSISTS} in a row; {usual}")
        self._jumped = []
        self._usual.append(loss)
        return None
