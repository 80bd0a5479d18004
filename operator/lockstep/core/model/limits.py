"""The time limit of a run, as its spec and its queue have it."""

from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import QueueLimits
from lockstep.api.run_spec import TrainingRunSpec


def asked_limit(spec: TrainingRunSpec, limits: QueueLimits) -> int | None:
    """Seconds of the time limit that the spec, or else its queue, asks for; None: there is none."""
    asked = spec.time_limit or limits.default_time_limit
    return None if asked is None else parse_duration(asked)


def limit_allowed(spec: TrainingRunSpec, limits: QueueLimits) -> int | None:
    """The same, as far as its queue allows it."""
    asked = asked_limit(spec, limits)
    longest = limits.max_time_limit
    return asked if asked is None or longest is None else min(asked, parse_duration(longest))
