"""Writes the queue status of pending runs beside admission cycles, as no other decision rests on it.

A cycle that waited for them would leave free nodes idle meanwhile. A few are on their way at a time; what a newer cycle
has to say takes the place of what was not sent yet, so nothing piles up however slow the API server is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from lockstep.api.base.changes import changed
from lockstep.controller.store.writes_under_way import WritesUnderWay
from lockstep.core.model.plan import StatusWrite
from lockstep.core.model.snapshot import RunView

log = logging.getLogger("lockstep.execute")

AT_A_TIME = 4
"""Of the writes that the API server has from us at once; the others are for admissions."""


def is_queue_status(write: StatusWrite, run: RunView | None) -> bool:
    """All that ``write`` changes of ``run`` is its pending reason, and since when it is pending."""
    if run is None or write.nodes or write.config_maps or write.events:
        return False
    before, after = run.status, write.status
    for field in type(after).model_fields:
        if field not in ("queue", "admission") and getattr(before, field) is not getattr(after, field):
            return False
    since, first_estimate = after.admission.since, after.admission.first_estimate
    return changed(before.admission, since=since, first_estimate=first_estimate) == after.admission


class QueueStatusWriter:
    """``send`` writes one and says whether its outcome is known; ``failed`` hears of what keeps all of them from being
    written, and of those that are left then none is."""

    def __init__(
        self, under_way: WritesUnderWay, send: Callable[[StatusWrite], Awaitable[bool]], failed: Callable[[], None]
    ) -> None:
        self._under_way = under_way
        self._send = send
        self._failed = failed
        self._left: deque[StatusWrite] = deque()
        self._saying = 0
        self.tasks: set[asyncio.Task[None]] = set()
        """Those that say them."""

    def send(self, words: Sequence[StatusWrite]) -> None:
        """From now on these are to be said, and no others."""
        self._left = deque(words)
        for _ in range(min(len(words), AT_A_TIME) - self._saying):
            self._saying += 1
            task = asyncio.create_task(self._say())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _say(self) -> None:
        while self._left:
            write = self._left.popleft()
            if self._under_way.is_under_way(write.uid) or self._under_way.is_reporting(write.uid):
                continue
            self._under_way.begin_report(write.uid)
            try:
                if not await self._send(write):
                    self._under_way.book(write.uid, ())  # until its outcome is known
            except Exception as error:
                log.warning("what %s/%s waits for was not written: %s", write.namespace, write.name, error)
                self._left.clear()
                self._under_way.hold_up(write.uid)
                self._failed()
            finally:
                self._under_way.end_report(write.uid)
        self._saying -= 1
