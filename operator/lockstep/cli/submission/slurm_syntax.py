"""Times and dependencies as Slurm's users write them, made into the fields of the API."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

from lockstep.api.base.durations import DURATION_REMEDY, format_duration, parse_duration
from lockstep.api.base.times import to_rfc3339
from lockstep.cli.client import Json
from lockstep.cli.errors import UsageError
from lockstep.slurm import times

_CONDITIONS = {"after": "Started", "afterany": "Finished", "afterok": "Succeeded", "afternotok": "Failed"}
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_FROM_NOW = re.compile(r"now(?:\+(?P<count>\d+)(?P<unit>seconds?|minutes?|hours?|days?|weeks?)?|\+(?P<duration>\S+))?")
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


def time_limit(flag: str, text: str) -> str:
    """A time limit: ``2h``, or as Slurm writes it: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S. Raises UsageError."""
    found = times.seconds(text)
    if found:
        return format_duration(found)
    try:
        return format_duration(parse_duration(text))
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {DURATION_REMEDY}", "or as Slurm does: 90, 1:30:00, 2-12:00") from error


_MOMENTS = "write 2026-12-01T08:00 (local time), 2026-12-01T08:00:00Z, 18:00 or now+2h"


def moment(flag: str, text: str, now: float, *, is_past: bool = False, remedy: str = _MOMENTS) -> str:
    """A moment in RFC 3339, from: RFC 3339; a date, with or without a time, here; HH:MM, the next such, or the last one
    where ``is_past``; now+2h or now+2hours. Raises UsageError."""
    from_now = _FROM_NOW.fullmatch(text)
    try:
        if from_now is not None:
            return to_rfc3339(now + _seconds_from_now(flag, text, from_now))
        if _CLOCK.fullmatch(text):
            clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M").time()  # noqa: DTZ007
            today = datetime.combine(datetime.fromtimestamp(now).astimezone().date(), clock)
            days = (_unix(today) <= now) - is_past
            return to_rfc3339(_unix(today + timedelta(days=days)))
        return to_rfc3339(_unix(datetime.fromisoformat(text)))
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{flag} {text} is no time", remedy) from error


def dependencies(text: str) -> Json:
    """``dependsOn``, ``singleton`` and, of arrays, ``afterCorr`` from ``afterok:a:b,singleton=word,aftercorr:d``.

    Raises UsageError.
    """
    if "?" in text:
        raise UsageError(f"--dependency {text}: all of them have to be met, not any", "separate them by commas")
    depends: list[Json] = []
    spec: Json = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, _, rest = part.partition(":")
        if kind == "singleton" or kind.startswith("singleton="):
            word = kind.partition("=")[2]
            if not word or rest:
                raise UsageError(f"--dependency {part} names no word", "write singleton=WORD: one of them at a time")
            spec["singleton"] = word
        elif kind == "aftercorr":
            [after] = _named(part, rest, "")[:1]
            if ":" in rest or "afterCorr" in spec:
                raise UsageError(f"--dependency {text} names several sets", "an array comes after one: aftercorr:NAME")
            spec["afterCorr"] = after["name"]
        elif kind not in _CONDITIONS:
            raise UsageError(
                f"--dependency {part} is none", f"write {', '.join(_CONDITIONS)} with :NAME, or singleton=WORD"
            )
        else:
            depends += _named(part, rest, _CONDITIONS[kind])
    twice = {entry["name"] for entry in depends if sum(other["name"] == entry["name"] for other in depends) > 1}
    if twice:
        raise UsageError(f"--dependency names {', '.join(sorted(twice))} twice", "one condition for each run")
    return {**({"dependsOn": depends} if depends else {}), **spec}


def _named(part: str, rest: str, condition: str) -> list[Json]:
    names = rest.split(":")
    if not all(names):
        raise UsageError(f"--dependency {part} names no run", f"write {part.partition(':')[0]}:NAME")
    if any("+" in name for name in names):
        raise UsageError(f"--dependency {part}: nothing can be waited for on top", "leave out what follows the +")
    return [{"name": name, "condition": condition} for name in names]


def _seconds_from_now(flag: str, text: str, found: re.Match[str]) -> float:
    if found["duration"] is not None:
        try:
            return parse_duration(found["duration"])
        except ValueError as error:
            raise UsageError(f"{flag} {text}: {DURATION_REMEDY}", "e.g. now+90m or now+2hours") from error
    unit = (found["unit"] or "seconds").removesuffix("s")
    return int(found["count"] or 0) * _UNITS[unit]


def _unix(moment: datetime) -> float:
    """Local time unless it says otherwise."""
    return moment.timestamp() if moment.tzinfo is not None else time.mktime(moment.timetuple())
