"""When a pending run is expected to start, its priority by factor; what time an admitted run was given."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.api.base.durations import format_duration, parse_duration
from lockstep.api.queue import QueueLimits
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import QueueStatus, TimeLimitStatus, TrialStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.limits import can_be_asked, limit_allowed, notice_of
from lockstep.core.model.snapshot import RunView
from lockstep.core.pods.gang import termination_grace
from lockstep.present.amounts import duration, local_time, moment

UNKNOWN = "?"


def column(queue: QueueStatus, now: float | None = None) -> str:
    """The same for a column of a table: ``in 40m``, ``now``, or with ``now`` None the moment; ``?`` where nobody knows;
    empty where the run has no place yet."""
    at = queue.estimated_start
    if at is None:
        return UNKNOWN if queue.position or now is None else ""
    if now is None:
        return local_time(at)
    return f"in {duration(at - now)}" if at > now else "now"


def expectation(queue: QueueStatus, now: float) -> str:
    """``in 40m (2026-12-01T08:00:00), if every run …``; empty where nothing was said."""
    if queue.estimated_start is not None:
        rests = f", if {queue.assumption}" if queue.assumption else ""
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


def _ending(spec: TrainingRunSpec | None, limit: TimeLimitStatus) -> str:
    """What is done about the limit, and when."""
    end = f"its ranks are told to end at {local_time(limit.end_at)}"
    if limit.save_at is not None:
        return f"all ranks are asked to save at {local_time(limit.save_at)}, and end once they have; or {end}"
    asked = spec is not None and can_be_asked(spec)
    return end + (", unasked for a save, as no program asks for one so far" if asked else "")


def limit_answered(answer: TrialStatus) -> str:
    """The time that a run would have with its nodes, were it submitted; empty: no limit."""
    if answer.time_limit is None or answer.end_after is None:
        return ""
    return _limit_in_words(answer.time_limit, answer.save_after, answer.end_after)


def limit_of_spec(spec: TrainingRunSpec, limits: QueueLimits) -> str:
    """The time that a run is to have with its nodes, by its spec or else its queue; empty: no limit."""
    limit = limit_allowed(spec, limits)
    if limit is None:
        return ""
    notice = notice_of(spec, limit, termination_grace(spec, GangSettings()))
    return _limit_in_words(limit, limit - notice.save if can_be_asked(spec) else None, limit - notice.end)


def _limit_in_words(limit: int, save_after: int | None, end_after: int) -> str:
    words = f"{format_duration(limit)} with its nodes; "
    if save_after is not None:
        words += f"after {format_duration(save_after)} all ranks are asked to save, if its program asks for saves "
        words += "(onTimeLimit.leadTime; half of the limit at most), and end once they have; "
    return (
        f"{words}after {format_duration(end_after)} {'they' if save_after is not None else 'its ranks'} are told to end"
    )


def granted(run: RunView) -> str:
    """What time a run that has nodes got, and whether it went ahead of others; empty: no limit, and it did not."""
    admission, spec = run.status.admission, run.spec
    if not slots.is_held(run.status.assignment):
        return ""
    words = []
    if admission.time_limit is not None:
        asked, limit = admission.asked_limit, run.status.time_limit
        seconds = limit.seconds if limit is not None else admission.time_limit
        cut = bool(asked) and parse_duration(asked) > seconds
        until = f", until {local_time(limit.over_at)}" if limit is not None else ""
        words.append(f"{format_duration(seconds)}{f' of the {asked} it asked for' if cut else ''}{until}")
        if spec is not None and spec.time_limit is None:
            words.append("by the queue's limits")
        if limit is not None:
            words.append(_ending(spec, limit))
    if admission.limited_by:
        words.append(f"more is not granted, as {admission.limited_by}")
    if admission.backfilled:
        words.append("backfilled: ahead of runs before it, which it does not delay")
    return "; ".join(words)
