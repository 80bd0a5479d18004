"""Whether everybody is at the barrier, or past it: judged of each worker's report, for whoever has to know.

``decide`` asks it of all ranks before it writes START. Between two decisions the operator asks it of each report that
comes in, so that the last one brings a decision at once and the others bring none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lockstep.core.model.plan import DesiredPhase, Directive, VerifyRequest
from lockstep.core.model.worker_report import WorkerPhase, WorkerReport

START_TOGETHER_WITHIN = 0.5
"""Seconds that a program is held back at most, until every rank has heard of START."""
START_REMEMBERED = 0.8
"""What counts of how long an earlier START took, where a later one took less: one that went well is no promise."""


def stands_ready(report: WorkerReport, attempt: int | None, *, takes_steps: bool) -> bool:
    """The worker is at the barrier of the attempt (None: of any), and says where it takes steps if its gang does."""
    if report.phase is not WorkerPhase.READY or attempt not in (None, report.ready_for):
        return False
    return report.steps_port > 0 or not takes_steps


def is_present(report: WorkerReport | None, now: float, heartbeat: float) -> bool:
    """An arrival counts only while its poll is alive."""
    return report is not None and (report.polling or now - report.received_at <= heartbeat)


def has_read(report: WorkerReport, wanted: VerifyRequest | None) -> bool:
    """The worker has read its share of the candidate, if one is to be read."""
    return wanted is None or any((v.tier, v.path) == (wanted.tier, wanted.path) for v in report.verified)


def slots_wanted(directive: Directive) -> Iterable[int]:
    """The slots that a decision waits for: all on the way to the barrier, the ranks on the way past it."""
    if directive.phase is DesiredPhase.PREPARE:
        return range(len(directive.incarnations))
    if directive.phase is DesiredPhase.RUN:
        return (slot for slot, rank in enumerate(directive.slot_ranks) if rank >= 0 and slot not in directive.joining)
    return ()


def is_where_wanted(report: WorkerReport, directive: Directive) -> bool:
    """Past START, or at the barrier that is asked for, with all done that is asked for there."""
    if directive.phase is DesiredPhase.RUN:
        return report.attempt == directive.attempt
    is_the_one = report.incarnation == directive.incarnations[report.slot]
    stands = stands_ready(report, directive.attempt, takes_steps=directive.takes_steps)
    has_looked = report.slot not in directive.look_again or report.looked_again == directive.attempt
    return is_the_one and stands and has_looked and has_read(report, directive.verify)


def is_release(before: Directive | None, directive: Directive) -> bool:
    """The gang gets START now, and has not before."""
    return before is not None and before.phase is DesiredPhase.PREPARE and directive.phase is DesiredPhase.RUN


@dataclass(frozen=True, slots=True)
class StartPace:
    """How long it took of late until every rank had heard of START: so long a program is held back, to begin together
    with its peers."""

    told_at: float | None = None  # while not all have acknowledged it
    took: float = 0.0  # seconds

    @property
    def held_back(self) -> float:
        """Seconds for which a program is held back after START."""
        return min(START_TOGETHER_WITHIN, self.took)

    def directed(self, directive: Directive, before: Directive | None, now: float) -> "StartPace":
        """The gang gets a new directive."""
        if directive.phase is not DesiredPhase.RUN:
            return replace(self, told_at=None)
        return replace(self, told_at=now) if is_release(before, directive) else self

    def heard_by_all(self, at: float) -> "StartPace":
        """The last rank has acknowledged its directive."""
        if self.told_at is None:
            return self
        return StartPace(took=max(at - self.told_at, START_REMEMBERED * self.took))
