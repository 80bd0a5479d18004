"""Moments: unix seconds in Python, RFC 3339 in what the API server stores."""

from __future__ import annotations

from datetime import UTC, datetime


def to_unix(moment: str | float | datetime) -> float:
    """Return unix seconds, rounded down to the whole second. Raises ValueError on what is no moment."""
    if isinstance(moment, (str, datetime)):  # YAML reads what looks like a time as one
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        if parsed.tzinfo is None:
            raise ValueError(f"{moment!r} has no time zone: write 2026-12-01T00:00:00Z")
        moment = parsed.timestamp()
    return float(int(moment // 1))


def to_rfc3339(moment: float) -> str:
    """Return `moment` (unix seconds) in UTC, e.g. 2026-12-01T00:00:00Z, rounded down to the whole second."""
    return datetime.fromtimestamp(moment // 1, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
