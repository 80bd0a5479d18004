"""The time limit of a run, as its spec and its queue have it."""

from dataclasses import dataclass

from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import QueueLimits
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.save_signal import save_signal

SHORTEST_END = 5
"""Seconds that ranks have to end at least, but for half of the limit."""


@dataclass(frozen=True, slots=True)
class LimitNotice:
    """Seconds before a time limit is over at which something is done about it; the first of them is the longest."""

    save: int
    """All ranks are asked to save, where some program listens."""
    end: int
    """The ranks are told to end, saved or not: a run that nobody can ask to save has its nodes until then."""
    last_save: int
    """A save is awaited no longer."""


def notice_of(spec: TrainingRunSpec, limit: int, usual: int, own: int | None) -> LimitNotice:
    """``limit``, and what pods have to end, in seconds: the ``usual`` grace, or their ``own`` where the run asks for
    one. Neither that nor a save takes more than half of the limit."""
    end = end_notice(limit, usual) if own is None else min(own, limit // 2)
    save = max(end, min(parse_duration(spec.on_time_limit.lead_time), limit // 2)) if can_be_asked(spec) else end
    return LimitNotice(save, end, min(end, save // 2))


def end_notice(limit: int, grace: int) -> int:
    """Seconds before ``limit`` at which ranks are told to end where nobody says how long that takes. What is tried for
    minutes has its minutes: no more than a tenth of them goes to ``grace``, which is meant for limits of hours."""
    return min(grace, max(SHORTEST_END, limit // 10), limit // 2)


def grace_left(left: float, grace: int) -> int:
    """Seconds to end, of ``grace``, for what is told so ``left`` seconds before its limit is over. From 0 on,
    as after an outage of the operator, it is over anyway, and nothing is taken from ``grace``."""
    return grace if left <= 0 else min(grace, max(1, int(left)))  # 0 would be without a word before the kill


def can_be_asked(spec: TrainingRunSpec) -> bool:
    """Its programs can be asked to save; whether any of them listens is seen once they run."""
    return spec.worker == "Enabled" and (spec.checkpoint is not None or save_signal(spec) is not None)


def asked_limit(spec: TrainingRunSpec, limits: QueueLimits) -> int | None:
    """Seconds of the time limit that the spec, or else its queue, asks for; None: there is none."""
    asked = spec.time_limit or limits.default_time_limit
    return None if asked is None else parse_duration(asked)


def limit_allowed(spec: TrainingRunSpec, limits: QueueLimits) -> int | None:
    """The same, as far as its queue allows it."""
    asked = asked_limit(spec, limits)
    longest = limits.max_time_limit
    return asked if asked is None or longest is None else min(asked, parse_duration(longest))


def limit_in_force(spec: TrainingRunSpec, status: TrainingRunStatus, limits: QueueLimits) -> int | None:
    """Seconds of the time limit of a run that has nodes: as granted, or less as soon as the spec says so.

    More than was granted it has only once an admission cycle has written that: others count on its end.
    """
    granted = status.admission.time_limit
    if granted is not None and status.admission.asked_limit == (spec.time_limit or ""):
        return granted
    allowed = limit_allowed(spec, limits)
    return min((limit for limit in (granted, allowed) if limit is not None), default=None)
