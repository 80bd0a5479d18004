"""Recent events of each run, for the web page. The events themselves are the API server's."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lockstep.core.model.plan import Event

KEPT_OF_A_RUN = 40
MOST_RUNS = 1000


@dataclass(frozen=True, slots=True)
class RecentEvent:
    """An event, when it was said last, and how often in a row."""

    at: float
    type: str
    reason: str
    note: str
    count: int = 1


class RecentEvents:
    """The last 40 events of the 1000 runs that were spoken of last."""

    def __init__(self) -> None:
        self._events: OrderedDict[str, deque[RecentEvent]] = OrderedDict()

    def keep(self, run_uid: str, event: Event, at: float) -> None:
        """Remember ``event``; one that only repeats the last one counts up."""
        events = self._events.setdefault(run_uid, deque(maxlen=KEPT_OF_A_RUN))
        self._events.move_to_end(run_uid)
        last = events[-1] if events else None
        if last is not None and (last.type, last.reason, last.note) == (event.type, event.reason, event.note):
            events[-1] = replace(last, at=at, count=last.count + 1)
        else:
            events.append(RecentEvent(at, event.type, str(event.reason), event.note))
        if len(self._events) > MOST_RUNS:
            self._events.popitem(last=False)

    def for_run(self, run_uid: str) -> Sequence[RecentEvent]:
        """Oldest first."""
        return tuple(self._events.get(run_uid, ()))
