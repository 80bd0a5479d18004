"""A world whose operator may die instead of any write of status, and start again."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.conditions import is_true
from lockstep.core.model.plan import Plan, StatusWrite
from lockstep.core.model.reasons import ConditionType
from support.world import World


class DiedError(Exception):
    """The operator's process ends here."""


@dataclass
class DyingWorld(World):
    """Whoever checks writes does so in ``_written``."""

    dies_in: int | None = None
    """How many writes of status are carried out before it dies; None: it does not."""

    def _write_status(self, name: str, status: TrainingRunStatus) -> None:
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.dies_in = None
                raise DiedError
        before = self.status(name)
        super()._write_status(name, status)
        self._written(name, before)

    def _written(self, name: str, before: TrainingRunStatus) -> None:
        """The status of ``name`` was ``before``, and is now what is to be checked."""

    def reconcile(self, name: str, *, crash_after: int | None = None) -> Plan:
        try:
            return super().reconcile(name, crash_after=crash_after)
        except DiedError:
            self.crash()
            return Plan()

    def admit(self, *, crash_after: int | None = None) -> tuple[StatusWrite, ...]:
        try:
            return super().admit(crash_after=crash_after)
        except DiedError:
            self.crash()
            return ()

    def holding(self) -> dict[str, list[str]]:
        """The nodes of every run that has not ended."""
        return {
            name: [each for each in view.status.assignment.nodes if each]
            for name, view in self.runs.items()
            if not is_true(view.status, ConditionType.FINISHED)
        }

    def check_bookings(self) -> None:
        """No node is anybody's twice."""
        booked = [each for nodes in self.holding().values() for each in nodes]
        assert len(booked) == len(set(booked)), "a node is booked twice"
