"""How fast a run trains, and when it will have done all its steps at that pace: by its last writes of progress."""

import math
from statistics import median, quantiles

from lockstep.api.base.changes import changed
from lockstep.api.run_status import MAX_PACE, ProgressStatus

SHORTEST_WINDOW = 5.0
"""Seconds between two writes from which a pace is taken: moments are written in whole seconds."""
FEWEST = 4
"""Windows before a spread is told."""
FURTHEST = 10 * 365 * 86_400.0
"""Seconds ahead beyond which an end is no news, only a number that somebody reported."""
_SLOWEST = 10**15  # microseconds
_DIGITS = 4


def paced(before: ProgressStatus, after: ProgressStatus, *, anew: bool) -> ProgressStatus:
    """``after`` with what it and ``before`` say of the pace. ``anew``: an attempt's first step, so that what was
    between the two tells nothing."""
    windows = () if anew else before.pace
    window = None if anew else _between(before, after)
    if window is not None:
        windows = (*windows, window)[-MAX_PACE:]
    if not windows:
        return changed(after, pace=(), step_microseconds=None, expected_end=None, earliest_end=None, latest_end=None)
    typical = median(windows)
    fast, slow = typical, typical
    if len(windows) >= FEWEST:
        fast, _, slow = quantiles(windows, n=4, method="inclusive")
    told = len(windows) >= FEWEST
    return changed(
        after,
        pace=windows,
        step_microseconds=round(typical),
        expected_end=_end(after, typical),
        earliest_end=_end(after, fast) if told else None,
        latest_end=_end(after, slow) if told else None,
    )


def short_loss(loss: str) -> str:
    """To four digits, as people read it; what is no number stays as it is."""
    try:
        value = float(loss)
    except ValueError:
        return loss
    return f"{value:.{_DIGITS}g}" if math.isfinite(value) else loss


def _between(before: ProgressStatus, after: ProgressStatus) -> int | None:
    steps = after.step - before.step
    if before.time is None or after.time is None or steps <= 0:
        return None
    seconds = after.time - before.time
    if seconds < SHORTEST_WINDOW:
        return None
    return min(_SLOWEST, max(1, round(seconds * 1e6 / steps)))


def _end(progress: ProgressStatus, microseconds: float) -> float | None:
    if progress.total_steps is None or progress.time is None:
        return None
    left = max(0, progress.total_steps - progress.step) * microseconds / 1e6
    return float(int(progress.time + left)) if left <= FURTHEST else None
