"""Moments: unix seconds in Python, RFC 3339 in what the API server stores."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite

LAST_MOMENT = 253_402_300_799.0
"""Of the year 9999, the last that can be written down: what comes later, or never, is said to be then."""
_FIRST_MOMENT = -62_135_596_800.0


def to_unix(moment: str | float | datetime) -> float:
    """Return unix seconds, rounded down to the whole second. Raises ValueError on what is no moment."""
    if isinstance(moment, (str, datetime)):  # YAML reads what looks like a time as one
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        if parsed.tzinfo is None:
            raise ValueError(f"{moment!r} has no time zone: write 2026-12-01T00:00:00Z")
        moment = parsed.timestamp()
    if isinstance(moment, bool) or not isinstance(moment, (int, float)) or not isfinite(moment):
        raise ValueError(f"{moment!r} is no moment: write 2026-12-01T00:00:00Z")
    return min(float(int(moment // 1)), LAST_MOMENT)


def to_rfc3339(moment: float) -> str:
    """Return `moment` (unix seconds) in UTC, e.g. 2026-12-01T00:00:00Z, rounded down to the whole second."""
    moment = min(max(moment, _FIRST_MOMENT), LAST_MOMENT)
    # By strftime a year before 1000 would lack its zeros, and what nobody reads would be written.
    return f"{datetime.fromtimestamp(moment // 1, tz=UTC).replace(tzinfo=None).isoformat()}Z"
