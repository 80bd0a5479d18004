"""Work queue of keys to reconcile, each at most once and never twice at a time.

Level-triggered: a key says *what* to reconcile, never what happened. Watch events, wake-ups and
retries all become keys here, so nothing else in the controller keeps timers.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable

from lockstep.controller.kube.errors import KubeError
from lockstep.controller.runtime.clock import Clock

CLUSTER_KEY = "cluster"
"""The key of the admission cycle."""

_log = logging.getLogger(__name__)


def run_key(namespace: str, name: str) -> str:
    """The key of one TrainingRun."""
    return f"run/{namespace}/{name}"


def set_key(namespace: str, name: str) -> str:
    """The key of one TrainingRunSet."""
    return f"set/{namespace}/{name}"


def split_set_key(key: str) -> tuple[str, str] | None:
    """Namespace and name of a set's key; None for any other key."""
    kind, *place = key.split("/")
    return (place[0], place[1]) if kind == "set" else None


def split_run_key(key: str) -> tuple[str, str]:
    """Namespace and name of a run's key. Raises ValueError for any other key."""
    kind, namespace, name = key.split("/")
    if kind != "run":
        raise ValueError(f"{key!r} is not the key of a run")
    return namespace, name


class WorkQueue:
    """Keys, deduplicated, serial per key; the cluster key goes first.

    A key added while it is being worked on comes again afterwards. A failed key comes again after
    an exponential delay, or at once when something about it changes.
    """

    def __init__(self, clock: Clock, *, backoff_base: float = 0.1, backoff_max: float = 60.0) -> None:
        self._clock = clock
        self._backoff_base = backoff_base
        self._backoff_max = backoff_max
        # Insertion order is arrival order; the value is the moment since when the key is due.
        self._due: dict[str, float] = {}
        self._working: dict[str, float] = {}
        self._again: set[str] = set()  # added while being worked on
        self._wakes: dict[str, float] = {}
        self._wake_heap: list[tuple[float, str]] = []  # may hold outdated entries; _wakes is the truth
        self._failures: dict[str, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: str) -> None:
        """Have ``key`` reconciled soon."""
        if key in self._working:
            self._again.add(key)
        else:
            self._make_due(key, self._clock.now())

    def clear(self) -> None:
        """Drop everything that waits: what a standby collected says nothing about when it was due."""
        for waiting in (self._due, self._again, self._wakes, self._failures):
            waiting.clear()
        self._wake_heap.clear()

    def wake_at(self, key: str, at: float) -> None:
        """Have ``key`` reconciled at ``at`` (Unix seconds). Of several moments the earliest counts.

        The wake-up is dropped when the key is reconciled before: that reconcile asks for the next one.
        """
        if at < self._wakes.get(key, float("inf")):
            self._wakes[key] = at
            heapq.heappush(self._wake_heap, (at, key))
            self._changed.set()

    async def get(self) -> str:
        """Wait for the next due key and mark it as being worked on; ``done`` must follow."""
        while (key := self._take()) is None:
            self._changed.clear()
            until = self._next_wake()
            await self._clock.wait(self._changed, None if until is None else until - self._clock.now())
        return key

    def done(self, key: str, *, failed: bool = False) -> None:
        """Say that the work on ``key`` ended; a failed key is retried after its back-off."""
        del self._working[key]
        if failed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            # The exponent is bounded because 2.0 ** failures overflows after a long outage.
            delay = min(self._backoff_max, self._backoff_base * 2.0 ** min(failures - 1, 30))
            self.wake_at(key, self._clock.now() + delay)
        else:
            self._failures.pop(key, None)
        if key in self._again:
            self._again.remove(key)
            self._make_due(key, self._clock.now())

    async def run(self, work: Callable[[str], Awaitable[None]], workers: int) -> None:
        """Work on keys with ``workers`` tasks until cancelled. An exception of ``work`` is a failure of that key.

        So is that of a write which came too late for the lease: whether the lease is lost, its next renewal says.
        """

        async def worker() -> None:
            while True:
                key = await self.get()
                failed = True
                try:
                    await work(key)
                    failed = False
                except Exception as error:
                    # What the API server says needs no traceback; anything else is a bug and does.
                    trace = not isinstance(error, KubeError)
                    _log.warning("work on %s failed and will be retried: %s", key, error, exc_info=trace)
                finally:
                    self.done(key, failed=failed)
                await asyncio.sleep(0)  # work that never waits must not keep everybody else from theirs

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(worker())

    def due_since(self, key: str) -> float:
        """Since when a key that is being worked on had been due (Unix seconds); now for any other."""
        return self._working.get(key, self._clock.now())

    def __len__(self) -> int:
        """Keys that are due and wait for a worker."""
        return len(self._due)

    @property
    def failing(self) -> int:
        """Keys whose last pass failed."""
        return len(self._failures)

    def oldest_due_age(self) -> float:
        """Seconds since the oldest key became due that is not done yet, work under way included."""
        now = self._clock.now()
        due = [*self._due.values(), *self._working.values()]
        # A wake-up that has passed counts too: were no worker left, nobody would move it to the due keys.
        due += [at for key, at in self._wakes.items() if at <= now and key not in self._working]
        return max((now - since for since in due), default=0.0)

    def _make_due(self, key: str, since: float) -> None:
        self._due.setdefault(key, since)
        self._changed.set()

    def _take(self) -> str | None:
        """The next due key that is not being worked on."""
        self._collect_wakes()
        if not self._due:
            return None
        key = CLUSTER_KEY if CLUSTER_KEY in self._due else next(iter(self._due))
        self._working[key] = self._due.pop(key)
        self._wakes.pop(key, None)
        return key

    def _collect_wakes(self) -> None:
        now = self._clock.now()
        while self._wake_heap and self._wake_heap[0][0] <= now:
            at, key = heapq.heappop(self._wake_heap)
            if self._wakes.get(key) != at:
                continue  # superseded by an earlier one, or dropped
            del self._wakes[key]
            if key in self._working:
                self._again.add(key)
            else:
                self._make_due(key, at)

    def _next_wake(self) -> float | None:
        while self._wake_heap and self._wakes.get(self._wake_heap[0][1]) != self._wake_heap[0][0]:
            heapq.heappop(self._wake_heap)
        return self._wake_heap[0][0] if self._wake_heap else None
