"""How long recoveries take, from the failure that a worker reports to the last rank that runs again.

Measured where words arrive, on this process's clock; the moments of one recovery are one line of the log,
their differences ``lockstep_recovery_seconds``. A recovery that began under another leader is not measured:
nobody here knows when.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.runtime.tracing import Attributes, NoTracer, Tracer
from lockstep.core.model.assignment import slot_ranks
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.snapshot import RunSnapshot, RunView
from lockstep.core.model.worker_report import WorkerPhase, WorkerReport

log = logging.getLogger("lockstep.recoveries")

_STARTED = (WorkerPhase.RUNNING, WorkerPhase.STOPPING, WorkerPhase.EXITED)


@dataclass(slots=True)
class _Recovery:
    """One under way. Moments in Unix seconds; 0.0: not there yet."""

    failed: int  # the attempt that ended
    attempt: int  # the one that is to follow
    cause: str
    reported_at: float  # the first bad exit was heard of, or the loss established
    decided_at: float  # the end of the attempt was in status
    stopped_at: float = 0.0  # the last process of the attempt was gone
    written_at: float = 0.0  # START was in status


class Recoveries:
    """Follows each run's recovery. ``reports`` gives what a run's workers said last."""

    def __init__(
        self,
        clock: Clock,
        reports: Callable[[str], Mapping[int, WorkerReport]],
        tallies: Tallies,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer or NoTracer()
        self._clock = clock
        self._reports = reports
        self._tallies = tallies
        self._under_way: dict[str, _Recovery] = {}
        self._due_since: dict[str, float] = {}

    def observe(self, snapshot: RunSnapshot, due_since: float) -> None:
        """Before each decision on a run: it has been due for one since ``due_since``."""
        run = snapshot.run
        self._due_since[run.uid] = due_since
        recovery = self._under_way.get(run.uid)
        if recovery is None or not recovery.written_at:
            return
        acknowledged = _acknowledged_at(snapshot.reports, run.status, recovery.attempt)
        if acknowledged is not None:
            del self._under_way[run.uid]
            self._tell(run, recovery, acknowledged)

    def status_written(self, run: RunView, after: TrainingRunStatus) -> None:
        """``after`` has taken the place of the run's status."""
        now = self._clock.now()
        phase = phase_of(after, False)
        if phase not in (Phase.RUNNING, Phase.RECOVERING):
            self._under_way.pop(run.uid, None)
            return
        if phase is Phase.RECOVERING and phase_of(run.status, False) is Phase.RUNNING:
            self._begin(run, after, now)
        recovery = self._under_way.get(run.uid)
        if recovery is None:
            return
        recovery.attempt = after.attempt
        if phase is Phase.RUNNING and not recovery.written_at:
            recovery.written_at = now
            ends = [
                report.exit.at
                for report in self._reports(run.uid).values()
                if report.exit is not None and report.attempt == recovery.failed
            ]
            recovery.stopped_at = min(now, max([recovery.decided_at, *ends]))

    def forget(self, run_uid: str) -> None:
        """The run is gone, or holds no nodes any more."""
        self._under_way.pop(run_uid, None)
        self._due_since.pop(run_uid, None)

    def _begin(self, run: RunView, after: TrainingRunStatus, now: float) -> None:
        ended = _entry(after, run.status.attempt)
        if ended is None:
            return
        reported_at = self._due_since.get(run.uid, now)
        if _replaced(after) == _replaced(run.status):  # a process failed, or somebody asked for it
            heard = [report.since for report in self._reports(run.uid).values() if _failed(report, ended.number)]
            reported_at = min(heard, default=reported_at)
        self._under_way[run.uid] = _Recovery(ended.number, after.attempt, ended.cause, min(reported_at, now), now)

    def _tell(self, run: RunView, recovery: _Recovery, acknowledged_at: float) -> None:
        ended = _entry(run.status, recovery.failed)
        action = ended.action if ended is not None else ""
        moments = (recovery.reported_at, recovery.decided_at, recovery.stopped_at, recovery.written_at, acknowledged_at)
        spans = list(zip(("decide", "stop", "gather", "start"), moments, moments[1:], strict=False))
        phases = {phase: until - since for phase, since, until in spans}
        seconds = acknowledged_at - recovery.reported_at
        of_span: Attributes = {"run": run.key, "attempt": recovery.attempt, "cause": recovery.cause, "action": action}
        self._tracer.past("recovery", of_span, spans)
        self._tallies.recovered(action, {**phases, "total": seconds})
        log.info(
            "all ranks run again",
            extra={
                "run": run.key,
                "uid": run.uid,
                "attempt": recovery.attempt,
                "cause": recovery.cause,
                "action": action,
                "failure_reported_at": round(recovery.reported_at, 4),
                "start_written_at": round(recovery.written_at, 4),
                "start_acknowledged_at": round(acknowledged_at, 4),
                "seconds": round(seconds, 4),
                "phases": {name: round(value, 4) for name, value in phases.items()},
            },
        )


def _entry(status: TrainingRunStatus, attempt: int) -> AttemptStatus | None:
    return next((entry for entry in status.attempts if entry.number == attempt), None)


def _replaced(status: TrainingRunStatus) -> int:
    return status.totals.nodes_replaced + status.totals.pods_replaced


def _failed(report: WorkerReport, attempt: int) -> bool:
    exited = report.phase is WorkerPhase.EXITED and report.attempt == attempt
    return exited and report.exit is not None and not report.exit.succeeded


def _acknowledged_at(reports: Mapping[int, WorkerReport], status: TrainingRunStatus, attempt: int) -> float | None:
    """When the last rank said that it runs ``attempt``, or has run it; None while one has not."""
    last = 0.0
    for slot, rank in enumerate(slot_ranks(status.assignment)):
        if rank < 0:
            continue
        report = reports.get(slot)
        if report is None or report.attempt != attempt or report.phase not in _STARTED:
            return None
        last = max(last, report.since)
    return last
