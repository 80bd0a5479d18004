"""Durations, moments and counts, as people read them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lockstep.core.model.plural import plural as plural

NONE = "-"
"""Stands where there is nothing to say."""
_zone_is_named = ContextVar("_zone_is_named", default=False)


def duration(seconds: float) -> str:
    """As kubectl writes ages: 45s, 3m20s, 12m, 5h10m, 3d."""
    left = max(0, int(seconds))
    minutes, hours, days = left // 60, left // 3600, left // 86_400
    if left < 120:
        return f"{left}s"
    if minutes < 10:
        return f"{minutes}m{left % 60}s" if left % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d"


def ago(moment: float | None, now: float) -> str:
    """``3m20s ago``; empty for what has not happened."""
    return "" if moment is None else f"{duration(now - moment)} ago"


def moment(at: float, now: float) -> str:
    """``in 40m (2026-12-01T08:00:00)``, in local time; ``now`` for what is not ahead."""
    return f"in {duration(at - now)} ({local_time(at)})" if at > now else "now"


def local_time(at: float) -> str:
    """As squeue writes times; with its zone inside ``zone_named``."""
    local = time.localtime(at)
    return time.strftime("%Y-%m-%dT%H:%M:%S", local) + (f" {_zone(local.tm_gmtoff)}" if _zone_is_named.get() else "")


@contextmanager
def zone_named() -> Iterator[None]:
    """Have local times tell their zone, as ``UTC+5:30``, for whoever may read them elsewhere than this process runs."""
    before = _zone_is_named.set(True)
    try:
        yield
    finally:
        _zone_is_named.reset(before)


def _zone(seconds_ahead: int) -> str:
    hours, minutes = divmod(abs(seconds_ahead) // 60, 60)
    sign = "-" if seconds_ahead < 0 else "+"
    return "UTC" + (f"{sign}{hours}{f':{minutes:02}' if minutes else ''}" if seconds_ahead else "")
