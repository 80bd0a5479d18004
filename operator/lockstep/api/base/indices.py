"""Indices of an array as Slurm writes them: ``0-99``, ``0-99:2``, ``1,3,7-9``."""

from __future__ import annotations

import re
from functools import lru_cache

MAX_INDEX = 99_999
MAX_COUNT = 10_000
"""Indices of one array: as many runs are made, each an object of its own, and their outcomes stand in one status."""
PART_PATTERN = "[0-9]{1,5}(-[0-9]{1,5}(:[1-9][0-9]{0,4})?)?"
PATTERN = f"^{PART_PATTERN}(,{PART_PATTERN})*$"
REMEDY = "write indices as 0-99, 0-99:2 or 1,3,7-9, of five digits at most; the %8 of Slurm is maxRunning: 8"
RANGE_REMEDY = "a range goes up; write the smaller number first"
COUNT_REMEDY = f"names more than {MAX_COUNT} indices; make several sets of them"
_PART = re.compile(r"(\d{1,5})(?:-(\d{1,5})(?::([1-9]\d{0,4}))?)?", re.ASCII)


@lru_cache(maxsize=256)
def parse_indices(text: str) -> frozenset[int]:
    """The indices that ``text`` names. Raises ValueError with the remedy."""
    ranges = [_range(part) for part in text.split(",")]
    if sum(map(len, ranges)) > MAX_COUNT:
        raise ValueError(f"{_short(text)} {COUNT_REMEDY}")
    return frozenset(index for each in ranges for index in each)


def _range(part: str) -> range:
    found = _PART.fullmatch(part)
    if found is None:
        raise ValueError(f"{_short(part)!r} is no index: {REMEDY}")
    first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
    if last < first:
        raise ValueError(f"{part}: {RANGE_REMEDY}")
    return range(first, last + 1, step)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
