"""Times as Slurm writes them."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Optional

UNLIMITED = 0
"""No time limit."""
_LIMIT = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
_MOST = 365 * 86_400 * 100


def seconds(text: str) -> Optional[int]:
    """Of ``90`` (minutes), M:S, H:M:S, D-H, D-H:M, D-H:M:S; UNLIMITED of the words for that; None: it is no time."""
    if text.lower() in ("-1", "infinite", "unlimited"):
        return UNLIMITED
    found = _LIMIT.fullmatch(text)
    if found is None or len(text) > 32:
        return None
    first, second, third = (int(found[name] or 0) for name in ("first", "second", "third"))
    if found["days"] is not None:
        total = int(found["days"]) * 86_400 + first * 3600 + second * 60 + third
    elif found["third"] is not None:
        total = first * 3600 + second * 60 + third
    else:
        total = first * 60 + second
    return total if total <= _MOST else None


def written(span: int) -> str:
    """``1-02:03:04`` or ``02:03:04``, as squeue and scontrol have it."""
    days, rest = divmod(span, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def moment(unix: int) -> str:
    """``2026-12-01T08:00:00``, in UTC as containers are; ``Unknown`` of 0."""
    return datetime.fromtimestamp(unix, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S") if unix else "Unknown"
