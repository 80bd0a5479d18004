"""Moments as ``--begin`` has them: words, clocks and dates, one after the other, in the zone of whoever wrote them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from typing import Dict, Optional, Tuple

_HOURS = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_FROM_NOW = re.compile(
    r"now(?:\s*(?P<sign>[+-])\s*(?P<count>\d{1,12})\s*(?:(?P<unit>second|minute|hour|day|week)s?)?)?",
    re.ASCII | re.IGNORECASE,
)
_OF_A_ZONE = re.compile(r"T.*(Z|[+-]\d\d:?\d\d)$", re.ASCII)
_PART = re.compile(
    rf"(?P<day>today|tomorrow)|(?P<word>{'|'.join(_HOURS)})"
    r"|(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d))?(?:\s*(?P<half>am|pm))?"
    r"|(?P<year>\d{4})-(?P<month>\d\d?)-(?P<mday>\d\d?)"
    r"|(?P<mm>\d\d|\d(?!\d))[./]?(?P<dd>\d\d|\d(?!\d))(?:[./]?(?P<yy>\d\d))?",
    re.ASCII | re.IGNORECASE,
)
_BETWEEN = re.compile(r"[\s\-T]*")
_DAY = timedelta(days=1)


def moment(text: str, now: float, zone: Optional[tzinfo] = None, *, is_past: bool = False) -> float:
    """Unix seconds: of a clock, or of a day without its year, the next such, or the last one where ``is_past``; of any
    other date its midnight. ``zone``: that of this machine when left out.

    Raises ValueError, also on what names a zone of its own.
    """
    try:
        return _moment(text.strip(), now, zone, is_past)
    except (OverflowError, OSError):  # of years that no clock has
        raise ValueError(f"{text} is no time") from None


def _moment(text: str, now: float, zone: Optional[tzinfo], is_past: bool) -> float:
    from_now = _FROM_NOW.fullmatch(text)
    if from_now is not None:
        span = int(from_now["count"] or 0) * _UNITS[(from_now["unit"] or "second").lower()]
        return now - span if from_now["sign"] == "-" else now + span
    if _OF_A_ZONE.search(text):
        raise ValueError(f"{text} is in a zone of its own")
    here = datetime.fromtimestamp(now, zone)
    day: Optional[datetime] = None
    clock: Optional[Tuple[int, int, int]] = None
    yearless = False
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            raise ValueError(f"{text} is no time")
        part = found.groupdict()
        if part["word"] or part["hour"]:
            clock = _clock(part)
        else:
            day, yearless = _date(part, here), bool(part["mm"]) and not part["yy"]
        between = _BETWEEN.match(text, found.end())
        at = between.end() if between is not None else found.end()
        if at == found.end() < len(text):
            raise ValueError(f"{text} is no time")
    if day is None and clock is None:
        raise ValueError("nothing is no time")
    hour, minute, second = clock or (0, 0, 0)
    made = (day or here).replace(hour=hour, minute=minute, second=second, microsecond=0)
    if day is None:
        made += ((made.timestamp() <= now) - is_past) * _DAY
    elif yearless:
        made = made.replace(year=made.year + (made.timestamp() <= now) - is_past)
    return made.timestamp()


def _date(part: Dict[str, Optional[str]], here: datetime) -> datetime:
    """Raises ValueError."""
    if part["day"]:
        return here if part["day"].lower() == "today" else here + _DAY
    if part["year"]:
        return here.replace(year=int(part["year"]), month=int(part["month"] or 0), day=int(part["mday"] or 0))
    year = 2000 + int(part["yy"]) if part["yy"] else here.year
    return here.replace(year=year, month=int(part["mm"] or 0), day=int(part["dd"] or 0))


def _clock(part: Dict[str, Optional[str]]) -> Tuple[int, int, int]:
    """Raises ValueError."""
    if part["word"]:
        return _HOURS[part["word"].lower()], 0, 0
    hour, minute, second = (int(part[name] or 0) for name in ("hour", "minute", "second"))
    half = (part["half"] or "").lower()
    if half and hour > 12:  # Slurm takes 13:00am for an error, and so is 13:00pm
        raise ValueError(f"{hour} is no hour before or after noon")
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return hour, minute, second
