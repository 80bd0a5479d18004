"""The time limit of a run, as its spec and its queue have it."""

from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import QueueLimits
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus


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
