"""Times and dependencies as Slurm's users write them, made into the fields of the API."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime

from lockstep.api.base.durations import DURATION_REMEDY, format_duration, parse_duration
from lockstep.api.base.times import to_rfc3339
from lockstep.cli.client import Json
from lockstep.cli.errors import UsageError
from lockstep.slurm import times
from lockstep.slurm.submission import moments

_CONDITIONS = {"after": "Started", "afterany": "Finished", "afterok": "Succeeded", "afternotok": "Failed"}
_FROM_NOW = "now+"


def time_limit(flag: str, text: str) -> str:
    """A time limit: ``2h``, or as Slurm writes it: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S. Raises UsageError."""
    found = times.seconds(text)
    if found:
        return format_duration(found)
    try:
        return format_duration(parse_duration(text))
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {DURATION_REMEDY}", "or as Slurm does: 90, 1:30:00, 2-12:00") from error


_MOMENTS = "write 2026-12-01T08:00 (local time), 2026-12-01T08:00:00Z, 18:00, tomorrow or now+2h"


def moment(flag: str, text: str, now: float, *, is_past: bool = False, remedy: str = _MOMENTS) -> str:
    """A moment in RFC 3339, from: what Slurm takes for one, in local time; RFC 3339; now+2h. A clock alone is the next
    such, or the last one where ``is_past``. Raises UsageError."""
    with suppress(ValueError):
        return to_rfc3339(moments.moment(text, now, is_past=is_past))
    try:
        if text.startswith(_FROM_NOW):
            return to_rfc3339(now + _duration(flag, text))
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


def _duration(flag: str, text: str) -> float:
    try:
        return parse_duration(text.removeprefix(_FROM_NOW))
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {DURATION_REMEDY}", "e.g. now+90m or now+2hours") from error


def _unix(moment: datetime) -> float:
    """Local time unless it says otherwise."""
    return moment.timestamp() if moment.tzinfo is not None else time.mktime(moment.timetuple())
