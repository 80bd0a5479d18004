"""The end of the pod, or of this node's part in the gang: what is left of the grace, and who trains on meanwhile."""

from __future__ import annotations

import time
from typing import Optional

from lockstep.worker.child.process import Child
from lockstep.worker.child.training import Training
from lockstep.worker.launchers import ray
from lockstep.worker.link.operator_view import OperatorView
from lockstep.worker.output import log_line
from lockstep.worker.settings import Settings

HELD_SECONDS = 5.0  # a new leader that does not know the run yet says Hold as well, for a moment
MARGIN_SECONDS = 5.0  # of the pod's grace, for the worker's own end


class Termination:
    """Used by the main thread only."""

    def __init__(self, settings: Settings, operator: OperatorView) -> None:
        self._settings = settings
        self._operator = operator
        self._end = 0.0  # monotonic
        self._drained_by = 0.0  # monotonic: Ray was told that this node is there until then
        self.leaving_by = 0.0  # unix seconds; 0: it was not told to leave

    @property
    def begun(self) -> bool:
        """The pod was told to end."""
        return self.leaving_by > 0

    def begin(self) -> None:
        """The pod is told to end. Once more is nothing new."""
        if not self.begun:
            left = self._whole_grace()
            self.leaving_by, self._end = time.time() + left, time.monotonic() + left
            log_line(f"asked to leave within {left:.0f} s")

    def begin_attempt(self) -> None:
        """What Ray was told was of the attempt before."""
        self._drained_by = 0.0

    def seconds_left(self) -> float:
        """Until this worker is to have left."""
        return max(0.0, self._end - time.monotonic())

    def stop_grace(self) -> float:
        """Seconds that the program gets to end by itself, once it is told to."""
        return min(self._operator.stop_grace(), self.seconds_left())

    def trains_until(self) -> Optional[float]:
        """When the program is told to end, in Unix seconds; None: the pod was not told to."""
        return self.leaving_by - self._last_grace() if self.begun else None

    def may_train_on(self, child: Child, training: Optional[Training]) -> bool:
        """The program listens, so the whole gang can save before this pod ends; there is time, and nobody says stop."""
        desired = self._operator.desired
        others_go_on = desired["phase"] == "Run" and desired["attempt"] <= child.attempt
        return training is not None and training.listens and others_go_on and self._has_time(child)

    def drain(self, child: Child, training: Optional[Training]) -> bool:
        """True: Ray goes on without this node. It is told until when the node is there, which has the time."""
        if not self._goes_on_without(child, training) or not self._has_time(child):
            return False
        until = self.leaving_by - self._last_grace()
        ray.tell_of_end(self._settings, child.attempt, until, "its pod is told to end")
        return True

    def drain_replaced(self, child: Child, training: Optional[Training]) -> bool:
        """True: another node takes its place, and Ray is told so first. Its pod is told to end as well, which may not
        be heard here."""
        if not self._goes_on_without(child, training) or child.kill_at:
            return False
        if not self._drained_by:
            left = max(0.0, self._whole_grace() - self._last_grace())
            self._drained_by = time.monotonic() + left
            ray.tell_of_end(self._settings, child.attempt, time.time() + left, "another node takes its place")
        return time.monotonic() < self._drained_by

    def _has_time(self, child: Child) -> bool:
        # The operator knows no such run: it was deleted, and nobody will ask for a save.
        held_since = self._operator.held_since
        let_go = held_since is not None and self._operator.contact - held_since >= HELD_SECONDS
        return time.monotonic() < self._end - self._last_grace() and not let_go and not child.kill_at

    def _goes_on_without(self, child: Child, training: Optional[Training]) -> bool:
        desired = self._operator.desired
        goes_on = desired["phase"] == "Run" or desired.get("superseded") is True
        is_told = ray.is_told_of_its_end(self._settings, training.rank if training is not None else 0)
        return is_told and goes_on and bool(desired["attempt"] <= child.attempt)

    def _whole_grace(self) -> float:
        """Seconds from SIGTERM until this worker is to have left."""
        grace = self._settings.termination_grace
        return grace - min(MARGIN_SECONDS, grace / 4)

    def _last_grace(self) -> float:
        """What the program gets of the pod's own grace to end, once it is told."""
        return min(self._operator.stop_grace(), self._settings.termination_grace / 2)
