"""Writes that admission cycles wait for: on their way, or with an outcome that nobody knows yet."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue


class WritesUnderWay:
    """Nobody else gets nodes that are being written. ``assumed`` is called with the UID of a run whose status cycles
    take for another from now on."""

    def __init__(self, queue: WorkQueue, assumed: Callable[[str], None]) -> None:
        self._queue = queue
        self._assumption_changed = assumed
        self._in_flight: dict[str, frozenset[str]] = {}
        self._assumed: dict[str, TrainingRunStatus] = {}
        self._reporting: set[str] = set()
        self._held_up: set[str] = set()
        self._unanswered: set[str] = set()
        self.in_flight: Mapping[str, frozenset[str]] = MappingProxyType(self._in_flight)
        """Run UID to the nodes that are booked for it."""

    def book(self, run_uid: str, nodes: Iterable[str]) -> None:
        """Book the nodes of a write that is about to be sent."""
        self._in_flight[run_uid] = frozenset(nodes)

    def release(self, run_uid: str, *, reschedule: bool = True) -> None:
        """The result of the write has been taken in, or it was refused."""
        if self._in_flight.pop(run_uid, None) is not None and reschedule:
            self._queue.add(CLUSTER_KEY)

    def assume(self, run_uid: str, status: TrainingRunStatus) -> None:
        """Have admission cycles take a run's status for written that is about to be sent."""
        self._assumed[run_uid] = status
        self._assumption_changed(run_uid)

    def drop_assumption(self, run_uid: str) -> None:
        """The result of the write has been taken in, or it was refused: what is known counts again."""
        if self._assumed.pop(run_uid, None) is not None:
            self._assumption_changed(run_uid)
            self._queue.add(CLUSTER_KEY)

    def assumed(self, run_uid: str) -> TrainingRunStatus | None:
        """The status that cycles take for written."""
        return self._assumed.get(run_uid)

    def is_under_way(self, run_uid: str) -> bool:
        """A write of an admission cycle is under way for this run, or its outcome is not known yet."""
        return run_uid in self._assumed or run_uid in self._in_flight

    def begin_report(self, run_uid: str) -> None:
        """The run's pending reason is being written. That changes nothing for any other run."""
        self._reporting.add(run_uid)

    def end_report(self, run_uid: str) -> None:
        """The result of that has been taken in, or it was refused."""
        self._reporting.discard(run_uid)
        if run_uid in self._held_up:
            self._held_up.discard(run_uid)
            self._queue.add(CLUSTER_KEY)

    def is_reporting(self, run_uid: str) -> bool:
        """The run's pending reason is being written: nothing else may be written of it meanwhile."""
        return run_uid in self._reporting

    def hold_up(self, run_uid: str) -> None:
        """A cycle has something else to write of the run, which another cycle is to do once that is written."""
        self._held_up.add(run_uid)

    def note_unanswered(self, run_uid: str) -> None:
        """What cycles read of the run may have been written, or not: they are to see the next that is heard of it."""
        self._unanswered.add(run_uid)

    def hear_of(self, run_uid: str) -> None:
        """The run has changed."""
        if run_uid in self._unanswered:
            self._unanswered.discard(run_uid)
            self._queue.add(CLUSTER_KEY)
