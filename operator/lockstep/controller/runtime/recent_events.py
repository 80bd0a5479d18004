"""What this process has lately said of each run, for the web page. The events themselves are the API server's."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lockstep.core.model.plan import Event

KEPT_OF_A_RUN = 40
MOST_RUNS = 1000


@dataclass(frozen=True, slots=True)
class Said:
    """An event, when it was said last, and how often in a row."""

    at: float
    type: str
    reason: str
    note: str
    count: int = 1


class RecentEvents:
    """The last 40 events of the 1000 runs that were spoken of last."""

    def __init__(self) -> None:
        self._said: OrderedDict[str, deque[Said]] = OrderedDict()

    def keep(self, run_uid: str, event: Event, at: float) -> None:
        """Remember ``event``; one that only repeats the last one counts up."""
        said = self._said.setdefault(run_uid, deque(maxlen=KEPT_OF_A_RUN))
        self._said.move_to_end(run_uid)
        last = said[-1] if said else None
        if last is not None and (last.type, last.reason, last.note) == (event.type, event.reason, event.note):
            said[-1] = replace(last, at=at, count=last.count + 1)
        else:
            said.append(Said(at, event.type, str(event.reason), event.note))
        if len(self._said) > MOST_RUNS:
            self._said.popitem(last=False)

    def of(self, run_uid: str) -> Sequence[Said]:
        """Oldest first."""
        return tuple(self._said.get(run_uid, ()))
