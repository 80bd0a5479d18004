"""When a pending run is expected to start, its priority by factor; what time an admitted run was given."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.api.base.durations import format_duration, parse_duration
from lockstep.api.run_status import QueueStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.snapshot import RunView
from lockstep.present.amounts import duration, local_time, moment

UNKNOWN = "?"


def expectation(queue: QueueStatus, now: float) -> str:
    """``in 40m (2026-12-01T08:00:00), if every run …``; empty where nothing was said."""
    if queue.estimated_start is not None:
        rests = f", if {queue.assumption}" if queue.assumption else ""
def column(queue: QueueStatus, now: float | None = None) -> str:
    """The same for a column of a table: ``in 40m``, ``now``, or with ``now`` None the moment; ``?`` where nobody knows;
    empty where the run has no place yet."""
    at = queue.estimated_start
    if at is None:
        return UNKNOWN if queue.position or now is None else ""
    if now is None:
        return local_time(at)
    return f"in {duration(at - now)}" if at > now else "now"


        return f"{moment(queue.estimated_start, now)}{rests}"
    return queue.assumption


def points(queue: QueueStatus) -> str:
    """``1234: class 1000, age 234``."""
    made_of = ", ".join(f"{name} {count}" for name, count in queue.factors.items())
    return f"{queue.priority}{f': {made_of}' if made_of else ''}"


def facts(run: RunView, now: float) -> Iterator[tuple[str, str]]:
    """Lines of `lockstep info` for a pending run."""
    queue = run.status.queue
    if queue.updated is not None and queue.position:
        yield "Priority", points(queue)
    expected = expectation(queue, now)
    if expected:
        yield "Starts", expected
    if queue.blocked_by:
        yield "Behind", ", ".join(queue.blocked_by)


def sentences(queue: QueueStatus, now: float) -> Iterator[str]:
    """The same for `lockstep explain`."""
    expected = expectation(queue, now)
    if queue.estimated_start is not None:
        yield f"It is expected to start {expected}."
    elif expected:
        yield f"When it starts is {expected}."
    if queue.blocked_by:
        yield f"What it waits for is held by, or to be given to: {', '.join(queue.blocked_by)}."
    if queue.updated is not None and queue.position:
        yield f"Its priority is {points(queue)}."


def granted(run: RunView) -> str:
    """What time a run that has nodes got, and whether it went ahead of others; empty: no limit, and it did not."""
    admission, spec = run.status.admission, run.spec
    if not slots.is_held(run.status.assignment):
        return ""
    words = []
    if admission.time_limit is not None:
        asked = admission.asked_limit
        cut = bool(asked) and parse_duration(asked) > admission.time_limit
        words.append(f"{format_duration(admission.time_limit)}{f' of the {asked} it asked for' if cut else ''}")
        if spec is not None and spec.time_limit is None:
            words.append("by the queue's limits")
    if admission.limited_by:
        words.append(f"more is not granted, as {admission.limited_by}")
    if admission.backfilled:
        words.append("backfilled: ahead of runs before it, which it does not delay")
    return "; ".join(words)
