"""What the operator takes in one request. A report beyond it would be refused as often as it is repeated."""

from __future__ import annotations

import json
from typing import List, Tuple

from lockstep.worker.settings import JSON

REPORT_BYTES = 64 << 10
REGISTRATION_BYTES = 1 << 20
ROOM_FOR_ROWS = 20 << 10  # bytes of a report that prose leaves to new checkpoints
STDERR_BYTES, STACKS_BYTES, SIGN_BYTES, VERIFIED_BYTES = 8192, 4096, 400, 8192  # where prose has to be cut
STEP_STDERR_BYTES = 512
ASKS_BYTES = 8192  # of requests, where prose has to be cut; larger ones wait for a report with room


def encoded(body: JSON) -> bytes:
    """As it goes over the wire. Half a surrogate, as in a file name that is no text, would have all of it refused."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def fitted_report(body: JSON) -> Tuple[bytes, List[JSON]]:
    """(its bytes, with as many rows of ``newCheckpoints`` as there is room for; the rows that are dealt with by it)."""
    content = encoded(body)
    if len(content) <= REPORT_BYTES:
        return content, body["newCheckpoints"]
    body, told = _with_fewer_rows(body)
    return encoded(body), told


def fitted_registration(body: JSON) -> Tuple[bytes, List[JSON]]:
    """The same, with as much of the inventory as there is room for: of each tier the newest."""
    content = encoded(body)
    if len(content) <= REGISTRATION_BYTES:
        return content, body["report"]["newCheckpoints"]
    report, told = _with_fewer_rows(body["report"])
    body = dict(body, report=report)
    room = REGISTRATION_BYTES - len(encoded(dict(body, inventory=[])))
    return encoded(dict(body, inventory=_newest(body["inventory"], room))), told


def _with_fewer_rows(report: JSON) -> Tuple[JSON, List[JSON]]:
    """A row too large to be told even by itself is dealt with too: the next registration has more room."""
    rows, report = report["newCheckpoints"], dict(report, newCheckpoints=[])
    if len(encoded(report)) > REPORT_BYTES - ROOM_FOR_ROWS:
        report = _with_less_prose(report)
    kept = _newest(rows, REPORT_BYTES - len(encoded(report)))
    return dict(report, newCheckpoints=kept), kept or rows[-1:]


def _newest(rows: List[JSON], room: int) -> List[JSON]:
    """Those of the highest steps whose encodings fit ``room`` bytes, in the order that they have."""
    kept = set()
    for index in sorted(range(len(rows)), key=lambda index: int(rows[index]["step"]), reverse=True):
        size = len(encoded(rows[index])) + 2
        if size <= room:
            room -= size
            kept.add(index)
    return [row for index, row in enumerate(rows) if index in kept]


def _with_less_prose(report: JSON) -> JSON:
    """Of binary output, of which a byte takes up to six on the wire."""
    less = dict(report)
    if less.get("exit"):
        less["exit"] = dict(less["exit"], stderrTail=_cut(less["exit"]["stderrTail"][::-1], STDERR_BYTES)[::-1])
    if less.get("stacks"):
        less["stacks"] = dict(less["stacks"], text=_cut(less["stacks"]["text"], STACKS_BYTES))
    if less.get("signs"):
        less["signs"] = [dict(sign, text=_cut(sign["text"], SIGN_BYTES)) for sign in less["signs"]]
    if less.get("stepEnds"):
        cut = [_cut(row["stderrTail"][::-1], STEP_STDERR_BYTES)[::-1] for row in less["stepEnds"]]
        less["stepEnds"] = [
            dict(row, stderrTail=text)
            for row, text in zip(less["stepEnds"], cut)  # noqa: B905, strict is younger than Python 3.8
        ]
    if len(encoded({"": less.get("asks")})) > ASKS_BYTES:
        del less["asks"]
    verified = less.get("verified") or []
    while len(verified) > 1 and len(encoded({"": verified})) > VERIFIED_BYTES:
        verified = verified[1:]
    return dict(less, verified=verified)


def _cut(text: str, limit: int) -> str:
    """The beginning that takes at most so many bytes."""
    while len(encoded({"": text})) > limit:
        text = text[: len(text) * 3 // 4]
    return text
