"""Durations as people write them: 90s, 30m, 48h, 2d, 1d12h."""

from __future__ import annotations

import re
from functools import lru_cache

DURATION_PATTERN = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"
DURATION_MIN_LENGTH = 2
DURATION_MAX_LENGTH = 24
DURATION_REMEDY = "write a duration as 90s, 30m, 48h or 2d (units d, h, m, s, largest first)"

LONGEST = 100 * 365 * 86_400
"""Seconds. What is longer lasts as long: a moment that is so far away can be written down."""

_UNIT_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(DURATION_PATTERN)
_PART = re.compile("([0-9]+)([dhms])")


@lru_cache(maxsize=4096)  # ten thousand runs write a few dozen of them, and each is asked for in every pass
def parse_duration(text: str) -> int:
    """Return the seconds in `text`, `LONGEST` at most. Raises ValueError, with the right form, on anything else."""
    if not DURATION_MIN_LENGTH <= len(text) <= DURATION_MAX_LENGTH or not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: {DURATION_REMEDY}")
    return min(LONGEST, sum(int(count) * _UNIT_SECONDS[unit] for count, unit in _PART.findall(text)))


def format_duration(seconds: float) -> str:
    """Return whole `seconds` (rounded down, never negative) in the form that `parse_duration` reads."""
    left = max(0, int(seconds))
    parts = []
    for unit, size in _UNIT_SECONDS.items():
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
