"""The moments of a recovery, as the log and the metrics have them."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.reconcile.recoveries import Recoveries
from lockstep.controller.runtime.tallies import BUCKETS, Tallies
from lockstep.controller.runtime.tracing import Attributes, NoTracer, Phase
from lockstep.core.model.snapshot import Leadership, RunSnapshot, RunView
from lockstep.core.model.worker_report import ExitReport, WorkerPhase, WorkerReport
from support.manual_clock import ManualClock

START = {"assignmentHash": "h", "masterAddress": "10.0.0.1", "masterPort": 1}
T0 = 1000.0


def status(attempt: int, started: int, **more: Any) -> TrainingRunStatus:
    ended = [{"number": n, "endedAt": 1, "cause": "Application", "action": "RestartInPlace"} for n in range(1, attempt)]
    fields = {
        "attempt": attempt,
        "assignment": {"nodes": ["n0", "n1"], "incarnations": [1, 1]},
        "start": {"attempt": started, **START},
        "attempts": ended,
    }
    return TrainingRunStatus.model_validate(fields | more)


RUNNING, RECOVERING, AGAIN = status(1, 1), status(2, 1), status(2, 2)


class Site:
    """One run of two ranks, its workers and the operator's clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(now=T0)
        self.tallies = Tallies()
        self.workers = {slot: self._worker(slot, WorkerPhase.RUNNING, 1) for slot in (0, 1)}
        self.recoveries = Recoveries(self.clock, lambda uid: self.workers, self.tallies)
        self.status = RUNNING

    def _worker(self, slot: int, phase: WorkerPhase, attempt: int, **more: Any) -> WorkerReport:
        now = self.clock.now()
        return WorkerReport(slot, 1, f"pod-{slot}", f"n{slot}", phase, now, since=now, attempt=attempt, **more)

    async def says(self, at: float, slot: int, phase: WorkerPhase, attempt: int, **more: Any) -> None:
        await self.clock.advance(at - self.clock.now())
        self.workers[slot] = self._worker(slot, phase, attempt, **more)

    async def written(self, at: float, after: TrainingRunStatus) -> None:
        await self.clock.advance(at - self.clock.now())
        self.recoveries.status_written(self.run, after)
        self.status = after

    async def look(self, at: float) -> None:
        await self.clock.advance(at - self.clock.now())
        snapshot = RunSnapshot(self.run, (), self.workers, {}, Leadership(0.0))
        self.recoveries.observe(snapshot, due_since=at - 0.25)

    @property
    def run(self) -> RunView:
        return RunView("ns", "llama", "u1", 1, "1", 0.0, None, self.status)

    def seconds(self, action: str = "RestartInPlace") -> dict[str, float]:
        return {phase: h.total for (a, phase), h in self.tallies.recovery_seconds.items() if a == action}


@pytest.fixture
def site() -> Site:
    return Site()


async def recover_in_place(site: Site) -> None:
    await site.says(T0 + 10, 1, WorkerPhase.EXITED, 1, exit=ExitReport(1, at=T0 + 9.5, reason="Error"))
    await site.look(T0 + 10.5)
    await site.written(T0 + 11, RECOVERING)
    stopped = ExitReport(0, signal=15, at=T0 + 12, reason="StoppedForRestart")
    await site.says(T0 + 13, 0, WorkerPhase.READY, 1, exit=stopped, ready_for=2)
    await site.written(T0 + 14, AGAIN)
    await site.says(T0 + 15, 0, WorkerPhase.RUNNING, 2)
    await site.look(T0 + 16)
    await site.says(T0 + 17, 1, WorkerPhase.RUNNING, 2)
    await site.look(T0 + 18)


async def test_a_restart_in_place_is_timed_from_the_report_of_the_failure_to_the_last_rank(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="lockstep.recoveries"):
        await recover_in_place(site)
    assert site.seconds() == {"decide": 1.0, "stop": 1.0, "gather": 2.0, "start": 3.0, "total": 7.0}
    (line,) = [vars(record) for record in caplog.records]
    assert (line["attempt"], line["seconds"]) == (2, 7.0)
    moments = [line[name] - T0 for name in ("failure_reported_at", "start_written_at", "start_acknowledged_at")]
    assert moments == [10.0, 14.0, 17.0]


async def test_a_recovery_is_counted_once(site: Site) -> None:
    await recover_in_place(site)
    await site.look(T0 + 30)
    assert sum(site.tallies.recovery_seconds["RestartInPlace", "total"].counts) == 1
    assert site.tallies.recovery_seconds["RestartInPlace", "total"].counts[BUCKETS.index(10.0)] == 1


async def test_a_loss_counts_from_when_the_decision_was_due_whatever_failed_before(site: Site) -> None:
    replaced = status(2, 1, totals={"nodesReplaced": 1})
    await site.says(T0 + 3, 0, WorkerPhase.EXITED, 1, exit=ExitReport(1, reason="Error"))
    await site.look(T0 + 20)
    await site.written(T0 + 21, replaced)
    await site.written(T0 + 22, status(2, 2, totals={"nodesReplaced": 1}))
    for slot in (0, 1):
        await site.says(T0 + 23, slot, WorkerPhase.RUNNING, 2)
    await site.look(T0 + 24)
    assert site.seconds()["total"] == 23 - 19.75


async def test_a_rank_that_was_quick_to_end_again_has_started_all_the_same(site: Site) -> None:
    await site.written(T0 + 1, RECOVERING)
    await site.written(T0 + 2, AGAIN)
    await site.says(T0 + 3, 0, WorkerPhase.RUNNING, 2)
    await site.says(T0 + 4, 1, WorkerPhase.EXITED, 2, exit=ExitReport(1))
    await site.look(T0 + 5)
    assert site.seconds()["total"] == 3.0


async def test_what_ends_in_a_stop_is_no_recovery(site: Site) -> None:
    await site.written(T0 + 1, RECOVERING)
    await site.written(T0 + 2, status(2, 1, stop={"reason": "Cancelled", "time": 1, "deadline": 2}))
    await site.written(T0 + 3, AGAIN)
    for slot in (0, 1):
        await site.says(T0 + 4, slot, WorkerPhase.RUNNING, 2)
    await site.look(T0 + 5)
    assert not site.seconds()


async def test_a_recovery_that_began_under_another_leader_is_not_timed(site: Site) -> None:
    site.status = RECOVERING
    await site.written(T0 + 2, AGAIN)
    for slot in (0, 1):
        await site.says(T0 + 4, slot, WorkerPhase.RUNNING, 2)
    await site.look(T0 + 5)
    assert not site.seconds()


async def test_a_recovery_is_one_trace_with_its_phases(site: Site) -> None:
    traced = []

    class Kept(NoTracer):
        def past(self, name: str, attributes: Attributes, phases: Sequence[Phase]) -> None:
            traced.append((name, attributes, list(phases)))

    site.recoveries = Recoveries(site.clock, lambda uid: site.workers, site.tallies, Kept())
    await recover_in_place(site)
    ((name, attributes, phases),) = traced
    assert name == "recovery"
    assert attributes == {"run": "ns/llama", "attempt": 2, "cause": "Application", "action": "RestartInPlace"}
    assert [phase for phase, _, _ in phases] == ["decide", "stop", "gather", "start"]
    assert [until for _, _, until in phases[:-1]] == [since for _, since, _ in phases[1:]]
    assert (phases[0][1], phases[-1][2]) == (T0 + 10, T0 + 17)
